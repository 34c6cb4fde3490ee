"""Defects that the simulation has found. Each test is the shortest history that shows one defect."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from group_sidecar.coordinator.model.events import LOST_REQUEST_SECONDS
from group_sidecar.coordinator.model.facts import RebalanceCompleted
from group_sidecar.coordinator.model.views import GroupState
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


def test_description_before_versions_are_known() -> None:
    """Before the sidecar knows the broker's versions, a description without instance ids leaves a doubt (seed 39)."""
    world = World(Broker())
    _forgotten_member(world, "i")
    assert world.view().fallback_reason is not None
    world.describe()
    assert world.view().fallback_reason is None
    assert [each.instance_id for each in world.view().members] == ["i"]


def test_description_without_instance_ids_counts_no_join() -> None:
    """A static member whose join is parked counts once, although a description lacks its instance id (seed 5)."""
    world = World(Broker(initial_delay=3.0))
    world.manager.describes_instance_ids = True
    member = Client(world, "a", "g", "i")
    member.join()
    world.handle(member.connection)
    _describe_without_instance_ids(world)
    occupancy = world.manager.view_with_occupancy("g", world.now()).occupancy
    assert (occupancy.state, occupancy.parked) == (GroupState.PREPARING_REBALANCE, 1)


def _forgotten_member(world: World, instance_id: str | None) -> Client:
    """Returns the only member of group g, which the copy has forgotten."""
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
    world.manager.describes_instance_ids = True
    member = _forgotten_member(world, "i")
    assert world.view().fallback_reason is not None
    world.describe()
    member.heartbeat()
    world.settle()
    assert world.view().fallback_reason is None
    assert [each.instance_id for each in world.view().members] == ["i"]


def _join_unseen(world: World, member: Client) -> list[Any]:
    """Sends a member's join with new metadata past the copy. Returns the list that gets the broker's reply."""
    member.metadata = b"new"
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member.member_id,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol(name="range", metadata=b"new"),),
    )
    return world.bypass(request, 9, member.name)


def _metadata(world: World) -> dict[str, bytes]:
    return {each.client_id: each.metadata for each in world.view().members}


def test_metadata_of_unseen_join() -> None:
    """A sidecar that starts between a join and the member's sync gets the new metadata from the log (seed 44)."""
    world = World(Broker())
    world.read_log()
    member = Client(world, "a", "g")
    world.gather(member)
    world.tail.catch_up(world.now())
    [joined] = _join_unseen(world, member)
    member.take(joined)
    world.gather(member)
    world.tail.catch_up(world.now())
    assert world.view().fallback_reason is None
    assert _metadata(world) == {"a": b"new"}


def test_metadata_of_described_members() -> None:
    """After a description during the sync phase, which lacks metadata, the copy does not answer with the metadata of
    the previous generation (seeds 74 and 84).
    """
    world = World(Broker())
    leader, member = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(leader)
    world.gather(leader, member)
    replies = _join_unseen(world, leader)
    member.join()
    world.settle()
    world.describe()
    leader.take(replies[0])
    world.gather(leader, member, steps=1)
    assert world.view().state is GroupState.STABLE
    assert world.view().fallback_reason is not None
    world.describe()
    world.gather(leader, member)
    assert world.view().fallback_reason is None
    assert _metadata(world) == {"a": b"new", "b": b"m"}


def test_metadata_of_logged_generation() -> None:
    """The log shows the metadata of a generation whose members were described during the sync phase (seed 84)."""
    world = World(Broker())
    world.read_log()
    leader, member = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(leader)
    world.gather(leader, member)
    world.tail.catch_up(world.now())
    replies = _join_unseen(world, leader)
    member.join()
    world.settle()
    world.describe()
    leader.take(replies[0])
    assignments = tuple(SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"") for each in leader.roster)
    sync = SyncGroupRequest(
        group_id="g", generation_id=leader.generation, member_id=leader.member_id, assignments=assignments
    )
    world.bypass(sync, 3, "a")
    leader.synced = True
    world.tail.catch_up(world.now())
    assert world.view().state is GroupState.STABLE
    assert _metadata(world) == {"a": b"new", "b": b"m"}


def test_old_broker_has_no_instance_ids() -> None:
    """The copy learns members from the descriptions of a broker whose version has no instance ids."""
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


