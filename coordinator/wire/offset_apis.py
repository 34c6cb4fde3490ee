"""Turns requests and replies about offsets into events.

The APIs are OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit, EndTxn, ListOffsets and Fetch. No function here
depends on the state of a group.

OffsetCommit and OffsetFetch v0 concern offsets in ZooKeeper, not those of the group coordinator, so they lead to no
events.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from uuid import UUID

from group_sidecar.codecs.errors import NONE, ErrorCode
from group_sidecar.codecs.messages.end_txn import EndTxnRequest, EndTxnResponse
from group_sidecar.codecs.messages.fetch import FetchableTopicResponse
from group_sidecar.codecs.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from group_sidecar.codecs.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseTopic
from group_sidecar.codecs.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from group_sidecar.coordinator.model.events import (
    AnyEvent,
    LogEndsSeen,
    OffsetsDeleted,
    OffsetsDoubted,
    OffsetsLearned,
    OffsetsPending,
    TransactionEnded,
    offsets_stored,
)
from group_sidecar.coordinator.model.facts import MemberInfo
from group_sidecar.coordinator.model.views import CommittedOffset, TopicPartition, committed_offset
from group_sidecar.coordinator.wire.exchange import Exchange, error_events, member_seen_event, not_coordinator_events

LATEST = -1
"""The timestamp by which a ListOffsets request asks for the end of a log."""
KAFKA_STORAGE_SINCE = 1
"""The version of OffsetCommit and OffsetFetch from which offsets are kept in Kafka instead of ZooKeeper."""
BROKERS_RETENTION = -1
"""The retention in an OffsetCommit that stands for the broker's own retention. Other negative times are in the past."""
LEADER_EPOCH_SINCE = 5
"""The OffsetFetch version from which a reply contains leader epochs (KIP-320)."""
MANY_GROUPS_SINCE = 8
"""The OffsetFetch version from which a request names its groups in an array (KIP-709)."""
_NO_OFFSET = -1
"""The offset that the broker returns, with empty metadata, for a partition without a commit. Clients may commit -1."""
_NO_METADATA = ""
"""The metadata that the broker stores if a client commits null."""


def commit(
    exchange: Exchange, request: OffsetCommitRequest, reply: OffsetCommitResponse, now: float
) -> Iterable[AnyEvent]:
    """Yields the events of an OffsetCommit reply."""
    if exchange.version < KAFKA_STORAGE_SINCE:
        return
    group, generation = request.group_id, request.generation_id_or_member_epoch
    outcomes = _outcomes(reply)
    stored, unresolved = _accepted(exchange, request, outcomes, now)
    errors = [code for codes in outcomes.values() for code in codes.values() if code]
    refused: Mapping[int, int] = Counter(errors) if errors else {}
    if any(outcomes.values()):
        yield offsets_stored(
            group_id=group,
            sent_at=exchange.sent_at,
            offsets=stored,
            refused=tuple(sorted(refused.items())),
            unresolved=unresolved,
            broker_retention=request.retention_time_ms == BROKERS_RETENTION,
            refused_client=_client(exchange, request) if refused else None,
        )
    member, instance = request.member_id, request.group_instance_id
    if member and generation >= 0 and (stored or unresolved):
        yield member_seen_event(exchange, group, member, instance, generation, False)
    # In reply to a commit, REBALANCE_IN_PROGRESS does not show a new rebalance. The broker accepts commits while it
    # prepares a rebalance, and returns this error while it completes one.
    for code in refused:
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            yield from error_events(exchange, group, member, instance, generation, code, protocol=None)


def _client(exchange: Exchange, request: OffsetCommitRequest) -> MemberInfo:
    """Returns the client of a commit. Its member id is empty if the client commits without being a member."""
    return MemberInfo(
        member_id=request.member_id,
        client_id=exchange.client_id,
        client_host=exchange.client_host,
        instance_id=request.group_instance_id,
        principal=exchange.principal,
    )


def _outcomes(reply: OffsetCommitResponse | TxnOffsetCommitResponse) -> Mapping[str | UUID, Mapping[int, int]]:
    """Returns the error code of each partition, by topic name, or by topic id if the reply has no name."""
    outcomes: dict[str | UUID, dict[int, int]] = {}
    for topic in reply.topics:
        codes = {p.partition_index: p.error_code for p in topic.partitions}
        outcomes.setdefault(topic.name or topic.topic_id, codes).update(codes)
    return outcomes


