"""What one partition of `__consumer_offsets` says.

Owns: `PartitionLog`: records in, the surviving keys out, per group and raw; offsets of transactions wait for their
control record. Must not know: what a value means, which partition it is, who leads it, what the wire says.

Values stay as they came and are decoded when somebody asks: most are overwritten before anybody does. Memory so
grows with the keys that survive, not with the log. The rules are those of Kafka's OffsetMetadataManager.replay.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from group_sidecar.codecs.offsets_topic import KeyType
from group_sidecar.codecs.primitives import decoded
from group_sidecar.codecs.record_batches import ControlMarker, RecordBatch, batches
from group_sidecar.coordinator.state.awaited_tombstones import AWAITED_SECONDS, WHOLE_GROUP, AwaitedTombstones

RECORDS_PER_STEP = 1024
"""Records between two breaths: about two milliseconds."""
LONG_VALUE = 200
"""Bytes of an offset's value beyond which it is counted for itself. Without metadata a value has 26 to 45."""
_KINDS = frozenset(int(kind) for kind in KeyType)
_OFFSET_COMMITS = 1  # The key types 0 and 1 are the same.
_GROUP_METADATA = 2

Record = tuple[int, int, bytes | None, bytes | None]
PendingOffset = tuple[int, bytes | None]
"""Of a transaction: the record's offset, and its value; None for a tombstone."""
_NOTHING: PendingOffset = (0, None)


