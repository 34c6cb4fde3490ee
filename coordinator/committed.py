"""The committed offsets of one group, from two sources.

Owns: `CommittedOffsets`: what the log says, raw below, and on top what the wire has said since. Must not know: how
sure any of it is, transactions, who the group's members are.
"""

from collections.abc import ItemsView, Iterator, Mapping
from itertools import islice
from uuid import UUID

from group_sidecar.codecs.offsets_topic import read_offset, read_suffix, suffix
from group_sidecar.codecs.primitives import decoded
from group_sidecar.coordinator.views import CommittedOffset, TopicPartition

_TAGGED = b"\0\4"
_ONE_TAG = b"\1\0\x10"
"""Behind an OffsetCommitValue v4: one tagged field, number 0, of 16 bytes."""


class CommittedOffsets(Mapping[TopicPartition, CommittedOffset]):
    """A window onto them. What the log says is decoded when it is asked for.

    Attributes:
        logged: raw values by raw topic and partition, the log's own; None where the log is not read.
        seen: what the wire has said beyond it. An offset below 0 stands for one that was deleted.
    """

    __slots__ = ("logged", "seen")

    def __init__(self) -> None:
        self.logged: dict[bytes, bytes] | None = None
        self.seen: dict[TopicPartition, CommittedOffset] = {}

    def __getitem__(self, partition: TopicPartition) -> CommittedOffset:
        found = self.seen.get(partition)
        if found is None:
            return _decoded((self.logged or {})[suffix(*partition)])
        if found.offset < 0:
            raise KeyError(partition)
        return found

    def __iter__(self) -> Iterator[TopicPartition]:
        for partition in map(read_suffix, self.logged or ()):
            if partition not in self.seen:
                yield partition
        for partition, offset in self.seen.items():
            if offset.offset >= 0:
                yield partition

    def __len__(self) -> int:
        return sum(1 for _ in self) if self.logged and self.seen else len(self.logged or self.seen)

    def items(self) -> ItemsView[TopicPartition, CommittedOffset]:
        """All of them, each decoded once. A thread may ask too: what is walked over is copied before."""
        seen = self.seen
        both = {read_suffix(key): raw for key, raw in list((self.logged or {}).items())}
        told: dict[TopicPartition, CommittedOffset] = {
            partition: _decoded(raw) for partition, raw in both.items() if partition not in seen
        }
        told.update((partition, offset) for partition, offset in list(seen.items()) if offset.offset >= 0)
        return told.items()

    def partitions(self) -> Iterator[set[TopicPartition]]:
        """The partitions, a thousand at a time: there may be a million."""
        keys = iter(list(self.logged or ()))
        while some := set(map(read_suffix, islice(keys, 1000))):
            yield some
        yield {partition for partition, offset in list(self.seen.items()) if offset.offset >= 0}

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
        return found if found is not None and found.offset >= 0 else None

    def remove(self, partition: TopicPartition, at: float) -> CommittedOffset | None:
        """Takes an offset out, as the wire has it. Returns what it was, if that came from the wire too."""
        known = self.get_seen(partition)
        if self.logged is None:
            self.seen.pop(partition, None)
        else:
            self.seen[partition] = CommittedOffset(-1, at=at)
        return known

    def catch_up(self, asked_at: float) -> None:
        """The log says all that was acknowledged until then."""
        late = [partition for partition, offset in self.seen.items() if offset.at <= asked_at]
        for partition in late:
            del self.seen[partition]


def _differs(raw: bytes | None, seen: CommittedOffset) -> bool:
    if raw is None or seen.offset < 0:
        return not (raw is None and seen.offset < 0)
    logged = _decoded(raw)
    return (logged.offset, logged.leader_epoch, logged.metadata) != (seen.offset, seen.leader_epoch, seen.metadata)


def _decoded(raw: bytes) -> CommittedOffset:
    offset, leader_epoch, metadata, committed_at, _ = read_offset(raw)
    return CommittedOffset(offset, leader_epoch, metadata, committed_at / 1000)