def _accepted(
    exchange: Exchange,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    outcomes: Mapping[str | UUID, Mapping[int, int]],
    now: float,
) -> tuple[dict[TopicPartition, CommittedOffset], int]:
    """Returns the offsets that the broker accepted, and how many more it accepted for topics of unknown name."""
    stored: dict[TopicPartition, CommittedOffset] = {}
    unresolved, writer = 0, exchange.connection
    for topic in request.topics:
        codes = outcomes.get(topic.name or topic.topic_id, {})
        name = topic.name or exchange.names.get(topic.topic_id)
        for p in topic.partitions:
            index = p.partition_index
            if codes.get(index) != NONE:
                continue
            if name is None:
                unresolved += 1
            else:
                offset, metadata = p.committed_offset, p.committed_metadata or _NO_METADATA
                stored[name, index] = committed_offset(offset, p.committed_leader_epoch, metadata, now, True, writer)
    return stored, unresolved


def commit_lost(exchange: Exchange, request: OffsetCommitRequest) -> Iterable[AnyEvent]:
    """Yields the event of an OffsetCommit request whose reply was lost."""
    if exchange.version < KAFKA_STORAGE_SINCE:
        return
    names = [topic.name or exchange.names.get(topic.topic_id) for topic in request.topics]
    yield OffsetsDoubted(
        group_id=request.group_id,
        sent_at=exchange.sent_at,
        partitions=None
        if None in names
        else tuple(
            (name, p.partition_index)
            for name, topic in zip(names, request.topics, strict=True)
            for p in topic.partitions
            if name is not None
        ),
        may_create_group=True,
    )


def txn_commit(
    exchange: Exchange, request: TxnOffsetCommitRequest, reply: TxnOffsetCommitResponse, now: float
) -> Iterable[AnyEvent]:
    """Yields the event of a TxnOffsetCommit reply, whose offsets are pending until the transaction ends."""
    offsets, unresolved = _accepted(exchange, request, _outcomes(reply), now)
    if offsets or unresolved:
        yield _pending(exchange, request, offsets)


def txn_commit_lost(exchange: Exchange, request: TxnOffsetCommitRequest) -> Iterable[AnyEvent]:
    """Yields the events of a TxnOffsetCommit request whose reply was lost."""
    yield OffsetsDoubted(group_id=request.group_id, sent_at=exchange.sent_at, partitions=None, may_create_group=True)
    yield _pending(exchange, request, {})


def _pending(
    exchange: Exchange, request: TxnOffsetCommitRequest, offsets: dict[TopicPartition, CommittedOffset]
) -> OffsetsPending:
    return OffsetsPending(
        group_id=request.group_id, sent_at=exchange.sent_at, producer_id=request.producer_id, offsets=offsets
    )


def end_txn(exchange: Exchange, request: EndTxnRequest, reply: EndTxnResponse, now: float) -> Iterable[AnyEvent]:
    """Yields the event of an EndTxn reply without an error."""
    if reply.error_code == ErrorCode.NONE:
        yield TransactionEnded(producer_id=request.producer_id, committed=request.committed)


def offset_delete(
    exchange: Exchange, request: OffsetDeleteRequest, reply: OffsetDeleteResponse, now: float
) -> Iterable[AnyEvent]:
    """Yields the events of an OffsetDelete reply."""
    deleted = tuple(
        (topic.name, p.partition_index)
        for topic in reply.topics
        for p in topic.partitions
        if p.error_code == ErrorCode.NONE
    )
    if reply.error_code == ErrorCode.NONE and deleted:
        yield OffsetsDeleted(group_id=request.group_id, sent_at=exchange.sent_at, partitions=deleted)
    yield from not_coordinator_events(exchange, request.group_id, reply.error_code)


