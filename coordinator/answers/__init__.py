"""Builds replies from views. `answer_requirements` decides whether a request may be answered from the copy.

- `list_groups`: replies to ListGroups, kept encoded and updated as groups change
- `group_replies`: replies to DescribeGroups and OffsetFetch
- `consumer_group_describe`: replies to ConsumerGroupDescribe
- `kip40_group_metadata`: replies to the GroupMetadata request of KIP-40's draft
- `true_hosts`: replies of the broker with the true hosts of members, in place of the sidecar's address
- `encoded_offsets`, `repeated_lookup`: large OffsetFetch replies, kept encoded in parts
"""
