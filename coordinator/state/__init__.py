"""The state of the copy: groups, their members and offsets, and the partitions of ``__consumer_offsets``.

- `group`: one group, which owns the parts below
- `lifecycle`: the state and the generation of a group
- `logged_state`: the content of the log about a group, apart from its offsets
- `roster`, `member`: the members of a group, and one of them
- `rebalance`, `rebalance_tracking`: a rebalance in progress, and the counts that are kept until it ends
- `expired_clients`: the clients that may come back after their members' sessions have expired
- `group_offsets`, `committed_offsets`: the offsets of one group, from the log and from the wire
- `group_cache`, `former_groups`, `moved_groups`: all groups of one broker, the groups whose state was forgotten, and
  those whose partition has moved
- `group_size`, `pending_joins`, `unlogged_members`: how many members count towards a group's size limit, with joins in
  flight
- `completeness`: why the copy of a group's members is not complete
- `confidence`: why the copy of a group may not be used to answer
- `unread_writes`, `unseen_history`: writes that could not be decoded, and groups whose history was not observed
- `exclusivity`: whether all clients reach the broker through this sidecar
- `log_partitions`, `partition_log`, `logged_group`: which partition stores a group, and the surviving records of one
  partition and of one group
- `awaited_tombstones`, `log_bounds`: deletions whose tombstones were not read yet, and where partitions begin and end
- `client_hosts`: the true hosts of members, in place of the sidecar's address, and their principals
- `metadata_budget`, `bounded_ids`, `bounded_table`: limits on the memory that clients can make the copy use
"""