def test_late_record_of_described_group() -> None:
    """A group is in doubt if the log shows a generation after a description of the following rebalance (seed 12).

    The description has no generation, so the copy cannot know whether the record or the description is newer.
    """
    world = World(Broker())
    world.read_log()
    world.tail.catch_up(world.now())
    member, lost = Client(world, "a", "g"), Client(world, "b", "g", version=2)
    world.gather(member)
    lost.join()
    world.lose(lost.connection)
    world.handle_lost(0)
    world.pass_time(1.5)
    world.describe()
    world.tail.catch_up(world.now())
    assert world.view().fallback_reason is not None


@pytest.mark.parametrize("in_log", [True, False])
def test_lost_join_outlasts_generation_found(in_log: bool) -> None:
    """A lost join counts although the log or a commit shows a generation afterwards. It may be older (seed 99)."""
    world = World(Broker())
    world.read_log()
    members = [Client(world, name, "g") for name in "ab"]
    world.gather(*members)
    world.manager.forget_group_state("g", world.now())
    new = Client(world, "c", "g", version=2)
    new.join()
    world.handle(new.connection)
    new.reconnect()
    world.pass_time(2.0)
    if in_log:
        world.tail.catch_up(world.now())
    else:
        members[0].commit(0, 5)
        world.settle()
    world.describe()
    occupancy = world.manager.view_with_occupancy("g", world.now()).occupancy
    assert (occupancy.state, len(occupancy.members), occupancy.parked) == (GroupState.PREPARING_REBALANCE, 3, 1)


@pytest.mark.parametrize("arrives", [True, False])
def test_lost_join_may_begin_no_rebalance(arrives: bool) -> None:
    """A stable group with a lost join may rebalance or not, until the join must have arrived (seeds 99 and 100)."""
    world = World(Broker())
    member = Client(world, "a", "g")
    world.gather(member)
    member.metadata = b"new"
    member.join()
    member.reconnect()
    world.describe()
    occupancy = world.manager.view_with_occupancy("g", world.now()).occupancy
    assert (occupancy.state, occupancy.parked) == (GroupState.PREPARING_REBALANCE, 1)
    assert occupancy.may_be_settled
    if arrives:
        world.handle_lost(0)
    world.pass_time(LOST_REQUEST_SECONDS)
    world.describe()
    assert not world.manager.view_with_occupancy("g", world.now()).occupancy.may_be_settled


def test_uncertain_member_needs_description() -> None:
    """The sidecar asks for a description of a group with a member whose client id is uncertain (seed 22).

    The broker keeps the client id of a fenced static member, and the copy did not know that member when it was fenced.
    """
    world = World(Broker())
    world.gather(Client(world, "a", "g", "i"))
    world.manager.set_existing_groups(("g",))
    world.manager.forget_group_state("g", world.now())
    member = Client(world, "b", "g", "i")
    world.gather(member)
    assert world.view().fallback_reason is not None
    assert [*world.manager.groups_to_describe()] == [["g"]]
    world.describe()
    assert world.view().fallback_reason is None
    assert [*world.manager.groups_to_describe()] == [[]]


def _send_commit(world: World, offset: int, partition: int = 0) -> Connection:
    """Sends a commit to group g from a client that is not a member. Returns the client's connection."""
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    topics = (OffsetCommitRequestTopic(name="t", partitions=(row,)),)
    connection = world.connect()
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)
    world.send(connection, request, 7, "committer")
    return connection


def _fetch(world: World) -> Connection:
    """Another client asks for the offsets of group g, and the question is forwarded. Returns its connection."""
    connection = world.connect()
    world.ask(connection, OffsetFetchRequest(group_id="g", topics=None), 7)
    return connection


def _offsets(world: World) -> dict[tuple[str, int], int]:
    """Returns the offsets of group g that the copy would answer; empty if the sidecar would forward the question."""
    view = world.view()
    if view.offsets_fallback_reason is not None:
        return {}
    return {partition: each.offset for partition, each in view.offsets.items()}


