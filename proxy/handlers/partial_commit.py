"""Removes the refused partitions from a commit, and adds their errors to the broker's reply.

The client gets the reply that a broker would send if it refused these partitions itself. A broker checks a commit in
this order. KafkaApis checks whether the client may read the topic and whether the partition exists. Then the group
coordinator checks the commit as a whole, and last each partition.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.fast_instances import fast_replacer
from group_sidecar.codecs.headers import RequestHeader, encode_reply, encode_request
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from group_sidecar.codecs.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.policies.verdicts import RefusePartitions
from group_sidecar.proxy.dataplane.framing import HOLD, FrameAction
from group_sidecar.proxy.dataplane.outcomes import AnswerInOrder, Forward, HangUp, Origin, Reply, RequestOutcome
from group_sidecar.proxy.handlers.pending_exchange import ExchangeReplies, PendingExchange
from group_sidecar.proxy.handlers.reply_rewriter import decode_reply

Commit: TypeAlias = Any
Topic: TypeAlias = Any
CommitReply: TypeAlias = Any
TopicReply: TypeAlias = Any
PartitionReply: TypeAlias = Any
"""Messages of OffsetCommit or TxnOffsetCommit. The classes of both APIs have the fields that this module uses, but no
common base class has these fields."""

WHOLE_TOPIC_ERRORS = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID})
MISSING_PARTITION_ERRORS = WHOLE_TOPIC_ERRORS | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Errors that KafkaApis reports without asking the group coordinator. In the broker's reply, partitions with these
errors come first."""
SINGLE_PARTITION_ERRORS = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE})
"""Error codes that the group coordinator returns for single partitions. All others concern the commit as a whole."""


def without_refused_partitions(
    exchange: Exchange, header: RequestHeader, refusal: RefusePartitions, replies: ExchangeReplies
) -> RequestOutcome:
    """Returns what happens to a commit with refused partitions. The rest of the commit is forwarded, if any."""
    original: Commit = exchange.request
    affected = {at for at, _ in refusal.sizes}
    remaining = [
        _without_refused(topic, at, refusal) if at in affected else topic for at, topic in enumerate(original.topics)
    ]
    topics = tuple(topic for topic in remaining if topic.partitions)
    if not topics:
        frame = encode_reply(_of_all(original, refusal.error_code), exchange.version, header.correlation_id)
        return AnswerInOrder(lambda _: frame)
    rest = replace(original, topics=topics)
    pending = PartialCommit(replace(exchange, request=rest), replies, original, refusal)
    return Forward(pending, encode_request(rest, header))


def _without_refused(topic: Topic, at: int, refusal: RefusePartitions) -> Topic:
    """Returns a topic without its refused partitions."""
    partitions = tuple(p for index, p in enumerate(topic.partitions) if (at, index) not in refusal.sizes)
    return replace(topic, partitions=partitions)


