"""How members join, stay and leave: the effect of each reply on the copy, and the resulting facts.

The broker is the model, so the copy has to show what Kafka would do.
"""

from itertools import permutations

import pytest

from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.coordinator import manager
from group_sidecar.coordinator.model.events import (
    JoinAccepted,
    JoiningMember,
    MemberSeen,
    NotCoordinatorReplied,
    RebalanceSeen,
)
from group_sidecar.coordinator.model.facts import (
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCompleted,
    RebalanceReason,
    RebalanceStarted,
)
from group_sidecar.coordinator.model.views import FallbackReason, GroupState, GroupView
from tests.coordinator.all_groups import all_groups
from tests.coordinator.model import Broker
from tests.coordinator.world import SESSION_MS, Client, World

SESSION = SESSION_MS / 1000


@pytest.fixture
def world() -> World:
    """A broker without groups, and an exclusive copy of it."""
    return World(Broker())


def seen(world: World, group: str = "g") -> GroupView:
    return world.manager.view(group, world.now())


def names(world: World) -> dict[str, str]:
    """Returns the client ids by member id."""
    return {member.member_id: member.client_id for member in seen(world).members}


def facts(world: World, *kinds: type[Fact]) -> list[Fact]:
    """Returns the facts of these kinds since the last call."""
    found, world.facts = [fact for fact in world.facts if isinstance(fact, kinds)], []
    return found


def stable(world: World, *clients: Client) -> None:
    """Makes clients join until their group is stable and the copy is complete."""
    world.gather(*clients)
    assert all(client.synced for client in clients)
    assert (seen(world).state, seen(world).fallback_reason) == (GroupState.STABLE, None)
    world.facts.clear()


# Joining.


def test_first_member(world: World) -> None:
    """The first issued id makes the group Empty, the accepted join begins a generation, and the sync makes the group
    Stable.
    """
    client = Client(world, "a", "g")
    client.join()
    assert (seen(world).fallback_reason, world.awaiting()) == (FallbackReason.IN_DOUBT, frozenset())
    assert all_groups(world.manager, world.now()) == [], "a join in flight creates no group"
    world.settle()
    assert (seen(world).state, seen(world).protocol_type) == (GroupState.EMPTY, "")
    client.join()
    assert world.awaiting() == {"a-1"}
    assert seen(world).state is GroupState.PREPARING_REBALANCE
    world.settle()
    assert (seen(world).state, seen(world).generation) == (GroupState.COMPLETING_REBALANCE, 1)
    assert seen(world).fallback_reason is FallbackReason.IN_DOUBT
    client.sync()
    world.settle()
    view = seen(world)
    assert (view.state, view.generation, view.protocol, view.leader) == (GroupState.STABLE, 1, "range", "a-1")
    assert (view.protocol_type, view.fallback_reason, view.roster_known) == ("consumer", None, True)
    (member,) = view.members
    assert (member.client_id, member.client_host) == ("a", "/host-of-a")
    assert (member.metadata, member.assignment) == (b"m", b"a-1")


def test_first_generation_facts(world: World) -> None:
    """The first generation reports a rebalance start, a joined member and a completion, timed from the first join."""
    client = Client(world, "a", "g", version=2)
    client.join()
    begun = world.now()
    world.gather(client)
    started, joined, completed, *rest = world.facts
    assert rest == []
    assert isinstance(started, RebalanceStarted)
    assert started.reason is RebalanceReason.JOIN
    assert isinstance(joined, MemberJoined)
    assert (joined.member_id, joined.client_id, joined.client_host) == ("a-1", "a", "/host-of-a")
    assert isinstance(completed, RebalanceCompleted)
    assert (completed.generation, completed.protocol, completed.members) == (1, "range", 1)
    assert completed.at - completed.duration_seconds == pytest.approx(begun, abs=0.01), (
        "the duration counts from the first join"
    )
    assert seen(world).last_rebalance_at == completed.at


ORDERS = list(permutations(range(3)))


