"""Tests the requests that read a log, in each version of their API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.fetch import FetchRequest
from group_sidecar.codecs.messages.list_offsets import ListOffsetsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataRequestTopic
from group_sidecar.proxy.broker.broker_errors import BrokerRefused
from group_sidecar.proxy.broker.kafka_client import KafkaClient, connect
from group_sidecar.proxy.broker.topic_log_queries import FetchPosition, fetch, leaders, log_starts
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.offsets_log.log_broker import THIS_NODE, TOPIC, LogBroker
from tests.proxy.scripted_broker import MemoryNetwork

BROKER = Address("broker", 9092)
WANTED = (FetchPosition(1, 1, 1), FetchPosition(0, 1, 0))


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    network = MemoryNetwork(nursery)
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


@asynccontextmanager
async def asking(
    network: MemoryNetwork, versions: dict[type, tuple[int, int]] | None = None
) -> AsyncIterator[tuple[KafkaClient, LogBroker]]:
    """Yields a client of a broker that leads partitions 0 and 1 of three, with two records each."""
    broker = network.brokers[BROKER] = LogBroker(3, versions)
    broker.partitions[2].led = False
    for number in range(3):
        broker.partitions[number].epoch = 5 if number == 2 else 1
        for offset in range(2):
            broker.partitions[number].commit("g", offset)
    async with connect(*BROKER) as client:
        yield client, broker


@pytest.mark.parametrize("version", MetadataRequest.VERSIONS)
async def test_leaders_in_every_metadata_version(network: MemoryNetwork, version: int) -> None:
    """Leader epochs and nodes are read in every Metadata version, without the creation of a topic."""
    async with asking(network, {MetadataRequest: (version, version)}) as (client, broker):
        known = version >= 7
        epochs, nodes = await leaders(client, TOPIC)
        assert epochs == ({0: 1, 1: 1, 2: 5} if known else dict.fromkeys(range(3), -1))
        assert nodes == {0: THIS_NODE, 1: THIS_NODE}, "Metadata lacks the address of the other leader"
        assert await leaders(client, "another") == ({}, {})
        [request, _] = broker.requests(MetadataRequest)
        if version >= 4:  # A request by name might create the topic.
            assert request.topics == (MetadataRequestTopic(name=TOPIC),)
            assert not request.allow_auto_topic_creation
        else:
            assert request.topics == (None if version else ())


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])
async def test_missing_topic_has_no_partitions(network: MemoryNetwork, error: int) -> None:
    """A missing topic or one without leaders has no partitions."""
    async with asking(network) as (client, broker):
        broker.topic_error = error
        assert await leaders(client, TOPIC) == ({}, {})


async def test_denied_topic_raises(network: MemoryNetwork) -> None:
    """A topic that the sidecar may not describe raises BrokerRefused with the error code."""
    async with asking(network) as (client, broker):
        broker.topic_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(BrokerRefused, match="TOPIC_AUTHORIZATION_FAILED") as caught:
            await leaders(client, TOPIC)
        assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", ListOffsetsRequest.VERSIONS)
async def test_log_starts_in_every_version(network: MemoryNetwork, version: int) -> None:
    """Log starts are read in every ListOffsets version, with the broker's error for each partition."""
    async with asking(network, {ListOffsetsRequest: (version, version)}) as (client, broker):
        broker.partitions[1].start = 1
        not_led = (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
        assert await log_starts(client, TOPIC, {0: 1, 1: 1, 2: 5}) == {0: (0, 0), 1: (0, 1), 2: not_led}
        other = (ErrorCode.UNKNOWN_LEADER_EPOCH if version >= 4 else 0, 0)
        assert await log_starts(client, TOPIC, {0: 2}) == {0: other}


@pytest.mark.parametrize("version", range(11))
async def test_fetch_uses_version_10(network: MemoryNetwork, version: int) -> None:
    """Records are fetched in version 10 at most, because the reply of a later version may be a follower's."""
    async with asking(network, {FetchRequest: (version, 18)}) as (client, broker):
        one, other = await fetch(client, TOPIC, WANTED, size=1 << 20, wait=0)
        assert (one.partition_index, one.records) == (1, broker.partitions[1].batches[1][2])
        assert (other.partition_index, other.high_watermark) == (0, 2)
        assert other.records == b"".join(batch for _, _, batch in broker.partitions[0].batches)
        [(_, sent_version)] = [each for each in broker.asked if isinstance(each[0], FetchRequest)]
        assert sent_version == 10, "a follower may answer later versions"


@pytest.mark.parametrize("version", [2, 3])
async def test_fetch_v2_divides_size_by_partitions(network: MemoryNetwork, version: int) -> None:
    """Fetch version 2 has no total limit, so each partition gets its share or the size of its next batch."""
    async with asking(network, {FetchRequest: (0, version)}) as (client, broker):
        await fetch(
            client,
            TOPIC,
            (FetchPosition(1, 1, 0), FetchPosition(0, 1, 0, next_batch_bytes=90_000)),
            size=100_000,
            wait=0,
        )
        [request] = broker.requests(FetchRequest)
        limits = [each.partition_max_bytes for each in request.topics[0].partitions]
        assert limits == ([50_000, 90_000] if version == 2 else [100_000, 100_000])
