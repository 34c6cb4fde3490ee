"""Clients come back as new members after the sessions of a whole group have expired."""

import pytest

from group_sidecar.coordinator.model.events import JoiningMember, JoinSent
from group_sidecar.coordinator.model.facts import (
    Departure,
    MemberGone,
    MemberInfo,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.state.expired_clients import MAX_EXPIRED_CLIENTS, RETURN_SECONDS, ExpiredClients
from group_sidecar.coordinator.state.member import Member as StateMember
from tests.coordinator.model import Broker
from tests.coordinator.rules.test_causes import REJOINED, SESSION, caused_by, member, of, rebalanced, stable
from tests.coordinator.rules.test_logged_rebalances import Copy, is_let_in, sends_join
from tests.coordinator.test_moved_groups import GROUP, found, take_over
from tests.coordinator.world import World

EXPIRED, NEW_MEMBER = RebalanceCause.SESSION_EXPIRED, RebalanceCause.NEW_MEMBER


@pytest.fixture
def world() -> World:
    return World(Broker())


@pytest.mark.parametrize("swept", [False, True])
def test_whole_group_expires(world: World, swept: bool) -> None:
    """After all sessions have expired, the cause is the expired session and not the join that begins the rebalance."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    world.pass_time(SESSION + 1)
    if swept:
        world.sweep()
    world.gather(a, b, steps=10)
    [fact] = of(world, RebalanceCompleted)
    assert (fact.cause, caused_by(fact), fact.said) == (EXPIRED, "a", "")
    assert {started.cause for started in of(world, RebalanceStarted)} == {EXPIRED}
    assert {gone.how for gone in of(world, MemberGone)} == {Departure.EXPIRED}


def test_clients_return_one_by_one(world: World) -> None:
    """Each return after the loss of the whole group has the cause SESSION_EXPIRED. Another client is a new member."""
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a, b)
    world.pass_time(SESSION + 1)
    world.sweep()
    a.forget()
    b.forget()
    assert rebalanced(world, a).cause is EXPIRED
    world.facts.clear()
    returned = rebalanced(world, a, b)
    assert (returned.cause, caused_by(returned)) == (EXPIRED, "b")
    world.facts.clear()
    assert rebalanced(world, a, b, c).cause is NEW_MEMBER


def test_return_after_explained_rebalance(world: World) -> None:
    """A client whose expired session has caused a rebalance is a new member when it comes back."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    for _ in range(5):
        world.pass_time(SESSION / 4)
        a.heartbeat()
        world.settle()
    assert rebalanced(world, a).cause is EXPIRED
    world.facts.clear()
    b.forget()
    assert rebalanced(world, a, b).cause is NEW_MEMBER


def test_late_return_is_new_member(world: World) -> None:
    """A client that comes back long after its session has expired is a new member."""
    a = member(world, "a")
    stable(world, a)
    world.pass_time(SESSION + 1)
    world.sweep()
    world.pass_time(RETURN_SECONDS)
    a.forget()
    assert rebalanced(world, a).cause is NEW_MEMBER


# The copy drops the group.


def joining(copy: Copy, *, reason: str = "") -> JoiningMember:
    """The client of member a joins with an id that the broker has just issued."""
    request = JoiningMember(
        token="2:a",
        member_id="new-id",
        instance_id=None,
        client_id="client-a",
        client_host="/h",
        session_timeout_ms=5000,
        rebalance_timeout_ms=5000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        will_park=True,
        reason=reason,
    )
    copy.wire_says(JoinSent, joining=request)
    return request


@pytest.mark.parametrize(("silent_for", "reason", "expected"), [(20.0, "", EXPIRED), (0.0, REJOINED, NEW_MEMBER)])
def test_return_after_coordinator_reload(silent_for: float, reason: str, expected: RebalanceCause) -> None:
    """A client comes back after the broker has loaded its groups again: as a new member, or after its session."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(GROUP)
    copy.now += 100
    is_let_in(copy, sends_join(copy))
    copy.now += silent_for
    copy.follower.resign(0, 6, copy.now)
    take_over(copy, 7)
    copy.log_says(GROUP)
    [started] = of_started(copy, joining(copy, reason=reason))
    assert started.cause is expected


def test_stated_reason_shows_new_member() -> None:
    """Java's reason for a join with an issued id shows a new member, even if the copy has not seen the id issued."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(GROUP)
    [started] = of_started(copy, joining(copy, reason=REJOINED))
    assert (started.cause, started.by and started.by.member_id) == (NEW_MEMBER, "new-id")


def of_started(copy: Copy, request: JoiningMember) -> list[RebalanceStarted]:
    """Returns the facts about begun rebalances after the broker has accepted the join."""
    return [fact for fact in is_let_in(copy, request, 9) if isinstance(fact, RebalanceStarted)]


# The bound.


def test_expired_clients_are_bounded() -> None:
    """Only so many clients are kept, and a client without a known host is not kept."""
    clients = ExpiredClients()
    clients.note([StateMember(member_id="unknown", since=0.0, client_id="c")])
    many = (StateMember(member_id=str(n), since=0.0, client_id=str(n), true_host="/h") for n in range(1000))
    clients.note(many)
    assert len(clients) == MAX_EXPIRED_CLIENTS
    assert clients.find("0", "/h", 100.0) == MemberInfo(member_id="0", client_id="0", client_host="/h")
