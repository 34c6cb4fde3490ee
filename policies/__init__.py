"""Policies: the rules that refuse requests. Only a policy that an operator has switched on refuses a client.

A policy gets a request and a view of its group, and returns a verdict. A policy does no I/O and keeps no state.

- `policy`, `verdicts`: the base class of policies, and the verdicts
- `all_policies`: the list of policies
- `active_policies`: the policies in force
- `group_max_size`, `offset_metadata_max_bytes`: the policies
- `patterns`: regular expressions on group ids
"""
