"""Tests how the broker's partitions are found, and how often they are requested."""

from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock

from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from group_sidecar.codecs.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from group_sidecar.proxy.broker.kafka_client import connect
from group_sidecar.proxy.broker.leaders import LeaderPartitions
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.scripted_broker import MemoryNetwork, ScriptedBroker

BROKER = Address("broker", 9092)
NOBODY = -1


@dataclass
class Cluster:
    """The leaders by topic and partition. `node`: the node that answers."""

    leaders: dict[str, tuple[int, ...]]
    node: int = 2
    internal: set[str] = field(default_factory=set)

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        assert not request.topics, "the request must be for all topics"
        topics = tuple(self._topic(name, leaders) for name, leaders in self.leaders.items())
        return MetadataResponse(brokers=(), topics=topics)

    def ends(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(self._end(topic.name, each.partition_index) for each in topic.partitions),
                )
                for topic in request.topics
            )
        )

    def _topic(self, name: str, leaders: tuple[int, ...]) -> MetadataResponseTopic:
        partitions = tuple(
            MetadataResponsePartition(
                error_code=0, partition_index=number, leader_id=leader, replica_nodes=(), isr_nodes=()
            )
            for number, leader in enumerate(leaders)
        )
        return MetadataResponseTopic(error_code=0, name=name, is_internal=name in self.internal, partitions=partitions)

    def _end(self, topic: str, partition: int) -> ListOffsetsPartitionResponse:
        leads = self.leaders[topic][partition] == self.node
        return ListOffsetsPartitionResponse(
            partition_index=partition, error_code=0 if leads else 6, offset=7 if leads else -1
        )


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    network = MemoryNetwork(nursery)
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


def serve(network: MemoryNetwork, cluster: Cluster) -> ScriptedBroker:
    served = ScriptedBroker({MetadataRequest: cluster.metadata, ListOffsetsRequest: cluster.ends})
    network.brokers[BROKER] = served
    return served


async def test_partitions_of_answering_leader(network: MemoryNetwork) -> None:
    """The broker's partitions are those of the leader for which it answers ListOffsets."""
    cluster = Cluster({"a": (1, 2, 3, NOBODY), "b": (2, 2), "__c": (2,)}, internal={"__c"})
    served = serve(network, cluster)
    async with connect(*BROKER) as client:
        assert await LeaderPartitions().partitions(client) == {("a", 1), ("b", 0), ("b", 1)}
    [request] = served.requests(ListOffsetsRequest)
    assert sum(len(topic.partitions) for topic in request.topics) == 3, "one partition of each leader must be requested"


async def test_leaderless_broker_has_no_partitions(network: MemoryNetwork) -> None:
    """A broker that leads no partition has none."""
    serve(network, Cluster({"a": (1, 3)}))
    async with connect(*BROKER) as client:
        assert await LeaderPartitions().partitions(client) == frozenset()


async def test_metadata_interval_grows_with_cost(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval between Metadata requests grows with the time to decode the reply."""
    monkeypatch.setattr("time.thread_time", iter([0, 0.01, 0, 0.01]).__next__)
    cluster = Cluster({"a": (1, 2)})
    served, leading = serve(network, cluster), LeaderPartitions()
    async with connect(*BROKER) as client:
        before = await leading.partitions(client)
        cluster.leaders = {"a": (2, 1)}
        await trio.sleep(9)
        assert await leading.partitions(client) == before == {("a", 1)}
        await trio.sleep(2)
        assert await leading.partitions(client) == {("a", 0)}
    assert len(served.requests(MetadataRequest)) == 2


async def test_missing_metadata_has_no_partitions(network: MemoryNetwork) -> None:
    """A broker whose versions of Metadata are not known is not asked and has no partitions."""
    network.brokers[BROKER] = ScriptedBroker(versions={MetadataRequest: (99, 99)})
    async with connect(*BROKER) as client:
        assert await LeaderPartitions().partitions(client) == frozenset()
