"""Tests events that end a group or leave it in doubt: deletions, moves, lost replies, undecodable requests, bounds."""

import pytest

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    NEW_MEMBER_JOIN_TIMEOUT_SECONDS,
    GroupDeleted,
    GroupsListed,
    JoinRejected,
    MembersLeft,
    NotCoordinatorReplied,
    OffsetsStored,
    ReplyLost,
)
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, GroupState
from tests.coordinator.all_groups import all_groups
from tests.coordinator.model import Broker
from tests.coordinator.sweeping import in_doubt
from tests.coordinator.world import Client, World, commit_of

COMPLETE = (None, None)


@pytest.fixture
def world() -> World:
    """A broker without groups, and an exclusive copy of it."""
    return World(Broker())


# Deletions and moves.


def test_group_is_deleted(world: World) -> None:
    """A deleted group is Dead and complete, and a later commit recreates it with only the new offset."""
    asker = world.connect()
    world.ask(asker, commit_of("g", 0, 5), 7)
    world.settle()
    world.ask(asker, DeleteGroupsRequest(groups_names=("g",)), 1)
    world.settle()
    assert (world.view().state, world.lacking(), world.listing()) == (GroupState.DEAD, COMPLETE, None)
    world.ask(asker, commit_of("g", 1, 6), 7)
    world.settle()
    assert (list(world.view().offsets), world.lacking()) == ([("t", 1)], COMPLETE)


def test_unread_delete_after_create(world: World) -> None:
    """A group that a commit creates is incomplete while a DeleteGroups that was sent after the commit is unread."""
    asker = world.connect()
    Client(world, "a", "g").join()
    world.ask(asker, commit_of("g", 0, 5), 7)
    world.send_unread(asker, DeleteGroupsRequest(groups_names=("g",)), 1, None)
    world.settle()
    assert world.broker.groups == {}
    assert world.lacking() == (FallbackReason.UNDECODABLE, FallbackReason.COLD)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_deletion_may_cross_commit(world: World, order: tuple[int, int]) -> None:
    """A deletion that crosses a commit leaves the group and the list incomplete."""
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


def test_earlier_fetch_does_not_settle_deletion(world: World) -> None:
    """An OffsetFetch reply from before a deletion does not report the deleted offsets as certain."""
    asker, other = world.connect(), world.connect()
    world.ask(asker, commit_of("g", 0, 5), 7)
    world.settle()
    world.ask(other, OffsetFetchRequest(group_id="g", topics=None), 5)
    world.handle(other)
    world.ask(asker, DeleteGroupsRequest(groups_names=("g",)), 1)
    world.describe()
    world.deliver(other)
    assert world.broker.groups == {}
    assert world.view().offsets_fallback_reason is not None or not world.view().offsets


def test_deletion_ends_unseen_history(world: World) -> None:
    """A deleted group with unseen history is complete."""
    world.manager.set_existing_groups(["g"])
    assert world.lacking() == (FallbackReason.COLD, FallbackReason.COLD)
    world.apply([GroupDeleted(group_id="g", sent_at=world.now())], world.now())
    assert (world.lacking(), world.listing()) == (COMPLETE, None)


def list_no_groups(world: World) -> None:
    listed = GroupsListed(groups=frozenset(), sent_at=world.now(), as_of=world.manager.note_count)
    world.apply([listed], world.now())


def test_moved_group_is_cold(world: World) -> None:
    """A group that moved to another broker is Dead and COLD, and does not make the list incomplete after the broker's
    list.
    """
    world.gather(Client(world, "a", "g"))
    world.apply([NotCoordinatorReplied(group_id="g", sent_at=world.now())], world.now())
    assert (world.view().state, world.lacking()) == (GroupState.DEAD, (FallbackReason.COLD, FallbackReason.COLD))
    list_no_groups(world)
    assert world.lacking() == (FallbackReason.COLD, FallbackReason.COLD), (
        "the group is at another broker now and may return"
    )
    assert world.listing() is None, "a group at another broker does not make this broker's list incomplete"


def test_moved_group_with_log(world: World) -> None:
    """With the log, a moved group makes the list COLD and stays in doubt until its partition is resigned."""
    world.read_log()
    world.gather(Client(world, "a", "g"))
    world.tail.catch_up(world.now())
    world.apply([NotCoordinatorReplied(group_id="g", sent_at=world.now())], world.now())
    assert None not in world.lacking(), "the partition was not resigned yet"
    assert world.listing() is FallbackReason.COLD
    assert in_doubt(world.manager) == ["g"]
    world.manager.log.resign(0, 2, world.now())
    assert in_doubt(world.manager) == [], "the log shows when the group returns"
    world.apply([NotCoordinatorReplied(group_id="g", sent_at=world.now())], world.now())
    assert in_doubt(world.manager) == [], "the move was known before"


