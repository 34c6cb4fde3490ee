"""Builds the model broker's replies to requests that are not about groups."""

from random import Random
from uuid import UUID

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from group_sidecar.codecs.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from group_sidecar.codecs.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
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
from group_sidecar.codecs.offsets_topic import OFFSETS_TOPIC
from group_sidecar.codecs.schema import Struct
from tests.proxy.offsets_log.log_broker import Partition
from tests.simulation.offsets_log import OffsetsLog

NODE_ID, HOST, PORT = 1, "10.0.0.2", 9092
"""The broker's node id, and the address of the sidecar, which the broker advertises."""
OTHER_NODE = 2
TOPIC, TOPIC_ID, TOPIC_PARTITIONS = "t", UUID(int=0x7070), 3
LOG_END = 1000
LONG_REPLY = 200_000
"""The maximum total length in bytes of the error messages in a Produce reply. Long messages make some replies long."""
_LATEST = -1


def reply(request: Struct, version: int, log: OffsetsLog) -> Struct | None:
    """Returns the reply, or None if the request is about groups."""
    match request:
        case MetadataRequest():
            return _metadata(request, log)
        case ListOffsetsRequest():
            return _list_offsets(request, log)
        case FindCoordinatorRequest():
            return _find_coordinator(request)
        case DescribeAclsRequest():
            error = ErrorCode.SECURITY_DISABLED
            return DescribeAclsResponse(throttle_time_ms=0, error_code=error, error_message=None, resources=())
    return None


def _metadata(request: MetadataRequest, log: OffsetsLog) -> MetadataResponse:
    names = [each.name for each in request.topics or ()] or [TOPIC, OFFSETS_TOPIC]
    topics = []
    for name in names:
        if name == OFFSETS_TOPIC:
            partitions = [(n, NODE_ID if each.led else OTHER_NODE, each.epoch) for n, each in log.partitions.items()]
        elif name == TOPIC:
            partitions = [(number, NODE_ID, 0) for number in range(TOPIC_PARTITIONS)]
        else:
            partitions = []
        topics.append(
            MetadataResponseTopic(
                error_code=0 if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                name=name,
                topic_id=TOPIC_ID if name == TOPIC else UUID(int=0x7071),
                partitions=tuple(
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=number,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=(),
                        isr_nodes=(),
                    )
                    for number, leader, epoch in partitions
                ),
            )
        )
    nodes = (NODE_ID, OTHER_NODE) if log.may_move else (NODE_ID,)
    brokers = tuple(MetadataResponseBroker(node_id=each, host=HOST, port=PORT) for each in nodes)
    return MetadataResponse(brokers=brokers, topics=tuple(topics))


def _error(partition: Partition | None, epoch: int) -> int:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not partition.led:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if 0 <= epoch < partition.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > partition.epoch else 0


def _list_offsets(request: ListOffsetsRequest, log: OffsetsLog) -> ListOffsetsResponse:
    topics = []
    for topic in request.topics:
        found = []
        for each in topic.partitions:
            error, start, end = 0, 0, LOG_END
            if topic.name == OFFSETS_TOPIC:
                partition = log.partitions.get(each.partition_index)
                error = _error(partition, each.current_leader_epoch)
                start, end = (partition.start, partition.high_watermark) if partition else (-1, -1)
            offset = -1 if error else end if each.timestamp == _LATEST else start
            found.append(
                ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=error, offset=offset)
            )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found)))
    return ListOffsetsResponse(topics=tuple(topics))


def _find_coordinator(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    found = tuple(
        Coordinator(key=key, node_id=NODE_ID, host=HOST, port=PORT, error_code=0, error_message=None)
        for key in request.coordinator_keys
    )
    return FindCoordinatorResponse(node_id=NODE_ID, host=HOST, port=PORT, coordinators=found)


def fetch(request: FetchRequest, log: OffsetsLog) -> tuple[FetchResponse, bool]:
    """Returns the reply to a Fetch, and whether it has neither records nor an error."""
    left, topics, is_empty = request.max_bytes, [], True
    for topic in request.topics:
        found = []
        for each in topic.partitions:
            partition = log.partitions.get(each.partition) if topic.topic == OFFSETS_TOPIC else Partition()
            error = _error(partition, each.current_leader_epoch) if topic.topic == OFFSETS_TOPIC else 0
            assert partition is not None or error
            if partition is None or error:
                found.append(
                    PartitionData(partition_index=each.partition, error_code=error, high_watermark=-1, records=b"")
                )
                is_empty = False
                continue
            end = partition.high_watermark
            if not partition.start <= each.fetch_offset <= end:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            most = min(each.partition_max_bytes, left)
            records = b"" if error else partition.records(each.fetch_offset, most, cut=False, first=is_empty)
            left -= len(records)
            is_empty = is_empty and not records and not error
            found.append(
                PartitionData(partition_index=each.partition, error_code=error, high_watermark=end, records=records)
            )
        topics.append(FetchableTopicResponse(topic=topic.topic, partitions=tuple(found)))
    return FetchResponse(responses=tuple(topics)), is_empty


def produce(request: ProduceRequest, rng: Random) -> ProduceResponse:
    """Returns the reply to a Produce. Some replies are long."""
    size = rng.randrange(LONG_REPLY) if rng.random() < 0.05 else 0
    records = sum(len(each.records or b"") for topic in request.topic_data for each in topic.partition_data)
    topics = tuple(
        TopicProduceResponse(
            name=topic.name,
            partition_responses=tuple(
                PartitionProduceResponse(
                    index=each.index, error_code=0, base_offset=records, error_message="x" * min(size, 32_000)
                )
                for each in topic.partition_data
                for _ in range(1 + size // 32_000)
            ),
        )
        for topic in request.topic_data
    )
    return ProduceResponse(responses=topics)
