"""Tests how log ends of partitions are requested, in each version of ListOffsets."""

import pytest
import trio

from group_sidecar.codecs.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from group_sidecar.proxy.broker import log_bound_queries
from tests.proxy.broker.asking_client import asking
from tests.proxy.scripted_broker import MemoryNetwork


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    network = MemoryNetwork(nursery)
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


@pytest.mark.parametrize("version", ListOffsetsRequest.VERSIONS)
async def test_log_ends_in_every_version(network: MemoryNetwork, version: int) -> None:
    """Log ends are read in every ListOffsets version, without partitions that have an error."""

    def end(index: int, offset: int, error: int = 0) -> ListOffsetsPartitionResponse:
        if version == 0:
            old = (offset,) if offset >= 0 else ()
            return ListOffsetsPartitionResponse(partition_index=index, error_code=error, old_style_offsets=old)
        return ListOffsetsPartitionResponse(partition_index=index, error_code=error, offset=offset)

    answer = ListOffsetsResponse(
        topics=(
            ListOffsetsTopicResponse(name="t", partitions=(end(0, 5), end(1, -1))),
            ListOffsetsTopicResponse(name="u", partitions=(end(0, 0), end(7, 9, error=6))),
        )
    )
    async with asking(network, {ListOffsetsRequest: answer}, ListOffsets=version) as (client, broker):
        found = await log_bound_queries.log_ends(client, {("u", 7), ("t", 1), ("u", 0), ("t", 0)})
    assert found == {("t", 0): 5, ("u", 0): 0}
    request = broker.requests(ListOffsetsRequest)[0]
    assert [(one.name, [(p.partition_index, p.timestamp) for p in one.partitions]) for one in request.topics] == [
        ("t", [(0, -1), (1, -1)]),
        ("u", [(0, -1), (7, -1)]),
    ]
    assert request.replica_id == -1


async def test_many_log_ends_are_split(network: MemoryNetwork) -> None:
    """The log ends of many partitions are requested in several requests."""
    partitions = {("t", index) for index in range(log_bound_queries.PARTITIONS_PER_REQUEST + 1)}
    async with asking(network, {ListOffsetsRequest: ListOffsetsResponse(topics=())}) as (client, broker):
        assert await log_bound_queries.log_ends(client, partitions) == {}
    requested = [request.topics[0].partitions for request in broker.requests(ListOffsetsRequest)]
    assert [len(each) for each in requested] == [log_bound_queries.PARTITIONS_PER_REQUEST, 1]
    assert {("t", p.partition_index) for each in requested for p in each} == partitions
