"""The immutable values that enter and leave the copy of the coordinator.

- `events`: what happened to a group, as the wire or the log reports it
- `facts`: what the copy reports to metrics, journal and flight recorder
- `views`: read-only state of groups, members and offsets
- `state_transitions`: the states of a group and the transitions between them
"""