def test_reply_shows_commit_in_flight() -> None:
    """After a client has read a commit that has no reply yet, no client reads an older offset (seed 4).

    The copy cannot use the reply to the read, because another reply has changed the copy meanwhile.
    """
    world = World(Broker())
    _send_commit(world, 7)
    world.settle()
    assert _offsets(world) == {("t", 0): 7}
    first, second, commit = _fetch(world), _fetch(world), _send_commit(world, 8)
    for connection in (first, commit, second):
        world.handle(connection)
    world.deliver(first)
    assert _offsets(world) == {("t", 0): 7}
    world.deliver(second)
    assert _offsets(world) == {}
    _fetch(world)
    world.settle(commit)
    assert _offsets(world) == {("t", 0): 8}


def test_reply_shows_commit_before_log() -> None:
    """After a client has read a commit that neither a reply nor the log has shown yet, no client reads an older offset.

    The copy knows the group, or the commit has created the group.
    """
    for before in ({("t", 0): 7}, {}):
        world = World(Broker())
        world.read_log()
        if before:
            _send_commit(world, 7)
            world.settle()
        world.tail.catch_up(world.now())
        assert world.view().offsets_fallback_reason is None
        commit = _send_commit(world, 8)
        world.handle(commit)
        assert _offsets(world) == before
        _fetch(world)
        world.settle(commit)
        assert world.view().offsets_fallback_reason is not None
        world.tail.catch_up(world.now())
        assert _offsets(world) == {("t", 0): 8}


def test_reply_shows_deletion_before_log() -> None:
    """After a client has read all offsets without one whose deletion has no reply yet, no client reads that offset."""
    world = World(Broker())
    world.read_log()
    for partition in range(2):
        _send_commit(world, 7, partition)
        world.settle()
    world.tail.catch_up(world.now())
    assert _offsets(world) == {("t", 0): 7, ("t", 1): 7}
    deletion = world.connect()
    topics = (OffsetDeleteRequestTopic(name="t", partitions=(OffsetDeleteRequestPartition(partition_index=1),)),)
    world.send(deletion, OffsetDeleteRequest(group_id="g", topics=topics), 0, "admin")
    world.handle(deletion)
    assert _offsets(world) == {("t", 0): 7, ("t", 1): 7}
    _fetch(world)
    world.settle(deletion)
    assert world.view().offsets_fallback_reason is not None
    world.tail.catch_up(world.now())
    assert _offsets(world) == {("t", 0): 7}


def test_late_reply_to_older_commit() -> None:
    """The reply to an older commit does not replace a newer commit that the log has already shown (seed 63).

    The copy has dropped the newer offset that it saw on the wire, because the log contains that offset.
    """
    world = World(Broker())
    world.read_log()
    older = _send_commit(world, 7)
    _send_commit(world, 8)
    world.handle(older)
    world.settle(older)
    world.tail.catch_up(world.now())
    assert _offsets(world) == {("t", 0): 8}
    world.settle()
    assert _offsets(world) == {}
    world.tail.catch_up(world.now())
    assert _offsets(world) == {("t", 0): 8}


def test_late_reply_to_deletion() -> None:
    """The reply to an older deletion does not remove a commit of the same offset that the log has already shown."""
    world = World(Broker())
    world.read_log()
    _send_commit(world, 6, 1)
    _send_commit(world, 7)
    world.settle()
    world.tail.catch_up(world.now())
    deletion = world.connect()
    topics = (OffsetDeleteRequestTopic(name="t", partitions=(OffsetDeleteRequestPartition(partition_index=0),)),)
    world.send(deletion, OffsetDeleteRequest(group_id="g", topics=topics), 0, "admin")
    world.handle(deletion)
    _send_commit(world, 8)
    world.settle(deletion)
    world.tail.catch_up(world.now())
    assert _offsets(world) == {("t", 0): 8, ("t", 1): 6}
    world.settle()
    assert _offsets(world) == {}
    _send_commit(world, 9)
    world.settle()
    world.tail.catch_up(world.now())
    assert _offsets(world) == {("t", 0): 9, ("t", 1): 6}


def _replaced_join(world: World, wait: float) -> Client:
    """Returns the leader of a stable generation. Before, another member sent a join that will get no reply.

    `wait`: the seconds between that join and the generation.
    """
    leader, follower = (Client(world, name, "g") for name in ("leader", "follower"))
    world.gather(leader, follower)
    follower.join()
    follower.reconnect()
    follower.metadata += b"!"
    follower.join()
    world.handle(follower.connection)
    world.handle_lost(0)  # The broker replies only to the join that it has received last.
    world.pass_time(wait)
    world.gather(leader)
    world.pass_time(LOST_REQUEST_SECONDS + 0.5)
    return leader