@pytest.mark.parametrize("version", [2, 9])
@pytest.mark.parametrize("order", ORDERS)
def test_join_replies_in_any_order(world: World, version: int, order: tuple[int, ...]) -> None:
    """Join replies in any order lead to a complete roster and report all members."""
    world = World(Broker(initial_delay=1))
    clients = [Client(world, name, "g", version=version) for name in "abc"]
    for client in clients:
        client.join()
    if version == 9:
        world.settle()
        for client in clients:
            client.join()
    for client in clients:
        world.handle(client.connection)
    world.broker.tick(world.now() + 1)
    for number in order:
        assert seen(world).fallback_reason is FallbackReason.IN_DOUBT
        world.deliver(clients[number].connection)
    assert seen(world).roster_known
    assert names(world) == {f"{name}-{n}": name for n, name in enumerate("abc", 1)}
    assert {fact.client_id for fact in facts(world, MemberJoined) if isinstance(fact, MemberJoined)} == set("abc")
    stable(world, *clients)


@pytest.mark.parametrize("order", ORDERS)
def test_sync_replies_in_any_order(world: World, order: tuple[int, ...]) -> None:
    """Sync replies in any order lead to the leader's assignments, and the leader's own reply completes the group."""
    clients = [Client(world, name, "g", version=2) for name in "abc"]
    world.gather(*clients)
    clients[0].join(("range", "sticky"))
    world.gather(*clients, steps=2)
    assert seen(world).state is GroupState.COMPLETING_REBALANCE
    for client in (clients[1], clients[2], clients[0]):
        client.sync("new ")
        world.handle(client.connection)
    confirmed = False
    for number in order:
        assert seen(world).fallback_reason is (None if confirmed else FallbackReason.IN_DOUBT)
        world.deliver(clients[number].connection)
        confirmed = confirmed or number == 0  # The leader's reply confirms the assignment that the leader sent.
    assert seen(world).fallback_reason is None
    assert {m.member_id: m.assignment for m in seen(world).members} == {
        f"{name}-{n}": f"new {name}-{n}".encode() for n, name in enumerate("abc", 1)
    }


def test_member_without_assignment_gets_none(world: World) -> None:
    """A member that the leader assigns nothing has an empty assignment."""
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    stable(world, a, b)
    a.join(("range", "sticky"))
    world.gather(a, b, steps=2)
    a.roster = a.roster[:1]
    world.gather(a, b)
    assert [m.assignment for m in seen(world).members if m.client_id == "b"] == [b""]
    assert seen(world).fallback_reason is None


def test_later_leader_sync_changes_nothing(world: World) -> None:
    """A second sync of the leader in a Stable group does not change assignments."""
    a = Client(world, "a", "g")
    stable(world, a)
    a.sync("other ")
    world.settle()
    assert [m.assignment for m in seen(world).members] == [b"a-1"]
    assert seen(world).fallback_reason is None


def test_follower_assignments_are_ignored(world: World) -> None:
    """Assignments in a follower's sync are ignored."""
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    stable(world, a, b)
    b.roster = a.roster
    b.sync("mine ")
    world.settle()
    assert {m.assignment for m in seen(world).members} == {b"a-1", b"b-2"}


def test_same_metadata_rejoin_causes_no_rebalance(world: World) -> None:
    """A follower that rejoins with the same metadata causes no rebalance and no facts."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    b.join()
    assert seen(world).state is GroupState.STABLE
    assert seen(world).fallback_reason is FallbackReason.IN_DOUBT
    world.settle()
    assert (seen(world).state, seen(world).generation, seen(world).fallback_reason) == (
        GroupState.STABLE,
        b.generation,
        None,
    )
    assert world.facts == []


@pytest.mark.parametrize("who", ["a", "b"])
def test_leader_or_new_metadata_forces_rebalance(world: World, who: str) -> None:
    """A rejoin of the leader, or of a member with new metadata, causes a rebalance with the reason METADATA."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    if who == "b":
        b.metadata = b"changed"
    (a if who == "a" else b).join()
    assert (seen(world).state, world.awaiting()) == (
        GroupState.PREPARING_REBALANCE,
        frozenset({f"{who}-{1 + (who == 'b')}"}),
    )
    world.gather(a, b)
    (started,) = facts(world, RebalanceStarted)
    assert isinstance(started, RebalanceStarted)
    assert started.reason is RebalanceReason.METADATA
    assert seen(world).fallback_reason is None


