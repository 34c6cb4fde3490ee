"""What is written to a topic next, and what the broker's word on it means: an idempotent producer (KIP-98).

Owns: the queue of records, the one batch that is under way, its partition and its sequence number, and the counts of
what was written and dropped. Must not know: connections, threads, time, the topic's name.

A batch is under way until its fate is known. While it may have been appended, it is sent again as it was: to the same
partition, with the same records and the same sequence number, by which the broker knows it. Where that cannot be, as
the broker has forgotten the producer or does not lead the partition any more, the producer takes a new id, and the
records may be in the topic twice. They still say who they are: (sidecar, boot, seq).

One batch at a time, to one partition for as long as the broker leads it: so a sidecar's records keep their order.
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
from group_sidecar.codecs.record_writer import Contents, RecordWriter, batch_of
from group_sidecar.metrics.records import Record

QUEUE_FULL = "queue_full"
"""Why a record was dropped: the queue was full, and it was the oldest."""
TOO_LARGE = "too_large"
"""Why a record was dropped: the topic takes no record of its size."""
REFUSED = "refused"
"""Why a record was dropped: the broker does not take it, whatever is done."""

NOWHERE = -1
"""In place of a partition."""
PACKED_AT_ONCE = 2_000
"""Records that go into a batch at most: half a megabyte of lines."""
_LAST_SEQUENCE = 0x7FFFFFFF
_HEAD_ROOM = 32
"""Bytes, at most, of a record beside its key and value."""

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
"""The sidecar's user lacks a right."""
_NOT_APPENDED = (*DENIED, ErrorCode.NOT_ENOUGH_REPLICAS)
"""Said before anything is appended; of other errors a broker may say so after it, as it waits for its followers."""


class Outcome(Enum):
    """What came of sending a batch."""

    SETTLED = auto()
    """It is written, or it is clear what becomes of its records: the next one can be sent."""
    REFUSED = auto()
    """As SETTLED, and it was dropped, since the broker does not take it."""
    UNSETTLED = auto()
    """It is to be sent again, after a pause."""
    DENIED = auto()
    """The same; the sidecar's user lacks a right."""


@dataclass(slots=True)
class _Batch:
    """The batch that is under way. `doubtful`: it was sent, and may have been appended."""

    records: Sequence[Record]
    contents: Contents
    partition: int = NOWHERE
    doubtful: bool = False


class Sending(NamedTuple):
    """A partition, and a whole batch for it."""

    partition: int
    data: bytes


