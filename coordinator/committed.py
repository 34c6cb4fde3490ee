"""The committed offsets of one group, from two sources.

Owns: `CommittedOffsets`: what the log says, raw below, and on top what the wire has said since; and `OffsetsRead`, what
stood there at one moment. Must not know: how sure any of it is, transactions, who the group's members are.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from uuid import UUID

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.offsets_topic import read_offset, read_suffix, suffix
from group_sidecar.codecs.primitives import decoded
from group_sidecar.coordinator.views import DELETED_OFFSET, CommittedOffset, TopicPartition, committed_offset

_metadata = attrgetter("metadata")
_TAGGED = b"\0\4"
_ONE_TAG = b"\1\0\x10"
"""Behind an OffsetCommitValue v4: one tagged field, number 0, of 16 bytes."""


OffsetRow = tuple[str, int, int, int, float]
"""Topic, partition, offset, leader epoch, and when it was committed, in seconds since the epoch."""


class CommittedOffsets(Mapping[TopicPartition, CommittedOffset]):
    """A window onto them. What the log says is decoded when it is asked for.

    Attributes:
        logged: raw values by raw topic and partition, the log's own; None where the log is not read.
        seen: what the wire has said beyond it. DELETED_OFFSET stands for one that was deleted. To be changed by `put`,
            `drop` and `put_all` only.
        text: characters of metadata in `seen`.
    """

    __slots__ = ("logged", "seen", "text")

    def __init__(self) -> None:
        self.logged: dict[bytes, bytes] | None = None
        self.seen: dict[TopicPartition, CommittedOffset] = {}
        self.text = 0

    def __getitem__(self, partition: TopicPartition) -> CommittedOffset:
        found = self.seen.get(partition)
        if found is None:
            return _decoded((self.logged or {})[suffix(*partition)])
        if found.offset == DELETED_OFFSET:
            raise KeyError(partition)
        return found

    def __iter__(self) -> Iterator[TopicPartition]:
        for partition in map(read_suffix, self.logged or ()):
            if partition not in self.seen:
                yield partition
        for partition, offset in self.seen.items():
            if offset.offset != DELETED_OFFSET:
                yield partition

    def __len__(self) -> int:
        return sum(1 for _ in self) if self.logged and self.seen else len(self.logged or self.seen)

    def partitions(self) -> Iterator[set[TopicPartition]]:
        """The partitions, a thousand at a time: there may be a million."""
        keys = iter(list(self.logged or ()))
        while some := set(map(read_suffix, islice(keys, 1000))):
            yield some
        yield {partition for partition, offset in list(self.seen.items()) if offset.offset != DELETED_OFFSET}

    def read(self) -> "OffsetsRead":
        """All that stands there now, to be decoded when there is time: a group may have 100,000 of them."""
        logged, seen = self.logged or {}, self.seen
        if not (logged and seen):
            return OffsetsRead(tuple(logged), tuple(logged.values()), tuple(seen.items()))
        above = {suffix(*partition) for partition in seen}
        below = [(key, raw) for key, raw in logged.items() if key not in above]
        return OffsetsRead(tuple(key for key, _ in below), tuple(raw for _, raw in below), tuple(seen.items()))

    def topics(self) -> set[tuple[str, UUID]]:
        """The names and ids of topics whose offsets are in the log with an id, as brokers write it since 4.1."""
        tagged = {
            (key[2:-4], raw[-16:])
            for key, raw in (self.logged or {}).items()
            if raw[:2] == _TAGGED and raw[-19:-16] == _ONE_TAG
        }
        return {(decoded(name), UUID(bytes=topic_id)) for name, topic_id in tagged}

    def differing(self) -> list[TopicPartition]:
        """The partitions of which the log says something else than the wire."""
        logged = self.logged or {}
        return [partition for partition, seen in self.seen.items() if _differs(logged.get(suffix(*partition)), seen)]

    def get_seen(self, partition: TopicPartition) -> CommittedOffset | None:
        """What the wire last said of a partition, where the log has not said it since."""
        found = self.seen.get(partition)
        return found if found is not None and found.offset != DELETED_OFFSET else None

    def put(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Takes what the wire says of some partitions."""
        self.text += text_of(offsets.values()) - text_of(map(self.seen.get, offsets))
        self.seen.update(offsets)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """The wire says nothing more of some partitions."""
        for partition in partitions:
            if (known := self.seen.pop(partition, None)) is not None:
                self.text -= len(known.metadata or "")

    def put_all(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        """Takes what the wire says of all partitions."""
        self.seen, self.text = offsets, text_of(offsets.values())

    def remove(self, partition: TopicPartition, at: float) -> CommittedOffset | None:
        """Takes an offset out, as the wire has it. Returns what it was, if that came from the wire too."""
        known = self.get_seen(partition)
        if self.logged is None:
            self.drop((partition,))
        else:
            self.put({partition: CommittedOffset(DELETED_OFFSET, at=at)})
        return known

    def catch_up(self, asked_at: float) -> None:
        """The log says all that was acknowledged until then."""
        self.drop([partition for partition, offset in self.seen.items() if offset.at <= asked_at])


def text_of(offsets: Iterable[CommittedOffset | None]) -> int:
    """Returns how many characters of metadata offsets have."""
    return sum(map(len, filter(None, map(_metadata, filter(None, offsets)))))


class OffsetsRead:
    """What stood in a window at one moment, as raw as it was there.

    An offset below 0 is none, and neither is what the log has in a form that cannot be read.

    Args:
        keys, values: what the log said, where the wire had not said anything else.
        seen: what the wire had said.

    Attributes:
        drift: seconds to add to when the wire said it; the log has the broker's own time.
    """

    __slots__ = ("_keys", "_seen", "_values", "drift")

    def __init__(
        self,
        keys: tuple[bytes, ...] = (),
        values: tuple[bytes, ...] = (),
        seen: tuple[tuple[TopicPartition, CommittedOffset], ...] = (),
    ) -> None:
        self._keys = keys
        self._values = values
        self._seen = seen
        self.drift = 0.0

    def numbers(self) -> Iterator[tuple[TopicPartition, int]]:
        """Partitions and offsets alone, in no order."""
        for topic, partition, raw in self._logged():
            try:
                offset = read_offset(raw)[0]
            except DecodeError:
                continue
            if offset >= 0:
                yield (topic, partition), offset
        for where, committed in self._seen:
            if committed.offset >= 0:
                yield where, committed.offset

    def rows(self) -> Iterator[OffsetRow]:
        """The same with when it was committed, and without an object for each: there may be 100,000 a second."""
        for topic, partition, raw in self._logged():
            try:
                offset, leader_epoch, _, committed_at, _ = read_offset(raw)
            except DecodeError:
                continue
            if offset >= 0:
                yield topic, partition, offset, leader_epoch, committed_at / 1000
        for (topic, partition), committed in self._seen:
            if committed.offset >= 0:
                yield topic, partition, committed.offset, committed.leader_epoch, committed.at + self.drift

    def decoded(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """All there is to say of each, in no order, decoded when its turn comes."""
        for topic, partition, raw in self._logged():
            try:
                committed = _decoded(raw)
            except DecodeError:
                continue
            if committed.offset >= 0:
                yield (topic, partition), committed
        for where, committed in self._seen:
            if committed.offset >= 0:
                yield where, committed

    def _logged(self) -> Iterator[tuple[str, int, bytes]]:
        for key, raw in zip(self._keys, self._values, strict=True):
            try:
                topic = _topic(key[:-4])
            except DecodeError:
                continue
            yield topic, int.from_bytes(key[-4:], "big", signed=True), raw


@lru_cache(maxsize=10_000)
def _topic(head: bytes) -> str:
    """The topic of all keys that begin so; remembered, as it has many partitions, and many groups."""
    topic, _ = read_suffix(head + bytes(4))
    if suffix(topic, 0)[:-4] != head:
        raise DecodeError("offsets topic key", "topic", f"{head.hex()} is no key of {topic}")
    return topic


def _differs(raw: bytes | None, seen: CommittedOffset) -> bool:
    if raw is None or seen.offset == DELETED_OFFSET:
        return not (raw is None and seen.offset == DELETED_OFFSET)
    logged = _decoded(raw)
    return (logged.offset, logged.leader_epoch, logged.metadata) != (seen.offset, seen.leader_epoch, seen.metadata)


def _decoded(raw: bytes) -> CommittedOffset:
    offset, leader_epoch, metadata, committed_at, _ = read_offset(raw)
    return committed_offset(offset, leader_epoch, metadata, committed_at / 1000)