def test_returned_group_is_described(world: World) -> None:
    """A description and a new generation complete a group that moved away and returned."""
    a = Client(world, "a", "g")
    world.gather(a)
    world.apply([NotCoordinatorReplied(group_id="g", sent_at=world.now())], world.now())
    assert in_doubt(world.manager) == ["g"]
    world.describe()
    world.gather(a)
    assert (world.view().fallback_reason, world.listing(), in_doubt(world.manager)) == (None, None, [])


# Lost replies.


def test_lost_leave(world: World) -> None:
    """A lost leave makes the group IN_DOUBT until a description from after the time in which the leave may arrive."""
    a = Client(world, "a", "g")
    world.gather(a)
    a.leave()
    a.reconnect()
    assert world.view().fallback_reason is FallbackReason.IN_DOUBT
    world.describe()
    assert world.view().fallback_reason is FallbackReason.IN_DOUBT, "the lost leave may still arrive"
    world.handle_lost(0)
    assert world.view().fallback_reason is FallbackReason.IN_DOUBT
    world.pass_time(1.5)
    world.describe()
    assert world.view().state is GroupState.EMPTY


def test_lost_member_join(world: World) -> None:
    """A lost join of a member makes the group IN_DOUBT until the next complete generation."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    b.metadata = b"changed"
    b.join()
    b.reconnect()
    assert (world.view().fallback_reason, world.awaiting()) == (FallbackReason.IN_DOUBT, frozenset())
    world.handle_lost(0)
    world.pass_time(1.5)
    world.gather(a)
    world.gather(a, b)
    assert world.view().fallback_reason is None


@pytest.mark.parametrize("version", [2, 9])
def test_lost_join_may_have_made_group(world: World, version: int) -> None:
    """A lost join of a new group makes the group and the list incomplete. The list does not contain the group."""
    a = Client(world, "a", "g", version=version)
    a.join()
    a.reconnect()
    assert not all_groups(world.manager, world.now()), "a join in flight creates no group"
    assert (None not in world.lacking(), world.listing()) == (True, world.lacking()[0])


def test_lost_reply_for_missing_group(world: World) -> None:
    """A lost reply that cannot create a group leaves a missing group complete."""
    world.apply([ReplyLost(group_id="g", sent_at=world.now(), token="1:1", may_create_group=False)], world.now())
    assert world.lacking() == COMPLETE


def test_lost_static_leave_hits_new_group(world: World) -> None:
    """A lost leave by instance id leaves a group incomplete that is created after the loss."""
    a, static = Client(world, "a", "g"), Client(world, "i", "g", "i")
    static.leave()
    static.reconnect()
    world.gather(a, static)
    assert world.view().fallback_reason is not None
    world.handle_lost(0)
    assert world.broker.describe("g").group_state == "PreparingRebalance"


def test_lost_deletion(world: World) -> None:
    """A lost DeleteGroups request makes the group IN_DOUBT."""
    asker = world.connect()
    world.ask(asker, commit_of("g", 0, 5), 7)
    world.settle()
    world.ask(asker, DeleteGroupsRequest(groups_names=("g",)), 1)
    world.lose(asker)
    assert world.lacking() == (FallbackReason.IN_DOUBT, FallbackReason.IN_DOUBT)


def test_list_settles_lost_join(world: World) -> None:
    """A group list from after the time in which a lost join may arrive shows that the join made no group."""
    a = Client(world, "a", "g")
    a.join()
    a.reconnect()
    asker = world.connect()
    world.ask(asker, ListGroupsRequest(), 4)
    world.settle()
    assert world.listing() is FallbackReason.COLD, "the lost join may still arrive"
    world.pass_time(1.5)
    world.ask(asker, ListGroupsRequest(), 4)
    world.settle()
    assert (world.lacking(), world.listing()) == (COMPLETE, None)


def test_timed_out_join_makes_group_cold(world: World) -> None:
    """A new member's join that is rejected after the broker's timeout makes the group COLD."""
    client = Client(world, "x", "g", version=2)
    client.join()
    (sent,) = world.manager.group_metadata_cache["g"].joins.values()
    at = sent.sent_at + NEW_MEMBER_JOIN_TIMEOUT_SECONDS
    world.apply([JoinRejected(group_id="g", sent_at=sent.sent_at, joining=sent.joining, error_code=25)], at)
    assert world.manager.view("g", at).fallback_reason is FallbackReason.COLD


def test_departed_id_does_not_count(world: World) -> None:
    """A join under an id that has left does not change an Empty group."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    a.commit(0, 1)
    world.settle()
    for client in (a, b):
        client.leave()
        client.join()
    world.settle()
    assert (world.view().state, world.lacking()) == (GroupState.EMPTY, COMPLETE)


