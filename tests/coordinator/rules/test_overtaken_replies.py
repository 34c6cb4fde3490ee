"""Each rebalance and departure is reported, even if a description or reply overtakes others, or a timer is late."""

import pytest

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.coordinator.model.facts import (
    Departure,
    MemberGone,
    MemberJoined,
    RebalanceCause,
    RebalanceCompleted,
)
from tests.coordinator.model import Broker
from tests.coordinator.rules.test_causes import caused_by, hand_over_syncs, let_in, member, of, rebalanced, stable
from tests.coordinator.world import SESSION_MS, Client, World


@pytest.fixture(params=[True, False], ids=["exclusive", "shared"])
def world(request: pytest.FixtureRequest) -> World:
    return World(Broker(), exclusive=request.param)


def describe_first(world: World) -> None:
    """The broker describes the group, and the description overtakes all replies that are not delivered yet."""
    connection = world.connect()
    world.ask(connection, DescribeGroupsRequest(groups=("g",)), 5)
    world.handle(connection)
    world.deliver(connection)


def counts(fact: RebalanceCompleted) -> tuple[int, int, int, int | None]:
    return fact.members, fact.joined, fact.gone, fact.moved_partitions


def departed(world: World, client: Client) -> Departure:
    """Returns how the only departed member left. Asserts that the member is this client's."""
    [gone] = of(world, MemberGone)
    assert gone.client_id == client.name
    how: Departure = gone.how
    return how


def test_description_overtakes_syncs(world: World) -> None:
    """A rebalance is reported even if a description shows the group as Stable before the replies to the syncs do."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    let_in(world, a, b)
    hand_over_syncs(world, a, b)
    describe_first(world)
    fact = rebalanced(world, a, b)
    assert (fact.cause, caused_by(fact), counts(fact)) == (RebalanceCause.NEW_MEMBER, "b", (2, 1, 0, 2))


def test_description_overtakes_leave(world: World) -> None:
    """A departure and its rebalance are reported even if a description shows them before the reply to the leave."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    b.leave()
    world.handle(b.connection)
    describe_first(world)
    fact = rebalanced(world, a)
    assert (fact.cause, caused_by(fact), counts(fact)) == (RebalanceCause.MEMBER_LEFT, "b", (1, 0, 1, 2))
    assert departed(world, b) is Departure.LEFT


def test_description_overtakes_last_leave(world: World) -> None:
    """The departure of the last member is reported, and does not count towards the next rebalance."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, b)
    b.leave()
    world.handle(b.connection)
    describe_first(world)
    world.settle()
    assert departed(world, b) is Departure.LEFT
    assert counts(rebalanced(world, a)) == (1, 1, 0, 0)


def test_description_overtakes_heartbeat(world: World) -> None:
    """An expired session is reported even if a description shows it before the heartbeat of another member does."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    for _ in range(3):
        world.delay(SESSION_MS / 4000)
        a.heartbeat()
        world.settle()
    world.delay(SESSION_MS / 4000 + 0.5)
    a.heartbeat()
    world.handle(a.connection)
    describe_first(world)
    fact = rebalanced(world, a)
    assert (fact.cause, caused_by(fact), counts(fact)) == (RebalanceCause.SESSION_EXPIRED, "b", (1, 0, 1, 2))
    assert departed(world, b) is Departure.EXPIRED


def test_timer_ends_after_the_brokers(world: World) -> None:
    """An expired session is the cause even if a heartbeat shows the rebalance before the copy's timer has ended.

    The copy's timer starts when the copy sees the first reply to a sync, which arrives late.
    """
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    let_in(world, a, b)
    hand_over_syncs(world, a, b)
    world.delay(0.2)
    world.settle()
    world.facts.clear()
    for _ in range(9):
        world.delay(SESSION_MS / 10_000)
        a.heartbeat()
        world.settle()
    world.delay(0.9)
    a.heartbeat()
    world.settle()
    world.delay(0.5)
    world.sweep()
    world.gather(a, steps=10)
    [fact] = of(world, RebalanceCompleted)
    assert (fact.cause, caused_by(fact), fact.gone) == (RebalanceCause.SESSION_EXPIRED, "b", 1)


@pytest.mark.parametrize("version", [2, 9])
def test_leaders_sync_overtakes_join(world: World, version: int) -> None:
    """A new member counts in its rebalance if the leader has synced before the reply to the member's join is seen."""
    static = version > 4
    a, b = (member(world, name, f"i-{name}" if static else None, version=version) for name in "ab")
    stable(world, a)
    b.join()
    world.settle()
    a.heartbeat()
    world.settle()
    a.join()
    world.handle(a.connection)
    world.deliver(a.connection)
    a.sync()
    world.handle(a.connection)
    world.deliver(a.connection)
    world.gather(a, b)
    [fact] = of(world, RebalanceCompleted)
    assert (fact.cause, counts(fact)) == (RebalanceCause.NEW_MEMBER, (2, 1, 0, 2))
    assert [joined.client_id for joined in of(world, MemberJoined)] == ["b"]
    b.leave()
    world.settle()
    world.facts.clear()
    world.gather(a, steps=10)
    [fact] = of(world, RebalanceCompleted)
    assert (fact.joined, fact.gone) == (0, 1), "the late reply does not count again"
