"""Reads the partitions of ``__consumer_offsets`` that the broker leads.

- `tail`: the connections, the reconnects, and the log lines about a topic that cannot be read
- `partition_reader`: selects the partitions and offsets to read, and handles each Fetch reply
"""
