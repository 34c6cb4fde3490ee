"""The committed offsets of one group, from the log and from the wire.

`CommittedOffsets` has the raw values of the log, and the offsets from the wire that override them. `RawOffsets` is a
snapshot of both. `group_offsets` decides which of the offsets may be wrong.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter
from uuid import UUID

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.offsets_topic import decode_key_suffix, decode_offset_value, key_suffix
from group_sidecar.codecs.primitives import decoded
from group_sidecar.coordinator.model.views import DELETED_OFFSET, CommittedOffset, TopicPartition, committed_offset

_metadata = attrgetter("metadata")
_TAGGED = b"\0\4"
_ONE_TAG = b"\1\0\x10"
"""The bytes before the topic id in an OffsetCommitValue v4. These bytes announce one tagged field with tag 0 and 16
bytes."""


OffsetRow = tuple[str, int, int, int, float]
"""Topic, partition, offset, leader epoch, and the time of the commit, in seconds since the epoch."""


class CommittedOffsets(Mapping[TopicPartition, CommittedOffset]):
    """The current committed offsets by partition. Values of the log are decoded when they are looked up.

    Attributes:
        log_values: the log's raw values, by raw topic and partition; None if the log is not read.
        wire_offsets: offsets from the wire, which override the log's. DELETED_OFFSET marks a deleted offset. Only the
            methods of this class change `wire_offsets`.
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
        """Yields the log's partitions, which may be a million, in sets of 1,000, and then the wire's partitions."""
        keys = iter(list(self.log_values or ()))
        while some := set(map(decode_key_suffix, islice(keys, 1000))):
            yield some
        yield {partition for partition, offset in list(self.wire_offsets.items()) if offset.offset != DELETED_OFFSET}

    def snapshot(self) -> "RawOffsets":
        """Returns the current offsets, still raw. A group may have 100,000 offsets, which are decoded later."""
        logged, wire_offsets = self.log_values or {}, self.wire_offsets
        if not (logged and wire_offsets):
            return RawOffsets(tuple(logged), tuple(logged.values()), tuple(wire_offsets.items()))
        overridden = {key_suffix(*partition) for partition in wire_offsets}
        kept = [(key, raw) for key, raw in logged.items() if key not in overridden]
        return RawOffsets(tuple(key for key, _ in kept), tuple(raw for _, raw in kept), tuple(wire_offsets.items()))

    def topics(self) -> set[tuple[str, UUID]]:
        """Returns the name and id of each topic whose id is in the log. Kafka writes topic ids since 4.1."""
        tagged = {
            (key[2:-4], raw[-16:])
            for key, raw in (self.log_values or {}).items()
            if raw[:2] == _TAGGED and raw[-19:-16] == _ONE_TAG
        }
        return {(decoded(name), UUID(bytes=topic_id)) for name, topic_id in tagged}

    def is_logged(self, partition: TopicPartition) -> bool:
        """Whether the log has an offset of a partition. False if the log is not read."""
        return key_suffix(*partition) in (self.log_values or ())

    def is_known(self, partition: TopicPartition) -> bool:
        """Whether the log or the wire has shown a commit of a partition, or its deletion."""
        return partition in self.wire_offsets or self.is_logged(partition)

    def differs_from_log(self, partition: TopicPartition, offset: CommittedOffset) -> bool:
        """Whether the log's offset of a partition is missing or differs from `offset`. False if the log is not read."""
        return self.log_values is not None and _differs(self.log_values.get(key_suffix(*partition)), offset)

    def differing(self) -> list[TopicPartition]:
        """Returns the partitions whose offsets in the log and from the wire differ."""
        logged = self.log_values or {}
        return [
            partition
            for partition, wire_offset in self.wire_offsets.items()
            if _differs(logged.get(key_suffix(*partition)), wire_offset)
        ]

    def differing_from(
        self, reported: Mapping[TopicPartition, CommittedOffset], absent: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Returns the partitions whose offset differs from the broker's reported offset, or cannot be decoded.

        `absent`: partitions without an offset in the broker's reply.
        """
        return [
            partition
            for partition, offset in chain(reported.items(), ((each, None) for each in absent))
            if not self._shows_same(partition, offset)
        ]

    def has_others(self, reported: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """Whether there are offsets of partitions that the broker has not reported."""
        return len(self) > len(reported) or any(partition not in reported for partition in self)

    def _shows_same(self, partition: TopicPartition, reported: CommittedOffset | None) -> bool:
        """Whether OffsetFetch returns the same for the kept offset and for `reported`; None stands for no offset."""
        try:
            known = self.get(partition)
        except DecodeError:
            return False
        if known is None or reported is None:
            return known is reported or (known is not None and known.looks_absent)
        if (known.offset, known.metadata or "") != (reported.offset, reported.metadata or ""):
            return False
        return known.leader_epoch == reported.leader_epoch or not (known.epoch_known and reported.epoch_known)

    def looks_absent(self, partition: TopicPartition) -> bool:
        """Whether the wire has shown a commit of this partition that OffsetFetch reports like a missing commit."""
        found = self.wire_offsets.get(partition)
        return found is not None and found.looks_absent

    def get_wire_offset(self, partition: TopicPartition) -> CommittedOffset | None:
        """Returns the offset of a partition in `wire_offsets`; None if it is missing or was deleted."""
        found = self.wire_offsets.get(partition)
        return found if found is not None and found.offset != DELETED_OFFSET else None

    def put(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Stores offsets from the wire."""
        self.metadata_chars += metadata_chars(offsets.values()) - metadata_chars(map(self.wire_offsets.get, offsets))
        self.wire_offsets.update(offsets)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the wire's offsets of some partitions."""
        for partition in partitions:
            if (known := self.wire_offsets.pop(partition, None)) is not None:
                self.metadata_chars -= len(known.metadata or "")

    def replace_all(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        """Replaces all offsets from the wire."""
        self.wire_offsets, self.metadata_chars = offsets, metadata_chars(offsets.values())

    def remove(self, partition: TopicPartition, at: float) -> CommittedOffset | None:
        """Removes an offset that the wire has shown as deleted. Returns the last offset from the wire, or None."""
        known = self.get_wire_offset(partition)
        if self.log_values is None:
            self.drop((partition,))
        else:
            self.put({partition: CommittedOffset(DELETED_OFFSET, at=at)})
        return known

    def drop_acknowledged(self, asked_at: float) -> None:
        """Drops the wire's offsets up to the time `asked_at`, because the log contains these commits."""
        self.drop([partition for partition, offset in self.wire_offsets.items() if offset.at <= asked_at])


def metadata_chars(offsets: Iterable[CommittedOffset | None]) -> int:
    """Returns how many characters of metadata the offsets have together."""
    return sum(map(len, filter(None, map(_metadata, filter(None, offsets)))))


class RawOffsets:
    """The committed offsets of a group at one moment, still raw.

    The methods skip offsets below 0 and values that cannot be decoded.

    Args:
        keys, values: raw keys and values from the log, without those that `wire_offsets` override.
        wire_offsets: partitions and offsets from the wire.

    Attributes:
        clock_difference: seconds that are added to the times of offsets from the wire, because the times in the log
            are from the broker's clock.
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
        """Yields partitions and their offsets, in no order."""
        for topic, partition, raw in self._log_rows():
            try:
                offset = decode_offset_value(raw)[0]
            except DecodeError:
                continue
            if offset >= 0:
                yield (topic, partition), offset
        for topic_partition, committed in self._wire_offsets:
            if committed.offset >= 0:
                yield topic_partition, committed.offset

    def rows(self) -> Iterator[OffsetRow]:
        """Yields the offsets in no order, as plain tuples, because there may be 100,000 offsets a second."""
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
        """Yields partitions and their offsets, in no order. Each offset is decoded just before it is yielded."""
        for topic, partition, raw in self._log_rows():
            try:
                committed = _decoded(raw)
            except DecodeError:
                continue
            if committed.offset >= 0:
                yield (topic, partition), committed
        for topic_partition, committed in self._wire_offsets:
            if committed.offset >= 0:
                yield topic_partition, committed

    def _log_rows(self) -> Iterator[tuple[str, int, bytes]]:
        for key, raw in zip(self._keys, self._values, strict=True):
            try:
                topic = _topic(key[:-4])
            except DecodeError:
                continue
            yield topic, int.from_bytes(key[-4:], "big", signed=True), raw


@lru_cache(maxsize=10_000)
def _topic(head: bytes) -> str:
    """Returns the topic of all keys that begin with `head`. Cached, because many keys have the same topic."""
    topic, _ = decode_key_suffix(head + bytes(4))
    if key_suffix(topic, 0)[:-4] != head:
        raise DecodeError("offsets topic key", "topic", f"{head.hex()} is no key of {topic}")
    return topic


def _differs(raw: bytes | None, wire_offset: CommittedOffset) -> bool:
    """Whether a value of the log differs from an offset of the wire. A value that cannot be decoded differs."""
    if raw is None or wire_offset.offset == DELETED_OFFSET:
        return not (raw is None and wire_offset.offset == DELETED_OFFSET)
    try:
        logged = _decoded(raw)
    except DecodeError:
        return True
    return (logged.offset, logged.leader_epoch, logged.metadata) != (
        wire_offset.offset,
        wire_offset.leader_epoch,
        wire_offset.metadata,
    )


def _decoded(raw: bytes) -> CommittedOffset:
    offset, leader_epoch, metadata, committed_at, _ = decode_offset_value(raw)
    return committed_offset(offset, leader_epoch, metadata, committed_at / 1000)
