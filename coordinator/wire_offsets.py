"""Exchanges about offsets, to events.

Owns: what OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit, EndTxn, ListOffsets and Fetch say. Must
not know: the state of any group.

OffsetCommit and OffsetFetch v0 are about ZooKeeper, not about the group coordinator, so they say nothing.
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
from group_sidecar.coordinator.events import (
    AnyEvent,
    LogEndsSeen,
    OffsetsDeleted,
    OffsetsDoubted,
    OffsetsLearned,
    OffsetsPending,
    TransactionEnded,
    offsets_stored,
)
from group_sidecar.coordinator.exchange import Exchange, moved, seen, trouble
from group_sidecar.coordinator.views import CommittedOffset, TopicPartition, committed_offset

LATEST = -1
"""ListOffsets' timestamp for the end of the log."""
KAFKA_SINCE = 1
"""The version of OffsetCommit and OffsetFetch from which offsets are kept in Kafka."""
LEADER_EPOCH_SINCE = 5
"""The OffsetFetch version from which leader epochs are told (KIP-320)."""
MANY_GROUPS_SINCE = 8
"""The OffsetFetch version from which a request names its groups in an array (KIP-709)."""
_NO_OFFSET = -1
"""The offset that the broker returns, with empty metadata, for a partition without one. Clients may commit it too."""
_NO_METADATA = ""
"""What the broker keeps where a client committed null metadata."""


def commit(x: Exchange, request: OffsetCommitRequest, reply: OffsetCommitResponse, now: float) -> Iterable[AnyEvent]:
    """Offsets were committed, or could not be."""
    if x.version < KAFKA_SINCE:
        return
    group, generation = request.group_id, request.generation_id_or_member_epoch
    outcomes = _outcomes(reply)
    stored, unnamed = _accepted(x, request, outcomes, now)
    errors = [code for codes in outcomes.values() for code in codes.values() if code]
    refused: Mapping[int, int] = Counter(errors) if errors else {}
    if any(outcomes.values()):
        yield offsets_stored(
            group_id=group,
            sent_at=x.sent_at,
            offsets=stored,
            refused=tuple(sorted(refused.items())),
            unnamed=unnamed,
            lasting=request.retention_time_ms < 0,
        )
    if request.member_id and generation >= 0 and (stored or unnamed):
        yield seen(x, group, request.member_id, request.group_instance_id, generation, False)
    # REBALANCE_IN_PROGRESS says less than to a heartbeat: members may commit while a rebalance is prepared, and get
    # this while one completes.
    for code in refused:
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            yield from trouble(x, group, request.member_id, generation, code)


def _outcomes(reply: OffsetCommitResponse | TxnOffsetCommitResponse) -> Mapping[str | UUID, Mapping[int, int]]:
    """The error of each partition, by the topic's name, or its id where it has none."""
    outcomes: dict[str | UUID, dict[int, int]] = {}
    for topic in reply.topics:
        codes = {p.partition_index: p.error_code for p in topic.partitions}
        outcomes.setdefault(topic.name or topic.topic_id, codes).update(codes)
    return outcomes


def _accepted(
    x: Exchange,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    outcomes: Mapping[str | UUID, Mapping[int, int]],
    now: float,
) -> tuple[dict[TopicPartition, CommittedOffset], int]:
    """The offsets that the broker took, and how many more it took of topics that nobody has named yet."""
    stored: dict[TopicPartition, CommittedOffset] = {}
    unnamed, writer = 0, x.connection
    for topic in request.topics:
        codes = outcomes.get(topic.name or topic.topic_id, {})
        name = topic.name or x.names.get(topic.topic_id)
        for p in topic.partitions:
            index = p.partition_index
            if codes.get(index) != NONE:
                continue
            if name is None:
                unnamed += 1
            else:
                offset, metadata = p.committed_offset, p.committed_metadata or _NO_METADATA
                stored[name, index] = committed_offset(offset, p.committed_leader_epoch, metadata, now, True, writer)
    return stored, unnamed


def commit_lost(x: Exchange, request: OffsetCommitRequest) -> Iterable[AnyEvent]:
    """Whether offsets were committed will not be known."""
    if x.version < KAFKA_SINCE:
        return
    names = [topic.name or x.names.get(topic.topic_id) for topic in request.topics]
    yield OffsetsDoubted(
        group_id=request.group_id,
        sent_at=x.sent_at,
        partitions=None
        if None in names
        else tuple(
            (name, p.partition_index)
            for name, topic in zip(names, request.topics, strict=True)
            for p in topic.partitions
            if name is not None
        ),
        creates=True,
    )


def txn_commit(
    x: Exchange, request: TxnOffsetCommitRequest, reply: TxnOffsetCommitResponse, now: float
) -> Iterable[AnyEvent]:
    """Offsets were committed within a transaction, or could not be."""
    offsets, unnamed = _accepted(x, request, _outcomes(reply), now)
    if offsets or unnamed:
        yield _pending(x, request, offsets)


def txn_commit_lost(x: Exchange, request: TxnOffsetCommitRequest) -> Iterable[AnyEvent]:
    """Whether offsets are pending in a transaction will not be known."""
    yield OffsetsDoubted(group_id=request.group_id, sent_at=x.sent_at, partitions=None, creates=True)
    yield _pending(x, request, {})


