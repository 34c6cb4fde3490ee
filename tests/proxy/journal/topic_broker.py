"""A broker that appends records to one topic, on memory streams.

It answers Metadata, ListOffsets, InitProducerId and Produce, with the faults that a test sets. `topic_model` has the
batches.
"""

from collections import deque
from enum import Enum, auto

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from group_sidecar.codecs.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from group_sidecar.codecs.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.proxy.journal.topic_model import Topic
from tests.proxy.scripted_broker import HangUp, NoReply, ScriptedBroker

TOPIC = "records"
THIS, OTHER, NOBODY = 1, 2, -1
"""The leader of a partition: this broker, another one, or none."""


class Fault(Enum):
    """A fault of a Produce request."""

    LOSE_REQUEST = auto()
    """The connection breaks before anything is appended."""
    LOSE_REPLY = auto()
    """The broker appends the batch, and then the connection breaks."""
    SILENCE = auto()
    """The broker appends the batch and sends no reply."""


class TopicBroker(ScriptedBroker):
    """A broker whose topic may be changed at any time.

    Attributes:
        topic: the topic's content.
        exists: whether the topic exists.
        reported_leaders: the leader of each partition in Metadata; None for the true leaders.
        faults: the faults of the next Produce requests, in order. An error code is returned, and nothing is appended.
        denied: the error code of InitProducerId.
        throttled: the throttle time in Produce replies, in milliseconds.
    """

    def __init__(self, partitions: int = 1, versions: dict[type, tuple[int, int]] | None = None) -> None:
        answers = {
            MetadataRequest: self._metadata,
            ListOffsetsRequest: self._list_offsets,
            InitProducerIdRequest: self._init_producer_id,
            ProduceRequest: self._produce,
        }
        super().__init__(answers, versions)  # type: ignore[arg-type]
        self.topic = Topic(partitions)
        self.exists = True
        self.reported_leaders: list[int] | None = None
        self.faults: deque[Fault | int] = deque()
        self.denied = 0
        self.throttled = 0

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        leaders = self.reported_leaders or [
            THIS if n in self.topic.leader_partitions else OTHER for n in range(len(self.topic.partitions))
        ]
        partitions = tuple(
            MetadataResponsePartition(
                error_code=0, partition_index=number, leader_id=leader, replica_nodes=(leader,), isr_nodes=(leader,)
            )
            for number, leader in enumerate(leaders)
        )
        code = 0 if self.exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = MetadataResponseTopic(error_code=code, name=TOPIC, partitions=partitions if self.exists else ())
        brokers = tuple(MetadataResponseBroker(node_id=node, host="b", port=node) for node in (THIS, OTHER))
        return MetadataResponse(brokers=brokers, topics=(topic,))

    def _list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        [topic] = request.topics
        partitions = tuple(
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                error_code=0
                if each.partition_index in self.topic.leader_partitions
                else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                offset=0,
            )
            for each in topic.partitions
        )
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name=topic.name, partitions=partitions),))

    def _init_producer_id(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        assert request.transactional_id is None
        producer, epoch = self.topic.give_id()
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=self.denied, producer_id=producer, producer_epoch=epoch
        )

    def _produce(self, request: ProduceRequest, version: int) -> ProduceResponse:
        [topic_data] = request.topic_data
        [data] = topic_data.partition_data
        assert (request.acks, request.transactional_id, topic_data.name) == (-1, None, TOPIC)
        fault = self.faults.popleft() if self.faults else None
        if fault is Fault.LOSE_REQUEST:
            raise HangUp
        code = fault if isinstance(fault, int) else self.topic.append(data.index, data.records or b"")
        if fault is Fault.LOSE_REPLY:
            raise HangUp
        if fault is Fault.SILENCE:
            raise NoReply
        answer = PartitionProduceResponse(index=data.index, error_code=code, base_offset=0)
        topic = TopicProduceResponse(name=TOPIC, partition_responses=(answer,))
        return ProduceResponse(responses=(topic,), throttle_time_ms=self.throttled)
