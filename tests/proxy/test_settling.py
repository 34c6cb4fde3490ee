"""What the sidecar asks of its own accord: about groups in doubt, and for the names of topics."""

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
from group_sidecar.coordinator.events import LOST_SECONDS, OffsetsStored
from group_sidecar.coordinator.views import CommittedOffset, GroupState, Lacking
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.broker_copy import OFFSETS_TRIES, BrokerCopy
from group_sidecar.proxy.config import Config
from group_sidecar.proxy.settling import AGAIN_SECONDS, GROUPS_AT_ONCE, LONGEST_AGAIN, settle_forever
from group_sidecar.proxy.topic_ids import FRESH_SECONDS
from tests.coordinator.model_log import batch
from tests.coordinator.sweeping import in_doubt
from tests.coordinator.test_following import generation
from tests.proxy.scripted_broker import MemoryNetwork, ScriptedBroker

BROKER = Address("broker", 9092)
TOPIC = uuid.UUID(int=7)


def described(request: DescribeGroupsRequest, version: int, error: int = 0) -> DescribeGroupsResponse:
    """All are Empty."""
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
    """Each topic is "t"."""
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


def loaded(*groups: str, exclusive: bool = True) -> BrokerCopy:
    """The copy of a broker whose log was just loaded."""
    answers = {"exclusive": exclusive, "authorizer": "none"}
    config = Config.model_validate({"listen": "127.0.0.1:1", "upstream": "broker:9092", "answers": answers})
    copy = BrokerCopy(BROKER, config, Traffic(), lambda fact: None, epoch_of_zero=0.0)
    copy.manager.inherit(groups)
    follower, now = copy.manager.log, trio.current_time()
    follower.count_partitions(1, now)
    log = follower.begin_load(0, 0, 0, now)
    for number, group in enumerate(groups):
        list(log.replay(batch(number, [generation(4, group)])))
    list(follower.follow(0, now, now))
    follower.caught_up(0, now, now)
    return copy


async def settle_for(seconds: float, copy: BrokerCopy) -> None:
    with trio.move_on_after(seconds):
        await settle_forever(copy)


