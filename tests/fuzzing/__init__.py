"""Coverage-guided fuzzing with atheris, and a replay of the kept inputs that needs no atheris.

`python -m tests.fuzzing [TARGET ...] --seconds 60` fuzzes. Each target is a module with two functions: `seeds` returns
inputs to start from, and `check` runs one input and raises if an invariant does not hold.

- `__main__`: the command line; runs each target in a process of its own
- `fuzzing_process`: that process; runs Python sources under atheris
- `other_build`: a second process that runs the compiled modules, so that both results can be compared
- `target`, `all_targets`: the class of targets, and the list of targets
- `input_bytes`: takes numbers and pieces from an input
- `log_lines`: collects the errors that the sidecar logs
- `sessions`, `session_scripts`: both directions of a client connection, with the real dispatcher
- `messages`: every decoder of `codecs/messages`
- `scans`: headers, addresses in replies, ends of replies
- `record_batches`, `compressed_data`: record batches and compressions
- `offsets_topic`: keys and values of `__consumer_offsets`
- `offsets_log`: any records of `__consumer_offsets`, merged into the copy of the coordinator
- `proxy_headers`, `client_hellos`, `tls_records`: the bytes before the first Kafka request on a connection
- `configuration`: files for `group-sidecar check-config`
- `admin_http`: the admin port's HTTP
- `journal_lines`: lines of the journal
- `sanitized`: runs tests under AddressSanitizer and UndefinedBehaviorSanitizer
- `corpus/`: kept inputs, one folder per target; each of them once showed a defect
"""
