"""Checks on real brokers under faults that committed offsets are linearizable, and that no acknowledged record is lost.

``python -m tests.linearizability --seconds 60 --seed 1`` runs three brokers with three sidecars (docs/reliability.md).

- `history`: operations of clients, and the files with them
- `checker`: runs Porcupine; its model is in the folder of the same name
- `connections`, `offsets_client`, `transactions`, `librdkafka_offsets`: clients that commit, read and delete offsets
- `members`: members of groups, and which generations break a rule
- `record_clients`, `record_check`: producers and consumers, and which records were lost
- `worker`: a process with clients
- `fault_proxy`: cuts and freezes connections, and returns old answers
- `installation`: the brokers, the sidecars and the proxies
- `admin_requests`: moves the leaders of `__consumer_offsets`
- `schedule`: chooses the faults and their times
- `injector`: causes the faults
- `failovers`: stale answers that Kafka itself gives
- `run`: puts a run together
- `report`: the results of a run
"""
