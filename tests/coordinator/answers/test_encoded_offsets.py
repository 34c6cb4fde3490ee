"""A reply from kept encoded parts equals a newly built reply."""

import struct
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    encode_partition,
)
from group_sidecar.codecs.offset_columns import encode_uniform_rows, unpack_indexes
from group_sidecar.codecs.offsets_topic import key_suffix
from group_sidecar.codecs.schema import encode
from group_sidecar.coordinator.answers import encoded_offsets, group_replies
from group_sidecar.coordinator.answers.encoded_offsets import MAX_ROWS_PER_PART, EncodedFetch, partitions_asked
from group_sidecar.coordinator.model.views import CommittedOffset, GroupView, TopicPartition
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets

NAMES = {UUID(int=number): f"t{number}" for number in range(1, 4)}
IDS = {name: topic_id for topic_id, name in NAMES.items()}
UNNAMED = UUID(int=99)
PARTITIONS = [(name, index) for name in ("t1", "t2", "t3") for index in (0, 1, 7)]
GROUPS = ("g", "h")
VERSIONS = range(1, 11)


def raw(offset: int, epoch: int, metadata: str, version: int = 3) -> bytes:
    """Returns an OffsetCommitValue as brokers write it. v4 contains a topic id."""
    text, stamp = metadata.encode(), struct.pack(">q", 1_700_000_000_000)
    place = struct.pack(">hq", version, offset)
    if version == 4:
        return place + struct.pack(">iB", epoch, len(text) + 1) + text + stamp + b"\1\0\x10" + bytes(15) + b"\1"
    return place + (struct.pack(">i", epoch) if version == 3 else b"") + struct.pack(">h", len(text)) + text + stamp


class World:
    """Groups with changing offsets, and OffsetFetch requests that keep their encoded parts."""

    def __init__(self, *, logged: bool) -> None:
        self.offsets = {group: CommittedOffsets() for group in GROUPS}
        self.names = dict(NAMES)
        self.kept: dict[tuple[OffsetFetchRequest, int], EncodedFetch] = {}
        if logged:
            for offsets in self.offsets.values():
                offsets.log_values = {}

    def views(self) -> dict[str, GroupView]:
        return {group: GroupView(group_id=group, offsets=offsets) for group, offsets in self.offsets.items()}

    def check(self, request: OffsetFetchRequest, version: int) -> None:
        """Asserts that a reply from kept parts equals a newly built reply."""
        kept = self.kept.setdefault((request, version), EncodedFetch(request, version))
        body = kept.encode(self.views(), self.names)
        reply = group_replies.offset_fetch(request, version, self.views(), self.names)
        assert body == (None if reply is None else encode(reply, version))


def asking(group: str, topics: tuple[OffsetFetchRequestTopic, ...] | None, version: int) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(group_id=group, topics=() if topics is None and version < 2 else topics)
    groups = (
        OffsetFetchRequestGroup(group_id=group, topics=topics),
        OffsetFetchRequestGroup(group_id="h", topics=None),
    )
    return OffsetFetchRequest(groups=groups)


TOPICS = st.lists(
    st.builds(
        lambda topic_id, indexes: OffsetFetchRequestTopic(
            name=NAMES.get(topic_id, "nowhere"), topic_id=topic_id, partition_indexes=indexes
        ),
        st.sampled_from([*NAMES, UNNAMED]),
        st.lists(st.sampled_from([0, 1, 7, 9]), max_size=4, unique=True).map(tuple),
    ),
    max_size=3,
    unique_by=lambda topic: topic.topic_id,
).map(tuple)
OFFSETS = st.builds(
    CommittedOffset,
    st.integers(0, 3),
    st.integers(-1, 3),
    st.sampled_from(["", "note", "ü" * 70, None]),
    epoch_known=st.booleans() | st.just(True),
)
VALUES = st.builds(
    raw, st.integers(0, 3), st.integers(-1, 3), st.sampled_from(["", "note", "nöte"]), st.sampled_from([2, 3, 4])
)
STEPS = st.lists(
    st.tuples(st.just("commit"), st.sampled_from(GROUPS), st.sampled_from(PARTITIONS), OFFSETS)
    | st.tuples(st.just("log"), st.sampled_from(GROUPS), st.sampled_from(PARTITIONS), VALUES | st.none())
    | st.tuples(st.just("delete"), st.sampled_from(GROUPS), st.sampled_from(PARTITIONS), st.none())
    | st.tuples(st.just("catch up"), st.sampled_from(GROUPS), st.none(), st.none())
    | st.tuples(st.just("name"), st.none(), st.none(), st.none())
    | st.tuples(st.just("ask"), st.sampled_from(GROUPS), st.none() | TOPICS, st.sampled_from(VERSIONS)),
    max_size=25,
)


