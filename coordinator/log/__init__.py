"""Merges the records of ``__consumer_offsets`` into the groups.

- `follower`: applies the records of each group, and reconciles them with newer events from the wire
- `consumer_groups`: builds the view of a consumer, share or streams group from its records
"""
