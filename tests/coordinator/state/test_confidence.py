"""Tests when the copy of a group is complete, and which requests, replies and descriptions complete it."""

from typing import Any

import pytest

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import GroupDescribed
from group_sidecar.coordinator.model.facts import MemberGone
from group_sidecar.coordinator.model.views import FallbackReason, GroupState
from group_sidecar.coordinator.state.member import Member
from tests.coordinator.model import Broker
from tests.coordinator.world import SESSION_MS, Client, World


@pytest.fixture
def world() -> World:
    """A broker without groups, and an exclusive copy of it."""
    return World(Broker())


@pytest.fixture
def inherited() -> tuple[World, Client, Client]:
    """Two members of a group that existed before the copy."""
    world = World(Broker())
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    a.commit(0, 1)
    world.settle()
    world.manager = GroupMetadataManager(exclusive=True)
    world.manager.set_existing_groups(["g"])
    return world, a, b


# Sources of certainty.


def test_shared_copy_is_never_complete() -> None:
    """A copy that is not exclusive and reads no log is NOT_EXCLUSIVE for all groups and the list."""
    world = World(Broker(), exclusive=False)
    client = Client(world, "a", "g")
    world.gather(client)
    client.commit(0, 1)
    world.settle()
    world.describe()
    assert world.view().state is GroupState.STABLE
    assert world.lacking() == (FallbackReason.NOT_EXCLUSIVE, FallbackReason.NOT_EXCLUSIVE)
    assert world.lacking("nope") == (FallbackReason.NOT_EXCLUSIVE, FallbackReason.NOT_EXCLUSIVE)
    assert world.listing() is FallbackReason.NOT_EXCLUSIVE


@pytest.mark.parametrize("reads_log", [False, True])
def test_not_exclusive_precedes_other_reasons(reads_log: bool) -> None:
    """NOT_EXCLUSIVE is the reason even for a group that is distrusted, rebalances, or has unread writes."""
    world = World(Broker(), exclusive=False)
    if reads_log:
        world.read_log()
    client = Client(world, "a", "g")
    world.gather(client)
    client.metadata = b"changed"
    client.join()
    world.manager.distrust("g")
    world.manager.note_unread_write("g")
    now = world.now()
    for reason in (world.lacking()[0], world.manager.group_fallback_reason("g", now), world.listing()):
        assert reason is FallbackReason.NOT_EXCLUSIVE
    assert world.lacking()[1] is (FallbackReason.IN_DOUBT if reads_log else FallbackReason.NOT_EXCLUSIVE), (
        "the log has the offsets, whoever commits them"
    )


@pytest.mark.parametrize(("exclusive", "reason"), [(True, FallbackReason.COLD), (False, FallbackReason.NOT_EXCLUSIVE)])
def test_shared_clients_make_exclusive_copy_cold(exclusive: bool, reason: FallbackReason) -> None:
    """While another sidecar forwards requests too, an exclusive copy is COLD, and any other copy NOT_EXCLUSIVE."""
    world = World(Broker(), exclusive=exclusive)
    client = Client(world, "a", "g")
    world.gather(client)
    world.manager.begin_sharing()
    assert (world.lacking(), world.listing()) == ((reason, reason), reason)


def test_no_group_is_known_before_list() -> None:
    """Before the broker's group list, all groups are COLD, and after the list, only listed groups are COLD."""
    manager = GroupMetadataManager(exclusive=True)
    assert manager.view("g", 1).fallback_reason is FallbackReason.COLD
    assert not manager.view("g", 1).roster_known
    assert manager.listing_fallback_reason(1) is FallbackReason.COLD
    manager.set_existing_groups(["h"])
    assert (manager.view("g", 1).fallback_reason, manager.view("h", 1).fallback_reason) == (None, FallbackReason.COLD)
    assert manager.listing_fallback_reason(1) is FallbackReason.COLD