def test_unknown_member_leave_is_in_doubt(world: World) -> None:
    """A leave of an unknown member makes the group IN_DOUBT."""
    world.gather(Client(world, "a", "g"))
    world.apply([MembersLeft(group_id="g", sent_at=world.now(), members=(("x", None),))], world.now())
    assert world.view().fallback_reason is FallbackReason.IN_DOUBT


# Undecodable requests.


def test_unread_write_of_known_group(world: World) -> None:
    """An unread write makes its group and the list UNDECODABLE until a description from after its reply."""
    a, b = Client(world, "a", "g"), Client(world, "b", "h")
    world.gather(a, b)
    for client in (a, b):
        client.commit(0, 1)
    world.settle()
    world.manager.note_unread_write("g")
    assert world.lacking() == (FallbackReason.UNDECODABLE, FallbackReason.UNDECODABLE)
    assert world.lacking("h") == COMPLETE
    assert world.listing() is FallbackReason.UNDECODABLE
    world.describe()
    assert world.lacking() == (FallbackReason.UNDECODABLE, FallbackReason.UNDECODABLE), (
        "the broker may not have executed the write yet"
    )
    world.manager.note_unread_write("g", world.now())
    world.describe()
    assert world.lacking() == (None, FallbackReason.UNDECODABLE)


def test_unread_write_of_unknown_group(world: World) -> None:
    """An unread write of an unknown group makes this group COLD and no other group."""
    world.manager.note_unread_write("g")
    assert world.lacking() == (FallbackReason.COLD, FallbackReason.COLD)
    assert world.lacking("h") == COMPLETE


def test_unread_write_of_any_group(world: World) -> None:
    """An unread write of an unknown group id makes all groups incomplete until descriptions and a list from after its
    reply.
    """
    a = Client(world, "a", "g")
    world.gather(a)
    a.commit(0, 1)
    world.settle()
    world.manager.note_unread_write(None)
    assert world.lacking() == (FallbackReason.UNDECODABLE, FallbackReason.UNDECODABLE)
    assert world.lacking("nope") == (FallbackReason.COLD, FallbackReason.COLD)
    world.describe()
    list_groups(world)
    assert (world.view().fallback_reason, world.listing()) == (FallbackReason.UNDECODABLE, FallbackReason.COLD), (
        "the write has no reply yet"
    )
    world.manager.note_unread_write(None, world.now())
    world.describe()
    assert (world.view().fallback_reason, world.listing()) == (None, FallbackReason.COLD)
    assert world.lacking("nope") == (FallbackReason.COLD, FallbackReason.COLD)
    list_groups(world)
    assert (world.listing(), world.lacking("nope")) == (None, COMPLETE)


def list_groups(world: World) -> None:
    """A client lists the broker's groups."""
    world.ask(world.connect(), ListGroupsRequest(), 4)
    world.settle()


def test_two_unread_writes_settle_together(world: World) -> None:
    """Only a description from after both replies ends the doubt of two unread writes."""
    world.gather(Client(world, "a", "g"))
    for group in ("g", None):
        world.manager.note_unread_write(group)
        world.manager.note_unread_write(group)
        world.manager.note_unread_write(group, world.now() + 100)
        world.describe()
        assert world.view().fallback_reason is FallbackReason.UNDECODABLE, "the other write has no reply yet"
        world.manager.note_unread_write(group, world.now())
        world.describe()
        assert world.view().fallback_reason is FallbackReason.UNDECODABLE, (
            "the broker may execute the first write later"
        )
        world.pass_time(101)
        world.gather(Client(world, "a", "g"))
        world.describe()
        assert world.view().fallback_reason is None


def test_unread_write_without_members(world: World) -> None:
    """An unread write that cannot change members leaves a group with members complete, and makes an Empty group
    UNDECODABLE.
    """
    a, b = Client(world, "a", "g"), Client(world, "b", "h")
    world.gather(a, b)
    b.commit(0, 1)
    b.leave()
    world.settle()
    assert world.lacking("h") == COMPLETE
    world.manager.note_unread_write(None, members=False)
    assert (world.view().fallback_reason, world.view("h").fallback_reason) == (None, FallbackReason.UNDECODABLE), (
        "the write may delete an Empty group"
    )
    assert world.view("h").offsets_fallback_reason is FallbackReason.UNDECODABLE