@settings(deadline=None)
@given(st.booleans(), STEPS)
def test_encoded_fetch_matches_fresh_reply(logged: bool, steps: list[tuple[str, str, object, object]]) -> None:
    """An EncodedFetch reply equals the reply built from scratch after any sequence of commits, log records, deletions
    and topic names.
    """
    world = World(logged=logged)
    for what, group, one, other in [*steps, *(("ask", "g", None, version) for version in (2, 8, 10))]:
        if what == "ask":
            assert isinstance(other, int)
            world.check(asking(group, one, other), other)  # type: ignore[arg-type]
        elif what == "name":
            world.names[UNNAMED] = "nowhere"
        else:
            _change(world.offsets[group], what, one, other)  # type: ignore[arg-type]


def _change(offsets: CommittedOffsets, what: str, partition: TopicPartition, value: object) -> None:
    if what == "commit":
        assert isinstance(value, CommittedOffset)
        offsets.wire_offsets[partition] = value
    elif what == "delete":
        offsets.remove(partition, 0.0)
    elif what == "catch up" and offsets.log_values is not None:
        offsets.drop_acknowledged(1.0)
    elif what == "log" and offsets.log_values is not None:
        if isinstance(value, bytes):
            offsets.log_values[key_suffix(*partition)] = value
        else:
            offsets.log_values.pop(key_suffix(*partition), None)


MORE = 3 * MAX_ROWS_PER_PART
"""A number of partitions that fills three encoded parts."""


