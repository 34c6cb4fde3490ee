"""The bytes of metadata that clients write are bounded: the metadata of offsets, and of members in the log."""

from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.offsets_topic import GroupKey, KeyType, OffsetCommitKey, encode_key, encode_value
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue, OffsetCommitValue
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    AnyEvent,
    GroupDeleted,
    OffsetsDeleted,
    OffsetsPending,
    OffsetsStored,
    TransactionEnded,
)
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason
from group_sidecar.coordinator.state.bounded_table import TABLE_BYTES
from group_sidecar.coordinator.state.log_partitions import PartitionState, partition_for
from group_sidecar.coordinator.state.partition_log import LONG_VALUE, PENDING_KEY_BYTES, PartitionLog
from tests.coordinator.model_log import Entry, batch

LONGEST = 4_096
"""Kafka's default of `offset.metadata.max.bytes`."""
ENOUGH = TABLE_BYTES // LONGEST + 1
"""The number of offsets whose metadata exceeds the bound."""


def copy(max_offsets: int = 2 * ENOUGH) -> GroupMetadataManager:
    """Returns a copy that knows all groups from their creation on."""
    manager = GroupMetadataManager(exclusive=True, max_offsets=max_offsets)
    manager.set_existing_groups(())
    return manager


def stored(at: float, partitions: range, size: int, group: str = "g") -> OffsetsStored:
    """Returns a commit of these partitions, each with `size` bytes of metadata."""
    offsets = {("t", number): CommittedOffset(5, 1, "m" * size, at) for number in partitions}
    return OffsetsStored(group_id=group, sent_at=at, offsets=offsets)


def table_bytes(manager: GroupMetadataManager, name: str) -> int:
    return {table.name: table.bytes for table in manager.tables()}[name]


# Metadata on the wire.


def test_offset_metadata_is_bounded_in_bytes() -> None:
    """Offsets whose metadata exceeds TABLE_BYTES are not kept, and the fallback reason of their groups is COLD."""
    manager = copy()
    manager.apply([stored(1, range(1), 10, "h")], 1)
    for first in range(0, ENOUGH + 1000, 500):
        manager.apply([stored(2, range(first, first + 500), LONGEST)], 2)
    assert manager.overflowed > 0
    assert table_bytes(manager, "offsets") < TABLE_BYTES + 2 * ENOUGH * 250
    assert manager.view("g", 3).offsets_fallback_reason is FallbackReason.COLD, (
        "offsets that are not kept are left to the broker"
    )
    assert manager.view("h", 3).offsets_fallback_reason is None
    manager.apply([stored(3, range(500), LONGEST, "h")], 3)
    assert manager.view("h", 4).offsets_fallback_reason is FallbackReason.COLD
    manager.apply([GroupDeleted(group_id="g", sent_at=5)], 6)
    assert table_bytes(manager, "offsets") == 250 + 10


def test_short_metadata_uses_entry_bound() -> None:
    """Short metadata does not reduce the number of offsets below max_offsets."""
    manager = copy(max_offsets=1000)
    manager.apply([stored(1, range(1000), 50)], 1)
    assert manager.overflowed == 0
    assert manager.view("g", 3).offsets_fallback_reason is None


def test_counted_bytes_match_kept_offsets() -> None:
    """The counted bytes match the kept offsets after commits, deletions, transactions and a group deletion."""
    manager = copy()

    def counted(*events: AnyEvent) -> int:
        manager.apply(list(events), next(clock))
        return table_bytes(manager, "offsets")

    clock = count(10)
    assert counted(stored(1, range(4), 1000)) == 4 * 1250
    assert counted(stored(12, range(4), 10)) == 4 * 260
    assert counted(OffsetsDeleted(group_id="g", sent_at=14, partitions=(("t", 0), ("t", 9)))) == 3 * 260
    pending = stored(15, range(1, 5), 500).offsets
    assert counted(OffsetsPending(group_id="g", sent_at=15, producer_id=7, offsets=pending)) == 3 * 260 + 4 * 750
    pending = {partition: replace(offset, metadata=None) for partition, offset in pending.items()}
    assert counted(OffsetsPending(group_id="g", sent_at=15, producer_id=7, offsets=pending)) == 3 * 260 + 4 * 250
    assert counted(TransactionEnded(producer_id=7, committed=True)) == 4 * 250
    assert counted(GroupDeleted(group_id="g", sent_at=20)) == 0


def test_earlier_fetch_does_not_settle_overflow() -> None:
    """A Fetch sent before an overflowing commit does not make the group's offsets complete."""
    manager = GroupMetadataManager(exclusive=False, max_offsets=2)
    manager.log.count_partitions(1, 0)
    log = Written(manager, 0)
    log.read(at=1)
    manager.apply([stored(2, range(2), 1)], 2)
    manager.apply([stored(3, range(2, 3), 1)], 3)
    assert manager.view("g", 3).offsets_fallback_reason is FallbackReason.COLD
    log.read(*(committed("g", number, 1) for number in range(2)), at=2.5)
    assert manager.view("g", 3).offsets_fallback_reason is FallbackReason.COLD
    log.read(committed("g", 2, 1), at=3.5)
    assert log.state is PartitionState.FAILED


# Metadata in the log.


