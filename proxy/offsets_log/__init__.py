"""Reads the partitions of ``__consumer_offsets`` that the broker leads.

- `tail`: the connections, when to reconnect, and what is logged when the topic cannot be read
- `partition_reader`: which partitions are read, from which offset, and how a Fetch reply is handled
"""
