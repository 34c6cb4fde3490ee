"""A member whose session seemed to have expired is reported as joined when the broker still has the member.

Otherwise, the copy would report two departures of the same member.
"""

from group_sidecar.coordinator.model.events import MemberSeen
from group_sidecar.coordinator.model.facts import Fact, MemberGone, MemberJoined
from tests.coordinator.model import Broker
from tests.coordinator.rules.test_logged_rebalances import WHO, Copy, generation, of
from tests.coordinator.sweeping import swept
from tests.coordinator.world import SESSION_MS, Client, World


def _changes(world: World, name: str) -> list[str]:
    """Returns the facts about a client's member, in order."""
    return [
        type(fact).__name__
        for fact in world.facts
        if isinstance(fact, MemberJoined | MemberGone) and fact.client_id == name
    ]


def _seems_gone(world: World, member: Client) -> None:
    """The broker gets a heartbeat whose connection is lost, so the session lasts longer than the copy can know."""
    world.pass_time(0.8)
    member.heartbeat()
    member.reconnect()
    world.handle_lost(0)
    world.pass_time(SESSION_MS / 1000 - 0.5)
    world.sweep()
    assert _changes(world, member.name) == ["MemberJoined", "MemberGone"]
    assert world.broker.groups["g"].members.keys() == {member.member_id}


def _ends(world: World) -> None:
    """The sessions of all members end."""
    world.pass_time(2 * SESSION_MS / 1000)
    world.sweep()


def test_described_member() -> None:
    """The member is reported as joined when the broker describes it, and as departed when its session ends."""
    world = World(Broker())
    member = Client(world, "a", "g")
    world.gather(member)
    _seems_gone(world, member)
    world.describe()
    assert [each.member_id for each in world.view().members] == [member.member_id]
    _ends(world)
    assert _changes(world, "a") == ["MemberJoined", "MemberGone"] * 2


def test_member_that_joins_again() -> None:
    """The member is reported as joined when it joins again under its id, and as departed when its session ends."""
    world = World(Broker())
    member = Client(world, "a", "g")
    world.gather(member)
    _seems_gone(world, member)
    member.generation = -1
    world.gather(member)
    _ends(world)
    assert _changes(world, "a") == ["MemberJoined", "MemberGone"] * 2


def _suspended() -> tuple[Copy, list[Fact]]:
    """A broker is suspended for longer than the session of the member `a`. Returns the copy and the facts.

    The connections of the sidecar are lost meanwhile, so the log counts as not loaded.
    """
    copy = Copy(exclusive=True, load=[generation(1, a=(0,))])
    _heartbeat(copy, copy.now)
    copy.now += 30
    facts = swept(copy.manager, copy.now)
    assert [gone.member_id for gone in of(facts, MemberGone)] == ["a"]
    list(copy.follower.connection_lost(copy.now))
    return copy, facts


def _heartbeat(copy: Copy, sent_at: float) -> list[Fact]:
    """The reply to a heartbeat of the member `a` arrives. `sent_at`: when the heartbeat was sent."""
    heartbeat = {"member_id": "a", "instance_id": None, "generation": 1, "no_rebalance": True, **WHO}
    return copy.manager.apply([MemberSeen(group_id="g", sent_at=sent_at, **heartbeat)], copy.now)


def test_old_heartbeat_shows_no_return() -> None:
    """A suspended broker accepts old heartbeats when it continues. Their members are not reported as joined, and their
    departure is not reported again.
    """
    copy, _ = _suspended()
    copy.now += 1
    facts = _heartbeat(copy, copy.now - 28)
    copy.log_says()
    copy.now += 30
    facts += swept(copy.manager, copy.now)
    assert facts == []


def test_member_that_returns_before_load() -> None:
    """A member that was reported as gone is reported as joined by its next heartbeat, also before the log is loaded."""
    copy, _ = _suspended()
    copy.now += 1
    assert [joined.member_id for joined in of(_heartbeat(copy, copy.now), MemberJoined)] == ["a"]
    copy.log_says()
    copy.now += 30
    assert [gone.member_id for gone in of(swept(copy.manager, copy.now), MemberGone)] == ["a"]


def test_overdue_member_without_report_is_not_reported_as_joined() -> None:
    """A member whose departure was not reported is not reported as joined by its next request."""
    copy = Copy(load=[generation(1, a=(0,))])
    copy.now += 60
    assert swept(copy.manager, copy.now) == []
    assert _heartbeat(copy, copy.now) == []
