"""What stood in a window at one moment."""

from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.offsets_topic import suffix
from group_sidecar.coordinator.committed import CommittedOffsets
from group_sidecar.coordinator.views import CommittedOffset

partitions = st.tuples(st.sampled_from(["t", "orders", "é" * 40, ""]), st.integers(0, 3))
numbers = st.integers(-2, 2**62)


def value(offset: int) -> bytes:
    """A raw OffsetCommitValue v3 of epoch 1, without metadata, committed at 2 seconds."""
    head = b"\0\3" + offset.to_bytes(8, "big", signed=True)
    return head + (1).to_bytes(4, "big") + b"\0\0" + (2_000).to_bytes(8, "big")


def window(logged: dict[tuple[str, int], int] | None, seen: dict[tuple[str, int], int]) -> CommittedOffsets:
    offsets = CommittedOffsets()
    if logged is not None:
        offsets.logged = {suffix(*partition): value(offset) for partition, offset in logged.items()}
    offsets.seen = {partition: CommittedOffset(offset, at=3.0) for partition, offset in seen.items()}
    return offsets


@given(logged=st.none() | st.dictionaries(partitions, numbers), seen=st.dictionaries(partitions, numbers))
def test_it_says_what_the_window_said(
    logged: dict[tuple[str, int], int] | None, seen: dict[tuple[str, int], int]
) -> None:
    offsets = window(logged, seen)
    wanted = {partition: committed for partition, committed in offsets.items() if committed.offset >= 0}
    read = offsets.read()
    assert dict(read.decoded()) == wanted
    assert dict(read.numbers()) == {partition: committed.offset for partition, committed in wanted.items()}
    assert {row[:2]: row[2:] for row in read.rows()} == {
        partition: (committed.offset, committed.leader_epoch, committed.at) for partition, committed in wanted.items()
    }
    assert len(list(read.rows())) == len(list(read.decoded())) == len(list(read.numbers())) == len(wanted)


def test_it_stays_as_it_was() -> None:
    offsets = window({("t", 0): 5}, {("t", 1): 6})
    read = offsets.read()
    assert offsets.logged is not None
    offsets.logged[suffix("t", 0)] = value(50)
    offsets.seen[("t", 1)] = CommittedOffset(60)
    offsets.seen[("t", 2)] = CommittedOffset(70)
    assert dict(read.numbers()) == {("t", 0): 5, ("t", 1): 6}


def test_damaged_keys_and_values_are_left_out() -> None:
    offsets = window({("t", 0): 5, ("t", 1): 6}, {})
    assert offsets.logged is not None
    for key in (b"", b"\0", b"\0\x09ab\0\0\0\0", suffix("t", 2) + b"more", b"\xff\xffab\0\0"):
        offsets.logged[key] = value(9)
    for number, damaged in enumerate((b"", b"\0\3", b"\0\3" + bytes(8), b"\0\x63" + bytes(30))):
        offsets.logged[suffix("u", number)] = damaged
    assert dict(offsets.read().numbers()) == {("t", 0): 5, ("t", 1): 6}
    assert [where for where, _ in offsets.read().decoded()] == [("t", 0), ("t", 1)]