def test_protocol_order_is_metadata(world: World) -> None:
    """A changed order of protocols in a join causes a rebalance."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    b.join(("range", "sticky"))
    world.gather(a, b)
    b.join(("sticky", "range"))
    assert seen(world).state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("protocols", "state"), [((), GroupState.EMPTY), (("range",), GroupState.COMPLETING_REBALANCE)]
)
def test_group_exists_before_protocol_check(world: World, protocols: tuple[str, ...], state: GroupState) -> None:
    """A join without protocols leaves an Empty group, because the broker creates it before it checks protocols."""
    client = Client(world, "a", "g", version=2)
    client.join(protocols)
    world.settle()
    assert seen(world).state is state


def test_join_with_id_for_missing_group(world: World) -> None:
    """A join with a member id for a missing group creates no group."""
    client = Client(world, "a", "g", member_id="old")
    client.join()
    assert seen(world).fallback_reason is FallbackReason.IN_DOUBT
    world.settle()
    assert (seen(world).state, seen(world).fallback_reason) == (GroupState.DEAD, None)
    assert not world.manager.group_metadata_cache


# Static members.


@pytest.mark.parametrize(("version", "leader"), [(5, True), (9, True), (5, False), (9, False)])
def test_static_member_returns(world: World, version: int, leader: bool) -> None:
    """A returning static member gets a new id, keeps assignment, client id and leadership, and fences its old id."""
    other = Client(world, "b", "g", version=version)
    static = Client(world, "a", "g", "i", version=version)
    stable(world, static if leader else other)
    stable(world, static, other)
    old = static.member_id
    static.restart()
    static.name, static.metadata = "restarted", b"new"
    static.join()
    world.settle()
    view = seen(world)
    (member,) = (m for m in view.members if m.instance_id == "i")
    assert (view.state, view.fallback_reason) == (GroupState.STABLE, None)
    assert member.member_id == static.member_id != old
    assert member.client_id == "a", "Kafka keeps the client id of the first join"
    assert member.client_host == "/host-of-restarted", "the host is that of the last join"
    assert (member.metadata, member.assignment) == (b"new", old.encode())
    assert (view.leader == static.member_id) is leader
    gone, joined = facts(world, MemberGone, MemberJoined)
    assert isinstance(gone, MemberGone)
    assert isinstance(joined, MemberJoined)
    assert (gone.member_id, gone.how, joined.member_id) == (old, Departure.FENCED, static.member_id)


def test_static_member_returns_into_rebalance(world: World) -> None:
    """A static member that restarts during a rebalance is in the group under its new id."""
    static, other = Client(world, "a", "g", "i"), Client(world, "b", "g")
    stable(world, static, other)
    other.metadata = b"changed"
    other.join()
    world.settle()
    static.restart()
    static.name = "restarted"
    world.gather(static, other)
    assert seen(world).fallback_reason is None
    assert names(world) == {static.member_id: "a", other.member_id: "b"}


def test_expired_static_member_makes_group_cold(world: World) -> None:
    """A static member that restarts after its session leaves the group COLD, because only the broker knows whether it
    expired.
    """
    static = Client(world, "a", "g", "i")
    stable(world, static)
    world.pass_time(SESSION + 1)
    static.restart()
    static.name = "restarted"
    world.gather(static)
    assert (seen(world).state, seen(world).fallback_reason) == (GroupState.STABLE, FallbackReason.COLD)


def test_admin_removes_static_member(world: World) -> None:
    """An admin's leave by instance id removes the static member and starts a rebalance."""
    static, other = Client(world, "a", "g", "i"), Client(world, "b", "g")
    stable(world, static, other)
    admin = Client(world, "admin", "g", "i")
    admin.leave()
    world.settle()
    assert names(world) == {other.member_id: "b"}
    assert seen(world).state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("request_name", ["heartbeat", "sync", "leave", "commit"])
def test_wrong_instance_id_removes_no_member(world: World, request_name: str) -> None:
    """A member stays when the broker replies UNKNOWN_MEMBER_ID, because a request has a wrong instance id."""
    member, other = (Client(world, name, "g") for name in "ab")
    stable(world, member, other)
    impostor = Client(world, "c", "g", "no such instance", member_id=member.member_id, generation=member.generation)
    getattr(impostor, request_name)(*((0, 5) if request_name == "commit" else ()))
    world.settle()
    assert names(world) == {member.member_id: "a", other.member_id: "b"}
    assert (seen(world).state, seen(world).fallback_reason) == (GroupState.STABLE, None)


