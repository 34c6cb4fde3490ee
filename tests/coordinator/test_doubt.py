"""What ends a group or leaves it in doubt: deletion, moving away, lost replies, what cannot be read, bounds."""

import pytest

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.coordinator.events import (
    NEW_MEMBER_SECONDS,
    CoordinatorMoved,
    GroupDeleted,
    GroupsListed,
    JoinRejected,
    MembersLeft,
    OffsetsStored,
    ReplyLost,
)
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.views import CommittedOffset, GroupState, Lacking
from tests.coordinator.all_groups import all_groups
from tests.coordinator.model import Broker
from tests.coordinator.sweeping import in_doubt
from tests.coordinator.world import Client, World, commit_of

COMPLETE = (None, None)


@pytest.fixture
def world() -> World:
    """A broker that has nothing, and an exclusive copy of it."""
    return World(Broker())


# Deletion, and moving away.


def test_a_group_is_deleted(world: World) -> None:
    asker = world.connect()
    world.ask(asker, commit_of("g", 0, 5), 7)
    world.settle()
    world.ask(asker, DeleteGroupsRequest(groups_names=("g",)), 1)
    world.settle()
    assert (world.view().state, world.lacking(), world.listing()) == (GroupState.DEAD, COMPLETE, None)
    world.ask(asker, commit_of("g", 1, 6), 7)
    world.settle()
    assert (list(world.view().offsets), world.lacking()) == ([("t", 1)], COMPLETE)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_deletion_may_cross_a_commit(world: World, order: tuple[int, int]) -> None:
    world.ask(world.connect(), commit_of("g", 0, 5), 7)
    world.settle()
    connections = world.connect(), world.connect()
    world.ask(connections[0], DeleteGroupsRequest(groups_names=("g",)), 1)
    world.ask(connections[1], commit_of("g", 1, 6), 7)
    for number in order:
        world.handle(connections[number])
    for number in reversed(order):
        world.deliver(connections[number])
    assert world.lacking() != COMPLETE
    assert world.listing() is not None


def test_what_was_told_before_a_deletion_that_crossed_something_does_not_settle_it(world: World) -> None:
    asker, other = world.connect(), world.connect()
    world.ask(asker, commit_of("g", 0, 5), 7)
    world.settle()
    world.ask(other, OffsetFetchRequest(group_id="g", topics=None), 5)
    world.handle(other)
    world.ask(asker, DeleteGroupsRequest(groups_names=("g",)), 1)
    world.describe()
    world.deliver(other)
    assert world.broker.groups == {}
    assert world.view().offsets_lacking is not None or not world.view().offsets


def test_a_group_with_a_past_that_is_deleted_has_none(world: World) -> None:
    world.manager.inherit(["g"])
    assert world.lacking() == (Lacking.COLD, Lacking.COLD)
    world.apply([GroupDeleted(group_id="g", sent_at=world.now())], world.now())
    assert (world.lacking(), world.listing()) == (COMPLETE, None)


def test_a_group_that_moved_away_has_a_past_elsewhere(world: World) -> None:
    world.gather(Client(world, "a", "g"))
    world.apply([CoordinatorMoved(group_id="g", sent_at=world.now())], world.now())
    assert (world.view().state, world.lacking()) == (GroupState.DEAD, (Lacking.COLD, Lacking.COLD))
    listed = GroupsListed(groups=frozenset(), sent_at=world.now(), as_of=world.manager.notings)
    world.apply([listed], world.now())
    assert world.lacking() == (Lacking.COLD, Lacking.COLD), "it is not here now, and may come back"
    assert world.listing() is None, "that does not hinder a list of what is here"


