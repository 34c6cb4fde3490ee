"""The creation and deletion of very many groups leaves no data in memory that grows with their number.

To run with a million groups:

    python -m tests.coordinator.test_memory 1000000 [exclusive]
"""

import gc
import sys
from collections import OrderedDict
from itertools import pairwise

import psutil
import pytest

from group_sidecar.coordinator.manager import GROUPS_PER_SWEEP_STEP, GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    GroupDeleted,
    GroupDescribed,
    NotCoordinatorReplied,
    OffsetsStored,
)
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupState
from group_sidecar.coordinator.state.bounded_table import TABLE_BYTES, BoundedTable, name_bytes
from group_sidecar.coordinator.state.log_partitions import MAX_CACHED_NAME_LENGTH, java_hash, partition_for
from group_sidecar.coordinator.state.unseen_history import UnseenHistory
from tests.coordinator.log.test_follower import offset
from tests.coordinator.model_log import Entry, batch

GROUPS = 20_000
AT_ONCE = 1000
LONG = "x" * 30_000


class Life:
    """A copy in which groups are created and deleted. `reads_log`: whether it follows the log of one partition."""

    def __init__(self, *, exclusive: bool, reads_log: bool, max_groups: int = 2 * AT_ONCE) -> None:
        self.manager = GroupMetadataManager(exclusive=exclusive, max_groups=max_groups)
        self.manager.set_existing_groups(())
        self.now = 1.0
        self._reads_log = reads_log
        self._written = 0
        if reads_log:
            self.manager.log.count_partitions(1, self.now)
            self._log = self.manager.log.begin_load(0, 0, 0, self.now)
            self.read([])

    def read(self, entries: list[Entry]) -> None:
        """Reads these records and reaches the end of the log."""
        for first in range(0, len(entries), 100):
            some = entries[first : first + 100]
            for _ in self._log.replay(batch(self._written, some)):
                pass
            self._written += len(some)
        for _ in self.manager.log.merge(0, self.now):
            pass
        list(self.manager.log.end_reached(0, self.now, self.now))

    def pass_by(self, names: list[str]) -> None:
        """Creates groups, lists them and deletes them. Also applies requests and replies that name missing groups."""
        manager, now = self.manager, self.now
        committed = {("t", 0): CommittedOffset(1, 1, "", now)}
        manager.apply([OffsetsStored(group_id=name, sent_at=now, offsets=committed) for name in names], now)
        if self._reads_log:
            self.read([offset(0, 1, name) for name in names])
        manager.listing_fallback_reason(now)
        self.now = now = now + 10
        manager.apply([GroupDeleted(group_id=name, sent_at=now) for name in names], now)
        if self._reads_log:
            self.read([offset(0, None, name) for name in names])
        for name in names:
            manager.note_unread_write(f"{name}!")  # As for a ShareGroupHeartbeat.
            manager.note_unread_write(f"{name}!", now)
        manager.apply([NotCoordinatorReplied(group_id=f"{name}?", sent_at=now) for name in names], now)
        self.now = now = now + 10
        as_of = manager.changes_of("nobody")[0]
        for name in names:
            described = GroupDescribed(
                group_id=f"{name}!",
                sent_at=now,
                state=GroupState.DEAD,
                protocol_type="",
                protocol="",
                members=(),
                as_of=as_of,
            )
            manager.apply([described], now)
        for _ in manager.sweep(now):
            pass
        for _ in manager.update_listing(now):
            pass


def resident() -> int:
    """Returns the resident memory of this process in bytes."""
    gc.collect()
    return psutil.Process().memory_info().rss


def pass_all(life: Life, groups: int, name: str) -> None:
    for first in range(0, groups, AT_ONCE):
        life.pass_by([f"{name}{number}" for number in range(first, min(first + AT_ONCE, groups))])


@pytest.mark.parametrize("reads_log", [True, False])
@pytest.mark.parametrize("exclusive", [False, True])
def test_deleted_groups_leave_nothing(exclusive: bool, reads_log: bool) -> None:
    """Tables do not grow with the number of groups that were created and deleted."""
    life = Life(exclusive=exclusive, reads_log=reads_log)
    pass_all(life, 4 * AT_ONCE, "first")
    before = {table.name: (table.entries, table.bytes) for table in life.manager.tables()}
    pass_all(life, GROUPS, "later")
    after = {table.name: (table.entries, table.bytes) for table in life.manager.tables()}
    for name, (entries, _) in after.items():
        assert entries <= max(before[name][0], 2 * AT_ONCE), name
    assert sum(size for _, size in after.values()) <= sum(size for _, size in before.values()) + AT_ONCE * 300


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("exclusive", [False, True])
def test_million_groups_take_no_memory(exclusive: bool) -> None:
    """The resident memory does not grow while a million groups are created and deleted."""
    life = Life(exclusive=exclusive, reads_log=True)
    pass_all(life, 100_000, "first")
    before = resident()
    pass_all(life, 1_000_000, "later")
    assert resident() - before < 10_000_000


