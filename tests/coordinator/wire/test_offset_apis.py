"""The events that follow from exchanges about offsets, by API and version."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from group_sidecar.codecs.headers import RequestHeader, encode_request
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.end_txn import EndTxnRequest, EndTxnResponse
from group_sidecar.codecs.messages.fetch import FetchableTopicResponse, PartitionData
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.events import (
    AnyEvent,
    LogEndsSeen,
    MemberSeen,
    MemberUnknown,
    NotCoordinatorReplied,
    OffsetsDeleted,
    OffsetsDoubted,
    OffsetsLearned,
    OffsetsPending,
    OffsetsStored,
    TransactionEnded,
)
from group_sidecar.coordinator.model.facts import MemberInfo
from group_sidecar.coordinator.model.views import CommittedOffset, TopicPartition
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.coordinator.wire.offset_apis import log_ends_fetched

SENT, NOW = 10.0, 12.0
ID, OTHER = UUID(int=5), UUID(int=6)


def exchange(request: Struct, version: int, **more: Any) -> Exchange:
    return Exchange(
        request=request, version=version, token="70:1", client_id="c", client_host="/h", sent_at=SENT, **more
    )


def events_of(request: Struct, reply: Struct, version: int, **more: Any) -> Sequence[AnyEvent]:
    return exchange_events.reply_events(exchange(request, version, **more), reply, NOW)


# OffsetCommit.


def commit(*partitions: int, generation: int = -1, member_id: str = "", **more: Any) -> OffsetCommitRequest:
    offsets = tuple(
        OffsetCommitRequestPartition(
            partition_index=p, committed_offset=100 + p, committed_leader_epoch=p, committed_metadata=None
        )
        for p in partitions
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=offsets)
    return OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=generation, member_id=member_id, topics=(topic,), **more
    )


def committed(**errors: int) -> OffsetCommitResponse:
    """Returns the reply to a commit. Keyword arguments are p0, p1 and so on with their errors."""
    partitions = tuple(
        OffsetCommitResponsePartition(partition_index=int(name[1:]), error_code=error) for name, error in errors.items()
    )
    return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=partitions),))


CLIENT = MemberInfo(member_id="m", client_id="c", client_host="/h")


def stored(*partitions: int, **more: Any) -> OffsetsStored:
    offsets = {("t", p): CommittedOffset(100 + p, p, "", NOW) for p in partitions}
    return OffsetsStored(group_id="g", sent_at=SENT, offsets=offsets, **more)


@pytest.mark.parametrize("version", range(1, 10))
def test_commit_without_member(version: int) -> None:
    """A commit without a member makes an OffsetsStored event with the accepted offsets."""
    assert events_of(commit(0, 1), committed(p1=0, p0=0), version) == [stored(0, 1)]


def test_commit_notes_its_connection() -> None:
    """A committed offset contains the connection that wrote it."""
    (event,) = events_of(commit(0), committed(p0=0), 7)
    assert isinstance(event, OffsetsStored)
    assert event.offsets["t", 0].writer == "70"


def test_commit_offsets_share_writer() -> None:
    """The offsets of one commit share one string object for their connection."""
    (event,) = events_of(commit(0, 1), committed(p0=0, p1=0), 7)
    assert isinstance(event, OffsetsStored)
    assert event.offsets["t", 0].writer is event.offsets["t", 1].writer


def test_split_topic_reply_is_merged() -> None:
    """A commit reply that contains a topic twice counts for all of its partitions."""
    reply = OffsetCommitResponse(topics=(*committed(p0=0, p1=3).topics, *committed(p2=0).topics))
    [event] = events_of(commit(0, 1, 2), reply, 7)
    assert event == stored(0, 2, refused=((3, 1),), refused_client=replace(CLIENT, member_id=""))


def test_commit_v0_is_ignored() -> None:
    """OffsetCommit v0 writes to ZooKeeper and makes no events."""
    assert events_of(commit(0), committed(p0=0), 0) == []
    assert exchange_events.lost_reply_events(exchange(commit(0), 0)) == []


def test_committing_member_is_seen() -> None:
    """A commit of a member makes a MemberSeen event besides the offsets."""
    stores, seen = events_of(commit(0, generation=4, member_id="m", group_instance_id="i"), committed(p0=0), 7)
    assert stores == stored(0)
    assert seen == MemberSeen(
        group_id="g",
        sent_at=SENT,
        member_id="m",
        instance_id="i",
        generation=4,
        client_id="c",
        client_host="/h",
        no_rebalance=False,
    )


@pytest.mark.parametrize(
    ("error", "further"),
    [
        (27, []),
        (22, []),
        (3, []),
        (25, [MemberUnknown(group_id="g", sent_at=SENT, member_id="m")]),
        (16, [NotCoordinatorReplied(group_id="g", sent_at=SENT)]),
    ],
)
def test_commit_is_refused(error: int, further: list[AnyEvent]) -> None:
    """A refused commit reports the refused partitions, and MemberUnknown or NotCoordinatorReplied for their errors."""
    refused = stored(refused=((error, 2),), refused_client=CLIENT)
    events = events_of(commit(0, 1, generation=4, member_id="m"), committed(p0=error, p1=error), 7)
    assert events == [refused, *further]


def test_some_partitions_are_refused() -> None:
    """A partly refused commit stores the accepted offsets, reports the refused ones, and shows the member as alive."""
    events = events_of(commit(0, 1, 2, generation=4, member_id="m"), committed(p0=12, p1=0, p2=3), 7)
    assert events[0] == stored(1, refused=((3, 1), (12, 1)), refused_client=CLIENT)
    assert isinstance(events[1], MemberSeen)


def test_empty_commit_makes_no_event() -> None:
    """A commit without partitions makes no event."""
    assert events_of(commit(), OffsetCommitResponse(topics=()), 7) == []


@pytest.mark.parametrize(("retention", "lasting"), [(-1, True), (-7, False), (0, False), (60_000, False)])
def test_commit_with_own_retention(retention: int, lasting: bool) -> None:
    """A commit with its own retention time is marked as not using the broker's retention."""
    assert events_of(commit(0, retention_time_ms=retention), committed(p0=0), 3) == [
        stored(0, broker_retention=lasting)
    ]


