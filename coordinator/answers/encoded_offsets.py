"""Keeps the encoded topics of large OffsetFetch replies, and encodes only the parts that have changed.

`EncodedOffsets` encodes the topics of one group, and `EncodedFetch` encodes the whole reply. The caller decides
beforehand whether a request may be answered.

A row is the encoding of one partition. A part contains the rows of some partitions of one topic. Most rows are the same
as in the previous reply, so only parts with a changed row are encoded again. Values from the log are encoded many rows
at a time (`codecs.offset_columns`). `group_replies.offset_fetch` builds the same reply in a simpler way, for requests
about few partitions.
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
    encode_uniform_rows,
    indexes_in_suffixes,
    key_suffixes,
    pack_indexes,
    unpack_indexes,
)
from group_sidecar.codecs.offsets_topic import decode_key_suffix, decode_offset_value, key_suffix
from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.coordinator.answers.repeated_lookup import Lookup
from group_sidecar.coordinator.model.views import DELETED_OFFSET, CommittedOffset, GroupView
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets

MIN_ENCODED_PARTITIONS = 8
"""From this many partitions on, this module is faster than `group_replies.offset_fetch`."""
MIN_CACHED_PARTITIONS = 50
"""From this many partitions on, the encoded parts are worth the memory that they need."""
MAX_ROWS_PER_PART = 128
"""Maximum number of rows per part. A change of one row makes its whole part stale."""
PARTITION_BYTES = 300
"""Estimated bytes of one partition: its key, its row and its position."""

_Key = Any
"""A key of `CommittedOffsets`: raw bytes if the log is read, otherwise topic and partition."""
_Source = bytes | CommittedOffset | None
"""The source of a row: a raw value from the log, an offset from the wire, or None for no offset."""
_begin = attrgetter("begin")


class _Topic(NamedTuple):
    """A topic of the reply. `indexes` contains its partition numbers, each packed as an int32."""

    name: str
    topic_id: UUID
    keys: Sequence[_Key]
    indexes: bytes


class _Rows(NamedTuple):
    """A range of rows (`begin`, `end`) that forms one part, and the index of that part (`place`)."""

    begin: int
    end: int
    place: int


class EncodedOffsets:
    """The encoded parts of one group's topics, for one request.

    `topics` contains the requested topics, none of them twice, or is None for all topics with offsets.
    """

    def __init__(self, topics: Sequence[OffsetFetchRequestTopic] | None, version: int) -> None:
        self._topics = topics
        self._version = version
        self._form: tuple[object, ...] | None = None
        self._lookup = Lookup((), {})
        self._sources: list[_Source] = []
        self._overlaid: set[int] = set()
        self._indexes = b""
        self._rows: list[_Rows] = []
        self._stale: set[int] = set()
        self._parts: list[bytes] = []

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return PARTITION_BYTES * len(self._sources)

    def encode(self, offsets: CommittedOffsets, names: Mapping[UUID, str]) -> Sequence[bytes] | None:
        """Returns all parts in order.

        Args:
            offsets: the committed offsets of the group.
            names: topic names by id.

        Returns:
            The parts, or None if a needed value is not known, as in `group_replies.offset_fetch`.

        Raises:
            DecodeError: the log contains a value that cannot be decoded.
        """
        logged = offsets.log_values
        base: Mapping[_Key, _Source] = offsets.wire_offsets if logged is None else logged
        wire_offsets = (
            {} if logged is None else {key_suffix(*each): offset for each, offset in offsets.wire_offsets.items()}
        )
        keys = _keys(base, wire_offsets) if self._topics is None else None
        form = (logged is None, tuple(names.items()) if self._version >= TOPIC_IDS_SINCE else (), keys)
        if form == self._form:
            for number in self._lookup.changed(base):
                self._set_source(number, self._lookup.found[number])
        else:
            self._form = None
            raw = logged is not None
            topics = self._named(names, raw=raw) if keys is None else self._grouped(keys, names, raw=raw)
            if topics is None:
                return None
            self._rebuild(topics, base)
            self._form = form
        self._overlay_wire_offsets(wire_offsets)
        return self._parts if self._encode_stale() else None

    def _named(self, names: Mapping[UUID, str], *, raw: bool) -> list[_Topic] | None:
        """Returns the requested topics, or None if the name of one is not known."""
        assert self._topics is not None
        by_id, topics = self._version >= TOPIC_IDS_SINCE, []
        for asked in self._topics:
            name = names.get(asked.topic_id) if by_id else asked.name
            if name is None:
                return None
            topics.append(_topic(name, asked.topic_id, asked.partition_indexes, raw=raw))
        return topics

    def _grouped(self, keys: Iterable[_Key], names: Mapping[UUID, str], *, raw: bool) -> list[_Topic] | None:
        """Returns all topics with offsets, sorted by name, or None if the id of one is not known."""
        topics = sorted(_logged_topics(sorted(keys)) if raw else _seen_topics(keys))
        if self._version < TOPIC_IDS_SINCE:
            return topics
        ids = {name: topic_id for topic_id, name in names.items()}
        known = [topic._replace(topic_id=ids[topic.name]) for topic in topics if topic.name in ids]
        return known if len(known) == len(topics) else None

    def _rebuild(self, topics: Sequence[_Topic], base: Mapping[_Key, _Source]) -> None:
        keys: list[_Key] = []
        self._rows, self._parts = [], [start_topics(self._version, len(topics))]
        for topic in topics:
            begin = len(keys)
            keys += topic.keys
            self._parts.append(start_topic(self._version, topic.name, topic.topic_id, len(topic.keys)))
            for each in range(begin, len(keys), MAX_ROWS_PER_PART):
                self._rows.append(_Rows(each, min(each + MAX_ROWS_PER_PART, len(keys)), len(self._parts)))
                self._parts.append(b"")
            self._parts.append(end_topic(self._version))
        self._indexes = b"".join(topic.indexes for topic in topics)
        self._lookup = Lookup(keys, base)
        self._sources, self._overlaid = [*self._lookup.found], set()
        self._stale = {*range(len(self._rows))}

    def _set_source(self, number: int, source: _Source) -> None:
        """Sets the source of a row, and marks the row's part as stale if the source has changed."""
        if source != self._sources[number]:
            self._sources[number] = source
            self._stale.add(bisect_right(self._rows, number, key=_begin) - 1)

    def _overlay_wire_offsets(self, wire_offsets: Mapping[_Key, CommittedOffset]) -> None:
        """Uses the wire's offset for each row that has one, and the log's value for all other rows."""
        overlaid = {}
        for key, offset in wire_offsets.items():
            if (number := self._lookup.number(key)) is not None:
                overlaid[number] = offset
        for number in self._overlaid - overlaid.keys():
            self._set_source(number, self._lookup.found[number])
        for number, offset in overlaid.items():
            self._set_source(number, offset)
        self._overlaid = set(overlaid)

    def _encode_stale(self) -> bool:
        """Encodes the stale parts. Returns False if a needed value is not known."""
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
        """Encodes all rows at once if all values are from the log and have the same size. Returns whether it did."""
        rows = encode_uniform_rows(self._version, self._indexes, self._sources)
        if rows is None:
            return False
        size = len(rows) // len(self._sources)
        for begin, end, place in self._rows:
            self._parts[place] = rows[size * begin : size * end]
        return True

    def _encoded(self, indexes: bytes, sources: list[_Source]) -> bytes | None:
        """Encodes some rows; None if a needed value is not known.

        Most sources are values of the log, and their rows have equal sizes. So the method first encodes all rows at
        once, with some value of the log in place of each other source. Then it encodes the rows of the other sources.
        """
        logged = [source for source in sources if isinstance(source, bytes)]
        stand_ins = [source if isinstance(source, bytes) else logged[0] for source in sources] if logged else []
        alike = (encode_uniform_rows(self._version, indexes, stand_ins) if stand_ins else None) or b""
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
        """Encodes one row; None if its leader epoch is needed and not known."""
        version = self._version
        if isinstance(source, bytes):
            offset, epoch, metadata, _, _ = decode_offset_value(source)
            return encode_partition(version, index, offset, epoch, metadata)
        if source is None or source.offset == DELETED_OFFSET:
            return encode_partition(version, index, -1, -1, "")
        if source.epoch_known or version < LEADER_EPOCH_SINCE:
            return encode_partition(version, index, source.offset, source.leader_epoch, source.metadata)
        return None