def test_a_group_of_another_broker_does_not_hinder_the_list_where_the_log_is_read(world: World) -> None:
    world.read_log()
    world.gather(Client(world, "a", "g"))
    world.tail.catch_up(world.now())
    world.apply([CoordinatorMoved(group_id="g", sent_at=world.now())], world.now())
    assert None not in world.lacking(), "its partition is still thought to be here"
    assert world.listing() is Lacking.COLD
    assert in_doubt(world.manager) == ["g"]
    world.manager.log.resign(0, 2, world.now())
    assert in_doubt(world.manager) == [], "its log will tell"
    world.apply([CoordinatorMoved(group_id="g", sent_at=world.now())], world.now())
    assert in_doubt(world.manager) == [], "it was no secret"


def test_a_group_that_has_come_back_is_told_by_the_broker(world: World) -> None:
    a = Client(world, "a", "g")
    world.gather(a)
    world.apply([CoordinatorMoved(group_id="g", sent_at=world.now())], world.now())
    assert in_doubt(world.manager) == ["g"]
    world.describe()
    world.gather(a)
    assert (world.view().lacking, world.listing(), in_doubt(world.manager)) == (None, None, [])


# Replies that never came.


def test_a_lost_leave(world: World) -> None:
    a = Client(world, "a", "g")
    world.gather(a)
    a.leave()
    a.reconnect()
    assert world.view().lacking is Lacking.IN_DOUBT
    world.describe()
    assert world.view().lacking is Lacking.IN_DOUBT, "it may still be on its way"
    world.handle_lost(0)
    assert world.view().lacking is Lacking.IN_DOUBT
    world.pass_time(1.5)
    world.describe()
    assert world.view().state is GroupState.EMPTY


