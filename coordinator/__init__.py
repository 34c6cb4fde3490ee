"""The copy of the broker's group coordinator (Kafka's GroupMetadataManager).

Sans-IO: events go in, views and facts come out, and time is an argument. This room knows the
codecs' messages; it does not know sockets, policies, metrics or clocks.

- `events` and `facts`: what happened, as told to the copy and as told by it
- `wire`: a request and its reply to events
- `groups`, `offsets`, `partitions`: the state of one group, its offsets, which partition holds it
- `manager`: all groups of one broker, and what is lacking to answer for them
- `views`, `answers`: read-only state, and replies made of it
"""
