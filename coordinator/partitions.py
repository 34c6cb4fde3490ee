"""Which partition of `__consumer_offsets` holds a group.

Owns: the mapping from group id to partition (Kafka's GroupMetadataManager.partitionFor). Must not
know: who leads a partition.
"""

DEFAULT_PARTITIONS = 50
"""`offsets.topic.num.partitions`."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, wrapped to 32 bits, signed."""
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partitions: int = DEFAULT_PARTITIONS) -> int:
    """The partition of a group. Kafka's Utils.abs makes 0 of the one hash that has no positive twin."""
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