class PartialCommit(PendingExchange):
    """The pending reply to the forwarded part of a commit.

    Args:
        exchange: the exchange of the forwarded part.
        replies: the object that all pending replies of the broker share.
        original: the commit that the client sent.
        refusal: the refused partitions.
    """

    __slots__ = ("original", "refusal")

    def __init__(
        self, exchange: Exchange, replies: ExchangeReplies, original: Commit, refusal: RefusePartitions
    ) -> None:
        super().__init__(exchange, replies)
        self.original = original
        self.refusal = refusal

    def classify_reply(self, size: int, now: float) -> FrameAction | HangUp:
        """See PendingReply. A reply that is too long to be held and completed ends the connection."""
        return HOLD if size <= self._replies.longest_held else HangUp(CloseReason.UNREADABLE)

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply. The whole reply is decoded, but the copy does not get a reply with too many elements."""
        exchange, key = self._exchange, self._exchange.request.KEY
        answer = decode_reply(key, exchange.version, frame)
        if self._elements <= self._replies.decode_limits.reply(key):
            self._replies.observer.replied(exchange, answer.message, origin, now)
        else:
            self._replies.observer.note_unreadable_reply(exchange, now)
        return Reply(answer.encode_with(self.merge_reply(answer.message)))

    def unreadable(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply. The client gets COORDINATOR_NOT_AVAILABLE, as after a write that timed out, and retries.

        The broker's own reply could look like success: the Java client treats partitions that are missing in a reply as
        committed.
        """
        super().unreadable(frame, origin, now)
        reply = _of_all(self.original, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Reply(encode_reply(reply, self._exchange.version, int.from_bytes(frame[:4], "big", signed=True)))

    @property
    def _elements(self) -> int:
        """The number of topics and partitions that were forwarded."""
        sent: Commit = self._exchange.request
        return sum(1 + len(topic.partitions) for topic in sent.topics)

    def merge_reply(self, reply: CommitReply) -> CommitReply:
        """Returns the client's reply, made from the broker's reply to the forwarded part.

        As in Kafka 4, the partitions are in the order of the request. But if some partitions have one of
        `MISSING_PARTITION_ERRORS`, these come first, and all partitions of a topic are in one entry.
        """
        if self._answers_in_order(reply):
            return replace(reply, topics=self._spliced(reply))
        answered = _BrokerReply(reply)
        answers: list[tuple[int, PartitionReply]] = []
        for at, topic in enumerate(self.original.topics):
            for index, partition in enumerate(topic.partitions):
                if (at, index) in self.refusal.sizes:
                    code = answered.error_for_withheld(topic, partition.partition_index, self.refusal.error_code)
                    answers.append((at, _answer(topic, partition.partition_index, code)))
                elif answer := answered.reply_for_forwarded(topic, partition.partition_index):
                    answers.append((at, answer))
        first = [each for each in answers if each[1].error_code in MISSING_PARTITION_ERRORS]
        if first:
            answers = first + [each for each in answers if each[1].error_code not in MISSING_PARTITION_ERRORS]
        entries: dict[object, tuple[TopicReply, list[PartitionReply]]] = {}
        for at, answer in answers:
            topic = self.original.topics[at]
            entry = entries.setdefault(_name(topic) if first else at, (answered.entry(topic), []))
            entry[1].append(answer)
        topics = tuple(_WITH_PARTITIONS[type(entry)](entry, tuple(each)) for entry, each in entries.values())
        return replace(reply, topics=topics)

    def _answers_in_order(self, reply: CommitReply) -> bool:
        """Whether the reply has one entry for each forwarded partition, in the same order, and only errors of single
        partitions. All replies to successful commits are of this kind, so their partitions need no lookup.
        """
        sent: Commit = self._exchange.request
        return len(sent.topics) == len(reply.topics) and all(
            _name(asked) == _name(answered)
            and [p.partition_index for p in asked.partitions] == [p.partition_index for p in answered.partitions]
            and SINGLE_PARTITION_ERRORS.issuperset({p.error_code for p in answered.partitions})
            for asked, answered in zip(sent.topics, reply.topics, strict=True)
        )

    def _spliced(self, reply: CommitReply) -> tuple[TopicReply, ...]:
        """Returns the topics of a reply in order, with the errors of refused partitions inserted."""
        entries, topics = iter(reply.topics), []
        refused_by_topic: dict[int, set[int]] = {}
        for at, index in self.refusal.sizes:
            refused_by_topic.setdefault(at, set()).add(index)
        for at, topic in enumerate(self.original.topics):
            refused = refused_by_topic.get(at)
            if refused is None:
                # `without_refused_partitions` leaves out topics that the client sent without partitions.
                topics += [next(entries)] if topic.partitions else []
                continue
            entry = next(entries) if len(refused) < len(topic.partitions) else _entry(topic, ())
            kept = iter(entry.partitions)
            answers = tuple(
                _answer(topic, partition.partition_index, self.refusal.error_code) if index in refused else next(kept)
                for index, partition in enumerate(topic.partitions)
            )
            topics.append(_WITH_PARTITIONS[type(entry)](entry, answers))
        return tuple(topics)


class _BrokerReply:
    """The broker's reply to the forwarded part of a commit, for lookups by topic and partition."""

    def __init__(self, reply: CommitReply) -> None:
        self._entries: dict[object, TopicReply] = {}
        self._answers: dict[object, deque[PartitionReply]] = {}
        self._missing: dict[object, tuple[int, int]] = {}
        self._of_all: int | None = None
        for topic in reply.topics:
            self._entries[_name(topic)] = topic
            for answer in topic.partitions:
                self._answers.setdefault((_name(topic), answer.partition_index), deque()).append(answer)
                self._note_error(_name(topic), answer.partition_index, answer.error_code)

    def _note_error(self, name: object, index: int, code: int) -> None:
        if code in MISSING_PARTITION_ERRORS:
            # Partition numbers have no gaps. If one is missing, all higher numbers are missing too.
            since = (0 if code in WHOLE_TOPIC_ERRORS else index, code)
            self._missing[name] = min(since, self._missing.get(name, since))
        elif code not in SINGLE_PARTITION_ERRORS:
            self._of_all = code

    def reply_for_forwarded(self, topic: Topic, index: int) -> PartitionReply | None:
        """Returns the next entry for a forwarded partition, or None if there is none.

        The last entry stays, because the broker may have one entry for a partition that was sent twice.
        """
        answers = self._answers.get((_name(topic), index), deque())
        return answers.popleft() if len(answers) > 1 else next(iter(answers), None)

    def error_for_withheld(self, topic: Topic, index: int, refused: int) -> int:
        """Returns the error of a refused partition. `refused`: the error code of the policy."""
        since, code = self._missing.get(_name(topic), (index + 1, ErrorCode.NONE))
        if index >= since:
            return code
        return refused if self._of_all is None else self._of_all

    def entry(self, topic: Topic) -> TopicReply:
        """Returns a topic's entry in the reply. The caller replaces the entry's partitions."""
        return self._entries.get(_name(topic)) or _entry(topic, ())


_WITH_PARTITIONS: Mapping[type[Any], Callable[[TopicReply, tuple[PartitionReply, ...]], TopicReply]] = {
    topic: fast_replacer(topic, "partitions") for topic in (OffsetCommitResponseTopic, TxnOffsetCommitResponseTopic)
}
"""Functions that copy an entry of a reply with other partitions."""


def _name(topic: Topic | TopicReply) -> object:
    return topic.name, topic.topic_id


def _of_all(commit: Commit, code: int) -> CommitReply:
    """Returns a reply with the same error for each partition, as Kafka's ``getErrorResponse`` does."""
    topics = tuple(_entry(t, tuple(_answer(t, p.partition_index, code) for p in t.partitions)) for t in commit.topics)
    if commit.KEY == ApiKey.OFFSET_COMMIT:
        return OffsetCommitResponse(topics=topics)
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)


def _entry(topic: Topic, partitions: tuple[PartitionReply, ...]) -> TopicReply:
    if isinstance(topic, OffsetCommitRequestTopic):
        return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
    return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _answer(topic: Topic, index: int, code: int) -> PartitionReply:
    if isinstance(topic, OffsetCommitRequestTopic):
        return OffsetCommitResponsePartition(partition_index=index, error_code=code)
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