def test_a_lost_join_of_a_member(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    b.metadata = b"changed"
    b.join()
    b.reconnect()
    assert (world.view().lacking, world.awaiting()) == (Lacking.IN_DOUBT, frozenset())
    world.handle_lost(0)
    world.pass_time(1.5)
    world.gather(a)
    world.gather(a, b)
    assert world.view().lacking is None


@pytest.mark.parametrize("version", [2, 9])
def test_a_lost_join_may_have_made_a_group(world: World, version: int) -> None:
    a = Client(world, "a", "g", version=version)
    a.join()
    a.reconnect()
    assert not all_groups(world.manager, world.now()), "no group is made of a reservation"
    assert (None not in world.lacking(), world.listing()) == (True, world.lacking()[0])


def test_what_is_lost_about_a_group_that_is_not_there(world: World) -> None:
    world.apply([ReplyLost(group_id="g", sent_at=world.now(), token="1:1", creates=False)], world.now())
    assert world.lacking() == COMPLETE


def test_a_lost_leave_by_instance_id_may_take_a_member_out_of_a_group_that_is_made_meanwhile(world: World) -> None:
    a, static = Client(world, "a", "g"), Client(world, "i", "g", "i")
    static.leave()
    static.reconnect()
    world.gather(a, static)
    assert world.view().lacking is not None
    world.handle_lost(0)
    assert world.broker.describe("g").group_state == "PreparingRebalance"


def test_a_lost_deletion(world: World) -> None:
    asker = world.connect()
    world.ask(asker, commit_of("g", 0, 5), 7)
    world.settle()
    world.ask(asker, DeleteGroupsRequest(groups_names=("g",)), 1)
    world.lose(asker)
    assert world.lacking() == (Lacking.IN_DOUBT, Lacking.IN_DOUBT)


def test_a_listing_tells_which_lost_join_made_no_group(world: World) -> None:
    a = Client(world, "a", "g")
    a.join()
    a.reconnect()
    asker = world.connect()
    world.ask(asker, ListGroupsRequest(), 4)
    world.settle()
    assert world.listing() is Lacking.COLD, "it may still be on its way"
    world.pass_time(1.5)
    world.ask(asker, ListGroupsRequest(), 4)
    world.settle()
    assert (world.lacking(), world.listing()) == (COMPLETE, None)


def test_a_new_member_that_waited_too_long_was_in(world: World) -> None:
    client = Client(world, "x", "g", version=2)
    client.join()
    (sent,) = world.manager.group_metadata_cache["g"].joins.values()
    at = sent.sent_at + NEW_MEMBER_SECONDS
    world.apply([JoinRejected(group_id="g", sent_at=sent.sent_at, joining=sent.joining, error_code=25)], at)
    assert world.manager.view("g", at).lacking is Lacking.COLD


def test_a_member_id_that_has_gone_does_not_count(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    a.commit(0, 1)
    world.settle()
    for client in (a, b):
        client.leave()
        client.join()
    world.settle()
    assert (world.view().state, world.lacking()) == (GroupState.EMPTY, COMPLETE)


def test_a_leave_of_nobody_known_is_in_doubt(world: World) -> None:
    world.gather(Client(world, "a", "g"))
    world.apply([MembersLeft(group_id="g", sent_at=world.now(), members=(("x", None),))], world.now())
    assert world.view().lacking is Lacking.IN_DOUBT


# What could not be decoded.


def test_something_unreadable_of_a_group(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "h")
    world.gather(a, b)
    for client in (a, b):
        client.commit(0, 1)
    world.settle()
    world.manager.obscure("g")
    assert world.lacking() == (Lacking.UNDECODABLE, Lacking.UNDECODABLE)
    assert world.lacking("h") == COMPLETE
    assert world.listing() is Lacking.UNDECODABLE
    world.describe()
    assert world.lacking() == (Lacking.UNDECODABLE, Lacking.UNDECODABLE), "it may not have been done yet"
    world.manager.obscure("g", world.now())
    world.describe()
    assert world.lacking() == (None, Lacking.UNDECODABLE)


def test_something_unreadable_of_a_group_that_is_not_known(world: World) -> None:
    world.manager.obscure("g")
    assert world.lacking() == (Lacking.COLD, Lacking.COLD)
    assert world.lacking("h") == COMPLETE


def test_something_unreadable_of_who_knows_which_group(world: World) -> None:
    a = Client(world, "a", "g")
    world.gather(a)
    a.commit(0, 1)
    world.settle()
    world.manager.obscure(None)
    assert world.lacking() == (Lacking.UNDECODABLE, Lacking.UNDECODABLE)
    assert world.lacking("nope") == (Lacking.COLD, Lacking.COLD)
    world.describe()
    list_groups(world)
    assert (world.view().lacking, world.listing()) == (Lacking.UNDECODABLE, Lacking.COLD), "it is not answered yet"
    world.manager.obscure(None, world.now())
    world.describe()
    assert (world.view().lacking, world.listing()) == (None, Lacking.COLD)
    assert world.lacking("nope") == (Lacking.COLD, Lacking.COLD)
    list_groups(world)
    assert (world.listing(), world.lacking("nope")) == (None, COMPLETE)


def list_groups(world: World) -> None:
    """The broker lists its groups to somebody."""
    world.ask(world.connect(), ListGroupsRequest(), 4)
    world.settle()


def test_two_unreadable_writes_are_settled_by_what_was_asked_after_both(world: World) -> None:
    world.gather(Client(world, "a", "g"))
    for group in ("g", None):
        world.manager.obscure(group)
        world.manager.obscure(group)
        world.manager.obscure(group, world.now() + 100)
        world.describe()
        assert world.view().lacking is Lacking.UNDECODABLE, "the other one is not answered yet"
        world.manager.obscure(group, world.now())
        world.describe()
        assert world.view().lacking is Lacking.UNDECODABLE, "the first may be on its way still"
        world.pass_time(101)
        world.gather(Client(world, "a", "g"))
        world.describe()
        assert world.view().lacking is None


def test_an_unreadable_write_that_changes_no_members_leaves_them_in_no_doubt(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "h")
    world.gather(a, b)
    b.commit(0, 1)
    b.leave()
    world.settle()
    assert world.lacking("h") == COMPLETE
    world.manager.obscure(None, members=False)
    assert (world.view().lacking, world.view("h").lacking) == (None, Lacking.UNDECODABLE), "an Empty one may be deleted"
    assert world.view("h").offsets_lacking is Lacking.UNDECODABLE


def test_what_an_unreadable_write_made_is_found_by_the_list(world: World) -> None:
    world.manager.obscure(None)
    world.around(commit_of("g", 0, 1), 7, "unread")
    world.manager.obscure(None, world.now())
    list_groups(world)
    assert world.listing() is Lacking.COLD
    assert world.lacking() == (Lacking.COLD, Lacking.COLD)
    assert in_doubt(world.manager) == ["g"]
    world.describe()
    world.ask(world.connect(), OffsetFetchRequest(group_id="g", topics=None), 5)
    world.settle()
    assert (world.listing(), world.lacking(), world.view().state) == (None, COMPLETE, GroupState.EMPTY)


def test_an_unreadable_write_touches_no_group_until_it_is_looked_at() -> None:
    manager = GroupMetadataManager(exclusive=True)
    manager.inherit(())
    names = [f"g{number}" for number in range(1000)]
    manager.apply([stored(name) for name in names], 1)
    manager.view("g7", 1)
    before = states(manager)
    manager.obscure(None)
    manager.disturb_offsets(1)
    manager.obscure(None, 2)
    assert states(manager) == before
    assert manager.offsets_lacking("g7", 3) is Lacking.UNDECODABLE
    changed = states(manager).items() - before.items()
    assert {name for name, _ in changed} == {"g7"}


def stored(group: str) -> OffsetsStored:
    """A commit, as it stands."""
    return OffsetsStored(group_id=group, sent_at=1, offsets={("t", 0): CommittedOffset(1, 1, "", 1)})


def states(manager: GroupMetadataManager) -> dict[str, tuple[int, object]]:
    """What a mark would change, of each group."""
    return {name: (group.changes, group.unsure) for name, group in manager.group_metadata_cache.items()}


def test_a_group_that_the_broker_does_not_know_is_in_doubt_no_more(world: World) -> None:
    world.manager.obscure("g")
    world.manager.obscure("g", world.now())
    assert in_doubt(world.manager) == ["g"]
    world.describe()
    assert (world.lacking(), world.listing(), in_doubt(world.manager)) == (COMPLETE, None, [])


def test_a_lost_join_may_still_make_a_group_that_the_broker_does_not_know_yet(world: World) -> None:
    a = Client(world, "a", "g")
    a.join()
    a.reconnect()
    world.describe()
    assert world.lacking() == (Lacking.COLD, Lacking.COLD)
    world.pass_time(1.5)
    world.describe()
    assert world.lacking() == COMPLETE


# Bounds.


def test_the_number_of_groups_is_bounded(world: World) -> None:
    world.manager = GroupMetadataManager(exclusive=True, most_groups=1)
    world.manager.inherit(())
    a, b = Client(world, "a", "g"), Client(world, "b", "h")
    world.gather(a)
    assert (world.view().lacking, world.manager.overflowed) == (None, 0)
    world.gather(b)
    assert world.manager.overflowed > 0
    assert world.lacking("h") == (Lacking.COLD, Lacking.COLD)
    assert (world.view().lacking, world.lacking("nope")) == (None, COMPLETE)
    assert world.listing() is Lacking.COLD


def test_groups_that_are_too_many_to_note_are_found_by_a_list(world: World) -> None:
    world.manager = GroupMetadataManager(exclusive=True, most_groups=2)
    world.manager.inherit(())
    for number in range(5):
        world.manager.obscure(f"n{number}")
        world.manager.obscure(f"n{number}", world.now())
    assert world.lacking("n0") == (Lacking.COLD, Lacking.COLD), "it is not noted any more, and not forgotten"
    assert world.manager.wants_list()
    list_groups(world)
    assert (world.lacking("n0"), world.listing(), world.manager.wants_list()) == (COMPLETE, None, False)
