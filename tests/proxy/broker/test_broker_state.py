"""Tests what is known of one broker, and whether it is enough for local answers."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.coordinator.model.facts import Fact, MemberGone, MemberJoined, RebalanceStarted
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.coordinator.state.log_partitions import partition_for
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker import broker_state as room
from group_sidecar.proxy.broker.authorization_cache import Operation
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.group_queries import Node
from group_sidecar.proxy.broker.principals import ANONYMOUS, Principal
from group_sidecar.proxy.runtime.addresses import Address
from tests.coordinator.all_groups import all_groups
from tests.proxy.dataplane.playbook import EPOCH, broker_copy, stable_group
from tests.proxy.scripted_broker import MemoryNetwork, ScriptedBroker

LIST, DESCRIBE, FETCH = ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH
ALL_APIS: dict[int, tuple[int, int]] = dict.fromkeys(ApiKey, (0, 5))
NO_LISTING = {key: versions for key, versions in ALL_APIS.items() if key != LIST}


@pytest.mark.parametrize("versions", [None, ALL_APIS])
@pytest.mark.parametrize(("enabled", "disabled_reason"), [(True, None), (False, FallbackReason.OFF)])
def test_disabled_answers_have_reason(
    enabled: bool, disabled_reason: FallbackReason | None, versions: dict[int, tuple[int, int]] | None
) -> None:
    """Every API has the reason OFF if answers are disabled, and no reason otherwise."""
    copy = broker_copy(answers={"enabled": enabled})
    if versions is not None:
        copy.learn_versions(versions)
    assert [copy.disabled_reason(key) for key in (LIST, DESCRIBE, FETCH)] == [disabled_reason] * 3
    assert not copy.lacks_api(LIST)


def test_missing_api_is_recognized() -> None:
    """An API counts as missing while the broker's versions lack it."""
    copy = broker_copy()
    copy.learn_versions(NO_LISTING)
    assert (copy.lacks_api(LIST), copy.lacks_api(DESCRIBE)) == (True, False)
    copy.learn_versions(ALL_APIS)
    assert not copy.lacks_api(LIST)


def test_disabled_answers_cover_missing_api() -> None:
    """Disabled answers stay disabled for an API that the broker lacks."""
    copy = broker_copy(answers={"enabled": False})
    copy.learn_versions(NO_LISTING)
    assert copy.disabled_reason(LIST) is FallbackReason.OFF


