"""The surviving records of one partition of `__consumer_offsets`, by group.

A record survives until a newer record has the same key. `PartitionLog` replays the records by the rules of Kafka's
OffsetMetadataManager.replay. Records with a damaged key are skipped and counted. Offsets of a transaction are pending
until the transaction's control record is read: a commit marker makes them committed, an abort marker drops them.

Values are kept raw and are decoded by their readers, because most values are overwritten before any reader needs them.
Memory grows with the number of surviving keys, not with the length of the log.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from group_sidecar.codecs.offsets_topic import KeyType
from group_sidecar.codecs.primitives import MAX_STRING_BYTES, decoded
from group_sidecar.codecs.record_batches import ControlMarker, RecordBatch, batches
from group_sidecar.coordinator.state.awaited_tombstones import AWAITED_SECONDS, WHOLE_GROUP, AwaitedTombstones
from group_sidecar.coordinator.state.logged_group import LoggedGroup, PendingOffset

RECORDS_PER_STEP = 1024
"""Records that are replayed before other tasks may run: about 2 ms."""
PENDING_KEY_BYTES = 200
"""Estimated bytes of a key in `LoggedGroup.pending_keys` and `LoggedGroup.overwritten`: two dictionary entries and an
integer. The key itself is shared with `LoggedGroup.pending`."""
LONG_VALUE = 200
"""An offset's value with more bytes is counted in `counted_bytes`. Without metadata a value has 26 to 45 bytes."""
_KINDS = frozenset(int(kind) for kind in KeyType)
_OFFSET_COMMITS = 1  # The key types 0 and 1 are both offset commits.
_GROUP_METADATA = 2
_SUFFIX_BYTES = 6
"""Size in bytes of a partition and of the length of a topic's name. Both fields follow the group in an offset's key."""

Record = tuple[int, int, bytes | None, bytes | None]