@pytest.mark.parametrize("request_name", ["heartbeat", "sync", "commit"])
def test_issued_id_stays_until_its_join(world: World, request_name: str) -> None:
    """An issued member id stays when the broker replies UNKNOWN_MEMBER_ID to a request before the join.

    A join with this id then counts for a size limit.
    """
    member, new = (Client(world, name, "g") for name in "ab")
    stable(world, member)
    new.join()
    world.settle()
    issued_id = new.member_id
    getattr(new, request_name)(*((0, 5) if request_name == "commit" else ()))
    world.settle()
    new.member_id = issued_id
    new.join()
    world.handle(new.connection)
    occupancy = world.manager.view_with_occupancy("g", world.now()).occupancy
    assert (occupancy.state, occupancy.parked, occupancy.certain) == (GroupState.PREPARING_REBALANCE, 1, True)


def test_recreated_group_restarts_generations(world: World) -> None:
    """A group that was removed and recreated counts its generations from 1 and has the right members."""
    first, second, other = (Client(world, name, "g", i) for name, i in (("a", "i"), ("b", "i"), ("c", None)))
    admin = Client(world, "admin", "g", "i")
    admin.leave()
    first.join()
    world.settle()  # The join is handled first.
    assert (seen(world).state, names(world)) == (GroupState.PREPARING_REBALANCE, {})
    world.clean_up()
    second.join()
    world.settle()
    assert names(world) == {second.member_id: "b"}
    world.gather(other, first)
    assert seen(world).fallback_reason is not None, "the removal may have removed another member with the instance id"
    world.describe()
    assert seen(world).fallback_reason is None
    assert names(world) == {first.member_id: "b", other.member_id: "c"}, (
        "the static member keeps the client id of its first join"
    )


# Heartbeats.


def test_heartbeat_reveals_rebalance(world: World) -> None:
    """A REBALANCE_IN_PROGRESS heartbeat reply starts a rebalance with the reason JOIN."""
    a, b, c = (Client(world, name, "g") for name in "abc")
    stable(world, a, b)
    c.join()
    world.settle()
    c.join()
    world.settle()
    a.heartbeat()
    world.settle()
    (started,) = facts(world, RebalanceStarted)
    assert isinstance(started, RebalanceStarted)
    assert started.reason is RebalanceReason.JOIN
    assert seen(world).state is GroupState.PREPARING_REBALANCE


def test_cause_may_stay_unknown() -> None:
    """A rebalance without an observed cause has the reason UNKNOWN."""
    world = World(Broker())
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    world.bypass(LeaveGroupRequest(group_id="g", member_id=b.member_id), 0, "b")
    a.heartbeat()
    world.settle()
    assert [fact.reason for fact in facts(world, RebalanceStarted) if isinstance(fact, RebalanceStarted)] == [
        RebalanceReason.UNKNOWN
    ]


def test_late_heartbeat_reply_starts_no_rebalance(world: World) -> None:
    """A late heartbeat reply from before a completed rebalance does not start another rebalance."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    a.metadata = b"changed"
    a.join()
    world.handle(a.connection)
    late = world.connect()
    world.send(late, b.beat(), 3, "b")
    world.handle(late)
    b.heartbeat()
    world.gather(a, b)
    assert seen(world).fallback_reason is None
    world.deliver(late)
    assert (seen(world).state, seen(world).fallback_reason) == (GroupState.STABLE, None)


def test_late_heartbeat_does_not_revive_member(world: World) -> None:
    """A late heartbeat reply does not bring back a member that has left."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    late = world.connect()
    world.send(late, b.beat(), 3, "b")
    world.handle(late)
    b.leave()
    world.settle(late)
    assert names(world) == {"a-1": "a"}
    world.deliver(late)
    assert names(world) == {"a-1": "a"}
    assert seen(world).state is GroupState.PREPARING_REBALANCE
    assert seen(world).roster_known


