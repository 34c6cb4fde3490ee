"""The committed offsets of a group as a question asks for them, kept in parts as they were encoded.

Owns: `EncodedOffsets`: the topics of one group in an OffsetFetch reply, and `EncodedFetch`, the whole of it. Must not
know: whether it may be told.

A part has the rows of some partitions of one topic. Most are the same as the last time. So only parts with rows that
are to be made from something else now are encoded again, and what the log says many rows at a time
(`codecs.offset_columns`). `answers.offset_fetch` does the same plainly, for questions about few.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from group_sidecar.codecs.errors import DecodeError
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
from group_sidecar.codecs.offset_columns import (
    encode_alike,
    indexes_behind,
    pack_indexes,
    suffixes,
    unpack_indexes,
)
from group_sidecar.codecs.offsets_topic import read_offset, read_suffix, suffix
from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.coordinator.committed import CommittedOffsets
from group_sidecar.coordinator.lookups import Lookup
from group_sidecar.coordinator.views import DELETED_OFFSET, CommittedOffset, GroupView

SOME = 8
"""Partitions from which on it costs less than to tell them plainly."""
MANY = 50
"""Partitions from which on parts are worth their memory."""
AT_ONCE = 128
"""Rows of one part at the most: so many are encoded where one of them is another now."""
BYTES_EACH = 300
"""What a partition takes up, about: its key, its row, and where they stand."""

_Key = Any
"""As `CommittedOffsets` has them: raw bytes where the log is read, else topic and partition."""
_Source = bytes | CommittedOffset | None
"""What a row is made from: the log's raw value, the wire's word, or that there is no offset."""
_begin = attrgetter("begin")


class _Topic(NamedTuple):
    """A topic that is asked for; `indexes`: its partitions' numbers, packed."""

    name: str
    topic_id: UUID
    keys: Sequence[_Key]
    indexes: bytes


class _Rows(NamedTuple):
    """Where some rows stand: among all rows, and encoded among the parts."""

    begin: int
    end: int
    place: int


class EncodedOffsets:
    """The parts for one question. `topics`: what it asks for, nothing twice; None for all that there is."""

    def __init__(self, topics: Sequence[OffsetFetchRequestTopic] | None, version: int) -> None:
        self._topics = topics
        self._version = version
        self._form: tuple[object, ...] | None = None
        self._lookup = Lookup((), {})
        self._sources: list[_Source] = []
        self._laid_upon: set[int] = set()
        self._indexes = b""
        self._rows: list[_Rows] = []
        self._stale: set[int] = set()
        self._parts: list[bytes] = []

    @property
    def size(self) -> int:
        """Bytes that it takes up, about."""
        return BYTES_EACH * len(self._sources)

    def encode(self, offsets: CommittedOffsets, names: Mapping[UUID, str]) -> Sequence[bytes] | None:
        """All parts, in order. `names`: topic names by id.

        None where something is not known that it would tell, as `answers.offset_fetch`. Raises DecodeError where the
        log has a value that cannot be read.
        """
        logged = offsets.logged
        base: Mapping[_Key, _Source] = offsets.seen if logged is None else logged
        beside = {} if logged is None else {suffix(*each): offset for each, offset in offsets.seen.items()}
        keys = _keys(base, beside) if self._topics is None else None
        form = (logged is None, tuple(names.items()) if self._version >= TOPIC_IDS_SINCE else (), keys)
        if form == self._form:
            for number in self._lookup.changed(base):
                self._make_from(number, self._lookup.found[number])
        else:
            self._form = None
            raw = logged is not None
            topics = self._named(names, raw=raw) if keys is None else self._grouped(keys, names, raw=raw)
            if topics is None:
                return None
            self._lay_out(topics, base)
            self._form = form
        self._lay_upon(beside)
        return self._parts if self._encode_stale() else None

    def _named(self, names: Mapping[UUID, str], *, raw: bool) -> list[_Topic] | None:
        """The topics asked for; None where a name is not known."""
        assert self._topics is not None
        by_id, topics = self._version >= TOPIC_IDS_SINCE, []
        for asked in self._topics:
            name = names.get(asked.topic_id) if by_id else asked.name
            if name is None:
                return None
            topics.append(_topic(name, asked.topic_id, asked.partition_indexes, raw=raw))
        return topics

    def _grouped(self, keys: Iterable[_Key], names: Mapping[UUID, str], *, raw: bool) -> list[_Topic] | None:
        """The topics that there are, in the order of their names; None where an id is not known."""
        topics = sorted(_logged_topics(sorted(keys)) if raw else _seen_topics(keys))
        if self._version < TOPIC_IDS_SINCE:
            return topics
        ids = {name: topic_id for topic_id, name in names.items()}
        known = [topic._replace(topic_id=ids[topic.name]) for topic in topics if topic.name in ids]
        return known if len(known) == len(topics) else None

    def _lay_out(self, topics: Sequence[_Topic], base: Mapping[_Key, _Source]) -> None:
        keys: list[_Key] = []
        self._rows, self._parts = [], [start_topics(self._version, len(topics))]
        for topic in topics:
            begin = len(keys)
            keys += topic.keys
            self._parts.append(start_topic(self._version, topic.name, topic.topic_id, len(topic.keys)))
            for each in range(begin, len(keys), AT_ONCE):
                self._rows.append(_Rows(each, min(each + AT_ONCE, len(keys)), len(self._parts)))
                self._parts.append(b"")
            self._parts.append(end_topic(self._version))
        self._indexes = b"".join(topic.indexes for topic in topics)
        self._lookup = Lookup(keys, base)
        self._sources, self._laid_upon = [*self._lookup.found], set()
        self._stale = {*range(len(self._rows))}

    def _make_from(self, number: int, source: _Source) -> None:
        """A row is to be made from this."""
        if source != self._sources[number]:
            self._sources[number] = source
            self._stale.add(bisect_right(self._rows, number, key=_begin) - 1)

    def _lay_upon(self, beside: Mapping[_Key, CommittedOffset]) -> None:
        """What the wire has said since counts, and where it has not, the log."""
        laid = {}
        for key, offset in beside.items():
            if (number := self._lookup.number(key)) is not None:
                laid[number] = offset
        for number in self._laid_upon - laid.keys():
            self._make_from(number, self._lookup.found[number])
        for number, offset in laid.items():
            self._make_from(number, offset)
        self._laid_upon = set(laid)

    def _encode_stale(self) -> bool:
        """Encodes what is not as it should be; False where something is not known that it would tell."""
        if len(self._stale) == len(self._rows) > 0 and self._all_at_once():
            self._stale.clear()
        for each in sorted(self._stale):
            begin, end, place = self._rows[each]
            rows = self._encoded(self._indexes[4 * begin : 4 * end], self._sources[begin:end])
            if rows is not None:
                self._parts[place] = rows
                self._stale.discard(each)
        return not self._stale

    def _all_at_once(self) -> bool:
        """Encodes all rows, if they are alike."""
        rows = encode_alike(self._version, self._indexes, self._sources)
        if rows is None:
            return False
        size = len(rows) // len(self._sources)
        for begin, end, place in self._rows:
            self._parts[place] = rows[size * begin : size * end]
        return True

    def _encoded(self, indexes: bytes, sources: list[_Source]) -> bytes | None:
        """Rows; None where something is not known that they would tell. Most are of the log, and alike."""
        logged = [source for source in sources if isinstance(source, bytes)]
        stand_ins = [source if isinstance(source, bytes) else logged[0] for source in sources] if logged else []
        alike = (encode_alike(self._version, indexes, stand_ins) if stand_ins else None) or b""
        size, done, rows = len(alike) // len(sources), 0, list[bytes]()
        for number, (index, source) in enumerate(zip(unpack_indexes(indexes), sources, strict=True)):
            if alike and isinstance(source, bytes):
                continue
            row = self._row(index, source)
            if row is None:
                return None
            rows += (alike[size * done : size * number], row)
            done = number + 1
        return b"".join((*rows, alike[size * done :]))

    def _row(self, index: int, source: _Source) -> bytes | None:
        """One of them."""
        version = self._version
        if isinstance(source, bytes):
            offset, epoch, metadata, _, _ = read_offset(source)
            return encode_partition(version, index, offset, epoch, metadata)
        if source is None or source.offset == DELETED_OFFSET:
            return encode_partition(version, index, -1, -1, "")
        if source.epoch_known or version < LEADER_EPOCH_SINCE:
            return encode_partition(version, index, source.offset, source.leader_epoch, source.metadata)
        return None


