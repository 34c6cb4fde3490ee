"""How events change groups, and which facts follow.

- `apply`: changes a group by an event, with the rule of each kind of event
- `internal_events`: events of a group that no request shows, such as records of the log
- `joins`, `membership`: JoinGroup outcomes, and the other requests of classic members
- `session_timeouts`: when a silent member's session has expired
- `consumer_members`: the heartbeats of KIP-848 members
- `descriptions`: the broker's descriptions of groups
- `commits`: commits, transactions and deletions of offsets
- `bypasses`: commits and members of the log whose requests did not pass the sidecar
- `group_existence`: groups that the broker listed, deleted or handed to another broker
- `log_records`: how a record of the offsets topic changes a group
- `consumer_rebalances`: rebalances of groups of the consumer protocol (KIP-848), found by comparing two views
- `causes`: why a rebalance began
- `followed_log`: the interface through which rules call the reader of `__consumer_offsets`
- `fact_builder`, `partition_moves`: the facts about members, rebalances and moved partitions
- `excess_members`: which members to remove from a group over its size limit
"""
