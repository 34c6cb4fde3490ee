"""When the copy of a group is complete: whose word that rests on, and what descriptions add."""

import pytest

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.coordinator.events import GroupDescribed
from group_sidecar.coordinator.facts import MemberGone
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.views import GroupState, Lacking
from tests.coordinator.model import Broker
from tests.coordinator.world import SESSION_MS, Client, World


@pytest.fixture
def world() -> World:
    """A broker that has nothing, and an exclusive copy of it."""
    return World(Broker())


@pytest.fixture
def inherited() -> tuple[World, Client, Client]:
    """Two members of a group that was there before the copy."""
    world = World(Broker())
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    a.commit(0, 1)
    world.settle()
    world.manager = GroupMetadataManager(exclusive=True)
    world.manager.inherit(["g"])
    return world, a, b


# Whose word it is.


def test_without_the_operators_word_nothing_is_complete() -> None:
    world = World(Broker(), exclusive=False)
    client = Client(world, "a", "g")
    world.gather(client)
    client.commit(0, 1)
    world.settle()
    world.describe()
    assert world.view().state is GroupState.STABLE
    assert world.lacking() == (Lacking.COLD, Lacking.COLD)
    assert world.lacking("nope") == (Lacking.COLD, Lacking.COLD)
    assert world.listing() is Lacking.COLD


def test_before_the_broker_has_listed_its_groups_none_is_known() -> None:
    manager = GroupMetadataManager(exclusive=True)
    assert manager.view("g", 1).lacking is Lacking.COLD
    assert not manager.view("g", 1).roster_known
    assert manager.listing_lacking(1) is Lacking.COLD
    manager.inherit(["h"])
    assert (manager.view("g", 1).lacking, manager.view("h", 1).lacking) == (None, Lacking.COLD)
    assert manager.listing_lacking(1) is Lacking.COLD


def test_a_group_that_came_before_the_listing_is_known_from_its_roster_on(world: World) -> None:
    world.manager = GroupMetadataManager(exclusive=True)
    client = Client(world, "a", "g")
    world.gather(client)
    world.manager.inherit(["g"])
    assert world.lacking() == (None, Lacking.COLD)


# Groups with a past.


def test_a_members_signs_are_not_all_of_a_group(inherited: tuple[World, Client, Client]) -> None:
    world, a, b = inherited
    for client in (a, b):
        client.heartbeat()
        world.settle()
        assert world.lacking() == (Lacking.COLD, Lacking.COLD)
    view = world.view()
    assert (view.state, view.generation, view.roster_known) == (GroupState.STABLE, a.generation, False)
    assert {member.client_id for member in view.members} == {"a", "b"}
    assert world.listing() is Lacking.COLD


def test_a_new_generation_tells_who_is_in(inherited: tuple[World, Client, Client]) -> None:
    world, a, b = inherited
    b.metadata = b"changed"
    b.join()
    world.gather(a, b)
    assert world.lacking() == (None, Lacking.COLD)
    assert world.listing() is None


def test_a_description_tells_who_is_in(inherited: tuple[World, Client, Client]) -> None:
    world, a, b = inherited
    world.describe()
    assert {member.client_id for member in world.view().members} == {"a", "b"}
    assert world.view().lacking is Lacking.IN_DOUBT, "when they were heard of last is not told"
    a.heartbeat()
    world.settle()
    assert world.view().lacking is Lacking.IN_DOUBT
    b.heartbeat()
    world.settle()
    view = world.view()
    assert (view.lacking, view.generation, view.protocol) == (None, a.generation, "range")
    assert {member.assignment for member in view.members} == {b"a-1", b"b-2"}
    world.pass_time(7)
    assert world.view().lacking is Lacking.IN_DOUBT, "how long their sessions are is not told"


def test_a_stale_sign_of_life_does_not_tell_the_generation(inherited: tuple[World, Client, Client]) -> None:
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


def test_a_member_that_was_only_described_is_set_aside_at_length(inherited: tuple[World, Client, Client]) -> None:
    world, *_ = inherited
    world.describe()
    world.sweep()
    assert len(world.view().members) == 2
    world.pass_time(60)
    world.sweep()
    assert (world.view().state, world.view().members) == (GroupState.EMPTY, ())
    assert len([fact for fact in world.facts if isinstance(fact, MemberGone)]) == 2


def test_the_true_host_of_a_member_stays(world: World) -> None:
    client = Client(world, "a", "g")
    world.gather(client)
    world.broker.groups["g"].members[client.member_id].client_host = "/the-sidecar"
    world.describe()
    assert [member.client_host for member in world.view().members] == ["/host-of-a"]


def test_who_is_only_in_a_roster_is_not_known(world: World) -> None:
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    world.gather(a)
    b.join()
    world.handle(b.connection)
    world.lose(b.connection)
    world.pass_time(1.5)
    world.gather(a)
    view = world.view()
    assert (view.state, view.lacking, view.roster_known) == (GroupState.STABLE, Lacking.COLD, True)
    assert [(member.member_id, member.client_id) for member in view.members] == [("a-1", "a"), ("b-2", "")]
    world.describe()
    assert {member.client_id for member in world.view().members} == {"a", "b"}


# What a description must not undo.


def test_a_description_from_before_a_change_counts_for_nothing(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    late = world.connect()
    world.ask(late, DescribeGroupsRequest(groups=("g",)), 5)
    world.handle(late)
    b.leave()
    world.settle(late)
    world.deliver(late)
    assert {member.client_id for member in world.view().members} == {"a"}


def test_a_description_during_a_join_counts_for_nothing(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    b.metadata = b"changed"
    world.ask(world.connect(), DescribeGroupsRequest(groups=("g",)), 5)
    b.join()
    world.settle()
    assert world.view().state is GroupState.PREPARING_REBALANCE
    assert world.awaiting() == {b.member_id}


def test_a_description_of_what_is_gone_makes_nothing(world: World) -> None:
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


def test_a_described_group_may_be_gone(world: World) -> None:
    a = Client(world, "a", "g")
    world.gather(a)
    a.leave()
    world.settle()
    world.broker.clean_up()
    world.describe()
    assert (world.view().state, world.lacking()) == (GroupState.DEAD, (None, None))
    assert world.listing() is None


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_a_group_described_in_a_rebalance_is_in_doubt(world: World, state: GroupState) -> None:
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    world.gather(a, b)
    world.broker.groups["g"].state = state
    world.describe()
    assert (world.view().state, world.view().lacking) == (state, Lacking.IN_DOUBT)


def test_a_description_that_says_the_same_keeps_the_generation(world: World) -> None:
    a = Client(world, "a", "g")
    world.gather(a)
    world.describe()
    assert (world.view().generation, world.view().lacking) == (1, None)
    world.pass_time(SESSION_MS / 1000 - 1)
    assert world.view().lacking is None, "its session is known"


def test_a_group_that_nobody_asked_about_before_is_described(world: World) -> None:
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
