"""A member whose session seemed to have expired is reported as joined when the broker still has the member.

Otherwise, the copy would report two departures of the same member.
"""

from group_sidecar.coordinator.model.facts import MemberGone, MemberJoined
from tests.coordinator.model import Broker
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
