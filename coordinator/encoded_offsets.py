"""The committed offsets of a group as a question asks for them, kept in parts as they were encoded.

Owns: `EncodedOffsets`: the topics of one group in an OffsetFetch reply, and `EncodedFetch`, the whole of it. Must not
know: whether it may be told.

To encode 10,000 partitions costs 30 ms, and most are the same as the last time. So what each part was made from is
compared by identity, and only what is another now is encoded again. `answers.offset_fetch` does the same plainly, for
questions about few.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any
from uuid import UUID

from group_sidecar.codecs.messages.offset_fetch import (
    LEADER_EPOCH_SINCE,
    MANY_GROUPS_SINCE,
    TOPIC_IDS_SINCE,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    encode_partition,
    encode_reply,
    end_topic,
    start_topic,
    start_topics,
)
from group_sidecar.codecs.offsets_topic import read_offset, read_suffix, suffix
from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.coordinator.committed import CommittedOffsets
from group_sidecar.coordinator.views import CommittedOffset, GroupView

MANY = 50
"""Partitions from which on parts are worth their memory."""
BYTES_EACH = 250
"""What a partition takes up, about: its key, its part, and where they stand."""

_Key = Any
"""As `CommittedOffsets` has them: raw bytes where the log is read, else topic and partition."""
_Source = bytes | CommittedOffset | None
"""What a part is made from: the log's raw value, the wire's word, or that there is no offset."""
_NOTHING_YET = CommittedOffset(-1)
_Asked = list[tuple[str, UUID, Sequence[int]]]
"""Topics: name, id and partitions."""


class EncodedOffsets:
    """The parts for one question. `topics`: what it asks for; None for all that there is."""

    def __init__(self, topics: Sequence[OffsetFetchRequestTopic] | None, version: int) -> None:
        self._topics = topics
        self._version = version
        self._form: tuple[object, ...] | None = None
        self._keys: list[_Key] = []
        self._sources: list[_Source] = []
        self._places: list[tuple[int, int]] = []
        self._parts: list[bytes] = []
        self._untold: set[int] = set()

    @property
    def size(self) -> int:
        """Bytes that it takes up, about."""
        return BYTES_EACH * len(self._parts)

    def encode(self, offsets: CommittedOffsets, names: Mapping[UUID, str]) -> Sequence[bytes] | None:
        """All parts, in order. `names`: topic names by id.

        None where something is not known that it would tell, as `answers.offset_fetch`. Raises DecodeError where the
        log has a value that cannot be read.
        """
        logged = offsets.logged
        base: Mapping[_Key, _Source] = offsets.seen if logged is None else logged
        beside = {} if logged is None else {suffix(*each): offset for each, offset in offsets.seen.items()}
        keys = _keys(base, beside) if self._topics is None else None
        form = (logged is None, len(names) if self._version >= TOPIC_IDS_SINCE else 0, keys)
        if form != self._form:
            self._form = None
            asked = self._named(names) if keys is None else self._grouped(keys, names, raw=logged is not None)
            if asked is None:
                return None
            self._lay_out(asked, raw=logged is not None)
            self._form = form
        sources = map(base.get, self._keys)
        self._update(list(map(beside.get, self._keys, sources) if beside else sources))
        return None if self._untold else self._parts

    def _named(self, names: Mapping[UUID, str]) -> _Asked | None:
        """The topics asked for; None where a name is not known."""
        assert self._topics is not None
        by_id = self._version >= TOPIC_IDS_SINCE
        asked = [(names.get(t.topic_id) if by_id else t.name, t.topic_id, t.partition_indexes) for t in self._topics]
        named: _Asked = [(name, topic_id, indexes) for name, topic_id, indexes in asked if name is not None]
        return named if len(named) == len(asked) else None

    def _grouped(self, keys: Iterable[_Key], names: Mapping[UUID, str], *, raw: bool) -> _Asked | None:
        """The topics that there are, in the order of their names; None where an id is not known."""
        by_id = self._version >= TOPIC_IDS_SINCE
        ids = {name: topic_id for topic_id, name in names.items()} if by_id else {}
        topics: dict[str, list[int]] = {}
        for name, index in map(read_suffix, keys) if raw else keys:
            topics.setdefault(name, []).append(index)
        if by_id and not topics.keys() <= ids.keys():
            return None
        return [(name, ids.get(name, ZERO_UUID), sorted(topics[name])) for name in sorted(topics)]

    def _lay_out(self, asked: _Asked, *, raw: bool) -> None:
        self._parts = [start_topics(self._version, len(asked))]
        self._keys, self._places = [], []
        for name, topic_id, indexes in asked:
            self._parts.append(start_topic(self._version, name, topic_id, len(indexes)))
            self._keys += [suffix(name, index) for index in indexes] if raw else [(name, index) for index in indexes]
            self._places += zip(count(len(self._parts)), indexes)
            self._parts += [b""] * len(indexes)
            self._parts.append(end_topic(self._version))
        self._sources = [_NOTHING_YET] * len(self._keys)
        self._untold = set()

    def _update(self, sources: list[_Source]) -> None:
        """Encodes anew what is made from something else than before."""
        before, version = self._sources, self._version
        for number in compress(count(), map(is_not, sources, before)):
            source = sources[number]
            place, index = self._places[number]
            self._untold.discard(number)
            if isinstance(source, bytes):
                offset, epoch, metadata, _, _ = read_offset(source)
                self._parts[place] = encode_partition(version, index, offset, epoch, metadata)
            elif source is None or source.offset < 0:
                self._parts[place] = encode_partition(version, index, -1, -1, "")
            elif source.epoch_known or version < LEADER_EPOCH_SINCE:
                told = encode_partition(version, index, source.offset, source.leader_epoch, source.metadata)
                self._parts[place] = told
            else:
                self._untold.add(number)
            before[number] = source


def _keys(base: Mapping[_Key, _Source], beside: Mapping[_Key, CommittedOffset]) -> list[_Key]:
    """Of all offsets that there are."""
    keys = [*base, *(key for key in beside if key not in base)]
    if any(offset.offset < 0 for offset in beside.values()):
        return [key for key in keys if key not in beside or beside[key].offset >= 0]
    return keys


class EncodedFetch:
    """The parts of all groups that one question asks for."""

    def __init__(self, request: OffsetFetchRequest, version: int) -> None:
        self._version = version
        if version < MANY_GROUPS_SINCE:
            self._groups = [(request.group_id, EncodedOffsets(request.topics, version))]
        else:
            self._groups = [(asked.group_id, EncodedOffsets(asked.topics, version)) for asked in request.groups]

    @property
    def size(self) -> int:
        """Bytes that it takes up, about."""
        return sum(encoded.size for _, encoded in self._groups)

    def encode(self, groups: Mapping[str, GroupView], names: Mapping[UUID, str]) -> bytes | None:
        """The body of the answer. `names`, None and what is raised: as of EncodedOffsets."""
        parts = [(group_id, encoded.encode(_offsets_of(groups[group_id]), names)) for group_id, encoded in self._groups]
        told = [(group_id, topics) for group_id, topics in parts if topics is not None]
        return encode_reply(self._version, told) if len(told) == len(parts) else None


def worth_keeping(request: OffsetFetchRequest, version: int, groups: Mapping[str, GroupView]) -> bool:
    """Whether a question is about so many partitions that its parts should be kept."""
    asked = request.groups if version >= MANY_GROUPS_SINCE else [request]
    return sum(_partitions(each.topics, groups[each.group_id]) for each in asked) >= MANY


def _partitions(topics: Sequence[OffsetFetchRequestTopic] | None, group: GroupView) -> int:
    if topics is not None:
        return sum(len(topic.partition_indexes) for topic in topics)
    offsets = _offsets_of(group)
    return len(offsets.logged or ()) + len(offsets.seen)


def _offsets_of(group: GroupView) -> CommittedOffsets:
    return group.offsets if isinstance(group.offsets, CommittedOffsets) else CommittedOffsets()