def commit_by_id(topic_id: UUID) -> tuple[OffsetCommitRequest, OffsetCommitResponse]:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=100, committed_metadata="")
    topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=(partition,))
    fine = OffsetCommitResponsePartition(partition_index=0, error_code=0)
    reply = OffsetCommitResponse(topics=(OffsetCommitResponseTopic(topic_id=topic_id, partitions=(fine,)),))
    return OffsetCommitRequest(group_id="g", topics=(topic,)), reply


def test_commit_by_topic_id() -> None:
    """OffsetCommit v10 names topics by id, and a partition of an unknown id counts as unresolved."""
    (known,) = events_of(*commit_by_id(ID), 10, names={ID: "t"})
    (unknown,) = events_of(*commit_by_id(OTHER), 10, names={ID: "t"})
    assert isinstance(known, OffsetsStored)
    assert isinstance(unknown, OffsetsStored)
    assert (dict(known.offsets), known.unresolved) == ({("t", 0): CommittedOffset(100, -1, "", NOW)}, 0)
    assert (dict(unknown.offsets), unknown.unresolved) == ({}, 1)


def test_lost_commit_doubts_offsets() -> None:
    """A lost commit reply makes its partitions doubtful, or all partitions if a topic id is unknown."""
    doubted = OffsetsDoubted(group_id="g", sent_at=SENT, partitions=(("t", 0), ("t", 1)), may_create_group=True)
    assert exchange_events.lost_reply_events(exchange(commit(0, 1), 7)) == [doubted]
    (request, _) = commit_by_id(OTHER)
    assert exchange_events.lost_reply_events(exchange(request, 10)) == [
        OffsetsDoubted(group_id="g", sent_at=SENT, partitions=None, may_create_group=True)
    ]


# Transactions.

IN_TRANSACTION = TxnOffsetCommitRequest(
    transactional_id="x",
    group_id="g",
    producer_id=9,
    producer_epoch=0,
    topics=(
        TxnOffsetCommitRequestTopic(
            name="t",
            partitions=tuple(
                TxnOffsetCommitRequestPartition(partition_index=p, committed_offset=100 + p, committed_metadata="x")
                for p in (0, 1)
            ),
        ),
    ),
)


