"""The committed offsets of a group at one moment."""

from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.offsets_topic import key_suffix
from group_sidecar.coordinator.model.views import CommittedOffset
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets

partitions = st.tuples(st.sampled_from(["t", "orders", "é" * 40, ""]), st.integers(0, 3))
numbers = st.integers(-2, 2**62)


def value(offset: int) -> bytes:
    """Returns a raw OffsetCommitValue v3 with epoch 1, without metadata, committed at 2 seconds."""
    head = b"\0\3" + offset.to_bytes(8, "big", signed=True)
    return head + (1).to_bytes(4, "big") + b"\0\0" + (2_000).to_bytes(8, "big")


def window(logged: dict[tuple[str, int], int] | None, seen: dict[tuple[str, int], int]) -> CommittedOffsets:
    offsets = CommittedOffsets()
    if logged is not None:
        offsets.log_values = {key_suffix(*partition): value(offset) for partition, offset in logged.items()}
    offsets.wire_offsets = {partition: CommittedOffset(offset, at=3.0) for partition, offset in seen.items()}
    return offsets


@given(logged=st.none() | st.dictionaries(partitions, numbers), seen=st.dictionaries(partitions, numbers))
def test_snapshot_matches_offsets(logged: dict[tuple[str, int], int] | None, seen: dict[tuple[str, int], int]) -> None:
    """Each method of a snapshot returns the same offsets, epochs and times as the live offsets."""
    offsets = window(logged, seen)
    wanted = {partition: committed for partition, committed in offsets.items() if committed.offset >= 0}
    read = offsets.snapshot()
    assert dict(read.decoded()) == wanted
    assert dict(read.partition_offsets()) == {partition: committed.offset for partition, committed in wanted.items()}
    assert {row[:2]: row[2:] for row in read.rows()} == {
        partition: (committed.offset, committed.leader_epoch, committed.at) for partition, committed in wanted.items()
    }
    assert len(list(read.rows())) == len(list(read.decoded())) == len(list(read.partition_offsets())) == len(wanted)


def test_snapshot_is_immutable() -> None:
    """A snapshot does not change when the offsets change later."""
    offsets = window({("t", 0): 5}, {("t", 1): 6})
    read = offsets.snapshot()
    assert offsets.log_values is not None
    offsets.log_values[key_suffix("t", 0)] = value(50)
    offsets.wire_offsets[("t", 1)] = CommittedOffset(60)
    offsets.wire_offsets[("t", 2)] = CommittedOffset(70)
    assert dict(read.partition_offsets()) == {("t", 0): 5, ("t", 1): 6}


def test_damaged_entries_are_left_out() -> None:
    """A snapshot leaves out damaged keys and values."""
    offsets = window({("t", 0): 5, ("t", 1): 6}, {})
    assert offsets.log_values is not None
    for key in (b"", b"\0", b"\0\x09ab\0\0\0\0", key_suffix("t", 2) + b"more", b"\xff\xffab\0\0"):
        offsets.log_values[key] = value(9)
    for number, damaged in enumerate((b"", b"\0\3", b"\0\3" + bytes(8), b"\0\x63" + bytes(30))):
        offsets.log_values[key_suffix("u", number)] = damaged
    assert dict(offsets.snapshot().partition_offsets()) == {("t", 0): 5, ("t", 1): 6}
    assert [where for where, _ in offsets.snapshot().decoded()] == [("t", 0), ("t", 1)]