@pytest.mark.parametrize(("versions", "asked"), [(KAFKA_0_9, 0), (ALL_APIS, 1)])
async def test_kafka_0_9_skips_api_versions(
    versions: dict[int, tuple[int, int]], asked: int, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An additional connection skips ApiVersions only for Kafka 0.9. The first connection always sends it."""
    network, copy, broker = MemoryNetwork(nursery), broker_copy(), ScriptedBroker()
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    network.brokers[copy.address] = broker
    copy.learn_versions(versions)
    async with copy.connect(additional=True):
        assert len(broker.clients) == asked
    async with copy.connect() as client:
        assert len(broker.clients) == asked + 1
        assert client.versions != KAFKA_0_9, "it may have been upgraded"


@pytest.mark.parametrize(
    ("versions", "told"),
    [(KAFKA_0_9, (False, True)), ({**KAFKA_0_9, 1: (0, 3)}, (True, True)), (ALL_APIS, (True, True))],
)
def test_kafka_0_9_omits_empty_groups(versions: dict[int, tuple[int, int]], told: tuple[bool, bool]) -> None:
    """Kafka 0.9 omits empty groups in DescribeGroups version 0. Later versions and brokers include them."""
    copy = broker_copy(answers={"authorizer": "none"})
    copy.learn_versions(versions)
    assert (copy.includes_empty_groups(DESCRIBE, 0), copy.includes_empty_groups(DESCRIBE, 5)) == told


DESCRIBE_G = [(Operation.DESCRIBE_GROUP, "g")]


@pytest.mark.parametrize(
    ("authorizer", "present", "may_have_authorizer"),
    [("auto", None, True), ("auto", True, True), ("auto", False, False), ("none", None, False), ("none", True, False)],
)
def test_hidden_groups_need_granted_right(authorizer: str, present: bool | None, may_have_authorizer: bool) -> None:
    """If the broker may have an authorizer, a principal sees a group only with a granted right."""
    copy = broker_copy(answers={"authorizer": authorizer})
    if present is not None:
        copy.learn_authorizer(present)
    alice, bob = Principal("SCRAM-SHA-256", b"n,,n=alice"), Principal("SCRAM-SHA-256", b"n,,n=bob")
    copy.rights.grant(alice, DESCRIBE_G, EPOCH)
    assert copy.may_have_authorizer is may_have_authorizer
    assert [copy.may_see(who, DESCRIBE_G, EPOCH) for who in (alice, bob, None)] == [
        True,
        not may_have_authorizer,
        False,
    ]


def test_authorizer_change_is_followed() -> None:
    """Anonymous clients see groups exactly while the broker has no authorizer."""
    copy = broker_copy()
    found = []
    for present in (False, True, False):
        copy.learn_authorizer(present)
        found.append(copy.may_see(ANONYMOUS, DESCRIBE_G, EPOCH))
    assert found == [True, False, True]


@pytest.mark.parametrize(
    ("own", "serves"),
    [
        ({}, True),
        ({"address": "10.1.1.1:9093"}, False),
        ({"sasl": {"mechanism": "PLAIN", "username": "u", "password": "p"}}, False),
        ({"tls": {}}, False),
    ],
    ids=["as clients", "another listener", "sasl", "tls"],
)
@pytest.mark.parametrize("by", ["authorizer", "groups"])
def test_anonymous_access_needs_own_plain_probe(own: dict[str, Any], serves: bool, by: str) -> None:
    """Anonymous clients are served only if the sidecar's own connection is anonymous and on the same listener."""
    copy = broker_copy(answers={"authorizer": "none"}, own_connection=own)
    assert not copy.may_see(ANONYMOUS, [], EPOCH)
    if by == "authorizer":
        copy.learn_authorizer(present=False)
    else:
        copy.learn_initial_groups([])
    assert copy.may_see(ANONYMOUS, [], EPOCH) is serves


async def test_lost_connection_revokes_grants() -> None:
    """A lost connection to the broker revokes all grants, and later grants to anonymous clients do not count."""
    copy, bob = broker_copy(), Principal("SCRAM-SHA-256", b"n,,n=bob")
    copy.learn_authorizer(present=True)
    copy.rights.grant(bob, DESCRIBE_G, EPOCH)
    copy.rights.grant(ANONYMOUS, DESCRIBE_G, EPOCH)
    copy.probe_succeeded()
    assert copy.may_see(bob, DESCRIBE_G, EPOCH)
    copy.probe_failed("closed the connection")
    copy.rights.grant(ANONYMOUS, DESCRIBE_G, EPOCH)
    assert [copy.may_see(who, DESCRIBE_G, EPOCH) for who in (bob, ANONYMOUS)] == [False, False]


@pytest.mark.parametrize(("listed", "lacking"), [(["old"], FallbackReason.COLD), ([], None), (None, None)])
def test_listed_groups_start_cold(listed: list[str] | None, lacking: FallbackReason | None) -> None:
    """Groups in the broker's first list are cold, and all others are known completely."""
    copy = broker_copy(answers={"exclusive": True, "authorizer": "none"})
    assert copy.manager.view("old", EPOCH).fallback_reason is FallbackReason.COLD
    copy.learn_initial_groups(listed)
    assert copy.manager.view("old", EPOCH).fallback_reason is lacking
    assert copy.manager.view("new", EPOCH).fallback_reason is None


def test_topic_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of topic names is bounded, and the names learned longest ago are dropped."""
    monkeypatch.setattr(room, "MAX_TOPIC_NAMES", 3)
    copy, ids = broker_copy(), [UUID(int=n) for n in range(1, 6)]
    copy.learn_topic_names({ids[0]: "a", ids[1]: "b"})
    copy.learn_topic_names({ids[0]: "a", ids[1]: "b", ids[2]: "c"})
    copy.learn_topic_names({ids[1]: "B", ids[3]: "d", ids[4]: "e"})
    assert copy.names == {ids[1]: "B", ids[3]: "d", ids[4]: "e"}


def test_wanted_topic_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of wanted topic ids is bounded."""
    monkeypatch.setattr(room, "MAX_WANTED_TOPIC_IDS", 2)
    copy, ids = broker_copy(), [UUID(int=n) for n in range(1, 4)]
    copy.request_topic_names(ids)
    assert copy.wanted_topic_ids == set(ids[1:])
    assert {table.name: table.entries for table in copy.tables}["topic_names_wanted"] == 2


async def test_ready_while_broker_answers() -> None:
    """The copy is ready while probes succeed, and reports the reason otherwise."""
    copy = broker_copy()
    told = [copy.ready()]
    copy.probe_succeeded()
    told.append(copy.ready())
    copy.probe_failed("closed the connection")
    told.append(copy.ready())
    assert told == [(False, "not asked yet"), (True, "reachable"), (False, "closed the connection")]


async def test_refusing_broker_stays_ready() -> None:
    """A broker that refuses the sidecar stays ready for its clients until a probe succeeds or fails."""
    copy = broker_copy()
    for ends in (copy.probe_succeeded, lambda: copy.probe_failed("closed the connection")):
        copy.probe_refused()
        assert (copy.refuses_sidecar, copy.ready(), copy.unreachable) == (True, (True, "reachable"), None)
        ends()
        assert not copy.refuses_sidecar


@pytest.mark.parametrize(
    ("mode", "journal", "tells"),
    [("sidecar", {"folder": "journal"}, True), ("sidecar", None, False), ("gateway", {"folder": "journal"}, False)],
)
def test_journal_enables_all_log_ends(mode: str, journal: dict[str, str] | None, tells: bool) -> None:
    """Only a sidecar with a journal, not a gateway, reports the ends of all logs."""
    assert broker_copy(mode=mode, journal=journal).reports_all_log_ends is tells


def kinds(facts: Sequence[Fact]) -> list[type[Fact]]:
    """Returns the types of the reported facts."""
    return [type(fact) for fact in facts]


@pytest.mark.parametrize("way", ["sweep", "refresh"])
async def test_expired_members_become_facts(way: str) -> None:
    """A member whose session expires is reported as gone at that time, without the start of a rebalance."""
    facts: list[Fact] = []
    copy = broker_copy(facts.append)
    (line,) = stable_group(copy, "m1")
    assert MemberJoined in kinds(facts)
    assert all(EPOCH + line.now == fact.at for fact in facts)
    facts.clear()
    if way == "sweep":
        for _ in copy.sweep(line.now + 31):
            pass
    else:
        copy.refresh("g", line.now + 31)
    assert MemberGone in kinds(facts)
    assert {fact.at for fact in facts} == {EPOCH + line.now + 31}
    assert RebalanceStarted not in kinds(facts)


def test_copy_contains_seen_groups() -> None:
    """The copy contains the members of a group that it has seen."""
    copy = broker_copy()
    stable_group(copy, "m1", "m2")
    (group,) = all_groups(copy.manager, 100.0)
    assert {member.member_id for member in group.members} == {"m1", "m2"}
    assert list(copy.manager.committed_partitions()) == []


async def test_log_ends_have_request_time(autojump_clock: MockClock) -> None:
    """A log end carries the time of its request and becomes stale after it."""
    copy = broker_copy()
    await trio.sleep(7)
    copy.learn_log_ends({("t", 0): 42}, 6.0)
    assert copy.manager.log_ends == {("t", 0): (42, EPOCH + 6)}
    assert [copy.stale_log_ends([("t", 0)], since) for since in (5.5, 6.5)] == [set(), {("t", 0)}]


async def test_default_clock_offset_is_measured(autojump_clock: MockClock) -> None:
    """Without a given clock offset, epoch times match the system clock."""
    await trio.sleep(1000)
    before = time.time()
    measured = BrokerState(Address("broker", 1), broker_copy().config, TrafficCounters(), lambda fact: None)
    assert before <= measured.epoch(trio.current_time()) <= time.time()


# Coordinators of groups.


def test_coordinator_is_partition_leader() -> None:
    """A group's coordinator is the leader of its partition, or unknown."""
    copy = broker_copy()
    nodes = {0: Node(1, "one", 9092), 1: Node(2, "two", 9092)}
    copy.learn_coordinators(nodes)
    assert copy.coordinator("g") is None, "how many partitions there are is not known"
    copy.manager.log.partitions.count = 3
    groups = {partition_for(group, 3): group for group in map(str, range(20))}
    assert [copy.coordinator(groups[partition]) for partition in range(3)] == [nodes[0], nodes[1], None]
    copy.learn_coordinators({})
    assert copy.coordinator(groups[0]) is None


def test_gateway_advertises_coordinator() -> None:
    """A gateway reports a coordinator under its advertised address."""
    copy = broker_copy(advertise=lambda node, host, port: (f"for {host}", port + node))
    copy.manager.log.partitions.count = 1
    copy.learn_coordinators({0: Node(1, "one", 9092)})
    assert copy.coordinator("g") == Node(1, "for one", 9093)


def habits(copy: BrokerState) -> tuple[str | None, bool | None]:
    return copy.manager.default_assignor, copy.manager.sends_error_messages


def test_reset_clears_learned_state() -> None:
    """A reset clears the authorizer, the grants and the broker's habits."""
    copy = broker_copy()
    copy.learn_authorizer(False)
    copy.rights.grant(ANONYMOUS, [(Operation.DESCRIBE_GROUP, "g")], EPOCH)
    copy.manager.default_assignor, copy.manager.sends_error_messages = "uniform", True
    copy.reset_learned()
    assert not copy.allows_anonymous
    assert [copy.may_have_authorizer, copy.rights.has_all(ANONYMOUS, [(Operation.DESCRIBE_GROUP, "g")], EPOCH)] == [
        True,
        False,
    ]
    assert habits(copy) == (None, None)


def test_changed_versions_clear_habits() -> None:
    """A changed set of versions clears what was learned about the broker's habits."""
    copy = broker_copy()
    copy.learn_versions({3: (0, 12)})
    copy.manager.default_assignor, copy.manager.sends_error_messages = "uniform", True
    copy.learn_versions({3: (0, 12)})
    assert habits(copy) == ("uniform", True)
    copy.learn_versions({3: (0, 13)})
    assert habits(copy) == (None, None)