def test_heartbeat_disproves_rebalance(world: World) -> None:
    """A successful heartbeat ends a rebalance that did not exist, and a successful commit does not."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    seen_it = RebalanceSeen(
        group_id="g", sent_at=world.now(), member_id=a.member_id, generation=a.generation, is_heartbeat=True
    )
    world.apply([seen_it], world.now())
    assert (seen(world).state, seen(world).fallback_reason) == (GroupState.PREPARING_REBALANCE, FallbackReason.IN_DOUBT)
    b.commit(0, 1)
    world.settle()
    assert seen(world).state is GroupState.PREPARING_REBALANCE, (
        "the broker accepts commits while it prepares a rebalance"
    )
    b.heartbeat()
    world.settle()
    assert (seen(world).state, seen(world).fallback_reason) == (GroupState.STABLE, None)


# Departures.


def test_member_leaves(world: World) -> None:
    """A member that leaves is removed, and the group rebalances with the reason LEAVE."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    b.leave()
    world.settle()
    assert (seen(world).state, names(world)) == (GroupState.PREPARING_REBALANCE, {a.member_id: "a"})
    gone, started = world.facts
    assert isinstance(gone, MemberGone)
    assert isinstance(started, RebalanceStarted)
    assert (gone.client_id, gone.how, started.reason) == ("b", Departure.LEFT, RebalanceReason.LEAVE)
    world.gather(a)
    assert seen(world).fallback_reason is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_last_members_leave(world: World, order: tuple[int, int]) -> None:
    """After all members leave, the group is Empty and complete with its type, whatever the order of replies."""
    clients = [Client(world, "a", "g"), Client(world, "b", "g")]
    stable(world, *clients)
    clients[0].commit(0, 5)
    world.settle()
    generation = seen(world).generation
    for client in clients:
        client.leave()
        world.handle(client.connection)
    for number in order:
        world.deliver(clients[number].connection)
    view = seen(world)
    assert (view.state, view.members, view.fallback_reason) == (GroupState.EMPTY, (), None)
    assert (view.protocol_type, view.protocol, view.leader) == ("consumer", "", "")
    assert view.generation == generation + 1


def test_empty_group_may_be_removed(world: World) -> None:
    """An Empty group without offsets is IN_DOUBT, because the broker may remove it."""
    a = Client(world, "a", "g")
    stable(world, a)
    a.leave()
    world.settle()
    assert (seen(world).state, seen(world).fallback_reason) == (GroupState.EMPTY, FallbackReason.IN_DOUBT)


def test_empty_group_is_joined_again(world: World) -> None:
    """A member that joins an Empty group continues its generations."""
    a = Client(world, "a", "g")
    stable(world, a)
    a.leave()
    a.forget()
    world.gather(a)
    assert (seen(world).state, seen(world).generation, seen(world).fallback_reason) == (GroupState.STABLE, 3, None)


def test_removed_group_starts_again(world: World) -> None:
    """A group that the broker removed starts with generation 1."""
    a = Client(world, "a", "g")
    for _ in range(3):
        world.gather(a)
        a.metadata += b"!"
        a.join()
        world.gather(a)
    a.leave()
    a.forget()
    world.settle()
    world.broker.clean_up()
    world.gather(a)
    assert (seen(world).state, seen(world).generation, seen(world).fallback_reason) == (GroupState.STABLE, 1, None)


def test_issued_id_leaves(world: World) -> None:
    """A leave of an issued and unused id leaves the group IN_DOUBT."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a)
    b.join()
    world.settle()
    b.leave()
    world.settle()
    assert world.broker.describe("g").group_state == GroupState.PREPARING_REBALANCE
    assert seen(world).fallback_reason is FallbackReason.IN_DOUBT


def test_rebalance_waits_for_issued_id(world: World) -> None:
    """A group whose members left while an issued id is pending is IN_DOUBT, because the broker still waits for it."""
    a, b, c = (Client(world, name, "g", version=2) for name in "abc")
    c.version = 9
    stable(world, a, b)
    c.join()
    world.settle()
    for client in (a, b):
        client.leave()
        world.settle()
    assert world.broker.describe("g").group_state == GroupState.PREPARING_REBALANCE
    assert (seen(world).state, seen(world).fallback_reason) == (GroupState.EMPTY, FallbackReason.IN_DOUBT)


def test_sidecar_removes_member(world: World) -> None:
    """A member that the sidecar removes is reported as REMOVED."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    leave = LeaveGroupRequest(group_id="g", member_id=b.member_id)
    world.send(b.connection, leave, 0, "b", removing=True)
    world.settle()
    assert [fact.how for fact in facts(world, MemberGone) if isinstance(fact, MemberGone)] == [
        Departure.REMOVED_BY_POLICY
    ]