class LoggedGroup:
    """What the log says of one group.

    Attributes:
        offsets: raw OffsetCommitValue by what stands behind the group in its key: topic and partition.
        pending: offsets of open transactions, by producer id.
        metadata: raw GroupMetadataValue; None where there is none.
        records: raw values of all other types, by their whole key (KIP-848, share and streams groups).
        tombstone: whether the group was deleted, and has had no commit since.
        changes: how often any of `records` changed.
        removed: how many offsets went since that was last looked at.
        counted: how many there were when they were last counted.
    """

    __slots__ = ("changes", "counted", "group_id", "metadata", "offsets", "pending", "records", "removed", "tombstone")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets: dict[bytes, bytes] = {}
        self.pending: dict[int, dict[bytes, PendingOffset]] = {}
        self.metadata: bytes | None = None
        self.records: dict[bytes, bytes] = {}
        self.tombstone = False
        self.changes = 0
        self.removed = self.counted = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of it."""
        return not (self.offsets or self.pending or self.records or self.metadata is not None)


class PartitionLog:
    """The surviving keys of one partition.

    Attributes:
        next_offset: where to read on.
        groups: by name, in UTF-8.
        changed: names of groups that records came for since that was last looked at.
        records: how many records came.
        size: how many offsets survive, pending ones included, as counted last.
        counted_bytes: bytes of all other values that survive, and of those of offsets that are longer than LONG_VALUE.
        awaited: tombstones of deletions that clients were told of.
        skipped: how many keys of types that are not known came, by type; -1 for what is no key at all.
    """

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.groups: dict[bytes, LoggedGroup] = {}
        self.changed: dict[bytes, None] = {}
        self.records = self.size = self.counted_bytes = 0
        self._long_offset_bytes = 0  # Of `counted_bytes`, what belongs to offsets.
        self.awaited = AwaitedTombstones()
        self.skipped: Counter[int] = Counter()
        self._open_transactions: dict[int, set[bytes]] = {}

    def take_changed(self) -> dict[bytes, None]:
        """Returns the names of the groups that records came for since the last call."""
        changed, self.changed = self.changed, {}
        return changed

    def defer(self, name: bytes) -> None:
        """Leaves a group for the next call of `take_changed`."""
        self.changed[name] = None

    def recount(self, group: LoggedGroup) -> None:
        """Counts the offsets of a group anew."""
        size = len(group.offsets) + sum(map(len, group.pending.values()))
        self.size += size - group.counted
        group.counted = size

    def replay(self, data: bytes) -> Iterator[None]:
        """Takes in the record batches of one Fetch reply; yields from time to time, so that others may breathe.

        Raises:
            DecodeError: they are damaged. What came before the damage counts.
        """
        done = 0
        for batch in batches(data):
            if batch.next_offset <= self.next_offset:
                continue  # A batch is sent whole, also where it begins before what was asked for.
            if batch.control:
                self._end_transaction(batch)
            elif batch.transactional:
                self._store_pending(batch.producer_id, batch.records())
            elif batch.count <= RECORDS_PER_STEP:
                self._store(batch.records())
            else:
                records = batch.records()
                while chunk := list(islice(records, RECORDS_PER_STEP)):
                    self._store(chunk)
                    yield
            self.records += batch.count
            self.next_offset = batch.next_offset
            done += batch.count + 1
            if done >= RECORDS_PER_STEP:
                done = 0
                yield

    def _store(self, records: Iterable[Record]) -> None:
        """The loop that a load spends its time in."""
        groups, changed = self.groups, self.changed
        for _, _, key, value in records:
            try:
                kind, end = key[0] << 8 | key[1], 4 + (key[2] << 8 | key[3])  # type: ignore[index]
            except (TypeError, IndexError):
                self.skipped[-1] += 1
                continue
            assert key is not None
            name = key[4:end]
            group = groups.get(name)
            if group is None:
                if kind not in _KINDS:
                    self.skipped[kind] += 1
                    continue
                name, group = self._group(name)
            changed[name] = None
            if kind > _OFFSET_COMMITS:
                self._store_other(group, kind, key, value)
                continue
            if group.pending or self._long_offset_bytes or (value is not None and len(value) > LONG_VALUE):
                self._drop_pending(group, key[end:])
                self._count_value(group.offsets.get(key[end:]), value)
            if value is not None:
                group.offsets[key[end:]] = value
                group.tombstone = False
                continue
            if group.offsets.pop(key[end:], None) is not None:
                group.removed += 1
            if self.awaited:
                self.awaited.tombstone_read(name, key[end:])

    def _group(self, name: bytes) -> tuple[bytes, LoggedGroup]:
        """A group that is not there under this name yet, and its name as Kafka writes it: always UTF-8."""
        group_id = decoded(name)
        name = group_id.encode()
        if (group := self.groups.get(name)) is None:
            group = self.groups[name] = LoggedGroup(group_id)
        return name, group

    def _store_other(self, group: LoggedGroup, kind: int, key: bytes, value: bytes | None) -> None:
        if value is None and self.awaited:
            self.awaited.tombstone_read(group.group_id.encode(), WHOLE_GROUP)
        if kind == _GROUP_METADATA:
            self.counted_bytes += len(value or b"") - len(group.metadata or b"")
            group.metadata, group.tombstone = value, value is None
        elif kind not in _KINDS:
            self.skipped[kind] += 1
        else:
            group.changes += 1
            self.counted_bytes += len(value or b"") - len(group.records.get(key, b""))
            if value is not None:
                group.records[key] = value
            else:
                group.records.pop(key, None)

    def _store_pending(self, producer_id: int, records: Iterable[Record]) -> None:
        for offset, stamp, key, value in records:
            if key is None or len(key) < 4 or key[0] << 8 | key[1] > _OFFSET_COMMITS:
                self._store([(offset, stamp, key, value)])  # Kafka has none such.
                continue
            end = 4 + (key[2] << 8 | key[3])
            name = key[4:end]
            if (group := self.groups.get(name)) is None:
                name, group = self._group(name)
            held = group.pending.setdefault(producer_id, {})
            self._count_value(held.get(key[end:], _NOTHING)[1], value)
            held[key[end:]] = offset, value
            group.tombstone = False
            self._open_transactions.setdefault(producer_id, set()).add(name)
            self.changed[name] = None

    def _end_transaction(self, batch: RecordBatch) -> None:
        marker = batch.marker
        if marker is None:
            return
        for name in self._open_transactions.pop(batch.producer_id, ()):
            group = self.groups[name]
            held = group.pending.pop(batch.producer_id, {})
            self.changed[name] = None
            for _, value in held.values():
                self._count_value(value, None)
            if marker is not ControlMarker.COMMIT:
                continue
            for key_suffix, (offset, value) in held.items():
                self._drop_pending(group, key_suffix, offset)
                self._count_value(group.offsets.get(key_suffix), value)
                if value is not None:
                    group.offsets[key_suffix] = value
                else:
                    group.offsets.pop(key_suffix, None)

    def _count_value(self, before: bytes | None, after: bytes | None) -> None:
        """The value of an offset takes another's place; None for none."""
        change = _counted_bytes(after) - _counted_bytes(before)
        self._long_offset_bytes += change
        self.counted_bytes += change

    def _drop_pending(self, group: LoggedGroup, key_suffix: bytes, before: int | None = None) -> None:
        """An offset was written: what is pending for it from before (all, where nothing is said) will not count.

        Its transaction stays open all the same.
        """
        for held in group.pending.values():
            if key_suffix in held and (before is None or held[key_suffix][0] < before):
                self._count_value(held.pop(key_suffix)[1], None)

    def reconcile_awaited(self, name: bytes, asked_at: float) -> None:
        """All that was acknowledged until then was read: no tombstone is awaited of what is not there."""
        group = self.groups.get(name)
        for key_suffix, at in self.awaited.overdue(name, asked_at).items():
            left = (
                group is not None and not group.is_empty and (key_suffix == WHOLE_GROUP or key_suffix in group.offsets)
            )
            if not left or at <= asked_at - AWAITED_SECONDS:
                self.awaited.forget(name, key_suffix)

    def forget(self, name: bytes) -> None:
        """Drops a group of which nothing is left."""
        if (group := self.groups.get(name)) is not None and group.is_empty:
            del self.groups[name]


def _counted_bytes(value: bytes | None) -> int:
    return 0 if value is None or len(value) <= LONG_VALUE else len(value)