def _topic(name: str, topic_id: UUID, numbers: Sequence[int], *, raw: bool) -> _Topic:
    indexes = pack_indexes(numbers)
    return _Topic(name, topic_id, suffixes(name, indexes) if raw else [(name, each) for each in numbers], indexes)


def _logged_topics(keys: Sequence[bytes]) -> Iterator[_Topic]:
    """The topics of sorted keys. Their ids are not known."""
    begin = 0
    while begin < len(keys):
        name, _ = read_suffix(keys[begin])
        head = suffix(name, 0)[:-4]
        if head != keys[begin][:-4]:
            raise DecodeError("offsets topic key", "topic", f"{keys[begin].hex()} is no key of {name}")
        end = bisect_right(keys, head + b"\xff\xff\xff\xff", begin)
        yield _Topic(name, ZERO_UUID, keys[begin:end], indexes_behind(keys[begin:end]))
        begin = end


def _seen_topics(keys: Iterable[tuple[str, int]]) -> Iterator[_Topic]:
    """The same of topics and partitions in any order."""
    topics: dict[str, list[int]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(index)
    for name, indexes in topics.items():
        yield _topic(name, ZERO_UUID, sorted(indexes), raw=False)


def _keys(base: Mapping[_Key, _Source], beside: Mapping[_Key, CommittedOffset]) -> list[_Key]:
    """Of all offsets that there are."""
    keys = [*base, *(key for key in beside if key not in base)]
    if any(offset.offset == DELETED_OFFSET for offset in beside.values()):
        return [key for key in keys if key not in beside or beside[key].offset != DELETED_OFFSET]
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


def partitions_asked(request: OffsetFetchRequest, version: int, groups: Mapping[str, GroupView]) -> int:
    """How many partitions a question is about."""
    asked = request.groups if version >= MANY_GROUPS_SINCE else [request]
    return sum(_partitions(each.topics, groups[each.group_id]) for each in asked)


def _partitions(topics: Sequence[OffsetFetchRequestTopic] | None, group: GroupView) -> int:
    if topics is not None:
        return sum(len(topic.partition_indexes) for topic in topics)
    offsets = _offsets_of(group)
    return len(offsets.logged or ()) + len(offsets.seen)


def _offsets_of(group: GroupView) -> CommittedOffsets:
    return group.offsets if isinstance(group.offsets, CommittedOffsets) else CommittedOffsets()
