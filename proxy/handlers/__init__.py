"""Decides the outcome of each request and reply of a broker's clients.

The session calls this package and gets an outcome. The package uses neither trio nor sockets.

- `dispatcher`: classifies requests and replies, and calls the handler of their API
- `api_table`: maps each API to its handler; `api_handler` has the base classes

Handlers, each with the pending replies that it creates:

- `group_requests`: requests about groups; `pending_exchange` handles the replies
- `fetches`, `rule_changes`, `sasl`: Fetch; requests that may change clients' rights; SASL handshakes and tokens
- `unread_apis`: other requests that change groups or offsets; `undecoded_writes` handles the replies
- `rewritten_replies`, `find_coordinator`: requests that are forwarded unread; their replies are changed

What the handlers use:

- `observer`: applies requests and replies to the copy of the coordinator
- `local_answers`: decides the route of a question, to the copy or to the broker
- `fallback_reasons`: the reason why the copy may not answer a question
- `reply_builder`, `reply_cache`: encodes a local answer; keeps encoded answers
- `broker_questions`: forwards or translates a question that the broker answers
- `decode_limits`: limits the elements of a decoded message, and the size of an answer
- `enforcement`: asks the policies; `error_replies` builds a refusal, `partial_commit` removes refused partitions
- `group_read_access`: asks the broker whether a joining client may read its group
- `broker_refusals`: counts refusals by the broker itself, by policy
- `relay`, `injected_requests`: send requests of the sidecar on a client's own connection
- `version_translation`, `offset_fetch_translation`: translate questions in versions that the broker lacks
- `kip40_group_metadata`: answers the GroupMetadata request of KIP-40's draft
- `api_versions`: builds the ApiVersions reply that clients get; `reply_rewriter` changes the other replies
- `disconnect`: logs and returns the `HangUp` for a frame that must not pass
"""
