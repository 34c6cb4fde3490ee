"""A broker that takes records into one topic, on memory streams.

Owns: what Metadata, ListOffsets, InitProducerId and Produce answer, and what a test has go wrong. Must not know: what
becomes of a batch (`topic_model`), who produces.
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
from tests.proxy.scripted_broker import HangUp, Mute, ScriptedBroker
from tests.proxy.topic_model import Topic

TOPIC = "records"
THIS, OTHER, NOBODY = 1, 2, -1
"""Who leads a partition: the broker, another one, none."""


class Fault(Enum):
    """What goes wrong with a Produce."""

    LOSE_QUESTION = auto()
    """The connection breaks before anything is appended."""
    LOSE_ANSWER = auto()
    """It breaks after that."""
    SILENCE = auto()
    """It is appended, and no answer comes."""


class TopicBroker(ScriptedBroker):
    """Its topic may be changed at any time.

    Attributes:
        topic: what is in it.
        exists: whether there is such a topic.
        said: who leads each partition, as Metadata has it; as it is where that is None.
        faults: what goes wrong with the next requests to produce, in order: an error code is said and nothing appended.
        denied: the error that InitProducerId answers.
        throttled: milliseconds that Produce says it was throttled.
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
        self.said: list[int] | None = None
        self.faults: deque[Fault | int] = deque()
        self.denied = 0
        self.throttled = 0

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        leaders = self.said or [THIS if n in self.topic.led else OTHER for n in range(len(self.topic.partitions))]
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
        [asked] = request.topics
        partitions = tuple(
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                error_code=0 if each.partition_index in self.topic.led else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                offset=0,
            )
            for each in asked.partitions
        )
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name=asked.name, partitions=partitions),))

    def _init_producer_id(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        assert request.transactional_id is None
        producer, epoch = self.topic.give_id()
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=self.denied, producer_id=producer, producer_epoch=epoch
        )

    def _produce(self, request: ProduceRequest, version: int) -> ProduceResponse:
        [told] = request.topic_data
        [data] = told.partition_data
        assert (request.acks, request.transactional_id, told.name) == (-1, None, TOPIC)
        fault = self.faults.popleft() if self.faults else None
        if fault is Fault.LOSE_QUESTION:
            raise HangUp
        code = fault if isinstance(fault, int) else self.topic.append(data.index, data.records or b"")
        if fault is Fault.LOSE_ANSWER:
            raise HangUp
        if fault is Fault.SILENCE:
            raise Mute
        answer = PartitionProduceResponse(index=data.index, error_code=code, base_offset=0)
        topic = TopicProduceResponse(name=TOPIC, partition_responses=(answer,))
        return ProduceResponse(responses=(topic,), throttle_time_ms=self.throttled)