class Producer:
    """Decides what is sent.

    Args:
        key: of every record.
        queue_records: most records held.
        batch_bytes: most bytes of a batch before compression; a single larger record has one to itself.

    Attributes:
        records_written: records that the broker acknowledged.
        records_dropped: by reason: `queue_full` (oldest first), `too_large`, `refused`.
        records_doubted: records that were sent again under a new id, and so may be in the topic twice.
        led: the partitions that the broker leads; None while that is not known.
        home: the partition that is written to; NOWHERE before the first.
        numbered: whether there is a producer id.
    """

    def __init__(self, key: bytes, queue_records: int, batch_bytes: int) -> None:
        self._key = key
        self._queue_records = queue_records
        self._batch_bytes = self._limit = batch_bytes
        self._queue: deque[Record] = deque()
        self._hand: list[Record] = []
        self._batch: _Batch | None = None
        self.home = NOWHERE
        self._id: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        self.led: tuple[int, ...] | None = None
        self.records_written = 0
        self.records_dropped = dict.fromkeys((QUEUE_FULL, TOO_LARGE, REFUSED), 0)
        self.records_doubted = 0

    # Records.

    def append(self, record: Record) -> None:
        """Queues a record; drops and counts the oldest one when the queue is full."""
        self._queue.append(record)
        if self.held > self._queue_records:
            self._queue.popleft()
            self.records_dropped[QUEUE_FULL] += 1

    @property
    def held(self) -> int:
        """Records that are not settled."""
        return len(self._queue) + len(self._hand) + (len(self._batch.records) if self._batch else 0)

    @property
    def under_way(self) -> bool:
        """Whether there is a batch to be sent."""
        return self._batch is not None

    def take(self) -> "Packing":
        """The oldest records, to be packed into the next batch; none where nothing is queued. Not while one is
        under way. `hold` must follow.
        """
        for _ in range(min(PACKED_AT_ONCE, len(self._queue))):
            self._hand.append(self._queue.popleft())
        return Packing(tuple(self._hand), self._key, self._limit)

    def hold(self, contents: Contents) -> None:
        """What became of the records taken: the first of them are the next batch, the others are queued again."""
        self._batch = _Batch(self._hand[: contents.count], contents)
        self._queue.extendleft(reversed(self._hand[contents.count :]))
        self._hand = []

    # What the broker is to whom.

    @property
    def numbered(self) -> bool:
        return self._id is not None

    def number(self, producer_id: int, producer_epoch: int) -> None:
        """Takes a new producer id."""
        self._id = producer_id, producer_epoch
        self._sequences = {}

    def lead(self, partitions: Collection[int]) -> None:
        """The broker leads these partitions."""
        self.led = tuple(sorted(partitions))
        batch = self._batch
        if self.led and batch and batch.doubtful and batch.partition not in self.led:
            self._forget()

    def connected(self) -> None:
        """There is a new connection: what the broker leads, and takes, may be other than before."""
        self.led = None
        self._limit = self._batch_bytes

    # Batches.

    def next(self) -> Sending | None:
        """What to send; None while there is no batch under way, no id, or no partition for it.

        `answered` or `lost` must follow.
        """
        batch = self._batch
        if batch is None or self._id is None or not self.led:
            return None
        if batch.partition not in self.led:
            batch.partition = self._choose(self.led)
        sequence = self._sequences.get(batch.partition, 0)
        return Sending(batch.partition, batch_of(batch.contents, *self._id, sequence))

    def _choose(self, led: Sequence[int]) -> int:
        """Stays where it was. The key decides, so that the sidecars of one broker do not all take the same."""
        if self.home not in led:
            self.home = led[crc32(self._key) % len(led)]
        return self.home

    def lost(self) -> None:
        """No answer will come to what was sent."""
        if self._batch:
            self._batch.doubtful = True

    def answered(self, code: int) -> Outcome:
        """The broker's error code for what was sent."""
        batch = self._batch
        if batch is None:
            return Outcome.SETTLED
        if code in _WRITTEN:
            count = len(batch.records)
            self._sequences[batch.partition] = self._sequences.get(batch.partition, 0) + count & _LAST_SEQUENCE
            self.records_written += count
            self._batch = None
            return Outcome.SETTLED
        if code in _TOO_LARGE or code in _REFUSED:
            return self._refused(batch, code)
        if code in _FORGOTTEN:
            self._forget()
        elif code not in _NOT_APPENDED:
            batch.doubtful = True
            self.led = None
        return Outcome.DENIED if code in DENIED else Outcome.UNSETTLED

    def _refused(self, batch: _Batch, code: int) -> Outcome:
        if batch.doubtful:
            self._forget()
        self._batch = None
        if code in _TOO_LARGE and len(batch.records) > 1:
            self._limit = min(self._limit, batch.contents.size) // 2
            self._queue.extendleft(reversed(batch.records))
            return Outcome.SETTLED  # In smaller batches, down to single records.
        self.records_dropped[TOO_LARGE if code in _TOO_LARGE else REFUSED] += len(batch.records)
        return Outcome.REFUSED

    def _forget(self) -> None:
        """The id is of no more use. What is under way is sent as if it never was."""
        self._id = None
        if (batch := self._batch) is not None:
            self.records_doubted += len(batch.records) if batch.doubtful else 0
            batch.doubtful, batch.partition = False, NOWHERE


class Packing(NamedTuple):
    """Records to be packed. `limit`: as `batch_bytes` of `Producer`."""

    records: Sequence[Record]
    key: bytes
    limit: int

    def contents(self, codec: Codec) -> Contents:
        """As many of the records as fit, one at least. It takes milliseconds, and may be done in any thread."""
        writer = RecordWriter()
        for record in self.records:
            value = record.to_line()[:-1]
            if writer.count and writer.size + len(self.key) + len(value) + _HEAD_ROOM > self.limit:
                break
            moment = datetime.fromisoformat(record.envelope.emitted_at)
            writer.add(round(moment.timestamp() * 1000), self.key, value)
        return writer.contents(codec)