def test_list_finds_unread_group(world: World) -> None:
    """A group that an unread write created is found by the broker's list and completed by a description and an
    OffsetFetch.
    """
    world.manager.note_unread_write(None)
    world.bypass(commit_of("g", 0, 1), 7, "unread")
    world.manager.note_unread_write(None, world.now())
    list_groups(world)
    assert world.listing() is FallbackReason.COLD
    assert world.lacking() == (FallbackReason.COLD, FallbackReason.COLD)
    assert in_doubt(world.manager) == ["g"]
    world.describe()
    world.ask(world.connect(), OffsetFetchRequest(group_id="g", topics=None), 5)
    world.settle()
    assert (world.listing(), world.lacking(), world.view().state) == (None, COMPLETE, GroupState.EMPTY)


def test_unread_write_applies_lazily() -> None:
    """An unread write of an unknown group changes a group only when this group is viewed."""
    manager = GroupMetadataManager(exclusive=True)
    manager.set_existing_groups(())
    names = [f"g{number}" for number in range(1000)]
    manager.apply([stored(name) for name in names], 1)
    manager.view("g7", 1)
    before = states(manager)
    manager.note_unread_write(None)
    manager.note_topic_deletion(1)
    manager.note_unread_write(None, 2)
    assert states(manager) == before
    assert manager.offsets_fallback_reason("g7", 3) is FallbackReason.UNDECODABLE
    changed = states(manager).items() - before.items()
    assert {name for name, _ in changed} == {"g7"}


def stored(group: str) -> OffsetsStored:
    """Returns a commit of a group."""
    return OffsetsStored(group_id=group, sent_at=1, offsets={("t", 0): CommittedOffset(1, 1, "", 1)})


def states(manager: GroupMetadataManager) -> dict[str, tuple[int, object]]:
    """Returns the state of each group that an unread write would change."""
    return {name: (group.changes, group.incomplete_reason) for name, group in manager.group_metadata_cache.items()}


def test_listing_settles_unread_write(world: World) -> None:
    """Without the log, only a listing ends the doubt of an unread write of an unknown group.

    DescribeGroups also returns a group of a newer protocol as Dead.
    """
    world.manager.note_unread_write("g")
    world.manager.note_unread_write("g", world.now())
    assert in_doubt(world.manager) == ["g"]
    assert not world.manager.needs_listing()
    world.describe()
    assert world.lacking() == (FallbackReason.COLD, FallbackReason.COLD)
    assert world.manager.needs_listing()
    list_no_groups(world)
    assert (world.lacking(), world.listing(), in_doubt(world.manager)) == (COMPLETE, None, [])
    assert not world.manager.needs_listing()


def test_lost_join_outlasts_listing(world: World) -> None:
    """A listing ends the doubt of a lost join only after the time in which the join may arrive."""
    a = Client(world, "a", "g")
    a.join()
    a.reconnect()
    list_no_groups(world)
    assert world.lacking() == (FallbackReason.COLD, FallbackReason.COLD)
    world.pass_time(1.5)
    list_no_groups(world)
    assert world.lacking() == COMPLETE


# Bounds.


def test_group_count_is_bounded(world: World) -> None:
    """Groups beyond max_groups are COLD and make the list COLD, and kept groups stay complete."""
    world.manager = GroupMetadataManager(exclusive=True, max_groups=1)
    world.manager.set_existing_groups(())
    a, b = Client(world, "a", "g"), Client(world, "b", "h")
    world.gather(a)
    assert (world.view().fallback_reason, world.manager.overflowed) == (None, 0)
    world.gather(b)
    assert world.manager.overflowed > 0
    assert world.lacking("h") == (FallbackReason.COLD, FallbackReason.COLD)
    assert (world.view().fallback_reason, world.lacking("nope")) == (None, COMPLETE)
    assert world.listing() is FallbackReason.COLD


def test_list_settles_evicted_unread_groups(world: World) -> None:
    """Unread groups beyond the bound stay COLD until the broker's next list."""
    world.manager = GroupMetadataManager(exclusive=True, max_groups=2)
    world.manager.set_existing_groups(())
    for number in range(5):
        world.manager.note_unread_write(f"n{number}")
        world.manager.note_unread_write(f"n{number}", world.now())
    assert world.lacking("n0") == (FallbackReason.COLD, FallbackReason.COLD), (
        "the note of the group was evicted, so the group may have a history"
    )
    assert world.manager.needs_listing()
    list_groups(world)
    assert (world.lacking("n0"), world.listing(), world.manager.needs_listing()) == (COMPLETE, None, False)