class PartitionLog:
    """The surviving records of one partition.

    Attributes:
        next_offset: the offset of the next record to read.
        groups: the groups by name, in UTF-8.
        changed: names of groups with new records since the last call of `take_changed`.
        records: how many records were read.
        size: how many offsets survive, pending ones included, as last counted by `recount`.
        counted_bytes: bytes of all surviving values, without offset values of at most LONG_VALUE bytes, and
            PENDING_KEY_BYTES for each key with pending offsets.
        awaited: tombstones of deletions that the broker has acknowledged to clients.
        skipped: how many records of unknown key types were read, by type; -1 for records without a valid key.
        has_partial_batch: whether only a part of a batch, or of a transaction's end, has been replayed so far. The
            broker applies whole batches. If a replay stops in between, True until the batch has been read again.
    """

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.groups: dict[bytes, LoggedGroup] = {}
        self.changed: dict[bytes, None] = {}
        self.records = self.size = self.counted_bytes = 0
        self._long_offset_bytes = 0  # The part of `counted_bytes` that belongs to offsets.
        self.awaited = AwaitedTombstones()
        self.skipped: Counter[int] = Counter()
        self.has_partial_batch = False
        self._open_transactions: dict[int, set[bytes]] = {}
        self._commit_keys: dict[tuple[str, bytes], None] | None = None

    @property
    def keeps_commit_keys(self) -> bool:
        """Whether the keys of commits are kept."""
        return self._commit_keys is not None

    def keep_commit_keys(self) -> None:
        """Begins to keep the keys of commits. The caller takes them after each Fetch reply, so only few are kept."""
        if self._commit_keys is None:
            self._commit_keys = {}

    def drop_commit_keys(self) -> None:
        """Stops keeping the keys of commits."""
        self._commit_keys = None

    def take_commit_keys(self) -> Iterable[tuple[str, bytes]]:
        """Returns the group and key suffix of each commit since the last call. A tombstone is no commit."""
        if not self._commit_keys:
            return ()
        keys, self._commit_keys = self._commit_keys, {}
        return keys

    def take_changed(self) -> dict[bytes, None]:
        """Returns the names of the groups with new records since the last call."""
        changed, self.changed = self.changed, {}
        return changed

    def defer(self, name: bytes) -> None:
        """Leaves a group for the next call of `take_changed`."""
        self.changed[name] = None

    def recount(self, group: LoggedGroup) -> None:
        """Recounts the offsets of a group."""
        size = len(group.offsets) + group.pending_count
        self.size += size - group.counted
        group.counted = size

    def replay(self, data: bytes) -> Iterator[None]:
        """Replays the record batches of one Fetch reply. Yields after each step, so that other tasks may run.

        Raises:
            DecodeError: a batch is damaged. The records before the damage were replayed.
        """
        done = 0
        for batch in batches(data):
            if batch.next_offset <= self.next_offset:
                continue  # The batch was read before. A reply may contain whole batches before the requested offset.
            if batch.control or batch.count > RECORDS_PER_STEP:
                for count in self._apply_in_chunks(batch):
                    done += count
                    if done >= RECORDS_PER_STEP:
                        done, self.has_partial_batch = 0, True
                        yield
                self.has_partial_batch = False
            else:
                self._store_chunk(batch, batch.records())
                self.has_partial_batch = False  # Compaction may have removed a batch of which only a part was applied.
                done += batch.count
            self.records += batch.count
            self.next_offset = batch.next_offset
            done += 1
            if done >= RECORDS_PER_STEP:
                done = 0
                yield

    def _apply_in_chunks(self, batch: RecordBatch) -> Iterator[int]:
        """Applies a marker or a long batch. Yields after each chunk, with the size of the chunk.

        If the caller stops after a chunk, the same batch is read and applied again later, with the same result.
        """
        if batch.control:
            if (marker := batch.marker) is not None:
                yield from self._end_transaction(batch.producer_id, marker)
            return
        records = batch.records()
        while chunk := list(islice(records, RECORDS_PER_STEP)):
            self._store_chunk(batch, chunk)
            yield len(chunk)

    def _store_chunk(self, batch: RecordBatch, records: Iterable[Record]) -> None:
        if batch.transactional:
            self._store_pending(batch.producer_id, records)
        else:
            self._store(records)

    def _store(self, records: Iterable[Record]) -> None:
        """Stores records that belong to no transaction.

        A load spends most of its time in this loop, so the loop reads keys itself, not through `offsets_topic`.
        """
        groups, changed, commit_keys = self.groups, self.changed, self._commit_keys
        for offset, _, key, value in records:
            try:
                kind, end = key[0] << 8 | key[1], 4 + (key[2] << 8 | key[3])  # type: ignore[index]
                # An offset's key continues with a topic and a partition.
                stop = end if kind > _OFFSET_COMMITS else end + _SUFFIX_BYTES + (key[end] << 8 | key[end + 1])  # type: ignore[index]
                if len(key) != stop or stop > MAX_STRING_BYTES:  # type: ignore[arg-type]
                    key = _known_fields(key, kind, end, stop)  # type: ignore[arg-type]
            except (TypeError, IndexError):
                # A damaged key would make a group unreadable, or add a group.
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
            if group.pending_keys or self._long_offset_bytes or (value is not None and len(value) > LONG_VALUE):
                self._overwrite_pending(group, key[end:], offset)
                self._count_value(group.offsets.get(key[end:]), value)
            if value is None:
                self._remove(group, name, key[end:])
                continue
            group.offsets[key[end:]] = value
            group.is_deleted = False
            if commit_keys is not None:
                commit_keys[group.group_id, key[end:]] = None

    def _remove(self, group: LoggedGroup, name: bytes, key_suffix: bytes) -> None:
        """Removes an offset whose tombstone was read."""
        if group.offsets.pop(key_suffix, None) is not None:
            group.removed += 1
        if self.awaited:
            self.awaited.tombstone_read(name, key_suffix)

    def _group(self, name: bytes) -> tuple[bytes, LoggedGroup]:
        """Returns a group and its name in valid UTF-8, as Kafka writes the name. Creates the group if it is new."""
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
            group.metadata, group.is_deleted = value, value is None
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
                self._store([(offset, stamp, key, value)])  # Kafka writes no such record in a transaction.
                continue
            end = 4 + (key[2] << 8 | key[3])
            stop = end + _SUFFIX_BYTES + int.from_bytes(key[end : end + 2], "big")
            try:
                key = _known_fields(key, _OFFSET_COMMITS, end, stop)
            except IndexError:
                self.skipped[-1] += 1
                continue
            name = key[4:end]
            if (group := self.groups.get(name)) is None:
                name, group = self._group(name)
            self._hold(group, producer_id, key[end:], (offset, value))
            group.is_deleted = False
            if self._commit_keys is not None and value is not None:
                self._commit_keys[group.group_id, key[end:]] = None
            self._open_transactions.setdefault(producer_id, set()).add(name)
            self.changed[name] = None

    def _end_transaction(self, producer_id: int, marker: ControlMarker) -> Iterator[int]:
        """Ends a transaction in chunks. A group stays in `pending` until its last offset has been released."""
        for name in list(self._open_transactions.get(producer_id, ())):
            group = self.groups.get(name)
            held = group.pending.get(producer_id) if group is not None else None
            if group is None or held is None:
                continue  # An earlier call has ended the transaction for this group, and has stopped after that.
            self.changed[name] = None
            while len(held) > RECORDS_PER_STEP:
                self._release_some(group, held, marker)
                yield RECORDS_PER_STEP
            count = len(held) + 1
            self._release_some(group, held, marker)
            del group.pending[producer_id]
            yield count
        self._open_transactions.pop(producer_id, None)

    def _release_some(self, group: LoggedGroup, held: dict[bytes, PendingOffset], marker: ControlMarker) -> None:
        """Removes up to RECORDS_PER_STEP offsets from a transaction that ends. A commit marker commits them."""
        for _ in range(min(len(held), RECORDS_PER_STEP)):
            key_suffix, (offset, value) = held.popitem()
            is_current = offset > group.overwritten.get(key_suffix, -1)
            self._release(group, key_suffix, value)
            if is_current and marker is ControlMarker.COMMIT:
                self._commit(group, key_suffix, offset, value)

    def _count_value(self, before: bytes | None, after: bytes | None) -> None:
        """Counts the replacement of an offset's value by another; None stands for no value."""
        change = _counted_bytes(after) - _counted_bytes(before)
        self._long_offset_bytes += change
        self.counted_bytes += change

    def _hold(self, group: LoggedGroup, producer_id: int, key_suffix: bytes, pending: PendingOffset) -> None:
        """Keeps an offset until its transaction ends."""
        held = group.pending.setdefault(producer_id, {})
        before = held.get(key_suffix)
        if before is None:
            group.pending_count += 1
            transactions = group.pending_keys.get(key_suffix, 0)
            if not transactions:
                self.counted_bytes += PENDING_KEY_BYTES
            group.pending_keys[key_suffix] = transactions + 1
        self._count_value(before[1] if before else None, pending[1])
        held[key_suffix] = pending

    def _release(self, group: LoggedGroup, key_suffix: bytes, value: bytes | None) -> None:
        """Uncounts a pending offset that was removed from `pending`, because its transaction ends."""
        self._count_value(value, None)
        group.pending_count -= 1
        transactions = group.pending_keys[key_suffix] - 1
        if transactions:
            group.pending_keys[key_suffix] = transactions
        else:
            del group.pending_keys[key_suffix]
            group.overwritten.pop(key_suffix, None)
            self.counted_bytes -= PENDING_KEY_BYTES

    def _commit(self, group: LoggedGroup, key_suffix: bytes, offset: int, value: bytes | None) -> None:
        """Makes a pending offset of a transaction the offset of the group."""
        self._overwrite_pending(group, key_suffix, offset)
        self._count_value(group.offsets.get(key_suffix), value)
        if value is not None:
            group.offsets[key_suffix] = value
        else:
            group.offsets.pop(key_suffix, None)

    def _overwrite_pending(self, group: LoggedGroup, key_suffix: bytes, offset: int) -> None:
        """Notes the position of a write, so that older pending values of the same key are never committed.

        The cost does not depend on the number of open transactions.
        """
        if key_suffix in group.pending_keys:
            group.overwritten[key_suffix] = offset

    def reconcile_awaited(self, name: bytes, asked_at: float) -> None:
        """Stops awaiting tombstones of keys that do not survive, or that were awaited for AWAITED_SECONDS.

        The log was read past every request that was acknowledged up to `asked_at`.
        """
        group = self.groups.get(name)
        for key_suffix, at in self.awaited.overdue(name, asked_at).items():
            survives = (
                group is not None and not group.is_empty and (key_suffix == WHOLE_GROUP or key_suffix in group.offsets)
            )
            if not survives or at <= asked_at - AWAITED_SECONDS:
                self.awaited.forget(name, key_suffix)

    def forget(self, name: bytes) -> None:
        """Drops a group if none of its records survives."""
        if (group := self.groups.get(name)) is not None and group.is_empty:
            del self.groups[name]


def _known_fields(key: bytes, kind: int, end: int, stop: int) -> bytes:
    """Removes the bytes after the known fields of an offset's key: Kafka ignores them. Other keys stay unchanged.

    Args:
        key: the key.
        kind: the type of the key.
        end: where the group id ends, if its length is read as an unsigned number.
        stop: where the topic and partition of an offset's key end, if the topic's length is read as an unsigned number.
            `end` if the key is not an offset's.

    Raises:
        IndexError: the key is truncated, or a length is negative.
    """
    if kind not in _KINDS:
        return key  # The fields of an unknown type are not known.
    longest = 0 if kind > _OFFSET_COMMITS else _SUFFIX_BYTES + MAX_STRING_BYTES
    if len(key) < stop or end - 4 > MAX_STRING_BYTES or stop - end > longest:
        raise IndexError(stop)
    return key[:stop] if kind <= _OFFSET_COMMITS else key


def _counted_bytes(value: bytes | None) -> int:
    return 0 if value is None or len(value) <= LONG_VALUE else len(value)