async def test_groups_that_were_loaded_are_asked_about_once(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    copy = loaded("g", "h")
    assert copy.manager.view("g", copy.epoch(trio.current_time())).lacking is Lacking.IN_DOUBT
    await settle_for(60, copy)
    (request,) = broker.requests(DescribeGroupsRequest)
    assert sorted(request.groups) == ["g", "h"]
    view = copy.manager.view("g", copy.epoch(trio.current_time()))
    assert (view.state, view.generation, in_doubt(copy.manager)) == (GroupState.EMPTY, 4, [])


async def test_nobody_is_asked_where_others_may_change_groups_unseen(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    await settle_for(60, loaded("g", exclusive=False))
    assert network.attempts == []


async def test_what_stays_in_doubt_is_asked_about_more_and_more_rarely(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    broker.answers[DescribeGroupsRequest] = lambda request, version: described(request, version, 30)
    await settle_for(10 * LONGEST_AGAIN, loaded("g"))
    asked = len(broker.requests(DescribeGroupsRequest))
    assert 10 <= asked <= 10 + LONGEST_AGAIN / AGAIN_SECONDS


async def test_many_groups_are_asked_about_in_parts(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    copy = loaded(*(f"g{number}" for number in range(GROUPS_AT_ONCE + 1)))
    await settle_for(5, copy)
    assert [len(request.groups) for request in broker.requests(DescribeGroupsRequest)] == [GROUPS_AT_ONCE, 1]
    assert len(network.attempts) == 1


async def test_a_broker_that_is_away_is_asked_later(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    copy = loaded("g")
    del network.brokers[BROKER]
    await settle_for(5, copy)
    assert len(network.attempts) > 1
    network.brokers[BROKER] = broker
    await settle_for(20, copy)
    assert in_doubt(copy.manager) == []


async def test_names_of_topics_are_asked_for_by_id(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    copy = loaded()
    copy.want_names([TOPIC])
    await settle_for(60, copy)
    (request,) = broker.requests(MetadataRequest)
    assert [topic.topic_id for topic in request.topics] == [TOPIC]
    assert request.allow_auto_topic_creation is False
    assert (copy.names, copy.names_wanted) == ({TOPIC: "t"}, set())
    copy.want_names([TOPIC])
    assert copy.names_wanted == set()


async def test_topic_ids_that_questions_are_about_are_confirmed_until_the_broker_denies_them(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    copy = loaded()

    def fresh() -> bool:
        known = copy.topic_ids.have({TOPIC})
        return copy.topic_ids.fresh(copy.epoch(trio.current_time())) and known

    assert not fresh()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(settle_forever, copy)
        for _ in range(20):
            await trio.sleep(0.5)
            assert fresh()
        assert copy.names == {TOPIC: "t"}
        assert len(network.attempts) == 1
        broker.answers[MetadataRequest] = lambda request, version: MetadataResponse(
            brokers=(), cluster_id=None, controller_id=1, topics=()
        )
        await trio.sleep(FRESH_SECONDS)
        assert not fresh()
        nursery.cancel_scope.cancel()


async def test_no_topic_id_counts_while_the_broker_is_away(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    copy = loaded()
    copy.topic_ids.fresh(copy.epoch(trio.current_time()))
    copy.topic_ids.have({TOPIC})
    await settle_for(5, copy)
    assert copy.topic_ids.fresh(copy.epoch(trio.current_time()))
    del network.brokers[BROKER]
    await settle_for(5, copy)
    assert not copy.topic_ids.fresh(copy.epoch(trio.current_time()))


def listed(*groups: str) -> ListGroupsResponse:
    """These groups, and no others."""
    return ListGroupsResponse(
        error_code=0, groups=tuple(ListedGroup(group_id=group, protocol_type="consumer") for group in groups)
    )


def obscured() -> BrokerCopy:
    """The copy of a broker with two groups, after a write whose group could not be read was answered."""
    copy = loaded("g", "h")
    copy.manager.obscure(None, members=False)
    copy.manager.obscure(None, copy.epoch(trio.current_time()) + LOST_SECONDS, members=False)
    return copy


async def test_an_unreadable_write_is_forgotten_once_the_broker_has_listed_its_groups(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    broker.answers[ListGroupsRequest] = lambda request, version: listed("g", "h", "new")
    copy = obscured()
    assert copy.manager.view("nope", copy.epoch(trio.current_time())).lacking is not None
    await settle_for(10, copy)
    assert 1 <= len(broker.requests(ListGroupsRequest)) <= 3, "until what was lost can have reached the broker"
    assert not copy.manager.wants_list()
    assert copy.manager.group_metadata_cache.keys() == {"g", "h", "new"}


async def test_a_list_that_may_be_cut_short_settles_nothing(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    broker.answers[ListGroupsRequest] = lambda request, version: listed("g")
    error = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    broker.answers[DescribeAclsRequest] = DescribeAclsResponse(
        throttle_time_ms=0, error_code=error, error_message=None, resources=()
    )
    copy = obscured()
    await settle_for(10, copy)
    assert (broker.requests(ListGroupsRequest), copy.manager.wants_list()) == ([], True)


async def test_offsets_of_a_group_that_was_forgotten_are_asked_for(
    network: MemoryNetwork, broker: ScriptedBroker, autojump_clock: MockClock
) -> None:
    """Where the log is not read, only the broker has them."""
    answers = {"exclusive": True, "authorizer": "none"}
    config = Config.model_validate({"listen": "127.0.0.1:1", "upstream": "broker:9092", "answers": answers})
    copy = BrokerCopy(BROKER, config, Traffic(), lambda fact: None, epoch_of_zero=0.0)
    copy.manager.inherit(())
    told = OffsetFetchResponsePartition(partition_index=0, committed_offset=6, metadata="", error_code=0)
    broker.answers[OffsetFetchRequest] = lambda request, version: OffsetFetchResponse(
        topics=(OffsetFetchResponseTopic(name="t", partitions=(told,)),)
    )
    wrong = CommittedOffset(5, at=trio.current_time())
    copy.apply([OffsetsStored(group_id="g", sent_at=0.0, offsets={("t", 0): wrong})], trio.current_time())
    copy.relearn("g", trio.current_time())
    assert copy.manager.offsets_lacking("g", copy.epoch(trio.current_time())) is Lacking.COLD
    await settle_for(60, copy)
    now = copy.epoch(trio.current_time())
    assert copy.manager.offsets_lacking("g", now) is None
    assert {where: each.offset for where, each in copy.manager.view("g", now).offsets.items()} == {("t", 0): 6}
    assert len(broker.requests(OffsetFetchRequest)) <= OFFSETS_TRIES
    assert not copy.offsets_wanted
