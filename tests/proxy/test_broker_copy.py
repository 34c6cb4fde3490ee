"""What is known of one broker, and whether that is enough to answer for it."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.coordinator.facts import Fact, MemberGone, MemberJoined, RebalanceStarted
from group_sidecar.coordinator.partitions import partition_for
from group_sidecar.coordinator.views import Lacking
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.proxy import broker_copy as room
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.principals import ANONYMOUS, Principal
from group_sidecar.proxy.questions import Node
from group_sidecar.proxy.rights import Operation
from tests.coordinator.all_groups import all_groups
from tests.proxy.playbook import EPOCH, broker_copy, settled
from tests.proxy.scripted_broker import MemoryNetwork, ScriptedBroker

LIST, DESCRIBE, FETCH = ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH
ALL_APIS: dict[int, tuple[int, int]] = dict.fromkeys(ApiKey, (0, 5))
NO_LISTING = {key: versions for key, versions in ALL_APIS.items() if key != LIST}


@pytest.mark.parametrize("versions", [None, ALL_APIS])
@pytest.mark.parametrize(("enabled", "withheld"), [(True, None), (False, Lacking.OFF)])
def test_what_withholds_all_answers(
    enabled: bool, withheld: Lacking | None, versions: dict[int, tuple[int, int]] | None
) -> None:
    copy = broker_copy(answers={"enabled": enabled})
    if versions is not None:
        copy.learn_versions(versions)
    assert [copy.withheld(key) for key in (LIST, DESCRIBE, FETCH)] == [withheld] * 3
    assert not copy.lacks(LIST)


def test_what_the_broker_has_not() -> None:
    copy = broker_copy()
    copy.learn_versions(NO_LISTING)
    assert (copy.lacks(LIST), copy.lacks(DESCRIBE)) == (True, False)
    copy.learn_versions(ALL_APIS)
    assert not copy.lacks(LIST)


def test_what_the_operator_switched_off_is_not_answered_even_then() -> None:
    copy = broker_copy(answers={"enabled": False})
    copy.learn_versions(NO_LISTING)
    assert copy.withheld(LIST) is Lacking.OFF


@pytest.mark.parametrize(("versions", "asked"), [(KAFKA_0_9, 0), (ALL_APIS, 1)])
async def test_only_kafka_0_9_is_not_asked_again_what_it_speaks(
    versions: dict[int, tuple[int, int]], asked: int, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, copy, broker = MemoryNetwork(nursery), broker_copy(), ScriptedBroker()
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    network.brokers[copy.address] = broker
    copy.learn_versions(versions)
    async with copy.connect(again=True):
        assert len(broker.clients) == asked
    async with copy.connect() as client:
        assert len(broker.clients) == asked + 1
        assert client.versions != KAFKA_0_9, "it may have been upgraded"


@pytest.mark.parametrize(
    ("versions", "told"),
    [(KAFKA_0_9, (False, True)), ({**KAFKA_0_9, 1: (0, 3)}, (True, True)), (ALL_APIS, (True, True))],
)
def test_old_brokers_do_not_tell_of_empty_groups(versions: dict[int, tuple[int, int]], told: tuple[bool, bool]) -> None:
    copy = broker_copy(answers={"authorizer": "none"})
    copy.learn_versions(versions)
    assert (copy.tells_empty(DESCRIBE, 0), copy.tells_empty(DESCRIBE, 5)) == told


DESCRIBE_G = [(Operation.DESCRIBE_GROUP, "g")]


@pytest.mark.parametrize(
    ("authorizer", "present", "hides"),
    [("auto", None, True), ("auto", True, True), ("auto", False, False), ("none", None, False), ("none", True, False)],
)
def test_what_may_be_hidden_is_only_shown_to_whom_it_was_granted(
    authorizer: str, present: bool | None, hides: bool
) -> None:
    copy = broker_copy(answers={"authorizer": authorizer})
    if present is not None:
        copy.learn_authorizer(present)
    alice, bob = Principal("SCRAM-SHA-256", b"n,,n=alice"), Principal("SCRAM-SHA-256", b"n,,n=bob")
    copy.rights.grant(alice, DESCRIBE_G, EPOCH)
    assert copy.hides is hides
    assert [copy.may_see(who, DESCRIBE_G, EPOCH) for who in (alice, bob, None)] == [True, not hides, False]


def test_an_authorizer_may_come_and_go() -> None:
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
def test_only_a_broker_that_answers_without_credentials_serves_such_clients(
    own: dict[str, Any], serves: bool, by: str
) -> None:
    copy = broker_copy(answers={"authorizer": "none"}, own_connection=own)
    assert not copy.may_see(ANONYMOUS, [], EPOCH)
    if by == "authorizer":
        copy.learn_authorizer(present=False)
    else:
        copy.learn_groups_at_start([])
    assert copy.may_see(ANONYMOUS, [], EPOCH) is serves


async def test_a_broker_that_was_gone_may_have_other_rules() -> None:
    copy, bob = broker_copy(), Principal("SCRAM-SHA-256", b"n,,n=bob")
    copy.learn_authorizer(present=True)
    copy.rights.grant(bob, DESCRIBE_G, EPOCH)
    copy.rights.grant(ANONYMOUS, DESCRIBE_G, EPOCH)
    copy.probe_succeeded()
    assert copy.may_see(bob, DESCRIBE_G, EPOCH)
    copy.probe_failed("closed the connection")
    copy.rights.grant(ANONYMOUS, DESCRIBE_G, EPOCH)
    assert [copy.may_see(who, DESCRIBE_G, EPOCH) for who in (bob, ANONYMOUS)] == [False, False]


@pytest.mark.parametrize(("listed", "lacking"), [(["old"], Lacking.COLD), ([], None), (None, None)])
def test_groups_that_have_a_past_are_not_known(listed: list[str] | None, lacking: Lacking | None) -> None:
    copy = broker_copy(answers={"exclusive": True, "authorizer": "none"})
    assert copy.manager.view("old", EPOCH).lacking is Lacking.COLD
    copy.learn_groups_at_start(listed)
    assert copy.manager.view("old", EPOCH).lacking is lacking
    assert copy.manager.view("new", EPOCH).lacking is None


def test_names_are_bounded_and_those_told_longest_ago_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_NAMES", 3)
    copy, ids = broker_copy(), [UUID(int=n) for n in range(1, 6)]
    copy.learn_names({ids[0]: "a", ids[1]: "b"})
    copy.learn_names({ids[0]: "a", ids[1]: "b", ids[2]: "c"})
    copy.learn_names({ids[1]: "B", ids[3]: "d", ids[4]: "e"})
    assert copy.names == {ids[1]: "B", ids[3]: "d", ids[4]: "e"}


def test_names_that_are_wanted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_WANTED", 2)
    copy, ids = broker_copy(), [UUID(int=n) for n in range(1, 4)]
    copy.want_names(ids)
    assert copy.names_wanted == set(ids[1:])
    assert {table.name: table.entries for table in copy.tables}["topic_names_wanted"] == 2


async def test_it_is_ready_while_the_broker_answers() -> None:
    copy = broker_copy()
    told = [copy.ready()]
    copy.probe_succeeded()
    told.append(copy.ready())
    copy.probe_failed("closed the connection")
    told.append(copy.ready())
    assert told == [(False, "not asked yet"), (True, "reachable"), (False, "closed the connection")]


async def test_refused_until_served_or_gone() -> None:
    """A broker that refuses the sidecar is there for its clients, so the copy stays ready."""
    copy = broker_copy()
    for ends in (copy.probe_succeeded, lambda: copy.probe_failed("closed the connection")):
        copy.probe_refused()
        assert (copy.refuses, copy.ready(), copy.unreachable) == (True, (True, "reachable"), None)
        ends()
        assert not copy.refuses


@pytest.mark.parametrize(
    ("mode", "journal", "tells"),
    [("sidecar", {"folder": "journal"}, True), ("sidecar", None, False), ("gateway", {"folder": "journal"}, False)],
)
def test_a_sidecar_with_a_journal_tells_a_fleet(mode: str, journal: dict[str, str] | None, tells: bool) -> None:
    assert broker_copy(mode=mode, journal=journal).tells_a_fleet is tells


def kinds(facts: Sequence[Fact]) -> list[type[Fact]]:
    """What kinds of facts were told."""
    return [type(fact) for fact in facts]


@pytest.mark.parametrize("way", ["sweep", "refresh"])
async def test_facts_are_told_when_members_are_let_go(way: str) -> None:
    facts: list[Fact] = []
    copy = broker_copy(facts.append)
    (line,) = settled(copy, "m1")
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


def test_the_copy_tells_of_groups() -> None:
    copy = broker_copy()
    settled(copy, "m1", "m2")
    (group,) = all_groups(copy.manager, 100.0)
    assert {member.member_id for member in group.members} == {"m1", "m2"}
    assert list(copy.manager.committed_partitions()) == []


async def test_log_ends_are_seen_when_they_were_asked_for_at_trios_time(autojump_clock: MockClock) -> None:
    copy = broker_copy()
    await trio.sleep(7)
    copy.learn_log_ends({("t", 0): 42}, 6.0)
    assert copy.manager.log_ends == {("t", 0): (42, EPOCH + 6)}
    assert [copy.log_ends_unseen([("t", 0)], since) for since in (5.5, 6.5)] == [set(), {("t", 0)}]


async def test_where_no_epoch_is_given_trios_clock_is_measured(autojump_clock: MockClock) -> None:
    await trio.sleep(1000)
    before = time.time()
    measured = BrokerCopy(Address("broker", 1), broker_copy().config, Traffic(), lambda fact: None)
    assert before <= measured.epoch(trio.current_time()) <= time.time()


# Where groups are coordinated.


def test_a_group_is_coordinated_where_its_partition_is_led() -> None:
    copy = broker_copy()
    nodes = {0: Node(1, "one", 9092), 1: Node(2, "two", 9092)}
    copy.learn_coordinators(nodes)
    assert copy.coordinator("g") is None, "how many partitions there are is not known"
    copy.manager.log.partitions.count = 3
    groups = {partition_for(group, 3): group for group in map(str, range(20))}
    assert [copy.coordinator(groups[partition]) for partition in range(3)] == [nodes[0], nodes[1], None]
    copy.learn_coordinators({})
    assert copy.coordinator(groups[0]) is None


def test_a_gateways_clients_know_it_under_another_address() -> None:
    copy = broker_copy(advertise=lambda node, host, port: (f"for {host}", port + node))
    copy.manager.log.partitions.count = 1
    copy.learn_coordinators({0: Node(1, "one", 9092)})
    assert copy.coordinator("g") == Node(1, "for one", 9093)


def habits(copy: BrokerCopy) -> tuple[str | None, bool | None]:
    return copy.manager.default_assignor, copy.manager.explains


def test_what_was_learnt_from_a_broker_is_learnt_again_from_the_next() -> None:
    copy = broker_copy()
    copy.learn_authorizer(False)
    copy.rights.grant(ANONYMOUS, [(Operation.DESCRIBE_GROUP, "g")], EPOCH)
    copy.manager.default_assignor, copy.manager.explains = "uniform", True
    copy.begin_anew()
    assert not copy.open
    assert [copy.hides, copy.rights.hold(ANONYMOUS, [(Operation.DESCRIBE_GROUP, "g")], EPOCH)] == [True, False]
    assert habits(copy) == (None, None)


def test_a_broker_that_offers_something_else_may_have_other_habits() -> None:
    copy = broker_copy()
    copy.learn_versions({3: (0, 12)})
    copy.manager.default_assignor, copy.manager.explains = "uniform", True
    copy.learn_versions({3: (0, 12)})
    assert habits(copy) == ("uniform", True)
    copy.learn_versions({3: (0, 13)})
    assert habits(copy) == (None, None)