def test_roster_completes_group_before_list(world: World) -> None:
    """A group whose roster was seen before the group list has complete members, and only its offsets are COLD."""
    world.manager = GroupMetadataManager(exclusive=True)
    client = Client(world, "a", "g")
    world.gather(client)
    world.manager.set_existing_groups(["g"])
    assert world.lacking() == (None, FallbackReason.COLD)


# Groups with a history.


def test_heartbeats_do_not_complete_group(inherited: tuple[World, Client, Client]) -> None:
    """Heartbeats of all members of an inherited group show these members, and the group stays COLD."""
    world, a, b = inherited
    for client in (a, b):
        client.heartbeat()
        world.settle()
        assert world.lacking() == (FallbackReason.COLD, FallbackReason.COLD)
    view = world.view()
    assert (view.state, view.generation, view.roster_known) == (GroupState.STABLE, a.generation, False)
    assert {member.client_id for member in view.members} == {"a", "b"}
    assert world.listing() is FallbackReason.COLD


def test_new_generation_completes_members(inherited: tuple[World, Client, Client]) -> None:
    """A new generation of an inherited group makes its members complete."""
    world, a, b = inherited
    b.metadata = b"changed"
    b.join()
    world.gather(a, b)
    assert world.lacking() == (None, FallbackReason.COLD)
    assert world.listing() is None


def test_description_completes_members(inherited: tuple[World, Client, Client]) -> None:
    """A description and a heartbeat of each member complete an inherited group, until their unknown sessions may have
    expired.
    """
    world, a, b = inherited
    world.describe()
    assert {member.client_id for member in world.view().members} == {"a", "b"}
    assert world.view().fallback_reason is FallbackReason.IN_DOUBT, (
        "a description does not contain the time of a member's last request"
    )
    a.heartbeat()
    world.settle()
    assert world.view().fallback_reason is FallbackReason.IN_DOUBT
    b.heartbeat()
    world.settle()
    view = world.view()
    assert (view.fallback_reason, view.generation, view.protocol) == (None, a.generation, "range")
    assert {member.assignment for member in view.members} == {b"a-1", b"b-2"}
    world.pass_time(7)
    assert world.view().fallback_reason is FallbackReason.IN_DOUBT, "a description does not contain session timeouts"


def test_stale_heartbeat_gives_no_generation(inherited: tuple[World, Client, Client]) -> None:
    """A heartbeat reply from before the description does not set the generation, and a later heartbeat does."""
    world, a, _ = inherited
    late = world.connect()
    world.send(late, a.beat(), 3, "a")
    world.handle(late)
    world.ask(world.connect(), DescribeGroupsRequest(groups=("g",)), 5)
    world.settle(late)
    assert world.view().generation == -1
    world.deliver(late)
    assert world.view().generation == -1
    a.heartbeat()
    world.settle()
    assert (world.view().generation, world.view().roster_known) == (a.generation, True)


def test_described_member_expires_late(inherited: tuple[World, Client, Client]) -> None:
    """Members that only a description reported are removed after 60 s of silence."""
    world, *_ = inherited
    world.describe()
    world.sweep()
    assert len(world.view().members) == 2
    world.pass_time(60)
    world.sweep()
    assert (world.view().state, world.view().members) == (GroupState.EMPTY, ())
    assert len([fact for fact in world.facts if isinstance(fact, MemberGone)]) == 2


def test_description_keeps_true_host(world: World) -> None:
    """A description with another host does not change the member's true host."""
    client = Client(world, "a", "g")
    world.gather(client)
    world.broker.groups["g"].members[client.member_id].client_host = "/the-sidecar"
    world.describe()
    assert [member.client_host for member in world.view().members] == ["/host-of-a"]


def test_roster_only_member_is_incomplete(world: World) -> None:
    """A member known only from a roster leaves the group COLD until a description."""
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    world.gather(a)
    b.join()
    world.handle(b.connection)
    world.lose(b.connection)
    world.pass_time(1.5)
    world.gather(a)
    view = world.view()
    assert (view.state, view.fallback_reason, view.roster_known) == (GroupState.STABLE, FallbackReason.COLD, True)
    assert [(member.member_id, member.client_id) for member in view.members] == [("a-1", "a"), ("b-2", "")]
    world.describe()
    assert {member.client_id for member in world.view().members} == {"a", "b"}


