"""Tests the requests about groups in doubt, and for the names of topics."""

import uuid

import pytest
import trio
from trio.testing import MockClock

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.coordinator.model.events import LOST_REQUEST_SECONDS, OffsetsStored
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupState
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.coordinator_copy import OFFSETS_TRIES
from group_sidecar.proxy.broker.existing_topic_ids import FRESH_SECONDS
from group_sidecar.proxy.broker.reconcile import GROUPS_AT_ONCE, LONGEST_RETRY, RETRY_SECONDS, reconcile_forever
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.runtime.addresses import Address
from tests.coordinator.log.test_follower import generation
from tests.coordinator.model_log import batch
from tests.coordinator.sweeping import in_doubt
from tests.proxy.scripted_broker import MemoryNetwork, ScriptedBroker

BROKER = Address("broker", 9092)
TOPIC = uuid.UUID(int=7)


def described(request: DescribeGroupsRequest, version: int, error: int = 0) -> DescribeGroupsResponse:
    """Describes all groups as Empty."""
    return DescribeGroupsResponse(
        groups=tuple(
            DescribedGroup(
                error_code=error,
                group_id=group,
                group_state="" if error else "Empty",
                protocol_type="consumer",
                protocol_data="",
                members=(),
            )
            for group in request.groups
        )
    )


def named(request: MetadataRequest, version: int) -> MetadataResponse:
    """Names each topic "t"."""
    topics = tuple(
        MetadataResponseTopic(error_code=0, name="t", topic_id=topic.topic_id, is_internal=False, partitions=())
        for topic in request.topics or ()
    )
    return MetadataResponse(brokers=(), cluster_id=None, controller_id=1, topics=topics)


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedBroker({DescribeGroupsRequest: described, MetadataRequest: named})


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, broker: ScriptedBroker) -> MemoryNetwork:
    network = MemoryNetwork(nursery)
    network.brokers[BROKER] = broker
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


def loaded(*groups: str, exclusive: bool = True) -> BrokerState:
    """Returns the copy of a broker whose log was just loaded."""
    answers = {"exclusive": exclusive, "authorizer": "none"}
    config = Config.model_validate({"listen": "127.0.0.1:1", "upstream": "broker:9092", "answers": answers})
    state = BrokerState(BROKER, config, TrafficCounters(), lambda fact: None, clock_offset=0.0)
    state.copy.manager.set_existing_groups(groups)
    follower, now = state.copy.manager.log, trio.current_time()
    follower.count_partitions(1, now)
    log = follower.begin_load(0, 0, 0, now)
    for number, group in enumerate(groups):
        list(log.replay(batch(number, [generation(4, group)])))
    list(follower.merge(0, now))
    list(follower.end_reached(0, now, now))
    return state


async def settle_for(seconds: float, state: BrokerState) -> None:
    with trio.move_on_after(seconds):
        await settle(state)


async def settle(state: BrokerState) -> None:
    await reconcile_forever(state.copy, state.topic_names, state.topic_ids, state.own_connections)