@pytest.mark.parametrize(("errors", "accepted"), [((0, 0), (0, 1)), ((0, 12), (0,)), ((16, 16), ())])
def test_transactional_commit_is_pending(errors: tuple[int, int], accepted: tuple[int, ...]) -> None:
    """A TxnOffsetCommit reply makes the accepted offsets pending."""
    partitions = tuple(
        TxnOffsetCommitResponsePartition(partition_index=p, error_code=error) for p, error in enumerate(errors)
    )
    topic = TxnOffsetCommitResponseTopic(name="t", partitions=partitions)
    reply = TxnOffsetCommitResponse(throttle_time_ms=0, topics=(topic,))
    offsets = {("t", p): CommittedOffset(100 + p, -1, "x", NOW) for p in accepted}
    pending = [OffsetsPending(group_id="g", sent_at=SENT, producer_id=9, offsets=offsets)] if accepted else []
    assert events_of(IN_TRANSACTION, reply, 3) == pending


def by_id(topic_id: UUID) -> tuple[TxnOffsetCommitRequest, TxnOffsetCommitResponse]:
    """Returns a TxnOffsetCommit v6 for one topic, and the reply that accepts it."""
    request = replace(IN_TRANSACTION, topics=(replace(IN_TRANSACTION.topics[0], name="", topic_id=topic_id),))
    partitions = tuple(TxnOffsetCommitResponsePartition(partition_index=p, error_code=0) for p in (0, 1))
    topic = TxnOffsetCommitResponseTopic(topic_id=topic_id, partitions=partitions)
    return request, TxnOffsetCommitResponse(throttle_time_ms=0, topics=(topic,))


def test_transactional_commit_by_topic_id() -> None:
    """A TxnOffsetCommit v6 names topics by id (KIP-1319), and an unknown id still makes the group's offsets pending."""
    (known,) = events_of(*by_id(ID), 6, names={ID: "t"})
    (unknown,) = events_of(*by_id(OTHER), 6, names={ID: "t"})
    assert isinstance(known, OffsetsPending)
    assert isinstance(unknown, OffsetsPending)
    assert dict(known.offsets) == {("t", p): CommittedOffset(100 + p, -1, "x", NOW) for p in (0, 1)}
    assert dict(unknown.offsets) == {}


def test_lost_transactional_commit_doubts_offsets() -> None:
    """A lost TxnOffsetCommit reply makes all offsets of the group doubtful and pending."""
    assert exchange_events.lost_reply_events(exchange(IN_TRANSACTION, 3)) == [
        OffsetsDoubted(group_id="g", sent_at=SENT, partitions=None, may_create_group=True),
        OffsetsPending(group_id="g", sent_at=SENT, producer_id=9, offsets={}),
    ]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(("error", "ended"), [(0, True), (51, False)])
def test_transaction_ends(committed: bool, error: int, ended: bool) -> None:
    """A successful EndTxn reply ends the transaction, and a failed or lost reply makes no event."""
    request = EndTxnRequest(transactional_id="x", producer_id=9, producer_epoch=0, committed=committed)
    reply = EndTxnResponse(throttle_time_ms=0, error_code=error)
    assert events_of(request, reply, 3) == ([TransactionEnded(producer_id=9, committed=committed)] if ended else [])
    assert exchange_events.lost_reply_events(exchange(request, 3)) == ()


# OffsetDelete.

DELETE = OffsetDeleteRequest(
    group_id="g",
    topics=(
        OffsetDeleteRequestTopic(
            name="t", partitions=tuple(OffsetDeleteRequestPartition(partition_index=p) for p in (0, 1))
        ),
    ),
)


@pytest.mark.parametrize(
    ("error", "errors", "events"),
    [
        (0, (0, 0), [OffsetsDeleted(group_id="g", sent_at=SENT, partitions=(("t", 0), ("t", 1)))]),
        (0, (86, 0), [OffsetsDeleted(group_id="g", sent_at=SENT, partitions=(("t", 1),))]),
        (0, (86, 86), []),
        (68, (0, 0), []),
        (16, (), [NotCoordinatorReplied(group_id="g", sent_at=SENT)]),
    ],
)
def test_offsets_are_deleted(error: int, errors: tuple[int, ...], events: list[AnyEvent]) -> None:
    """An OffsetDelete reply makes OffsetsDeleted, or NotCoordinatorReplied for a moved group."""
    partitions = tuple(
        OffsetDeleteResponsePartition(partition_index=p, error_code=each) for p, each in enumerate(errors)
    )
    topic = OffsetDeleteResponseTopic(name="t", partitions=partitions)
    assert events_of(DELETE, OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=(topic,)), 0) == events


