"""Tests single requests in each version of their API: how they are sent, and how the reply is decoded."""

from typing import Any

import pytest
import trio

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.messages import offset_fetch
from group_sidecar.codecs.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.proxy.broker import group_queries
from group_sidecar.proxy.broker.broker_errors import BrokerRefused, UnsupportedApi
from group_sidecar.proxy.broker.group_queries import Node
from tests.proxy.broker.asking_client import asking
from tests.proxy.scripted_broker import Answer, MemoryNetwork

NODE = Node(3, "elsewhere", 9093)


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    network = MemoryNetwork(nursery)
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


def topic(name: str, leaders: dict[int, int], error: int = 0) -> MetadataResponseTopic:
    partitions = tuple(
        MetadataResponsePartition(error_code=0, partition_index=index, leader_id=leader, replica_nodes=(), isr_nodes=())
        for index, leader in leaders.items()
    )
    return MetadataResponseTopic(error_code=error, name=name, partitions=partitions)


METADATA = MetadataResponse(
    brokers=(MetadataResponseBroker(node_id=3, host="elsewhere", port=9093),),
    topics=(topic("t", {0: 3, 1: -1}), topic("u", {0: 3}), topic("gone", {}, error=3)),
)


@pytest.mark.parametrize("version", MetadataRequest.VERSIONS)
async def test_brokers_in_every_version(network: MemoryNetwork, version: int) -> None:
    """The brokers of a cluster are read in every Metadata version."""
    async with asking(network, {MetadataRequest: METADATA}, Metadata=version) as (client, broker):
        assert await group_queries.brokers(client) == (NODE,)
    assert broker.requests(MetadataRequest)[0].topics == ()


@pytest.mark.parametrize("version", MetadataRequest.VERSIONS)
async def test_leaders_in_every_version(network: MemoryNetwork, version: int) -> None:
    """The leaders of topics are read in every Metadata version, without a request that could create a topic."""
    async with asking(network, {MetadataRequest: METADATA}, Metadata=version) as (client, broker):
        assert await group_queries.leaders_of(client, ["t", "gone"]) == {("t", 0): NODE}
    request = broker.requests(MetadataRequest)[0]
    if version >= 4:
        assert request.topics == (MetadataRequestTopic(name="gone"), MetadataRequestTopic(name="t"))
        assert not request.allow_auto_topic_creation
    else:
        assert request.topics == (None if version else ())  # All topics: a request by name might create one.


@pytest.mark.parametrize("version", FindCoordinatorRequest.VERSIONS)
async def test_coordinator_in_every_version(network: MemoryNetwork, version: int) -> None:
    """A group's coordinator is read in every FindCoordinator version."""

    def answer(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        assert request.key_type == 0
        if version < 4:
            assert request.key == "g"
            return FindCoordinatorResponse(node_id=3, host="elsewhere", port=9093)
        assert request.coordinator_keys == ("g",)
        found = Coordinator(key="g", node_id=3, host="elsewhere", port=9093, error_code=0, error_message=None)
        return FindCoordinatorResponse(coordinators=(found,))

    async with asking(network, {FindCoordinatorRequest: answer}, FindCoordinator=version) as (client, _):
        assert await group_queries.find_coordinator(client, "g") == NODE


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
async def test_missing_coordinator_raises(network: MemoryNetwork, version: int) -> None:
    """A missing coordinator raises BrokerRefused with the broker's message."""
    none = Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15, error_message="not yet")
    answer = FindCoordinatorResponse(error_code=15, error_message="not yet", coordinators=(none,))
    async with asking(network, {FindCoordinatorRequest: answer}, FindCoordinator=version) as (client, _):
        with pytest.raises(BrokerRefused) as raised:
            await group_queries.find_coordinator(client, "g")
    assert raised.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert str(raised.value).endswith("(15): not yet" if version else "(15)")


async def test_foreign_coordinator_reply_raises(network: MemoryNetwork) -> None:
    """A FindCoordinator reply without the requested group raises DecodeError."""
    async with asking(network, {FindCoordinatorRequest: FindCoordinatorResponse()}) as (client, _):
        with pytest.raises(DecodeError, match="coordinators: lacks the group asked for"):
            await group_queries.find_coordinator(client, "g")


