"""Turns requests and their replies into events.

- `exchange`: one request with its reply, and the events that several APIs share
- `exchange_events`: the table of APIs; calls the function that turns an exchange of an API into events
- `group_apis`: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ListGroups, DescribeGroups, DeleteGroups and others
- `offset_apis`: OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit, EndTxn, ListOffsets and Fetch
"""