@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("topics", [None, (OffsetFetchRequestTopic(name="t1", partition_indexes=tuple(range(MORE))),)])
def test_only_changed_parts_are_encoded(
    logged: bool, topics: tuple[OffsetFetchRequestTopic, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EncodedFetch encodes again only the part with a changed offset, and nothing if no offset has changed."""
    world, encoded_indexes = World(logged=logged), set[int]()
    offsets = world.offsets["g"]

    def one(version: int, index: int, offset: int, epoch: int, metadata: str | None) -> bytes:
        encoded_indexes.add(index)
        return encode_partition(version, index, offset, epoch, metadata)

    def many(version: int, indexes: bytes, values: Sequence[object]) -> bytes | None:
        if (rows := encode_uniform_rows(version, indexes, values)) is not None:
            encoded_indexes.update(unpack_indexes(indexes))
        return rows

    monkeypatch.setattr(encoded_offsets, "encode_partition", one)
    monkeypatch.setattr(encoded_offsets, "encode_uniform_rows", many)
    for index in range(MORE):
        _change(offsets, "log" if logged else "commit", ("t1", index), raw(1, 0, "") if logged else CommittedOffset(1))
    request = OffsetFetchRequest(group_id="g", topics=topics)
    world.check(request, 7)
    assert encoded_indexes == set(range(MORE))
    encoded_indexes.clear()
    offsets.wire_offsets["t1", 42] = CommittedOffset(2, at=5.0)
    world.check(request, 7)
    assert encoded_indexes == set(range(MAX_ROWS_PER_PART))
    encoded_indexes.clear()
    world.check(request, 7)
    assert encoded_indexes == set()


@pytest.mark.parametrize("logged", [True, False])
def test_offsets_across_parts_are_reported(logged: bool) -> None:
    """EncodedFetch reports offsets of several parts as a fresh reply does, also after changes on both sides of a part's
    boundary.
    """
    world = World(logged=logged)
    for index in range(MORE):
        value = raw(index, 1, "") if logged else CommittedOffset(index)
        _change(world.offsets["g"], "log" if logged else "commit", ("t1", index), value)
    some = OffsetFetchRequestTopic(name="t1", partition_indexes=tuple(range(MORE + 5, 3, -1)))
    for request in (OffsetFetchRequest(group_id="g", topics=None), OffsetFetchRequest(group_id="g", topics=(some,))):
        world.check(request, 7)
        for index in (0, MAX_ROWS_PER_PART - 1, MAX_ROWS_PER_PART, MORE - 1):
            world.offsets["g"].wire_offsets["t1", index] = CommittedOffset(7, 1, "note")
        world.check(request, 7)
        world.offsets["g"].drop_acknowledged(1.0)
        world.check(request, 7)


@pytest.mark.parametrize("key", [b"\0\2t1\0\0\0\1x", b"\0\1t1\0\0\0\1", b"\0\2t\xff\0\0\0\1"])
def test_invalid_log_key_raises_each_time(key: bytes) -> None:
    """A log key that a broker would not write raises DecodeError in each encode call."""
    world = World(logged=True)
    _change(world.offsets["g"], "log", ("t1", 0), raw(1, 0, ""))
    logged = world.offsets["g"].log_values
    assert logged is not None
    logged[key] = raw(1, 0, "")
    kept = EncodedFetch(OffsetFetchRequest(group_id="g", topics=None), 7)
    for _ in range(2):
        with pytest.raises(DecodeError):
            kept.encode(world.views(), world.names)


def test_unknown_leader_epoch_yields_no_reply() -> None:
    """EncodedFetch returns a reply only while the leader epoch of the offset is known."""
    world = World(logged=False)
    request = OffsetFetchRequest(group_id="g", topics=None)
    for known in (False, True, False):
        world.offsets["g"].wire_offsets["t1", 0] = CommittedOffset(1, epoch_known=known)
        world.check(request, 7)
        assert (world.kept[request, 7].encode(world.views(), world.names) is not None) == known


def test_undecodable_value_raises_each_time() -> None:
    """A log value that cannot be decoded raises DecodeError in each encode call, until a valid value replaces it."""
    world = World(logged=True)
    _change(world.offsets["g"], "log", ("t1", 0), b"\0\x63")
    _change(world.offsets["g"], "log", ("t1", 1), raw(1, 0, ""))
    kept = EncodedFetch(OffsetFetchRequest(group_id="g", topics=None), 7)
    for _ in range(2):
        with pytest.raises(DecodeError):
            kept.encode(world.views(), world.names)
    _change(world.offsets["g"], "log", ("t1", 0), raw(5, 0, ""))
    reply = group_replies.offset_fetch(OffsetFetchRequest(group_id="g", topics=None), 7, world.views(), world.names)
    assert reply is not None
    assert kept.encode(world.views(), world.names) == encode(reply, 7)


@pytest.mark.parametrize("logged", [True, False])
def test_partitions_asked_counts_named_or_stored(logged: bool) -> None:
    """partitions_asked counts the named partitions of a request, or the stored partitions where the request asks for
    all topics.
    """
    world = World(logged=logged)
    topics = (
        OffsetFetchRequestTopic(name="t1", partition_indexes=(0, 1, 2)),
        OffsetFetchRequestTopic(name="t2", partition_indexes=(0,)),
    )
    assert partitions_asked(OffsetFetchRequest(group_id="g", topics=topics), 7, world.views()) == 4
    everything = OffsetFetchRequestGroup(group_id="g", topics=None)
    both = OffsetFetchRequest(groups=(everything, OffsetFetchRequestGroup(group_id="h", topics=topics)))
    assert partitions_asked(both, 8, world.views()) == 4
    for index in range(5):
        value = raw(1, 0, "") if logged else CommittedOffset(1)
        _change(world.offsets["g"], "log" if logged else "commit", ("t", index), value)
    assert partitions_asked(both, 8, world.views()) == 9
