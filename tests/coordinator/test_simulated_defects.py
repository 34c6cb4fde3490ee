"""Defects that the simulation has found. Each test is the shortest history that shows one of them."""

from dataclasses import replace

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from tests.coordinator.model import Broker
from tests.coordinator.world import REBALANCE_MS, SESSION_MS, Client, Connection, World


def _strip_instance_ids(connection: Connection) -> None:
    """Changes an undelivered description to that of DescribeGroups v3, which has no instance ids."""
    exchange, reply = connection.down.pop()
    assert isinstance(reply, DescribeGroupsResponse)
    groups = tuple(
        replace(group, members=tuple(replace(each, group_instance_id=None) for each in group.members))
        for group in reply.groups
    )
    connection.down.append((exchange, replace(reply, groups=groups)))


def _describe_without_instance_ids(world: World) -> None:
    """Another client describes group g with version 3."""
    asker = world.connect()
    world.ask(asker, DescribeGroupsRequest(groups=("g",)), 3)
    world.handle(asker)
    _strip_instance_ids(asker)
    world.deliver(asker)


def _forgotten_member(world: World, instance_id: str | None) -> Client:
    """The copy forgets group g, whose only member goes on."""
    member = Client(world, "a", "g", instance_id)
    world.gather(member)
    world.manager.forget_group_state("g", world.now())
    _describe_without_instance_ids(world)
    member.heartbeat()
    world.settle()
    return member


def test_description_without_instance_ids() -> None:
    """The copy learns no static member without its instance id from a description (seed 6 of the simulation)."""
    world = World(Broker())
    member = _forgotten_member(world, "i")
    assert world.view().fallback_reason is not None
    world.describe()
    member.heartbeat()
    world.settle()
    assert world.view().fallback_reason is None
    assert [each.instance_id for each in world.view().members] == ["i"]


def test_metadata_of_unseen_join() -> None:
    """A member has joined a generation with new metadata, and the copy has not seen its join (seed 44).

    The log has the new metadata. So it is if a sidecar starts between the member's join and its sync.
    """
    world = World(Broker())
    world.read_log()
    member = Client(world, "a", "g")
    world.gather(member)
    world.tail.catch_up(world.now())
    member.metadata = b"new"
    [joined] = world.around(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member.member_id,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=b"new"),),
        ),
        9,
        "a",
    )
    member.take(joined)
    world.gather(member)
    world.tail.catch_up(world.now())
    assert world.view().fallback_reason is None
    assert [each.metadata for each in world.view().members] == [b"new"]


def test_old_broker_has_no_instance_ids() -> None:
    """The copy learns members from a broker that cannot describe instance ids."""
    world = World(Broker())
    world.manager.describes_instance_ids = False
    member = _forgotten_member(world, None)
    assert world.view().fallback_reason is None
    assert [each.member_id for each in world.view().members] == [member.member_id]


def test_instance_id_from_own_join() -> None:
    """An old leader's JoinGroup reply lists a static member without its instance id (seed 6 of the simulation)."""
    world = World(Broker(initial_delay=3.0))
    leader, member = Client(world, "a", "g", version=2), Client(world, "b", "g", "i")
    for each in (leader, member):
        each.join()
        world.handle(each.connection)
    world.pass_time(2.5)
    world.broker.tick(world.now() + 1.0)
    exchange, reply = leader.connection.down.pop()
    assert isinstance(reply, JoinGroupResponse)
    roster = tuple(replace(each, group_instance_id=None) for each in reply.members)
    leader.connection.down.append((exchange, replace(reply, members=roster)))
    world.settle()
    world.gather(leader, member)
    assert world.view().fallback_reason is None
    assert {each.client_id: each.instance_id for each in world.view().members} == {"a": None, "b": "i"}
