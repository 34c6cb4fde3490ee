"""Tests which partition of the offsets topic stores a group. The expected values come from a JVM."""

import gc

import pytest

from group_sidecar.coordinator.state import log_partitions
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


def test_cached_names_are_not_scanned() -> None:
    """After a new name, Python's collector of cyclic garbage does not scan the names in the cache."""
    cache = log_partitions._cached_hash
    for number in range(1000):
        partition_for(f"known-{number}")
    gc.collect()
    partition_for("new")
    size = cache.cache_info().currsize
    [table] = [each for each in gc.get_referents(cache) if isinstance(each, dict) and len(each) == size]
    assert not gc.is_tracked(table)