@pytest.mark.parametrize("wait", [0.0, 2.0])
def test_replaced_join_takes_no_place(wait: float) -> None:
    """If the broker describes a stable group, a join without a reply lets no new member into it (seed 1014)."""
    world = World(Broker())
    _replaced_join(world, wait)
    assert not world.manager.view_with_occupancy("g", world.now()).occupancy.certain
    world.describe()
    occupancy = world.manager.view_with_occupancy("g", world.now()).occupancy
    assert (occupancy.may_be_settled, occupancy.certain, len(occupancy.members)) == (True, True, 2)


def test_rebalance_begins_after_replaced_join() -> None:
    """The duration of a rebalance does not include the time since a join that another has replaced (seed 1014)."""
    world = World(Broker())
    leader = _replaced_join(world, 2.0)
    leader.join()
    world.settle()
    world.pass_time(REBALANCE_MS / 1000)
    world.gather(leader)
    [*_, completed] = (each for each in world.facts if isinstance(each, RebalanceCompleted))
    assert abs(completed.duration_seconds - REBALANCE_MS / 1000) < LOST_REQUEST_SECONDS


def test_static_member_takes_place_of_its_lost_join() -> None:
    """A lost join does not keep out its own static member, which joins again without its member id (seed 59)."""
    world = World(Broker())
    member = Client(world, "a", "g", "i")
    world.gather(member)
    member.metadata += b"!"
    member.join()
    member.reconnect()
    occupancy = world.manager.view_with_occupancy("g", world.now()).occupancy
    assert occupancy.is_parked("", "i")
    assert not occupancy.is_parked("", "j")
    assert not occupancy.is_parked("", None)


def test_described_member_counts_once() -> None:
    """A member whose reply is late counts once, although its join and the broker's description show it."""
    world = World(Broker(initial_delay=3.0))
    leader, follower = (Client(world, name, "g", name) for name in ("leader", "follower"))
    leader.join()
    follower.join()
    for member in (leader, follower):
        world.handle(member.connection)
    world.delay(3.5)
    world.deliver(leader.connection)
    world.ask(asker := world.connect(), DescribeGroupsRequest(groups=("g",)), 5)
    world.handle(asker)
    world.deliver(asker)
    occupancy = world.manager.view_with_occupancy("g", world.now()).occupancy
    assert (occupancy.may_be_settled, occupancy.certain, len(occupancy.members)) == (True, True, 2)


def test_removal_by_instance_id_may_remove_successor() -> None:
    """A removal by instance id leaves the identity of the next member uncertain, if it may have removed a successor.

    The replies show neither which of two members with the instance id was removed nor whose client id the broker keeps.
    """
    world = World(Broker())
    first, second = (Client(world, name, "g", "i") for name in ("first", "second"))
    others = [Client(world, name, "g", version=2) for name in "ab"]
    world.gather(first, others[0])
    world.gather(others[1], second)
    others[0].join()
    removed = MemberIdentity(member_id="", group_instance_id="i")
    world.send(world.connect(), LeaveGroupRequest(group_id="g", members=(removed,)), 3, "admin")
    world.gather(first, *others)
    assert world.broker.describe("g").members[-1].client_id == "first"
    assert world.view().fallback_reason is not None
    world.describe()
    assert world.view().fallback_reason is None
    assert [each.client_id for each in world.view().members if each.instance_id] == ["first"]


def test_restart_forgets_leave() -> None:
    """A broker that restarts has a member again whose leave began a rebalance (seed 589).

    The log contains no leaves. The next heartbeat shows that the broker does not prepare a rebalance.
    """
    world = World(Broker())
    stays, leaves = (Client(world, name, "g") for name in "ab")
    world.gather(stays, leaves)
    in_log = deepcopy(world.broker.groups)
    leaves.leave(4)
    world.settle()
    world.broker.groups = in_log
    stays.heartbeat()
    world.settle()
    assert world.view().fallback_reason is not None
    world.describe()
    assert len(world.view().members) == 2
