"""A topic in memory, as an idempotent producer sees it on a broker.

The topic contains the records of each partition, and the state of producers that the broker keeps (Kafka classes
``ProducerStateManager``, ``ProducerAppendInfo``).
"""

import json
import struct
from collections import deque
from dataclasses import dataclass, field

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.record_batches import batches
from group_sidecar.metrics.array_lines import ArrayLine, array_line
from group_sidecar.metrics.records import (
    ARRAY_VERSION,
    ArrayEnvelope,
    Envelope,
    LogEnd,
    Record,
    Timestamp,
    timestamp,
)

REMEMBERED = 5
"""The number of batches of a producer that a broker keeps (Kafka class ``ProducerStateEntry``)."""
_MARKS = struct.Struct(">qhi")
_MARKS_AT = 43
MOMENT = timestamp(1_700_000_000.25)


def record(seq: int, topic: str = "t", moment: Timestamp = MOMENT) -> Record:
    envelope = Envelope(
        version=1, kind="log_end", sidecar="s", boot="b", seq=seq, observed_at=moment, emitted_at=moment
    )
    return Record(envelope=envelope, body=LogEnd(topic=topic, partition=0, offset=seq))


def array(first: int, count: int, topic: str = "t", moment: Timestamp = MOMENT) -> ArrayLine:
    """Returns an array line of `count` records, the first of which has the number `first`."""
    envelope = ArrayEnvelope(
        version=ARRAY_VERSION, kind="log_end", sidecar="s", boot="b", seq=first, count=count, emitted_at=moment
    )
    return array_line(
        envelope, [(moment, LogEnd(topic=topic, partition=0, offset=first + place)) for place in range(count)]
    )


@dataclass
class ProducerState:
    """A producer's state at a partition's leader: its epoch, and the first and last sequence number of its last
    batches.
    """

    epoch: int
    batches: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


@dataclass
class Partition:
    """One partition: the numbers of its records, and the state of producers that its leader keeps."""

    seqs: list[int] = field(default_factory=list)
    timestamps: set[int] = field(default_factory=set)
    keys: set[bytes | None] = field(default_factory=set)
    producers: dict[int, ProducerState] = field(default_factory=dict)


class Topic:
    """A topic of which this broker leads some partitions.

    Attributes:
        leader_partitions: the partitions that the broker leads.
        largest: the maximum bytes of a batch.
        ids: how many producer ids were issued.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = [Partition() for _ in range(partitions)]
        self.leader_partitions = set(range(partitions))
        self.largest = 1 << 20
        self.ids = 0

    def give_id(self) -> tuple[int, int]:
        """Returns a new producer id and its epoch."""
        self.ids += 1
        return self.ids, 0

    def append(self, number: int, data: bytes) -> int:
        """Appends a batch, or returns the error code, as Kafka does."""
        if number not in self.leader_partitions:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if len(data) > self.largest:
            return ErrorCode.MESSAGE_TOO_LARGE
        (batch,) = batches(data)
        producer, epoch, first = _MARKS.unpack_from(data, _MARKS_AT)
        partition, last = self.partitions[number], first + batch.count - 1 & 0x7FFFFFFF
        state = partition.producers.get(producer)
        if state is None:
            if first:
                return ErrorCode.UNKNOWN_PRODUCER_ID
            state = partition.producers[producer] = ProducerState(epoch)
        if epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if (first, last) in state.batches:
            return ErrorCode.NONE  # A duplicate: Kafka returns the offset of the first one.
        expected = (state.batches[-1][1] + 1) & 0x7FFFFFFF if state.batches else 0
        if first != expected:
            older = bool(state.batches) and last < state.batches[0][0]
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER if older else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        state.batches.append((first, last))
        for _, moment, key, value in batch.records():
            cells = json.loads(value or b"")
            partition.seqs.extend(range(cells["seq"], cells["seq"] + cells.get("count", 1)))
            partition.timestamps.add(moment)
            partition.keys.add(key)
        return ErrorCode.NONE

    @property
    def seqs(self) -> list[int]:
        """Returns the numbers of all records, partition by partition."""
        return [seq for partition in self.partitions for seq in partition.seqs]