def test_generation_without_member_drops_it(world: World) -> None:
    """A member that does not rejoin in time is DROPPED by the next generation."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    generation = a.generation
    b.metadata = b"changed"
    b.join()
    for _ in range(8):
        world.pass_time(3)
        a.generation = generation  # The member is alive, and does not join again.
        a.heartbeat()
        world.settle()
    world.gather(b)
    assert names(world) == {b.member_id: "b"}
    (gone,) = facts(world, MemberGone)
    assert isinstance(gone, MemberGone)
    assert (gone.client_id, gone.how) == ("a", Departure.DROPPED)


def test_unknown_member_is_expired(world: World) -> None:
    """UNKNOWN_MEMBER_ID after a silent session reports the member as EXPIRED and starts a rebalance."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    world.pass_time(SESSION / 2)
    a.heartbeat()
    world.settle()
    world.pass_time(SESSION / 2 + 1)
    b.heartbeat()
    world.settle()
    assert (names(world), seen(world).state) == ({a.member_id: "a"}, GroupState.PREPARING_REBALANCE)
    gone, started = world.facts
    assert isinstance(gone, MemberGone)
    assert isinstance(started, RebalanceStarted)
    assert (gone.how, started.reason) == (Departure.EXPIRED, RebalanceReason.EXPIRED)


# Sessions.


def test_session_expires(world: World) -> None:
    """An expired member makes the group IN_DOUBT, the sweep removes the member, and the next rebalance has the reason
    EXPIRED.
    """
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    world.pass_time(SESSION / 2)
    a.heartbeat()
    world.settle()
    world.pass_time(SESSION / 2 + 1)
    assert seen(world).fallback_reason is FallbackReason.IN_DOUBT
    assert names(world) == {a.member_id: "a", b.member_id: "b"}, "the member stays until the next sweep"
    world.sweep()
    assert names(world) == {a.member_id: "a"}
    assert seen(world).state is GroupState.STABLE, "only the broker knows whether a rebalance has begun"
    (gone,) = world.facts
    assert isinstance(gone, MemberGone)
    assert (gone.client_id, gone.how) == ("b", Departure.EXPIRED)
    world.facts.clear()
    a.heartbeat()
    world.settle()
    (started,) = world.facts
    assert isinstance(started, RebalanceStarted)
    assert started.reason is RebalanceReason.EXPIRED
    world.gather(a)
    assert (names(world), seen(world).fallback_reason) == ({a.member_id: "a"}, None)
    (completed,) = facts(world, RebalanceCompleted)
    assert isinstance(completed, RebalanceCompleted)
    assert completed.reason is RebalanceReason.EXPIRED


@pytest.mark.parametrize("sign", ["heartbeat", "commit"])
def test_expired_member_returns(world: World, sign: str) -> None:
    """A heartbeat or commit of an expired member brings the member back and reports a join."""
    a = Client(world, "a", "g")
    stable(world, a)
    world.broker.groups["g"].members[a.member_id].session = SESSION * 10
    a.heartbeat()
    world.settle()
    world.pass_time(SESSION + 1)
    world.sweep()
    assert (seen(world).state, seen(world).members) == (GroupState.EMPTY, ())
    world.facts.clear()
    a.heartbeat() if sign == "heartbeat" else a.commit(0, 1)
    world.settle()
    assert (seen(world).state, names(world), seen(world).fallback_reason) == (
        GroupState.STABLE,
        {a.member_id: "a"},
        None,
    )
    (joined,) = facts(world, MemberJoined)
    assert isinstance(joined, MemberJoined)
    assert joined.client_id == "a"


def test_heartbeat_counts_from_its_send_time(world: World) -> None:
    """A heartbeat extends the session from the time when it was sent."""
    a = Client(world, "a", "g")
    stable(world, a)
    a.heartbeat()
    world.pass_time(SESSION - 2)
    world.settle()
    world.pass_time(3)
    assert seen(world).fallback_reason is FallbackReason.IN_DOUBT


