"""Tests which partition of the offsets topic stores a group. The expected values come from a JVM."""

import pytest

from group_sidecar.coordinator.state.log_partitions import java_hash, partition_for


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("g", 3),
        ("group1", 40),
        ("my-group", 12),
        ("console-consumer-12345", 6),
        ("polygenelubricants", 0),
        ("日本語", 43),
        ("😀", 49),
        ("", 0),
    ],
)
def test_partition_for(group: str, partition: int) -> None:
    """partition_for returns the same partition as Kafka in a JVM."""
    assert partition_for(group, 50) == partition


def test_minimum_hash_has_no_positive() -> None:
    """java_hash returns -2^31 for a name with this hash, the only negative number without a positive counterpart."""
    assert java_hash("polygenelubricants") == -(2**31)
