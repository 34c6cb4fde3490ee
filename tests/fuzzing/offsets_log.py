"""Target: any records of `__consumer_offsets`, read and merged into the copy of the coordinator.

An input is a list of records: a byte of flags, a key and a value. The flags make a record a tombstone, a part of a
transaction, or the end of a transaction.

- Only DecodeError is raised, which makes the sidecar read the partition again.
- The offsets of each group are the same whether records are merged one by one or all together.
- Views can be made at any time.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.offsets_topic import VALUES, encode_value
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.views import CommittedOffset, TopicPartition
from tests.codecs.declarations import full_sample, limited_to, null_sample
from tests.coordinator.model_log import batch
from tests.fuzzing.input_bytes import InputBytes, piece
from tests.fuzzing.target import require

MAX_RECORDS = 20
PRODUCER = 7
_TOMBSTONE, _TRANSACTIONAL, _COMMIT, _ABORT = 1, 2, 4, 8
_MARKERS = {_COMMIT: b"\0\0\0\1", _ABORT: b"\0\0\0\0"}


class Entry(NamedTuple):
    """One record."""

    flags: int
    key: bytes
    value: bytes

    def to_bytes(self) -> bytes:
        """Returns the bytes of an input for this record."""
        return bytes((self.flags,)) + piece(self.key) + piece(self.value)


def check(data: bytes) -> object:
    """Reads one log, twice."""
    given = InputBytes(data)
    entries: list[Entry] = []
    while given and len(entries) < MAX_RECORDS:
        entries.append(Entry(given.number(), given.piece(), given.piece()))
    together, one_by_one = _read(entries, merged_each=False), _read(entries, merged_each=True)
    if isinstance(together, dict) and isinstance(one_by_one, dict):
        require(together == one_by_one, f"the order of merges changes offsets: {together} {one_by_one}")
    return together, one_by_one


def _read(entries: list[Entry], *, merged_each: bool) -> dict[str, Any] | str:
    """Returns the offsets of each group, or the text of the DecodeError."""
    manager = GroupMetadataManager(exclusive=True)
    manager.set_existing_groups(())
    follower = manager.log
    follower.count_partitions(1, 0)
    log = follower.begin_load(0, 3, 0, 0)
    now = 0.0
    try:
        for entry in entries:
            list(log.replay(_batch(log.next_offset, entry)))
            if merged_each:
                now += 1.0
                list(follower.merge(0, now))
                list(follower.end_reached(0, now, now))
        list(follower.merge(0, now + 1.0))
        list(follower.end_reached(0, now + 1.0, now + 1.0))
    except DecodeError as error:
        return str(error)
    found: dict[str, Any] = {}
    for group_id in sorted(manager.group_metadata_cache):
        view = manager.view(group_id, now + 2.0)
        offsets = view.offsets
        if decoded := {partition: _decoded(offsets, partition) for partition in sorted(offsets)}:
            found[group_id] = decoded
    return found


def _decoded(
    offsets: Mapping[TopicPartition, CommittedOffset], partition: TopicPartition
) -> tuple[int, str | None] | None:
    """Returns an offset and its metadata; None if the value cannot be decoded, like that of a later Kafka version."""
    try:
        return offsets[partition].offset, offsets[partition].metadata
    except DecodeError:
        return None


def _batch(offset: int, entry: Entry) -> bytes:
    marker = _MARKERS.get(entry.flags & (_COMMIT | _ABORT))
    if marker is not None:
        return batch(offset, [(marker, b"")], producer_id=PRODUCER, transactional=True, control=True)
    value = None if entry.flags & _TOMBSTONE else entry.value
    transactional = bool(entry.flags & _TRANSACTIONAL)
    return batch(
        offset, [(entry.key, value)], producer_id=PRODUCER if transactional else -1, transactional=transactional
    )


def seeds() -> Iterator[bytes]:
    """Samples of all records, alone, with tombstones, and in transactions."""
    every = b""
    for kind, cls in VALUES.items():
        key = kind.to_bytes(2, "big") + b"\0\1g\0\1t\0\0\0\1"
        for version in cls.VERSIONS:
            for sample in (full_sample(cls), null_sample(cls)):
                value = encode_value(limited_to(sample, version), version)
                first = Entry(0, key, value).to_bytes()
                yield first + Entry(_TOMBSTONE, key, b"").to_bytes()
                yield Entry(_TRANSACTIONAL, key, value).to_bytes() + Entry(_COMMIT, b"", b"").to_bytes() + first
                yield Entry(_TRANSACTIONAL, key, value).to_bytes() + Entry(_ABORT, b"", b"").to_bytes()
        every += first
    yield every[:4_000]
