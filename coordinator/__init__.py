"""The copy of the broker's group coordinator (Kafka's GroupMetadataManager).

Sans-IO: events go in, views and facts come out, and time is an argument. This room knows the
codecs' messages; it does not know sockets, policies, metrics or clocks.

- `events` and `facts`: what happened, as told to the copy and as told by it
- `exchange`, `wire`, `wire_groups`, `wire_offsets`: a request and its reply to events
- `groups`, `members`, `offsets`, `partitions`: one group, its members, its offsets, which partition holds it
- `membership`, `joining`, `telling`: what events do to a group, joins above all, and the facts that come of it
- `manager`, `pasts`: all groups of one broker, and what is lacking to answer for them
- `views`, `answers`: read-only state, and replies made of it
"""