# Limits of a description.


def test_outdated_description_is_ignored(world: World) -> None:
    """A description from before a member's departure does not bring the member back."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    late = world.connect()
    world.ask(late, DescribeGroupsRequest(groups=("g",)), 5)
    world.handle(late)
    b.leave()
    world.settle(late)
    world.deliver(late)
    assert {member.client_id for member in world.view().members} == {"a"}


def test_description_during_join_is_ignored(world: World) -> None:
    """A description that crosses a join does not change the rebalance that the join causes."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    b.metadata = b"changed"
    world.ask(world.connect(), DescribeGroupsRequest(groups=("g",)), 5)
    b.join()
    world.settle()
    assert world.view().state is GroupState.PREPARING_REBALANCE
    assert world.awaiting() == {b.member_id}


def test_description_of_deleted_group_is_ignored(world: World) -> None:
    """A description from before a group's deletion does not recreate the group."""
    a = Client(world, "a", "g")
    world.gather(a)
    late = world.connect()
    world.ask(late, DescribeGroupsRequest(groups=("g",)), 5)
    world.handle(late)
    a.leave()
    world.settle(late)
    world.ask(a.connection, DeleteGroupsRequest(groups_names=("g",)), 1)
    world.settle(late)
    world.deliver(late)
    assert (world.view().state, world.lacking()) == (GroupState.DEAD, (None, None))


def test_dead_description_removes_group(world: World) -> None:
    """A description as Dead removes a group that the broker has cleaned up."""
    a = Client(world, "a", "g")
    world.gather(a)
    a.leave()
    world.settle()
    world.broker.clean_up()
    world.describe()
    assert (world.view().state, world.lacking()) == (GroupState.DEAD, (None, None))
    assert world.listing() is None


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_described_rebalance_is_in_doubt(world: World, state: GroupState) -> None:
    """A group that is described during a rebalance has the described state and is IN_DOUBT."""
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    world.gather(a, b)
    world.broker.groups["g"].state = state
    world.describe()
    assert (world.view().state, world.view().fallback_reason) == (state, FallbackReason.IN_DOUBT)


def test_same_description_keeps_generation(world: World) -> None:
    """A description that matches the copy keeps the generation and the known sessions."""
    a = Client(world, "a", "g")
    world.gather(a)
    world.describe()
    assert (world.view().generation, world.view().fallback_reason) == (1, None)
    world.pass_time(SESSION_MS / 1000 - 1)
    assert world.view().fallback_reason is None, "the copy knows the session timeout from the join"


def test_unknown_group_is_created_by_description(world: World) -> None:
    """A description of a group that the copy does not have creates this group only."""
    described = GroupDescribed(
        group_id="h",
        sent_at=world.now(),
        state=GroupState.EMPTY,
        protocol_type="",
        protocol="",
        members=(),
        as_of=world.manager.changes_of("h")[0],
    )
    world.apply([described], world.now())
    assert world.view("h").state is GroupState.EMPTY
    assert world.view().state is GroupState.DEAD


# Checks of all groups.


class CountedMembers(dict[str, Member]):
    """Members by id. Counts the iterations over all members."""

    visits = 0

    def values(self) -> Any:
        self.visits += 1
        return super().values()


def test_uncertain_members_are_checked_once(world: World) -> None:
    """The members of an uncertain group are searched once after each change, however often the group is checked."""
    a = Client(world, "a", "g")
    world.gather(a)
    world.describe()
    group = world.manager.group_metadata_cache["g"]
    group.members[a.member_id].certain = False
    group.touch(world.now())
    members = CountedMembers(group.members)
    group.roster.replace(members)
    for _ in range(3):
        assert [*world.manager.groups_to_describe()] == [["g"]]
    assert members.visits == 1
    group.touch(world.now())
    assert [*world.manager.groups_to_describe()] == [["g"]]
    assert members.visits == 2
