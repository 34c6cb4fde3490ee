"""A deterministic simulation of the real sidecar, on a virtual clock and a simulated network (docs/reliability.md).

- `virtual_time`: the clock, and everything else that must be the same in two runs of one seed
- `timeline`: the events in the order of their virtual time, the trace, and `Violation`
- `network`: delays, cuts and closes connections
- `sidecar_host`: runs the product in the simulated network
- `kafka`, `broker_connection`, `group_replies`, `topic_replies`, `offsets_log`: the model broker
- `history`: the states that the broker had
- `client`, `members`, `others`, `questions`: the clients
- `checker`: compares replies with what the broker could have answered
- `scenario`: chooses the settings, the clients and the kinds of faults of a run from its seed
- `faults`: injects faults
- `world`: puts a run together
- `run`: runs one seed
- `minimise`: makes a failing run smaller
- `mutants`: plants the bugs of `planted_bugs.toml`
"""
