"""The copy of the broker's group coordinator (Kafka's GroupMetadataManager).

The package does no I/O and reads no clock. Callers pass events and the current time in, and get facts and views back.
The package imports the codecs, but no sockets, policies or metrics.

- `model/`: the events that change the copy, the facts that it reports, and read-only views of its state
- `state/`: groups, members, offsets and log partitions, and why a group's copy may not be used to answer
- `rules/`: how an event changes a group, and which facts follow from the change
- `wire/`: turns a request and its reply into events
- `log/`: merges the records of ``__consumer_offsets`` into the groups
- `answers/`: builds replies from views
- `manager`: all groups of one broker; the entry point for events, views and completeness
- `answer_requirements`: which part of the copy must be complete before a request can be answered
"""