def test_heartbeat_updates_wire_event_time(world: World) -> None:
    """A heartbeat updates the time of the group's last wire event."""
    a = Client(world, "a", "g")
    stable(world, a)
    group, sent_at = world.manager.group_metadata_cache["g"], world.now()
    a.heartbeat()
    world.settle()
    assert group.wire_event_at > sent_at


def test_heartbeat_identifies_roster_member(world: World) -> None:
    """A heartbeat of a member known only by id adds its client id and reports a join."""
    joining = JoiningMember(
        token="1:1",
        member_id="",
        instance_id=None,
        client_id="a",
        client_host="/a",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=(("range", b""),),
        will_park=True,
    )
    accepted = JoinAccepted(
        group_id="g",
        sent_at=world.now(),
        joining=joining,
        member_id="a-1",
        generation=1,
        protocol_type="consumer",
        protocol="range",
        leader="a-1",
        roster=(("a-1", None, b""), ("b-1", None, b"")),
    )
    world.apply([accepted], world.now())
    assert names(world) == {"a-1": "a", "b-1": ""}
    world.facts.clear()
    alive = MemberSeen(
        group_id="g",
        sent_at=world.now(),
        member_id="b-1",
        instance_id=None,
        generation=1,
        client_id="b",
        client_host="/b",
        no_rebalance=True,
    )
    world.apply([alive], world.now())
    assert names(world) == {"a-1": "a", "b-1": "b"}
    (joined,) = facts(world, MemberJoined)
    assert isinstance(joined, MemberJoined)
    assert joined.client_id == "b"


def test_member_in_join_does_not_expire(world: World) -> None:
    """A member whose join waits at the broker does not expire."""
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    b.metadata = b"changed"
    b.join()
    for _ in range(4):
        world.pass_time(3)
        a.heartbeat()
        world.settle()
    world.sweep()
    assert facts(world, MemberGone) == []
    assert world.awaiting() == {b.member_id}


def test_member_in_sync_does_not_expire(world: World) -> None:
    """A member whose sync waits at the broker does not expire."""
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    stable(world, a, b)
    a.join(("range", "sticky"))
    world.gather(a, b, steps=2)
    b.sync()
    world.settle()
    for _ in range(4):
        world.pass_time(3)
        a.heartbeat()
        world.settle()
    world.sweep()
    assert facts(world, MemberGone) == []
    world.gather(a, b)
    assert seen(world).fallback_reason is None


def test_member_without_sync_is_dropped(world: World) -> None:
    """A member that does not sync in time makes the group IN_DOUBT, and the sweep reports it as DROPPED."""
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    stable(world, a, b)
    a.join(("range", "sticky"))
    world.gather(a, b, steps=2)
    a.sync()
    world.settle()
    assert seen(world).fallback_reason is None
    for _ in range(7):
        for client in (a, b):
            client.heartbeat()
        world.settle()
        world.pass_time(3)
    assert {m.client_id for m in world.broker.describe("g").members} == {"a"}
    assert seen(world).fallback_reason is FallbackReason.IN_DOUBT
    world.facts.clear()
    world.sweep()
    assert names(world) == {a.member_id: "a"}
    assert [fact.how for fact in facts(world, MemberGone) if isinstance(fact, MemberGone)] == [Departure.DROPPED]


def test_sweep_tolerates_changes_between_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep works in steps and tolerates a group that is removed between two steps."""
    monkeypatch.setattr(manager, "GROUPS_PER_SWEEP_STEP", 1)
    clients = [Client(world, name, f"g-{name}") for name in "abc"]
    for client in clients:
        world.gather(client)
    world.pass_time(SESSION + 1)
    sweep = world.manager.sweep(world.now())
    first = next(sweep)
    world.manager.apply([NotCoordinatorReplied(group_id="g-b", sent_at=world.now())], world.now())
    rest = [fact for facts in sweep for fact in facts]
    gone = [[fact.group_id for fact in facts if isinstance(fact, MemberGone)] for facts in (first, rest)]
    assert gone == [["g-a"], ["g-c"]]
    assert "g-b" not in world.manager.group_metadata_cache