def test_lost_offset_delete_doubts_offsets() -> None:
    """A lost OffsetDelete reply makes its partitions doubtful."""
    doubted = OffsetsDoubted(group_id="g", sent_at=SENT, partitions=(("t", 0), ("t", 1)))
    assert exchange_events.lost_reply_events(exchange(DELETE, 0)) == [doubted]


# OffsetFetch.


def partition(index: int, offset: int, error: int = 0) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=2,
        metadata="" if offset == -1 else "x",
        error_code=error,
    )


TOLD = OffsetFetchResponseTopic(name="t", partitions=(partition(0, 7), partition(1, -1)))
ALL, SOME = None, (OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),)


def learned(whole: bool, epoch_known: bool = True, **offsets: int) -> OffsetsLearned:
    """Returns learned offsets. -1 for partition 1 is a committed offset of -1, or stands for no offset."""
    known = {
        ("t", int(name[1:])): CommittedOffset(offset, 2, "" if offset == -1 else "x", NOW, epoch_known)
        for name, offset in offsets.items()
    }
    absent: tuple[TopicPartition, ...] = () if ("t", 1) in known else (("t", 1),)
    return OffsetsLearned(group_id="g", sent_at=SENT, offsets=known, absent=absent, complete=whole, as_of=6)


@pytest.mark.parametrize("version", range(1, 8))
@pytest.mark.parametrize(("topics", "whole"), [(ALL, True), (SOME, False)])
def test_fetched_offsets_of_one_group(version: int, topics: Any, whole: bool) -> None:
    """An OffsetFetch reply up to v7 makes an OffsetsLearned event, complete if the request asked for all topics."""
    request = OffsetFetchRequest(group_id="g", topics=topics)
    events = events_of(request, OffsetFetchResponse(topics=(TOLD,)), version, as_of={"g": (1, 6)})
    assert events == [learned(whole, version >= 5, p0=7, **({"p1": -1} if whole else {}))]


def test_negative_offset_was_committed() -> None:
    """A negative fetched offset other than the broker's answer for no commit counts as committed."""
    topic = OffsetFetchResponseTopic(name="t", partitions=(partition(0, -7), partition(1, -1)))
    request = OffsetFetchRequest(group_id="g", topics=SOME)
    assert events_of(request, OffsetFetchResponse(topics=(topic,)), 7, as_of={"g": (1, 6)}) == [learned(False, p0=-7)]


@pytest.mark.parametrize("version", [8, 9])
def test_fetched_offsets_of_many_groups(version: int) -> None:
    """An OffsetFetch reply since v8 makes an event for each group by its own error."""
    groups = (("g", ALL), ("h", SOME), ("moved", ALL), ("hidden", ALL))
    request = OffsetFetchRequest(
        groups=tuple(OffsetFetchRequestGroup(group_id=group, topics=topics) for group, topics in groups)
    )
    replies = tuple(
        OffsetFetchResponseGroup(group_id=group, topics=() if error else (TOLD,), error_code=error)
        for group, error in {"h": 0, "g": 0, "moved": 16, "hidden": 30}.items()
    )
    some, whole, moved = events_of(request, OffsetFetchResponse(groups=replies), version, as_of={"g": (1, 6)})
    assert whole == learned(True, p0=7, p1=-1)
    assert isinstance(some, OffsetsLearned)
    assert (some.group_id, some.complete) == ("h", False)
    assert moved == NotCoordinatorReplied(group_id="moved", sent_at=SENT)


@pytest.mark.parametrize("version", range(2, 8))
def test_offset_fetch_group_error(version: int) -> None:
    """NOT_COORDINATOR in an OffsetFetch reply makes a NotCoordinatorReplied event. A load in progress makes none."""
    request = OffsetFetchRequest(group_id="g", topics=None)
    assert events_of(request, OffsetFetchResponse(error_code=16), version) == [
        NotCoordinatorReplied(group_id="g", sent_at=SENT)
    ]
    assert events_of(request, OffsetFetchResponse(error_code=14), version) == []


def test_offset_fetch_v0_is_ignored() -> None:
    """OffsetFetch v0 reads from ZooKeeper and makes no event."""
    assert events_of(OffsetFetchRequest(group_id="g", topics=SOME), OffsetFetchResponse(topics=(TOLD,)), 0) == []


