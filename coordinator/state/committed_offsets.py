"""The committed offsets of one group, from two sources.

Owns: `CommittedOffsets`: what the log says, raw below, and on top what the wire has said since; and `RawOffsets`, what
stood there at one moment. Must not know: how sure any of it is, transactions, who the group's members are.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from uuid import UUID

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.offsets_topic import decode_key_suffix, decode_offset_value, key_suffix
from group_sidecar.codecs.primitives import decoded
from group_sidecar.coordinator.model.views import DELETED_OFFSET, CommittedOffset, TopicPartition, committed_offset

_metadata = attrgetter("metadata")
_TAGGED = b"\0\4"
_ONE_TAG = b"\1\0\x10"
"""Behind an OffsetCommitValue v4: one tagged field, number 0, of 16 bytes."""


OffsetRow = tuple[str, int, int, int, float]
"""Topic, partition, offset, leader epoch, and when it was committed, in seconds since the epoch."""


class CommittedOffsets(Mapping[TopicPartition, CommittedOffset]):
    """A window onto them. What the log says is decoded when it is asked for.

    Attributes:
        log_values: raw values by raw topic and partition, the log's own; None where the log is not read.
        wire_offsets: what the wire has said beyond it. DELETED_OFFSET stands for one that was deleted. To be changed by
            `put`, `drop` and `replace_all` only.
        metadata_chars: characters of metadata in `wire_offsets`.
    """

    __slots__ = ("log_values", "metadata_chars", "wire_offsets")

    def __init__(self) -> None:
        self.log_values: dict[bytes, bytes] | None = None
        self.wire_offsets: dict[TopicPartition, CommittedOffset] = {}
        self.metadata_chars = 0

    def __getitem__(self, partition: TopicPartition) -> CommittedOffset:
        found = self.wire_offsets.get(partition)
        if found is None:
            return _decoded((self.log_values or {})[key_suffix(*partition)])
        if found.offset == DELETED_OFFSET:
            raise KeyError(partition)
        return found

    def __iter__(self) -> Iterator[TopicPartition]:
        for partition in map(decode_key_suffix, self.log_values or ()):
            if partition not in self.wire_offsets:
                yield partition
        for partition, offset in self.wire_offsets.items():
            if offset.offset != DELETED_OFFSET:
                yield partition

    def __len__(self) -> int:
        return (
            sum(1 for _ in self) if self.log_values and self.wire_offsets else len(self.log_values or self.wire_offsets)
        )

    def partitions(self) -> Iterator[set[TopicPartition]]:
        """The partitions, a thousand at a time: there may be a million."""
        keys = iter(list(self.log_values or ()))
        while some := set(map(decode_key_suffix, islice(keys, 1000))):
            yield some
        yield {partition for partition, offset in list(self.wire_offsets.items()) if offset.offset != DELETED_OFFSET}

    def snapshot(self) -> "RawOffsets":
        """All that stands there now, to be decoded when there is time: a group may have 100,000 of them."""
        logged, wire_offsets = self.log_values or {}, self.wire_offsets
        if not (logged and wire_offsets):
            return RawOffsets(tuple(logged), tuple(logged.values()), tuple(wire_offsets.items()))
        above = {key_suffix(*partition) for partition in wire_offsets}
        below = [(key, raw) for key, raw in logged.items() if key not in above]
        return RawOffsets(tuple(key for key, _ in below), tuple(raw for _, raw in below), tuple(wire_offsets.items()))

    def topics(self) -> set[tuple[str, UUID]]:
        """The names and ids of topics whose offsets are in the log with an id, as brokers write it since 4.1."""
        tagged = {
            (key[2:-4], raw[-16:])
            for key, raw in (self.log_values or {}).items()
            if raw[:2] == _TAGGED and raw[-19:-16] == _ONE_TAG
        }
        return {(decoded(name), UUID(bytes=topic_id)) for name, topic_id in tagged}

    def differing(self) -> list[TopicPartition]:
        """The partitions of which the log says something else than the wire."""
        logged = self.log_values or {}
        return [
            partition
            for partition, wire_offset in self.wire_offsets.items()
            if _differs(logged.get(key_suffix(*partition)), wire_offset)
        ]

    def get_wire_offset(self, partition: TopicPartition) -> CommittedOffset | None:
        """What the wire last said of a partition, where the log has not said it since."""
        found = self.wire_offsets.get(partition)
        return found if found is not None and found.offset != DELETED_OFFSET else None

    def put(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Takes what the wire says of some partitions."""
        self.metadata_chars += metadata_chars(offsets.values()) - metadata_chars(map(self.wire_offsets.get, offsets))
        self.wire_offsets.update(offsets)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """The wire says nothing more of some partitions."""
        for partition in partitions:
            if (known := self.wire_offsets.pop(partition, None)) is not None:
                self.metadata_chars -= len(known.metadata or "")

    def replace_all(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        """Takes what the wire says of all partitions."""
        self.wire_offsets, self.metadata_chars = offsets, metadata_chars(offsets.values())

    def remove(self, partition: TopicPartition, at: float) -> CommittedOffset | None:
        """Takes an offset out, as the wire has it. Returns what it was, if that came from the wire too."""
        known = self.get_wire_offset(partition)
        if self.log_values is None:
            self.drop((partition,))
        else:
            self.put({partition: CommittedOffset(DELETED_OFFSET, at=at)})
        return known

    def drop_acknowledged(self, asked_at: float) -> None:
        """The log says all that was acknowledged until then."""
        self.drop([partition for partition, offset in self.wire_offsets.items() if offset.at <= asked_at])


def metadata_chars(offsets: Iterable[CommittedOffset | None]) -> int:
    """Returns how many characters of metadata offsets have."""
    return sum(map(len, filter(None, map(_metadata, filter(None, offsets)))))


class RawOffsets:
    """What stood in a window at one moment, as raw as it was there.

    An offset below 0 is none, and neither is what the log has in a form that cannot be read.

    Args:
        keys, values: what the log said, where the wire had not said anything else.
        wire_offsets: what the wire had said.

    Attributes:
        clock_difference: seconds to add to when the wire said it; the log has the broker's own time.
    """

    __slots__ = ("_keys", "_values", "_wire_offsets", "clock_difference")

    def __init__(
        self,
        keys: tuple[bytes, ...] = (),
        values: tuple[bytes, ...] = (),
        wire_offsets: tuple[tuple[TopicPartition, CommittedOffset], ...] = (),
    ) -> None:
        self._keys = keys
        self._values = values
        self._wire_offsets = wire_offsets
        self.clock_difference = 0.0

    def partition_offsets(self) -> Iterator[tuple[TopicPartition, int]]:
        """Partitions and offsets alone, in no order."""
        for topic, partition, raw in self._log_rows():
            try:
                offset = decode_offset_value(raw)[0]
            except DecodeError:
                continue
            if offset >= 0:
                yield (topic, partition), offset
        for where, committed in self._wire_offsets:
            if committed.offset >= 0:
                yield where, committed.offset

    def rows(self) -> Iterator[OffsetRow]:
        """The same with when it was committed, and without an object for each: there may be 100,000 a second."""
        for topic, partition, raw in self._log_rows():
            try:
                offset, leader_epoch, _, committed_at, _ = decode_offset_value(raw)
            except DecodeError:
                continue
            if offset >= 0:
                yield topic, partition, offset, leader_epoch, committed_at / 1000
        for (topic, partition), committed in self._wire_offsets:
            if committed.offset >= 0:
                yield topic, partition, committed.offset, committed.leader_epoch, committed.at + self.clock_difference

    def decoded(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """All there is to say of each, in no order, decoded when its turn comes."""
        for topic, partition, raw in self._log_rows():
            try:
                committed = _decoded(raw)
            except DecodeError:
                continue
            if committed.offset >= 0:
                yield (topic, partition), committed
        for where, committed in self._wire_offsets:
            if committed.offset >= 0:
                yield where, committed

    def _log_rows(self) -> Iterator[tuple[str, int, bytes]]:
        for key, raw in zip(self._keys, self._values, strict=True):
            try:
                topic = _topic(key[:-4])
            except DecodeError:
                continue
            yield topic, int.from_bytes(key[-4:], "big", signed=True), raw


@lru_cache(maxsize=10_000)
def _topic(head: bytes) -> str:
    """The topic of all keys that begin so; remembered, as it has many partitions, and many groups."""
    topic, _ = decode_key_suffix(head + bytes(4))
    if key_suffix(topic, 0)[:-4] != head:
        raise DecodeError("offsets topic key", "topic", f"{head.hex()} is no key of {topic}")
    return topic


def _differs(raw: bytes | None, wire_offset: CommittedOffset) -> bool:
    if raw is None or wire_offset.offset == DELETED_OFFSET:
        return not (raw is None and wire_offset.offset == DELETED_OFFSET)
    logged = _decoded(raw)
    return (logged.offset, logged.leader_epoch, logged.metadata) != (
        wire_offset.offset,
        wire_offset.leader_epoch,
        wire_offset.metadata,
    )


def _decoded(raw: bytes) -> CommittedOffset:
    offset, leader_epoch, metadata, committed_at, _ = decode_offset_value(raw)
    return committed_offset(offset, leader_epoch, metadata, committed_at / 1000)