class Written:
    """One partition of the log and its reader."""

    def __init__(self, manager: GroupMetadataManager, number: int) -> None:
        self._manager, self._number, self._next = manager, number, 0
        self._log = manager.log.begin_load(number, 0, 0, 0)

    @property
    def state(self) -> PartitionState:
        return self._manager.log.partitions.states[self._number]

    def read(self, *entries: Entry, at: float) -> None:
        """Reads these records, which a Fetch that was sent at `at` returns up to the end of the log."""
        for first in range(0, len(entries), 500):
            some = list(entries[first : first + 500])
            for _ in self._log.replay(batch(self._next, some)):
                pass
            self._next += len(some)
        for _ in self._manager.log.merge(self._number, at):
            pass
        list(self._manager.log.end_reached(self._number, at, at))


def committed(group: str, partition: int, size: int) -> Entry:
    """Returns the record of an offset with `size` bytes of metadata."""
    key = OffsetCommitKey(group_id=group, topic="t", partition=partition)
    value = OffsetCommitValue(offset=5, leader_epoch=1, metadata="m" * size, commit_timestamp=0)
    return encode_key(KeyType.OFFSET_COMMIT, key), encode_value(value, 3)


def group_of(number: int, of: int) -> str:
    """Returns a group whose records are in partition `number` of `of` partitions."""
    return next(name for name in map("group{}".format, count()) if partition_for(name, of) == number)


def test_largest_partition_is_not_kept() -> None:
    """The partition with the most metadata fails, and the other partitions stay."""
    manager = GroupMetadataManager(exclusive=False, max_offsets=2 * ENOUGH)
    manager.log.count_partitions(3, 0)
    logs = [Written(manager, number) for number in range(3)]
    groups = [group_of(number, 3) for number in range(3)]
    for log, group in zip(logs[:2], groups, strict=False):
        log.read(committed(group, 0, LONGEST), at=1)
    logs[2].read(*(committed(groups[2], number, LONGEST) for number in range(ENOUGH)), at=1)
    assert [log.state for log in logs] == [PartitionState.OWNED, PartitionState.OWNED, PartitionState.FAILED]
    assert manager.overflowed == 1
    assert table_bytes(manager, "logged_offsets") < 3 * LONGEST + 1000
    assert manager.view(groups[0], 2).offsets_fallback_reason is None
    assert manager.view(groups[2], 2).offsets_fallback_reason is FallbackReason.COLD


def test_small_partition_survives_large_one() -> None:
    """A small partition stays OWNED while a larger loading partition exceeds the bound and then fails."""
    manager = GroupMetadataManager(exclusive=False, max_offsets=10)
    manager.log.count_partitions(2, 0)
    large, small = Written(manager, 0), Written(manager, 1)
    small.read(committed(group_of(1, 2), 0, 1), at=1)
    entries = [committed(group_of(0, 2), number, 1) for number in range(11)]
    for _ in large._log.replay(batch(0, entries)):
        pass
    for _ in manager.log.merge(0, 1):
        pass
    small.read(at=2)
    assert (large.state, small.state) == (PartitionState.LOADING, PartitionState.OWNED)
    list(manager.log.end_reached(0, 2, 2))
    assert (large.state, small.state) == (PartitionState.FAILED, PartitionState.OWNED)


def test_logged_members_are_counted() -> None:
    """The bytes of a logged group record are counted until its tombstone."""
    manager = GroupMetadataManager(exclusive=False)
    manager.log.count_partitions(1, 0)
    log, key = Written(manager, 0), encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g"))
    value = GroupMetadataValue(protocol_type="c" * 30_000, generation=1, protocol=None, leader=None, members=())
    log.read((key, encode_value(value, 3)), at=1)
    assert table_bytes(manager, "logged_offsets") > 30_000
    log.read((key, None), at=2)
    assert table_bytes(manager, "logged_offsets") == 0


STEPS = st.tuples(
    st.sampled_from(["store", "delete", "hold", "drop", "commit", "abort", "group", "ungroup"]),
    st.integers(0, 2),
    st.sampled_from([0, LONG_VALUE - 40, LONG_VALUE, 3 * LONG_VALUE]),
    st.integers(1, 2),
)


def marker(producer_id: int, *, commits: bool, at: int) -> bytes:
    """Returns a control batch (key: version 0, type 0 ABORT or 1 COMMIT)."""
    return batch(at, [(bytes([0, 0, 0, commits]), bytes(6))], producer_id=producer_id, transactional=True, control=True)


def record(step: tuple[str, int, int, int], at: int) -> bytes:
    """Returns the batch that a step writes."""
    what, partition, size, producer = step
    key, value = committed("g", partition, size)
    group = encode_key(KeyType.GROUP_METADATA, GroupKey(group_id="g"))
    match what:
        case "store" | "delete":
            return batch(at, [(key, value if what == "store" else None)])
        case "hold" | "drop":
            entry = key, value if what == "hold" else None
            return batch(at, [entry], producer_id=producer, transactional=True)
        case "commit" | "abort":
            return marker(producer, commits=what == "commit", at=at)
    return batch(at, [(group, bytes(size + 1) if what == "group" else None)])


@given(st.lists(STEPS, max_size=40))
def test_log_bytes_match_surviving_values(steps: list[tuple[str, int, int, int]]) -> None:
    """A partition log counts the bytes of its surviving values, and of its keys with pending offsets."""
    log = PartitionLog(0)
    for at, step in enumerate(steps):
        for _ in log.replay(record(step, at)):
            pass
    offsets = [value for group in log.groups.values() for value in group.offsets.values()]
    held = [value for group in log.groups.values() for held in group.pending.values() for _, value in held.values()]
    long = sum(len(value) for value in (*offsets, *held) if value is not None and len(value) > LONG_VALUE)
    keys = sum(PENDING_KEY_BYTES * len(group.pending_keys) for group in log.groups.values())
    assert log.counted_bytes == long + keys + sum(len(group.metadata or b"") for group in log.groups.values())