@pytest.mark.parametrize("exclusive", [False, True])
def test_long_names_are_bounded_in_bytes(exclusive: bool) -> None:
    """Tables of long group names stay within TABLE_BYTES, and an evicted group of an exclusive copy is COLD."""
    manager = GroupMetadataManager(exclusive=exclusive, max_groups=100_000)
    manager.set_existing_groups(())
    names = [f"{LONG}{number}" for number in range(3 * TABLE_BYTES // len(LONG) // 2)]
    for name in names:
        manager.note_unread_write(name)
        manager.note_unread_write(name, 1)
    assert {table.name: table.bytes for table in manager.tables()}["unseen_groups"] > TABLE_BYTES / 2
    assert all(table.bytes <= TABLE_BYTES for table in manager.tables())
    assert manager.view(names[0], 2).fallback_reason is (
        FallbackReason.COLD if exclusive else FallbackReason.NOT_EXCLUSIVE
    ), "an evicted group may have a history"


def test_table_evicts_oldest() -> None:
    """A BoundedTable evicts its oldest entries by number and by bytes, and calls its callback for each."""
    gone: list[str] = []
    table: BoundedTable[int] = BoundedTable(2, lambda name, _: gone.append(name), max_bytes=2 * name_bytes("abc"))
    for name in ("a", "b", "a", "c"):
        table.put(name, 1)
    assert (list(table), gone, table.bytes) == (["a", "c"], ["b"], 2 * name_bytes("a"))
    table.put("x" * 150, 1)
    assert (list(table), gone) == (["x" * 150], ["b", "a", "c"])
    table.put("x" * 1000, 1)
    assert (list(table), table.bytes) == ([], 0)


def test_name_bytes_cover_memory_size() -> None:
    """name_bytes is at least the memory size of the string in Python."""
    for name in ("a" * 1000, "ä" * 1000, "€" * 1000, "a" * 999 + "😀"):
        assert sys.getsizeof(name) <= name_bytes(name)


def test_oldest_entry_in_constant_time() -> None:
    """BoundedTable uses an OrderedDict, because finding the first entry of a dict gets slow after many deletions."""
    table: BoundedTable[int] = BoundedTable(1)
    assert isinstance(table._values, OrderedDict)


def test_sweep_step_ends_few_unseen_groups() -> None:
    """Each sweep step removes at most GROUPS_PER_SWEEP_STEP groups with unseen history."""
    manager = GroupMetadataManager(exclusive=False)
    for number in range(3 * GROUPS_PER_SWEEP_STEP):
        manager.note_unread_write(f"g{number}")
        manager.note_unread_write(f"g{number}", 1.0)

    def noted() -> int:
        return next(table.entries for table in manager.tables() if table.name == "unseen_groups")

    left = [noted()]
    for _ in manager.sweep(100.0):
        left.append(noted())
    assert all(before - after <= GROUPS_PER_SWEEP_STEP for before, after in pairwise(left))
    assert left[-1] == 0


def test_note_missing_drops_few_groups() -> None:
    """Each note of a missing group removes at most two expired others, and in the end all of them."""
    pasts = UnseenHistory(1000)
    for number in range(100):
        pasts.note_missing(f"g{number}", 1.0)
    left = []
    for _ in range(100):
        pasts.note_missing("later", 1000.0)
        left += [table.entries for table in pasts.tables if table.name == "missing_groups"]
    assert all(before - after <= 2 for before, after in pairwise([100, *left]))
    assert left[-1] == 1


def test_groups_are_bounded_by_name_bytes() -> None:
    """Groups with long names are bounded by the bytes of their names."""
    manager = GroupMetadataManager(exclusive=True, max_groups=10_000)
    committed = {("t", 0): CommittedOffset(1, 1, "", 1)}
    name = "x" * 32_000
    manager.apply([OffsetsStored(group_id=f"{name}{n}", sent_at=1, offsets=committed) for n in range(3000)], 1)
    assert 1000 < len(manager.group_metadata_cache) < 3000
    assert manager.overflowed > 0


@pytest.mark.parametrize("text", ["", "a", "group", "gr\u00fc\u00dfe", "\U0001f600" * 3, "xy" * 40_000])
def test_java_hash_matches_java(text: str) -> None:
    """java_hash equals Java's String.hashCode of the UTF-16 units."""
    value = 0
    for unit in text.encode("utf-16-be").hex(" ", 2).split():
        value = (31 * value + int(unit, 16)) & 0xFFFFFFFF
    assert java_hash(text) == value - (1 << 32 if value >> 31 else 0)


def test_long_name_keeps_partition() -> None:
    """Names around MAX_CACHED_NAME_LENGTH get the partition that their hash gives."""
    for length in (MAX_CACHED_NAME_LENGTH, MAX_CACHED_NAME_LENGTH + 1):
        assert partition_for("x" * length, 50) == abs(java_hash("x" * length)) % 50


def main() -> None:
    """Prints the memory and the table entries that very many groups leave behind."""
    groups, exclusive = int(sys.argv[1]), "exclusive" in sys.argv
    life = Life(exclusive=exclusive, reads_log=True, max_groups=100_000)
    pass_all(life, groups // 10, "first")
    before = resident()
    pass_all(life, groups, "later")
    sys.stdout.write(f"exclusive={exclusive}: {groups:,} groups, {before:,} bytes before, {resident():,} after\n")
    for table in life.manager.tables():
        sys.stdout.write(f"  {table.name}: {table.entries:,} entries, {table.bytes:,} bytes\n")


if __name__ == "__main__":
    main()