def _topic(name: str, topic_id: UUID, numbers: Sequence[int], *, raw: bool) -> _Topic:
    indexes = pack_indexes(numbers)
    return _Topic(name, topic_id, key_suffixes(name, indexes) if raw else [(name, each) for each in numbers], indexes)


def _logged_topics(keys: Sequence[bytes]) -> Iterator[_Topic]:
    """Yields the topics of sorted raw keys, without topic ids."""
    begin = 0
    while begin < len(keys):
        name, _ = decode_key_suffix(keys[begin])
        head = key_suffix(name, 0)[:-4]
        if head != keys[begin][:-4]:
            raise DecodeError("offsets topic key", "topic", f"{keys[begin].hex()} is no key of {name}")
        end = bisect_right(keys, head + b"\xff\xff\xff\xff", begin)
        yield _Topic(name, ZERO_UUID, keys[begin:end], indexes_in_suffixes(keys[begin:end]))
        begin = end


def _seen_topics(keys: Iterable[tuple[str, int]]) -> Iterator[_Topic]:
    """Yields the topics of topic and partition pairs in any order, without topic ids."""
    topics: dict[str, list[int]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(index)
    for name, indexes in topics.items():
        yield _topic(name, ZERO_UUID, sorted(indexes), raw=False)


def _keys(base: Mapping[_Key, _Source], wire_offsets: Mapping[_Key, CommittedOffset]) -> list[_Key]:
    """Returns the keys of all committed offsets: those in the log, and those that only the wire has reported."""
    keys = [*base, *(key for key in wire_offsets if key not in base)]
    if any(offset.offset == DELETED_OFFSET for offset in wire_offsets.values()):
        return [key for key in keys if key not in wire_offsets or wire_offsets[key].offset != DELETED_OFFSET]
    return keys


class EncodedFetch:
    """The encoded parts of all groups that one request names."""

    def __init__(self, request: OffsetFetchRequest, version: int) -> None:
        self._version = version
        if version < MANY_GROUPS_SINCE:
            self._groups = [(request.group_id, EncodedOffsets(request.topics, version))]
        else:
            self._groups = [(asked.group_id, EncodedOffsets(asked.topics, version)) for asked in request.groups]

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return sum(encoded.size for _, encoded in self._groups)

    def encode(self, groups: Mapping[str, GroupView], names: Mapping[UUID, str]) -> bytes | None:
        """Returns the body of the reply.

        `names` has the topic names by id. The result is None if a needed value is not known. Raises DecodeError if the
        log contains a value that cannot be decoded.
        """
        parts = [(group_id, encoded.encode(_offsets_of(groups[group_id]), names)) for group_id, encoded in self._groups]
        encoded_topics = [(group_id, topics) for group_id, topics in parts if topics is not None]
        return encode_reply(self._version, encoded_topics) if len(encoded_topics) == len(parts) else None


def partitions_asked(request: OffsetFetchRequest, version: int, groups: Mapping[str, GroupView]) -> int:
    """Returns how many partitions a request is about, or up to twice as many if it names no topics."""
    asked = request.groups if version >= MANY_GROUPS_SINCE else [request]
    return sum(_partitions(each.topics, groups[each.group_id]) for each in asked)


def _partitions(topics: Sequence[OffsetFetchRequestTopic] | None, group: GroupView) -> int:
    if topics is not None:
        return sum(len(topic.partition_indexes) for topic in topics)
    offsets = _offsets_of(group)
    return len(offsets.log_values or ()) + len(offsets.wire_offsets)


def _offsets_of(group: GroupView) -> CommittedOffsets:
    return group.offsets if isinstance(group.offsets, CommittedOffsets) else CommittedOffsets()
