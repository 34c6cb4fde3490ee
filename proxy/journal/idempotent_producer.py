"""An idempotent producer (KIP-98) without I/O, which decides what is sent next and what the broker's error code means.

`IdempotentProducer` holds the queue of records, the one batch in flight, the batch's partition and sequence number, and
the counts of records written and dropped. `topic_writer` owns the connection.

A batch is in flight until it is known whether the broker appended the batch. Until then, the producer sends the same
batch again: to the same partition, with the same records and the same sequence number. The broker recognizes a repeated
batch by its sequence number.

The producer cannot repeat the batch if the broker has forgotten the producer, or no longer leads the partition. The
producer then gets a new id, and the records may be in the topic twice. Readers can still recognize duplicate records by
(sidecar, boot, seq).

One batch is in flight at a time, and the partition does not change while the broker leads it. So a sidecar's records
keep their order.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple
from zlib import crc32

from group_sidecar.codecs.compression import Codec
from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.record_batch_writer import EncodedRecords, RecordWriter, encode_batch
from group_sidecar.metrics.array_lines import Line

QUEUE_FULL = "queue_full"
"""Why a record was dropped: the queue was full, and the record was the oldest."""
TOO_LARGE = "too_large"
"""Why a record was dropped: the topic does not accept a message of its size."""
REFUSED = "refused"
"""Why a record was dropped: the broker refuses it permanently."""

NO_PARTITION = -1
"""Stands for a partition that is not chosen yet."""
MAX_BATCH_RECORDS = 2_000
"""A batch with this many records gets no further line. 2,000 records take about half a megabyte."""
_LAST_SEQUENCE = 0x7FFFFFFF
_HEAD_ROOM = 32
"""The maximum number of bytes that a record takes in addition to its key and value."""

_WRITTEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_FORGOTTEN = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.PRODUCER_FENCED,
)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_REFUSED = (
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.INVALID_RECORD,
)
DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""The errors of a missing right of the sidecar's user."""
_NOT_APPENDED = (*DENIED, ErrorCode.NOT_ENOUGH_REPLICAS)
"""Errors that a broker returns only before it appends a batch. The broker may return other errors after the append,
while it waits for followers."""


class SendOutcome(Enum):
    """The result of sending a batch."""

    DONE = auto()
    """The next batch can be sent. This batch is written, or its records are queued again for smaller batches."""
    REFUSED = auto()
    """The next batch can be sent. This batch was dropped, because the broker does not accept it."""
    RETRY = auto()
    """The batch is to be sent again after a pause."""
    DENIED = auto()
    """The batch is to be sent again after a pause. The sidecar's user lacks a right."""


@dataclass(slots=True)
class _Batch:
    """The batch in flight. `maybe_appended`: whether the broker may have appended the batch."""

    lines: Sequence[Line]
    encoded_records: EncodedRecords
    partition: int = NO_PARTITION
    maybe_appended: bool = False

    @property
    def record_count(self) -> int:
        """The number of records. A line, which is one message, may have several."""
        return sum(line.count for line in self.lines)


class PartitionBatch(NamedTuple):
    """An encoded batch, and its partition."""

    partition: int
    data: bytes