async def test_listed_groups(network: MemoryNetwork) -> None:
    """A list of groups is requested with its state and type filters."""
    listed = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic")
    answer = ListGroupsResponse(error_code=0, groups=(listed,))
    async with asking(network, {ListGroupsRequest: answer}) as (client, broker):
        assert await group_queries.listed_groups(client, ["Stable"], ["classic"]) == (listed,)
    assert broker.asked == [(ListGroupsRequest(states_filter=("Stable",), types_filter=("classic",)), 5)]


@pytest.mark.parametrize(("version", "states", "types"), [(3, ["Stable"], []), (4, [], ["classic"])])
async def test_unsupported_filter_raises(
    network: MemoryNetwork, version: int, states: list[str], types: list[str]
) -> None:
    """A filter that the broker's version lacks raises UnsupportedApi."""
    answers: dict[type[Struct], Answer] = {ListGroupsRequest: ListGroupsResponse(error_code=0, groups=())}
    async with asking(network, answers, ListGroups=version) as (client, broker):
        with pytest.raises(UnsupportedApi):
            await group_queries.listed_groups(client, states, types)
        assert await group_queries.listed_groups(client) == ()
    assert len(broker.asked) == 1


async def test_loading_broker_raises(network: MemoryNetwork) -> None:
    """A list from a broker that is still loading raises BrokerRefused."""
    async with asking(network, {ListGroupsRequest: ListGroupsResponse(error_code=14, groups=())}) as (client, _):
        with pytest.raises(BrokerRefused, match=r"broker:9092 answers ListGroups: COORDINATOR_LOAD_IN_PROGRESS"):
            await group_queries.listed_groups(client)


def committed(index: int, offset: int, error: int = 0) -> offset_fetch.OffsetFetchResponsePartition:
    return offset_fetch.OffsetFetchResponsePartition(
        partition_index=index, committed_offset=offset, metadata="", error_code=error
    )


OFFSETS = (committed(0, 10), committed(1, -1), committed(2, -1, error=88))


def offsets_reply(version: int, error: int = 0) -> OffsetFetchResponse:
    topics = (offset_fetch.OffsetFetchResponseTopic(name="t", partitions=OFFSETS),)
    group = offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=error)
    if version < 8:
        return OffsetFetchResponse(topics=topics, error_code=error)
    return OffsetFetchResponse(groups=(group,))


@pytest.mark.parametrize("version", range(10))
async def test_committed_offsets_in_every_version(network: MemoryNetwork, version: int) -> None:
    """Committed offsets are read in every OffsetFetch version up to 9."""
    answers: dict[type[Struct], Answer] = {OffsetFetchRequest: offsets_reply(version), MetadataRequest: METADATA}
    async with asking(network, answers, OffsetFetch=version) as (client, broker):
        assert await group_queries.committed_offsets(client, "g") == {("t", 0): OFFSETS[0], ("t", 2): OFFSETS[2]}
    request = broker.requests(OffsetFetchRequest)[0]
    request_group: Any = request.groups[0] if version >= 8 else request
    assert request_group.group_id == "g"
    if version >= 2:
        assert request_group.topics is None
    else:
        assert [(one.name, one.partition_indexes) for one in request_group.topics] == [
            ("t", (0, 1)),
            ("u", (0,)),
            ("gone", ()),
        ]


async def test_offset_fetch_version_uses_names(network: MemoryNetwork) -> None:
    """Offsets are requested in version 9, the last one with topic names."""
    async with asking(network, {OffsetFetchRequest: offsets_reply(9)}) as (client, broker):
        await group_queries.committed_offsets(client, "g")
    assert broker.asked[0][1] == 9


@pytest.mark.parametrize("version", [2, 7, 8, 9])
async def test_refused_offsets_raise(network: MemoryNetwork, version: int) -> None:
    """Refused offsets raise BrokerRefused with the error's name."""
    async with asking(network, {OffsetFetchRequest: offsets_reply(version, 30)}, OffsetFetch=version) as (client, _):
        with pytest.raises(BrokerRefused, match=r"OffsetFetch: GROUP_AUTHORIZATION_FAILED \(30\)$"):
            await group_queries.committed_offsets(client, "g")


async def test_foreign_offsets_reply_raises(network: MemoryNetwork) -> None:
    """An OffsetFetch reply without the requested group raises DecodeError."""
    async with asking(network, {OffsetFetchRequest: OffsetFetchResponse()}) as (client, _):
        with pytest.raises(DecodeError, match="groups: lacks the group asked for"):
            await group_queries.committed_offsets(client, "g")