def offset_delete_lost(exchange: Exchange, request: OffsetDeleteRequest) -> Iterable[AnyEvent]:
    """Yields the event of an OffsetDelete request whose reply was lost."""
    asked = tuple((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
    yield OffsetsDoubted(group_id=request.group_id, sent_at=exchange.sent_at, partitions=asked)


def fetched(
    exchange: Exchange, request: OffsetFetchRequest, reply: OffsetFetchResponse, now: float
) -> Iterable[AnyEvent]:
    """Yields the events of an OffsetFetch reply."""
    if exchange.version >= MANY_GROUPS_SINCE:
        asks_for_all = {group.group_id: group.topics is None for group in request.groups}
        for group in reply.groups:
            if group.error_code == ErrorCode.NONE:
                yield _learned(exchange, group.group_id, group.topics, asks_for_all.get(group.group_id, False), now)
            yield from not_coordinator_events(exchange, group.group_id, group.error_code)
    elif exchange.version >= KAFKA_STORAGE_SINCE:
        if reply.error_code == ErrorCode.NONE:
            yield _learned(exchange, request.group_id, reply.topics, request.topics is None, now)
        yield from not_coordinator_events(exchange, request.group_id, reply.error_code)


def _learned(
    exchange: Exchange, group_id: str, topics: Iterable[OffsetFetchResponseTopic], complete: bool, now: float
) -> OffsetsLearned:
    offsets: dict[TopicPartition, CommittedOffset] = {}
    absent: list[TopicPartition] = []
    committed_only = complete  # A reply for all topics has only committed offsets, so an offset of -1 is a commit.
    for topic in topics:
        name = topic.name or exchange.names.get(topic.topic_id)
        for p in topic.partitions:
            if name is None or p.error_code != ErrorCode.NONE:
                complete = False
            elif p.committed_offset == _NO_OFFSET and not p.metadata and not committed_only:
                absent.append((name, p.partition_index))
            else:
                offsets[name, p.partition_index] = CommittedOffset(
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.metadata,
                    now,
                    epoch_known=exchange.version >= LEADER_EPOCH_SINCE,
                )
    return OffsetsLearned(
        group_id=group_id,
        sent_at=exchange.sent_at,
        offsets=offsets,
        absent=tuple(absent),
        complete=complete,
        as_of=exchange.as_of.get(group_id, (0, 0))[1],
    )


def list_offsets(
    exchange: Exchange, request: ListOffsetsRequest, reply: ListOffsetsResponse, now: float
) -> Iterable[AnyEvent]:
    """Yields one event with the log ends that a ListOffsets reply contains."""
    if request.isolation_level:
        return  # With this isolation level, the reply contains last stable offsets instead of log ends.
    latest = {
        (topic.name, p.partition_index) for topic in request.topics for p in topic.partitions if p.timestamp == LATEST
    }
    ends = {
        (topic.name, p.partition_index): p.offset if exchange.version else next(iter(p.old_style_offsets), -1)
        for topic in reply.topics
        for p in topic.partitions
        if p.error_code == ErrorCode.NONE and (topic.name, p.partition_index) in latest
    }
    if ends:
        yield LogEndsSeen(ends=ends)


def log_ends_fetched(
    topics: Iterable[FetchableTopicResponse], names: Mapping[UUID, str]
) -> tuple[LogEndsSeen, frozenset[UUID]]:
    """Returns the ends of logs in a Fetch reply, and the topic ids that are not in `names`.

    The end of a log is the high watermark, for consumers of both isolation levels. So lag is measured against the end
    of the log. The Java client's `records-lag` stops at the last stable offset if the client reads only committed
    records.

    A follower that serves consumers (KIP-392) reports the end that it knows, which may be older than the leader's.

    Within a fetch session (KIP-227), a reply contains a partition only if the partition has news. An absent partition
    still has the end of its last report, but the sidecar may not have decoded that report. So an absent partition
    counts as not seen, and the time of its last observation stays as it is.
    """
    ends: dict[TopicPartition, int] = {}
    unresolved: set[UUID] = set()
    for topic in topics:
        name = topic.topic or names.get(topic.topic_id)
        if name is None:
            unresolved.add(topic.topic_id)
            continue
        for p in topic.partitions:
            if p.error_code == NONE and p.high_watermark >= 0:
                ends[name, p.partition_index] = p.high_watermark
    return LogEndsSeen(ends=ends), frozenset(unresolved)