async def test_loaded_groups_are_described_once(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """Groups in doubt after a load are described once, in one request, and are then known."""
    state = loaded("g", "h")
    assert (
        state.copy.manager.view("g", state.copy.epoch(trio.current_time())).fallback_reason is FallbackReason.IN_DOUBT
    )
    await settle_for(60, state)
    (request,) = broker.requests(DescribeGroupsRequest)
    assert sorted(request.groups) == ["g", "h"]
    view = state.copy.manager.view("g", state.copy.epoch(trio.current_time()))
    assert (view.state, view.generation, in_doubt(state.copy.manager)) == (GroupState.EMPTY, 4, [])


async def test_shared_broker_is_not_asked(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """Without exclusive access, no group is described."""
    await settle_for(60, loaded("g", exclusive=False))
    assert network.attempts == []


async def test_unresolved_doubt_is_retried_slowly(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """A group that stays in doubt is described again with growing pauses."""
    broker.answers[DescribeGroupsRequest] = lambda request, version: described(request, version, 30)
    await settle_for(10 * LONGEST_RETRY, loaded("g"))
    count = len(broker.requests(DescribeGroupsRequest))
    assert 10 <= count <= 10 + LONGEST_RETRY / RETRY_SECONDS


async def test_many_groups_are_described_in_parts(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """Many groups in doubt are described in several requests over one connection."""
    state = loaded(*(f"g{number}" for number in range(GROUPS_AT_ONCE + 1)))
    await settle_for(5, state)
    assert [len(request.groups) for request in broker.requests(DescribeGroupsRequest)] == [GROUPS_AT_ONCE, 1]
    assert len(network.attempts) == 1


async def test_absent_broker_is_retried(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """The groups in doubt of an absent broker are described when it is back."""
    state = loaded("g")
    del network.brokers[BROKER]
    await settle_for(5, state)
    assert len(network.attempts) > 1
    network.brokers[BROKER] = broker
    await settle_for(20, state)
    assert in_doubt(state.copy.manager) == []


async def test_topic_names_are_requested_by_id(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """Wanted topic names are requested once by topic id, without a request that could create a topic."""
    state = loaded()
    state.topic_names.request([TOPIC])
    await settle_for(60, state)
    (request,) = broker.requests(MetadataRequest)
    assert [topic.topic_id for topic in request.topics] == [TOPIC]
    assert request.allow_auto_topic_creation is False
    assert (state.topic_names.by_id, state.topic_names.wanted) == ({TOPIC: "t"}, set())
    state.topic_names.request([TOPIC])
    assert state.topic_names.wanted == set()


async def test_used_topic_ids_stay_confirmed(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """Used topic ids stay confirmed over one connection until the broker no longer has them."""
    state = loaded()

    def are_fresh() -> bool:
        known = state.topic_ids.are_confirmed({TOPIC})
        return state.topic_ids.are_fresh(state.copy.epoch(trio.current_time())) and known

    assert not are_fresh()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(settle, state)
        for _ in range(20):
            await trio.sleep(0.5)
            assert are_fresh()
        assert state.topic_names.by_id == {TOPIC: "t"}
        assert len(network.attempts) == 1
        broker.answers[MetadataRequest] = lambda request, version: MetadataResponse(
            brokers=(), cluster_id=None, controller_id=1, topics=()
        )
        await trio.sleep(FRESH_SECONDS)
        assert not are_fresh()
        nursery.cancel_scope.cancel()


async def test_absent_broker_confirms_no_topic_id(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """No topic id counts as confirmed while the broker is absent."""
    state = loaded()
    state.topic_ids.are_fresh(state.copy.epoch(trio.current_time()))
    state.topic_ids.are_confirmed({TOPIC})
    await settle_for(5, state)
    assert state.topic_ids.are_fresh(state.copy.epoch(trio.current_time()))
    del network.brokers[BROKER]
    await settle_for(5, state)
    assert not state.topic_ids.are_fresh(state.copy.epoch(trio.current_time()))


def listed(*groups: str) -> ListGroupsResponse:
    """Lists these groups and no others."""
    return ListGroupsResponse(
        error_code=0, groups=tuple(ListedGroup(group_id=group, protocol_type="consumer") for group in groups)
    )


def obscured() -> BrokerState:
    """Returns the copy of a broker with two groups, after the reply to a write whose group could not be decoded."""
    state = loaded("g", "h")
    state.copy.manager.note_unread_write(None, members=False)
    state.copy.manager.note_unread_write(
        None, state.copy.epoch(trio.current_time()) + LOST_REQUEST_SECONDS, members=False
    )
    return state


async def test_complete_list_clears_undecodable_write(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """The effect of an undecodable write ends when the broker has listed all groups."""
    broker.answers[ListGroupsRequest] = lambda request, version: listed("g", "h", "new")
    state = obscured()
    assert state.copy.manager.view("nope", state.copy.epoch(trio.current_time())).fallback_reason is not None
    await settle_for(10, state)
    assert 1 <= len(broker.requests(ListGroupsRequest)) <= 3, (
        "groups are listed again only while the lost write may still arrive"
    )
    assert not state.copy.manager.needs_listing()
    assert state.copy.manager.group_metadata_cache.keys() == {"g", "h", "new"}


async def test_incomplete_list_clears_nothing(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """A list that an authorizer may cut short is not requested and clears nothing."""
    broker.answers[ListGroupsRequest] = lambda request, version: listed("g")
    error = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    broker.answers[DescribeAclsRequest] = DescribeAclsResponse(
        throttle_time_ms=0, error_code=error, error_message=None, resources=()
    )
    state = obscured()
    await settle_for(10, state)
    assert (broker.requests(ListGroupsRequest), state.copy.manager.needs_listing()) == ([], True)


async def test_relearned_offsets_are_requested(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """Offsets of a group that is learned again without a log are requested from the broker."""
    answers = {"exclusive": True, "authorizer": "none"}
    config = Config.model_validate({"listen": "127.0.0.1:1", "upstream": "broker:9092", "answers": answers})
    state = BrokerState(BROKER, config, TrafficCounters(), lambda fact: None, clock_offset=0.0)
    state.copy.manager.set_existing_groups(())
    partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=6, metadata="", error_code=0)
    broker.answers[OffsetFetchRequest] = lambda request, version: OffsetFetchResponse(
        topics=(OffsetFetchResponseTopic(name="t", partitions=(partition,)),)
    )
    wrong = CommittedOffset(5, at=trio.current_time())
    state.copy.apply([OffsetsStored(group_id="g", sent_at=0.0, offsets={("t", 0): wrong})], trio.current_time())
    state.copy.forget_group_state("g", trio.current_time())
    assert state.copy.manager.offsets_fallback_reason("g", state.copy.epoch(trio.current_time())) is FallbackReason.COLD
    await settle_for(60, state)
    now = state.copy.epoch(trio.current_time())
    assert state.copy.manager.offsets_fallback_reason("g", now) is None
    assert {where: each.offset for where, each in state.copy.manager.view("g", now).offsets.items()} == {("t", 0): 6}
    assert len(broker.requests(OffsetFetchRequest)) <= OFFSETS_TRIES
    assert not state.copy.offsets_wanted
