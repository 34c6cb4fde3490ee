"""Which partitions the broker leads: how it is told from the others, and how often that is asked."""

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
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.client import connect
from group_sidecar.proxy.led import Led
from tests.proxy.scripted_broker import MemoryNetwork, ScriptedBroker

BROKER = Address("broker", 9092)
NOBODY = -1


@dataclass
class Cluster:
    """Leaders by topic and partition; `node`: the one that answers."""

    leaders: dict[str, tuple[int, ...]]
    node: int = 2
    internal: set[str] = field(default_factory=set)

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        assert not request.topics, "all are asked for"
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


async def test_it_is_the_leader_that_answers_for_a_partition(network: MemoryNetwork) -> None:
    cluster = Cluster({"a": (1, 2, 3, NOBODY), "b": (2, 2), "__c": (2,)}, internal={"__c"})
    served = serve(network, cluster)
    async with connect(*BROKER) as client:
        assert await Led().partitions(client) == {("a", 1), ("b", 0), ("b", 1)}
    [asked] = served.requests(ListOffsetsRequest)
    assert sum(len(topic.partitions) for topic in asked.topics) == 3, "one of each leader is enough"


async def test_a_broker_that_leads_nothing(network: MemoryNetwork) -> None:
    serve(network, Cluster({"a": (1, 3)}))
    async with connect(*BROKER) as client:
        assert await Led().partitions(client) == frozenset()


async def test_it_is_asked_again_the_later_the_more_there_is_to_read(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.thread_time", iter([0, 0.01, 0, 0.01]).__next__)
    cluster = Cluster({"a": (1, 2)})
    served, leading = serve(network, cluster), Led()
    async with connect(*BROKER) as client:
        before = await leading.partitions(client)
        cluster.leaders = {"a": (2, 1)}
        await trio.sleep(9)
        assert await leading.partitions(client) == before == {("a", 1)}
        await trio.sleep(2)
        assert await leading.partitions(client) == {("a", 0)}
    assert len(served.requests(MetadataRequest)) == 2


async def test_a_broker_that_does_not_know_metadata_is_not_asked(network: MemoryNetwork) -> None:
    network.brokers[BROKER] = ScriptedBroker({})
    async with connect(*BROKER) as client:
        assert await Led().partitions(client) == frozenset()
