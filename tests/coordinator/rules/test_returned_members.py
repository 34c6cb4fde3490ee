"""A member whose session seemed over is reported as joined again when the broker turns out to have the member.

Otherwise, the member would be reported as gone twice.
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
    """The broker describes the member, and the member's session ends afterwards."""
    world = World(Broker())
    member = Client(world, "a", "g")
    world.gather(member)
    _seems_gone(world, member)
    world.describe()
    assert [each.member_id for each in world.view().members] == [member.member_id]
    _ends(world)
    assert _changes(world, "a") == ["MemberJoined", "MemberGone"] * 2


def test_member_that_joins_again() -> None:
    """The member joins again with its member id, and its session ends afterwards."""
    world = World(Broker())
    member = Client(world, "a", "g")
    world.gather(member)
    _seems_gone(world, member)
    member.generation = -1
    world.gather(member)
    _ends(world)
    assert _changes(world, "a") == ["MemberJoined", "MemberGone"] * 2