def _pending(
    x: Exchange, request: TxnOffsetCommitRequest, offsets: dict[TopicPartition, CommittedOffset]
) -> OffsetsPending:
    return OffsetsPending(
        group_id=request.group_id, sent_at=x.sent_at, producer_id=request.producer_id, offsets=offsets
    )


def end_txn(x: Exchange, request: EndTxnRequest, reply: EndTxnResponse, now: float) -> Iterable[AnyEvent]:
    """A transaction ended, or could not."""
    if reply.error_code == ErrorCode.NONE:
        yield TransactionEnded(producer_id=request.producer_id, committed=request.committed)


def offset_delete(
    x: Exchange, request: OffsetDeleteRequest, reply: OffsetDeleteResponse, now: float
) -> Iterable[AnyEvent]:
    """Offsets were deleted, or could not be."""
    deleted = tuple(
        (topic.name, p.partition_index)
        for topic in reply.topics
        for p in topic.partitions
        if p.error_code == ErrorCode.NONE
    )
    if reply.error_code == ErrorCode.NONE and deleted:
        yield OffsetsDeleted(group_id=request.group_id, sent_at=x.sent_at, partitions=deleted)
    yield from moved(x, request.group_id, reply.error_code)


def offset_delete_lost(x: Exchange, request: OffsetDeleteRequest) -> Iterable[AnyEvent]:
    """Whether offsets were deleted will not be known."""
    asked = tuple((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
    yield OffsetsDoubted(group_id=request.group_id, sent_at=x.sent_at, partitions=asked)


def fetched(x: Exchange, request: OffsetFetchRequest, reply: OffsetFetchResponse, now: float) -> Iterable[AnyEvent]:
    """The broker told offsets."""
    if x.version >= MANY_GROUPS_SINCE:
        whole = {group.group_id: group.topics is None for group in request.groups}
        for group in reply.groups:
            if group.error_code == ErrorCode.NONE:
                yield _learned(x, group.group_id, group.topics, whole.get(group.group_id, False), now)
            yield from moved(x, group.group_id, group.error_code)
    elif x.version >= KAFKA_SINCE:
        if reply.error_code == ErrorCode.NONE:
            yield _learned(x, request.group_id, reply.topics, request.topics is None, now)
        yield from moved(x, request.group_id, reply.error_code)


def _learned(
    x: Exchange, group_id: str, topics: Iterable[OffsetFetchResponseTopic], whole: bool, now: float
) -> OffsetsLearned:
    offsets: dict[TopicPartition, CommittedOffset] = {}
    absent: list[TopicPartition] = []
    told_all = whole  # Such a reply contains committed offsets only, so -1 was committed as well.
    for topic in topics:
        name = topic.name or x.names.get(topic.topic_id)
        for p in topic.partitions:
            if name is None or p.error_code != ErrorCode.NONE:
                whole = False
            elif p.committed_offset == _NO_OFFSET and not p.metadata and not told_all:
                absent.append((name, p.partition_index))
            else:
                offsets[name, p.partition_index] = CommittedOffset(
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.metadata,
                    now,
                    epoch_known=x.version >= LEADER_EPOCH_SINCE,
                )
    return OffsetsLearned(
        group_id=group_id,
        sent_at=x.sent_at,
        offsets=offsets,
        absent=tuple(absent),
        whole=whole,
        as_of=x.as_of.get(group_id, (0, 0))[1],
    )


def list_offsets(
    x: Exchange, request: ListOffsetsRequest, reply: ListOffsetsResponse, now: float
) -> Iterable[AnyEvent]:
    """The broker told the ends of logs."""
    if request.isolation_level:
        return  # That is the last stable offset, not the end of the log.
    latest = {
        (topic.name, p.partition_index) for topic in request.topics for p in topic.partitions if p.timestamp == LATEST
    }
    ends = {
        (topic.name, p.partition_index): p.offset if x.version else next(iter(p.old_style_offsets), -1)
        for topic in reply.topics
        for p in topic.partitions
        if p.error_code == ErrorCode.NONE and (topic.name, p.partition_index) in latest
    }
    if ends:
        yield LogEndsSeen(ends=ends)


def log_ends_fetched(
    topics: Iterable[FetchableTopicResponse], names: Mapping[UUID, str]
) -> tuple[LogEndsSeen, frozenset[UUID]]:
    """The ends of logs that a Fetch reply told, and the ids among its topics that are not in `names`.

    The high watermark, for consumers of either isolation level: their lag, too, is measured against the end of the
    log here, where the Java client's own `records-lag` stops at the last stable offset if it reads committed only.
    A follower that serves consumers (KIP-392) tells the end that it knows of, a moment behind the leader's.
    Within a fetch session (KIP-227) a partition is told of only when it has news. One that is not has the end that it
    had when it was told last; but that may have been in a reply that nobody looked into. So it counts as not seen, and
    the time of its last observation stands.
    """
    ends: dict[TopicPartition, int] = {}
    unnamed: set[UUID] = set()
    for topic in topics:
        name = topic.topic or names.get(topic.topic_id)
        if name is None:
            unnamed.add(topic.topic_id)
            continue
        for p in topic.partitions:
            if p.error_code == NONE and p.high_watermark >= 0:
                ends[name, p.partition_index] = p.high_watermark
    return LogEndsSeen(ends=ends), frozenset(unnamed)