def test_partition_error_makes_fetch_incomplete() -> None:
    """A partition error in an OffsetFetch reply makes the learned offsets incomplete."""
    topic = OffsetFetchResponseTopic(name="t", partitions=(partition(0, 7), partition(1, -1), partition(2, -1, 88)))
    request = OffsetFetchRequest(group_id="g", topics=None, require_stable=True)
    assert events_of(request, OffsetFetchResponse(topics=(topic,)), 7, as_of={"g": (1, 6)}) == [
        learned(False, p0=7, p1=-1)
    ]


@pytest.mark.parametrize(("topic_id", "whole"), [(ID, True), (OTHER, False)])
def test_offset_fetch_by_topic_id(topic_id: UUID, whole: bool) -> None:
    """OffsetFetch v10 reports topics by id, and an unknown id makes the learned offsets incomplete."""
    topic = OffsetFetchResponseTopic(topic_id=topic_id, partitions=(partition(0, 7),))
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
    reply = OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=(topic,)),))
    (event,) = events_of(request, reply, 10, names={ID: "t"})
    assert isinstance(event, OffsetsLearned)
    assert (event.complete, set(event.offsets)) == (whole, {("t", 0)} if whole else set())


# ListOffsets.


@pytest.mark.parametrize(
    ("version", "isolation", "timestamp", "error", "ends"),
    [
        (0, 0, -1, 0, {("t", 0): 50}),
        (1, 0, -1, 0, {("t", 0): 60}),
        (7, 0, -1, 0, {("t", 0): 60}),
        (7, 1, -1, 0, None),
        (7, 0, -2, 0, None),
        (7, 0, -1, 6, None),
    ],
)
def test_list_offsets_gives_log_ends(version: int, isolation: int, timestamp: int, error: int, ends: Any) -> None:
    """ListOffsets gives log ends only for the latest timestamp, read_uncommitted and no error."""
    requested = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=(ListOffsetsTopic(name="t", partitions=(requested,)),)
    )
    answer = ListOffsetsPartitionResponse(partition_index=0, error_code=error, old_style_offsets=(50, 0), offset=60)
    reply = ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(answer,)),))
    assert events_of(request, reply, version) == ([LogEndsSeen(ends=ends)] if ends else [])


# Fetch.


def fetched(name: str, topic_id: UUID, *partitions: tuple[int, int, int]) -> FetchableTopicResponse:
    """Returns a topic of a Fetch reply. Each partition is its number, error and high watermark."""
    return FetchableTopicResponse(
        topic=name,
        topic_id=topic_id,
        partitions=tuple(
            PartitionData(partition_index=index, error_code=error, high_watermark=end, records=b"")
            for index, error, end in partitions
        ),
    )


def test_high_watermarks_are_log_ends() -> None:
    """High watermarks of a Fetch reply without an error are log ends, and topic ids without a name are returned."""
    topics = [
        fetched("t", ZERO_UUID, (0, 0, 50), (1, 6, 51), (2, 0, -1), (3, 0, 0)),
        fetched("", ID, (0, 0, 7)),
        fetched("", OTHER, (0, 0, 8)),
    ]
    seen, unnamed = log_ends_fetched(topics, {ID: "by id"})
    assert seen == LogEndsSeen(ends={("t", 0): 50, ("t", 3): 0, ("by id", 0): 7})
    assert unnamed == {OTHER}


# Requests that could not be decoded.


@pytest.mark.parametrize(
    ("request_", "version", "group"),
    [
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0, "g"),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, "g"),
        (commit(0), 2, "g"),
        (commit(0), 9, "g"),
        (DELETE, 0, "g"),
        (IN_TRANSACTION, 3, None),
        (DeleteGroupsRequest(groups_names=("g",)), 2, None),
        (EndTxnRequest(transactional_id="x", producer_id=9, producer_epoch=0, committed=True), 3, None),
    ],
)
def test_group_in_undecodable_frame(request_: Struct, version: int, group: str | None) -> None:
    """group_in_frame reads the group id of an undecodable request if the group id comes first, and otherwise returns
    None.
    """
    framed = encode_request(request_, RequestHeader(request_.KEY, version, 1, "c"))
    frame = framed[4:] if int.from_bytes(framed[:4], "big") == len(framed) - 4 else framed
    assert exchange_events.group_in_frame(request_.KEY, frame) == group
    assert exchange_events.group_in_frame(request_.KEY, frame[: len(frame) - 3]) == group, (
        "only the beginning of the frame is read"
    )
    assert exchange_events.group_in_frame(request_.KEY, frame[:9]) is None
