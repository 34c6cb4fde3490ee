"""Defines the largest replies in which a gateway rewrites addresses."""

from collections.abc import Iterator
from uuid import UUID

from benchmarks.largest_group_messages import Case, form
from group_sidecar.codecs.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from group_sidecar.codecs.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from group_sidecar.codecs.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from group_sidecar.codecs.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

BROKERS = 3
CLUSTER = 1_000
"""The number of brokers, larger than in any known cluster."""
METADATA = MetadataRequest(topics=None)


def advertised(node_id: int, host: str, port: int) -> tuple[str, int]:
    """Maps a broker's address to the address that the gateway advertises."""
    return "gateway.example", 20_000 + node_id


def rewritten(most: int, inspected_metadata: int) -> Iterator[Case]:
    """Yields all cases.

    `most` is the maximum number of decoded entries. `inspected_metadata` is the maximum number of decoded bytes of
    Metadata.
    """
    found = tuple(
        Coordinator(
            key=f"group-{n}",
            node_id=n % BROKERS,
            host=f"kafka-{n % BROKERS}",
            port=9092,
            error_code=0,
            error_message="",
        )
        for n in range(most)
    )
    yield Case(
        f"FindCoordinator of {most:,} groups",
        FindCoordinatorRequest(coordinator_keys=("g",)),
        4,
        FindCoordinatorResponse(coordinators=found),
    )
    nodes = tuple(DescribeClusterBroker(broker_id=n, host=f"kafka-{n}", port=9092) for n in range(CLUSTER))
    yield Case(
        f"DescribeCluster of {CLUSTER:,} brokers",
        DescribeClusterRequest(include_cluster_authorized_operations=False),
        1,
        DescribeClusterResponse(throttle_time_ms=0, error_code=0, cluster_id="c", brokers=nodes),
    )
    yield from _metadata(inspected_metadata)
    yield from _produced(most)


def _metadata(inspected: int) -> Iterator[Case]:
    partitions = tuple(
        MetadataResponsePartition(
            error_code=0,
            partition_index=index,
            leader_id=1,
            replica_nodes=(0, 1, 2),
            isr_nodes=(0, 1, 2),
            offline_replicas=(),
        )
        for index in range(10)
    )

    def topics(count: int, each: tuple[MetadataResponsePartition, ...]) -> tuple[MetadataResponseTopic, ...]:
        return tuple(
            MetadataResponseTopic(error_code=0, name=f"topic-{n}", topic_id=UUID(int=n + 1), partitions=each)
            for n in range(count)
        )

    def reply(brokers: int, topics: tuple[MetadataResponseTopic, ...]) -> MetadataResponse:
        nodes = tuple(MetadataResponseBroker(node_id=n, host=f"kafka-{n}", port=9092) for n in range(brokers))
        return MetadataResponse(brokers=nodes, topics=topics)

    few, unknown = inspected // 520, inspected // 36
    yield Case(f"Metadata of {form(few, 10)} partitions", METADATA, 12, reply(BROKERS, topics(few, partitions)))
    yield Case(f"Metadata of {unknown:,} unknown topics", METADATA, 12, reply(BROKERS, topics(unknown, ())))
    yield Case("Metadata of 20,000 x 10 partitions", METADATA, 12, reply(BROKERS, topics(20_000, partitions)))
    yield Case(f"Metadata of {CLUSTER:,} brokers", METADATA, 12, reply(CLUSTER, topics(few, partitions)))


def _produced(most: int) -> Iterator[Case]:
    moved = LeaderIdAndEpoch(leader_id=1, leader_epoch=1)
    for topics, each in ((1, most - 1), (most // 2, 1)):
        partitions = tuple(
            PartitionProduceResponse(index=index, error_code=6, base_offset=-1, current_leader=moved)
            for index in range(each)
        )
        yield Case(
            f"Produce of {form(topics, each)} partitions that moved",
            ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=()),
            12,
            ProduceResponse(
                responses=tuple(
                    TopicProduceResponse(name=f"topic-{n}", partition_responses=partitions) for n in range(topics)
                ),
                node_endpoints=(NodeEndpoint(node_id=1, host="kafka-1", port=9092),),
            ),
        )