class IdempotentProducer:
    """Decides which batch is sent next, and to which partition.

    Args:
        key: the key of every record.
        queue_records: the maximum number of records held.
        batch_bytes: the maximum number of bytes of a batch before compression. A single larger line has a batch of its
            own.

    Attributes:
        records_written: records that the broker acknowledged.
        records_dropped: dropped records by reason: `queue_full` (oldest first), `too_large`, `refused`.
        records_maybe_doubled: records that were sent again under a new id, and so may be in the topic twice.
        leader_partitions: the partitions that the broker leads, or None while they are unknown.
        current_partition: the partition of the last batch, or NO_PARTITION before the first batch.
        has_producer_id: whether there is a producer id.
    """

    def __init__(self, key: bytes, queue_records: int, batch_bytes: int) -> None:
        self._key = key
        self._queue_records = queue_records
        self._batch_bytes = self._limit = batch_bytes
        self._queue: deque[Line] = deque()
        self._taken: list[Line] = []
        self._unsettled = 0
        self._batch: _Batch | None = None
        self.current_partition = NO_PARTITION
        self._id: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        self.leader_partitions: tuple[int, ...] | None = None
        self.records_written = 0
        self.records_dropped = dict.fromkeys((QUEUE_FULL, TOO_LARGE, REFUSED), 0)
        self.records_maybe_doubled = 0

    # Records.

    def append(self, line: Line) -> None:
        """Queues a line. Drops the oldest lines, and counts their records, while the queue is too full."""
        self._queue.append(line)
        self._unsettled += line.count
        while self._queue and self._unsettled > self._queue_records:
            self._drop(self._queue.popleft().count, QUEUE_FULL)

    def _drop(self, records: int, reason: str) -> None:
        self._unsettled -= records
        self.records_dropped[reason] += records

    @property
    def unsettled_count(self) -> int:
        """The number of records that are neither written nor dropped."""
        return self._unsettled

    @property
    def has_batch(self) -> bool:
        """Whether there is a batch to be sent."""
        return self._batch is not None

    def take(self) -> "BatchPacker":
        """Takes the oldest lines from the queue, to be packed into the next batch.

        Must not be called while a batch is in flight. `hold` must follow.
        """
        records = 0
        while self._queue and records < MAX_BATCH_RECORDS:
            line = self._queue.popleft()
            self._taken.append(line)
            records += line.count
        return BatchPacker(tuple(self._taken), self._key, self._limit)

    def hold(self, encoded_records: EncodedRecords) -> None:
        """Makes the encoded lines the next batch. The encoded lines must be the first of the taken lines.

        The other taken lines are queued again.
        """
        self._batch = _Batch(self._taken[: encoded_records.count], encoded_records)
        self._queue.extendleft(reversed(self._taken[encoded_records.count :]))
        self._taken = []

    # Producer id and leadership.

    @property
    def has_producer_id(self) -> bool:
        return self._id is not None

    def set_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """Sets a new producer id."""
        self._id = producer_id, producer_epoch
        self._sequences = {}

    def set_leader_partitions(self, partitions: Collection[int]) -> None:
        """Sets the partitions that the broker leads."""
        self.leader_partitions = tuple(sorted(partitions))
        batch = self._batch
        if self.leader_partitions and batch and batch.maybe_appended and batch.partition not in self.leader_partitions:
            self._drop_producer_id()

    def connected(self) -> None:
        """Resets the broker's partitions and the batch size that the broker accepts, because both may have changed."""
        self.leader_partitions = None
        self._limit = self._batch_bytes

    # Batches.

    def next(self) -> PartitionBatch | None:
        """Returns the batch to send, or None if there is no batch, no producer id, or no partition.

        After a batch, `answered` or `lost` must be called.
        """
        batch = self._batch
        if batch is None or self._id is None or not self.leader_partitions:
            return None
        if batch.partition not in self.leader_partitions:
            batch.partition = self._choose(self.leader_partitions)
        sequence = self._sequences.get(batch.partition, 0)
        return PartitionBatch(batch.partition, encode_batch(batch.encoded_records, *self._id, sequence))

    def _choose(self, leader_partitions: Sequence[int]) -> int:
        """Returns the current partition while the broker leads it.

        Otherwise the key selects a partition, so that the sidecars of one broker spread over its partitions.
        """
        if self.current_partition not in leader_partitions:
            self.current_partition = leader_partitions[crc32(self._key) % len(leader_partitions)]
        return self.current_partition

    def lost(self) -> None:
        """Notes that no reply to the batch will come."""
        if self._batch:
            self._batch.maybe_appended = True

    def answered(self, code: int) -> SendOutcome:
        """Handles the broker's error code for the batch."""
        batch = self._batch
        if batch is None:
            return SendOutcome.DONE
        if code in _WRITTEN:
            messages = len(batch.lines)
            self._sequences[batch.partition] = self._sequences.get(batch.partition, 0) + messages & _LAST_SEQUENCE
            self.records_written += batch.record_count
            self._unsettled -= batch.record_count
            self._batch = None
            return SendOutcome.DONE
        if code in _TOO_LARGE or code in _REFUSED:
            return self._batch_refused(batch, code)
        if code in _FORGOTTEN:
            self._drop_producer_id()
        elif code not in _NOT_APPENDED:
            batch.maybe_appended = True
            self.leader_partitions = None
        return SendOutcome.DENIED if code in DENIED else SendOutcome.RETRY

    def _batch_refused(self, batch: _Batch, code: int) -> SendOutcome:
        if batch.maybe_appended:
            self._drop_producer_id()
        self._batch = None
        smaller = batch.lines if len(batch.lines) > 1 else batch.lines[0].halves()
        if code in _TOO_LARGE and smaller:
            self._limit = min(self._limit, batch.encoded_records.size) // 2
            self._queue.extendleft(reversed(smaller))
            return SendOutcome.DONE  # The records are sent in smaller batches, down to one record.
        self._drop(batch.record_count, TOO_LARGE if code in _TOO_LARGE else REFUSED)
        return SendOutcome.REFUSED

    def _drop_producer_id(self) -> None:
        """Drops the producer id. The batch in flight will be sent as if for the first time."""
        self._id = None
        if (batch := self._batch) is not None:
            self.records_maybe_doubled += batch.record_count if batch.maybe_appended else 0
            batch.maybe_appended, batch.partition = False, NO_PARTITION


class BatchPacker(NamedTuple):
    """Lines to be packed. `limit`: the maximum number of bytes of the batch before compression."""

    lines: Sequence[Line]
    key: bytes
    limit: int

    def encoded_records(self, codec: Codec) -> EncodedRecords:
        """Encodes as many of the lines as fit, at least one. Takes milliseconds, and may run in any thread."""
        writer = RecordWriter()
        for line in self.lines:
            value = line.to_line()[:-1]
            if writer.count and writer.size + len(self.key) + len(value) + _HEAD_ROOM > self.limit:
                break
            moment = datetime.fromisoformat(line.emitted_at)
            writer.add(round(moment.timestamp() * 1000), self.key, value)
        return writer.encoded_records(codec)
