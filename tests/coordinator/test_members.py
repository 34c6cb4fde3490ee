"""How members come, stay and go: what each reply does to the copy, and the facts that come of it.

The broker is the model, so that what is asserted of the copy is what Kafka does.
"""

from itertools import permutations

import pytest

from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.coordinator import manager
from group_sidecar.coordinator.events import CoordinatorMoved, JoinAccepted, Joining, MemberSeen, RebalanceSeen
from group_sidecar.coordinator.facts import (
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCompleted,
    RebalanceReason,
    RebalanceStarted,
)
from group_sidecar.coordinator.views import GroupState, GroupView, Lacking
from tests.coordinator.all_groups import all_groups
from tests.coordinator.model import Broker
from tests.coordinator.world import SESSION_MS, Client, World

SESSION = SESSION_MS / 1000


@pytest.fixture
def world() -> World:
    """A broker that has nothing, and an exclusive copy of it."""
    return World(Broker())


def seen(world: World, group: str = "g") -> GroupView:
    return world.manager.view(group, world.now())


def names(world: World) -> dict[str, str]:
    """Member ids and client ids."""
    return {member.member_id: member.client_id for member in seen(world).members}


def facts(world: World, *kinds: type[Fact]) -> list[Fact]:
    """The facts of these kinds since this was last asked."""
    found, world.facts = [fact for fact in world.facts if isinstance(fact, kinds)], []
    return found


def stable(world: World, *clients: Client) -> None:
    """Clients gather, and their group is complete."""
    world.gather(*clients)
    assert all(client.synced for client in clients)
    assert (seen(world).state, seen(world).lacking) == (GroupState.STABLE, None)
    world.facts.clear()


# Joining.


def test_a_first_member(world: World) -> None:
    client = Client(world, "a", "g")
    client.join()
    assert (seen(world).lacking, world.awaiting()) == (Lacking.IN_DOUBT, frozenset())
    assert all_groups(world.manager, world.now()) == [], "a reservation is no group"
    world.settle()
    assert (seen(world).state, seen(world).protocol_type) == (GroupState.EMPTY, "")
    client.join()
    assert world.awaiting() == {"a-1"}
    assert seen(world).state is GroupState.PREPARING_REBALANCE
    world.settle()
    assert (seen(world).state, seen(world).generation) == (GroupState.COMPLETING_REBALANCE, 1)
    assert seen(world).lacking is Lacking.IN_DOUBT
    client.sync()
    world.settle()
    view = seen(world)
    assert (view.state, view.generation, view.protocol, view.leader) == (GroupState.STABLE, 1, "range", "a-1")
    assert (view.protocol_type, view.lacking, view.roster_known) == ("consumer", None, True)
    (member,) = view.members
    assert (member.client_id, member.client_host) == ("a", "/host-of-a")
    assert (member.metadata, member.assignment) == (b"m", b"a-1")


def test_the_facts_of_a_first_generation(world: World) -> None:
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
    assert completed.at - completed.duration_seconds == pytest.approx(begun, abs=0.01), "since the first join"
    assert seen(world).last_rebalance_at == completed.at


ORDERS = list(permutations(range(3)))


@pytest.mark.parametrize("version", [2, 9])
@pytest.mark.parametrize("order", ORDERS)
def test_replies_to_joins_come_in_any_order(world: World, version: int, order: tuple[int, ...]) -> None:
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
        assert seen(world).lacking is Lacking.IN_DOUBT
        world.deliver(clients[number].connection)
    assert seen(world).roster_known
    assert names(world) == {f"{name}-{n}": name for n, name in enumerate("abc", 1)}
    assert {fact.client_id for fact in facts(world, MemberJoined) if isinstance(fact, MemberJoined)} == set("abc")
    stable(world, *clients)


@pytest.mark.parametrize("order", ORDERS)
def test_replies_to_syncs_come_in_any_order(world: World, order: tuple[int, ...]) -> None:
    clients = [Client(world, name, "g", version=2) for name in "abc"]
    world.gather(*clients)
    clients[0].join(("range", "sticky"))
    world.gather(*clients, steps=2)
    assert seen(world).state is GroupState.COMPLETING_REBALANCE
    for client in (clients[1], clients[2], clients[0]):
        client.sync("new ")
        world.handle(client.connection)
    told = False
    for number in order:
        assert seen(world).lacking is (None if told else Lacking.IN_DOUBT)
        world.deliver(clients[number].connection)
        told = told or number == 0  # The leader's own reply says that what it brought is what counts.
    assert seen(world).lacking is None
    assert {m.member_id: m.assignment for m in seen(world).members} == {
        f"{name}-{n}": f"new {name}-{n}".encode() for n, name in enumerate("abc", 1)
    }


def test_whom_the_leader_gives_nothing_has_nothing(world: World) -> None:
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    stable(world, a, b)
    a.join(("range", "sticky"))
    world.gather(a, b, steps=2)
    a.roster = a.roster[:1]
    world.gather(a, b)
    assert [m.assignment for m in seen(world).members if m.client_id == "b"] == [b""]
    assert seen(world).lacking is None


def test_a_later_sync_of_the_leader_changes_nothing(world: World) -> None:
    a = Client(world, "a", "g")
    stable(world, a)
    a.sync("other ")
    world.settle()
    assert [m.assignment for m in seen(world).members] == [b"a-1"]
    assert seen(world).lacking is None


def test_assignments_of_a_follower_do_not_count(world: World) -> None:
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    stable(world, a, b)
    b.roster = a.roster
    b.sync("mine ")
    world.settle()
    assert {m.assignment for m in seen(world).members} == {b"a-1", b"b-2"}


def test_a_follower_with_the_same_metadata_disturbs_nobody(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    b.join()
    assert seen(world).state is GroupState.STABLE
    assert seen(world).lacking is Lacking.IN_DOUBT
    world.settle()
    assert (seen(world).state, seen(world).generation, seen(world).lacking) == (GroupState.STABLE, b.generation, None)
    assert world.facts == []


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_leader_or_new_metadata_forces_a_rebalance(world: World, who: str) -> None:
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
    assert seen(world).lacking is None


def test_the_order_of_protocols_is_metadata(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    world.gather(a, b)
    b.join(("range", "sticky"))
    world.gather(a, b)
    b.join(("sticky", "range"))
    assert seen(world).state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("protocols", "state"), [((), GroupState.EMPTY), (("range",), GroupState.COMPLETING_REBALANCE)]
)
def test_a_group_is_made_before_its_protocols_are_looked_at(
    world: World, protocols: tuple[str, ...], state: GroupState
) -> None:
    client = Client(world, "a", "g", version=2)
    client.join(protocols)
    world.settle()
    assert seen(world).state is state


def test_a_join_for_a_group_that_is_not_there(world: World) -> None:
    client = Client(world, "a", "g", member_id="old")
    client.join()
    assert seen(world).lacking is Lacking.IN_DOUBT
    world.settle()
    assert (seen(world).state, seen(world).lacking) == (GroupState.DEAD, None)
    assert not world.manager.group_metadata_cache


# Static members.


@pytest.mark.parametrize(("version", "leader"), [(5, True), (9, True), (5, False), (9, False)])
def test_a_static_member_comes_back(world: World, version: int, leader: bool) -> None:
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
    assert (view.state, view.lacking) == (GroupState.STABLE, None)
    assert member.member_id == static.member_id != old
    assert member.client_id == "a", "Kafka keeps what the first join said"
    assert member.client_host == "/host-of-restarted", "but here it is now"
    assert (member.metadata, member.assignment) == (b"new", old.encode())
    assert (view.leader == static.member_id) is leader
    gone, joined = facts(world, MemberGone, MemberJoined)
    assert isinstance(gone, MemberGone)
    assert isinstance(joined, MemberJoined)
    assert (gone.member_id, gone.how, joined.member_id) == (old, Departure.FENCED, static.member_id)


def test_a_static_member_comes_back_into_a_rebalance(world: World) -> None:
    static, other = Client(world, "a", "g", "i"), Client(world, "b", "g")
    stable(world, static, other)
    other.metadata = b"changed"
    other.join()
    world.settle()
    static.restart()
    static.name = "restarted"
    world.gather(static, other)
    assert seen(world).lacking is None
    assert names(world) == {static.member_id: "a", other.member_id: "b"}


def test_who_a_static_member_is_after_its_session_the_broker_must_say(world: World) -> None:
    static = Client(world, "a", "g", "i")
    stable(world, static)
    world.pass_time(SESSION + 1)
    static.restart()
    static.name = "restarted"
    world.gather(static)
    assert (seen(world).state, seen(world).lacking) == (GroupState.STABLE, Lacking.COLD)


def test_an_admin_removes_a_static_member(world: World) -> None:
    static, other = Client(world, "a", "g", "i"), Client(world, "b", "g")
    stable(world, static, other)
    admin = Client(world, "admin", "g", "i")
    admin.leave()
    world.settle()
    assert names(world) == {other.member_id: "b"}
    assert seen(world).state is GroupState.PREPARING_REBALANCE


def test_a_group_that_was_made_anew_counts_its_generations_from_one_again(world: World) -> None:
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
    assert seen(world).lacking is None
    assert names(world) == {first.member_id: "b", other.member_id: "c"}, "the second was the group's first"


# Heartbeats.


def test_a_heartbeat_tells_of_a_rebalance(world: World) -> None:
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


def test_the_cause_may_remain_unknown() -> None:
    world = World(Broker())
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    world.around(LeaveGroupRequest(group_id="g", member_id=b.member_id), 0, "b")
    a.heartbeat()
    world.settle()
    assert [fact.reason for fact in facts(world, RebalanceStarted) if isinstance(fact, RebalanceStarted)] == [
        RebalanceReason.UNKNOWN
    ]


def test_a_late_reply_to_a_heartbeat_does_not_bring_a_rebalance_back(world: World) -> None:
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
    assert seen(world).lacking is None
    world.deliver(late)
    assert (seen(world).state, seen(world).lacking) == (GroupState.STABLE, None)


def test_a_late_sign_of_life_does_not_bring_a_member_back(world: World) -> None:
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


def test_a_heartbeat_ends_a_rebalance_that_was_none(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    seen_it = RebalanceSeen(
        group_id="g", sent_at=world.now(), member_id=a.member_id, generation=a.generation, alive=True
    )
    world.apply([seen_it], world.now())
    assert (seen(world).state, seen(world).lacking) == (GroupState.PREPARING_REBALANCE, Lacking.IN_DOUBT)
    b.commit(0, 1)
    world.settle()
    assert seen(world).state is GroupState.PREPARING_REBALANCE, "a commit may come while one is prepared"
    b.heartbeat()
    world.settle()
    assert (seen(world).state, seen(world).lacking) == (GroupState.STABLE, None)


# Departures.


def test_a_member_leaves(world: World) -> None:
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
    assert seen(world).lacking is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_last_members_leave(world: World, order: tuple[int, int]) -> None:
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
    assert (view.state, view.members, view.lacking) == (GroupState.EMPTY, (), None)
    assert (view.protocol_type, view.protocol, view.leader) == ("consumer", "", "")
    assert view.generation == generation + 1


def test_an_empty_group_without_offsets_may_be_cleared_away(world: World) -> None:
    a = Client(world, "a", "g")
    stable(world, a)
    a.leave()
    world.settle()
    assert (seen(world).state, seen(world).lacking) == (GroupState.EMPTY, Lacking.IN_DOUBT)


def test_an_empty_group_is_joined_again(world: World) -> None:
    a = Client(world, "a", "g")
    stable(world, a)
    a.leave()
    a.forget()
    world.gather(a)
    assert (seen(world).state, seen(world).generation, seen(world).lacking) == (GroupState.STABLE, 3, None)


def test_a_group_that_was_cleared_away_begins_anew(world: World) -> None:
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
    assert (seen(world).state, seen(world).generation, seen(world).lacking) == (GroupState.STABLE, 1, None)


def test_an_id_that_was_only_issued_leaves(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a)
    b.join()
    world.settle()
    b.leave()
    world.settle()
    assert world.broker.describe("g").group_state == GroupState.PREPARING_REBALANCE
    assert seen(world).lacking is Lacking.IN_DOUBT


def test_a_rebalance_waits_for_an_id_that_was_only_issued(world: World) -> None:
    a, b, c = (Client(world, name, "g", version=2) for name in "abc")
    c.version = 9
    stable(world, a, b)
    c.join()
    world.settle()
    for client in (a, b):
        client.leave()
        world.settle()
    assert world.broker.describe("g").group_state == GroupState.PREPARING_REBALANCE
    assert (seen(world).state, seen(world).lacking) == (GroupState.EMPTY, Lacking.IN_DOUBT)


def test_the_sidecar_removes_a_member(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    leave = LeaveGroupRequest(group_id="g", member_id=b.member_id)
    world.send(b.connection, leave, 0, "b", removing=True)
    world.settle()
    assert [fact.how for fact in facts(world, MemberGone) if isinstance(fact, MemberGone)] == [Departure.REMOVED]


def test_a_generation_completes_without_a_member(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    generation = a.generation
    b.metadata = b"changed"
    b.join()
    for _ in range(8):
        world.pass_time(3)
        a.generation = generation  # It lives, and does not join again.
        a.heartbeat()
        world.settle()
    world.gather(b)
    assert names(world) == {b.member_id: "b"}
    (gone,) = facts(world, MemberGone)
    assert isinstance(gone, MemberGone)
    assert (gone.client_id, gone.how) == ("a", Departure.DROPPED)


def test_the_broker_does_not_know_a_member(world: World) -> None:
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


def test_a_session_runs_out(world: World) -> None:
    a, b = Client(world, "a", "g"), Client(world, "b", "g")
    stable(world, a, b)
    world.pass_time(SESSION / 2)
    a.heartbeat()
    world.settle()
    world.pass_time(SESSION / 2 + 1)
    assert seen(world).lacking is Lacking.IN_DOUBT
    assert names(world) == {a.member_id: "a", b.member_id: "b"}, "until the sidecar looks"
    world.sweep()
    assert names(world) == {a.member_id: "a"}
    assert seen(world).state is GroupState.STABLE, "only the broker can say more"
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
    assert (names(world), seen(world).lacking) == ({a.member_id: "a"}, None)
    (completed,) = facts(world, RebalanceCompleted)
    assert isinstance(completed, RebalanceCompleted)
    assert completed.reason is RebalanceReason.EXPIRED


@pytest.mark.parametrize("sign", ["heartbeat", "commit"])
def test_a_member_that_is_heard_of_again_is_back(world: World, sign: str) -> None:
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
    assert (seen(world).state, names(world), seen(world).lacking) == (GroupState.STABLE, {a.member_id: "a"}, None)
    (joined,) = facts(world, MemberJoined)
    assert isinstance(joined, MemberJoined)
    assert joined.client_id == "a"


def test_a_heartbeat_counts_from_when_it_went_out(world: World) -> None:
    a = Client(world, "a", "g")
    stable(world, a)
    a.heartbeat()
    world.pass_time(SESSION - 2)
    world.settle()
    world.pass_time(3)
    assert seen(world).lacking is Lacking.IN_DOUBT


def test_a_heartbeat_is_word_of_its_group(world: World) -> None:
    a = Client(world, "a", "g")
    stable(world, a)
    group, sent_at = world.manager.group_metadata_cache["g"], world.now()
    a.heartbeat()
    world.settle()
    assert group.told_at > sent_at


def test_a_member_of_which_only_the_id_is_known_is_known_by_its_heartbeat(world: World) -> None:
    joining = Joining(
        token="1:1",
        member_id="",
        instance_id=None,
        client_id="a",
        client_host="/a",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=(("range", b""),),
        parks=True,
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
        steady=True,
    )
    world.apply([alive], world.now())
    assert names(world) == {"a-1": "a", "b-1": "b"}
    (joined,) = facts(world, MemberJoined)
    assert isinstance(joined, MemberJoined)
    assert joined.client_id == "b"


def test_a_member_that_waits_in_a_join_does_not_expire(world: World) -> None:
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


def test_a_member_that_waits_in_a_sync_does_not_expire(world: World) -> None:
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
    assert seen(world).lacking is None


def test_who_does_not_sync_is_removed(world: World) -> None:
    a, b = Client(world, "a", "g", version=2), Client(world, "b", "g", version=2)
    stable(world, a, b)
    a.join(("range", "sticky"))
    world.gather(a, b, steps=2)
    a.sync()
    world.settle()
    assert seen(world).lacking is None
    for _ in range(7):
        for client in (a, b):
            client.heartbeat()
        world.settle()
        world.pass_time(3)
    assert {m.client_id for m in world.broker.describe("g").members} == {"a"}
    assert seen(world).lacking is Lacking.IN_DOUBT
    world.facts.clear()
    world.sweep()
    assert names(world) == {a.member_id: "a"}
    assert [fact.how for fact in facts(world, MemberGone) if isinstance(fact, MemberGone)] == [Departure.DROPPED]


def test_a_sweep_is_made_little_by_little_and_bears_what_happens_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "SWEPT_AT_ONCE", 1)
    clients = [Client(world, name, f"g-{name}") for name in "abc"]
    for client in clients:
        world.gather(client)
    world.pass_time(SESSION + 1)
    sweep = world.manager.sweep(world.now())
    first = next(sweep)
    world.manager.apply([CoordinatorMoved(group_id="g-b", sent_at=world.now())], world.now())
    rest = [fact for facts in sweep for fact in facts]
    gone = [[fact.group_id for fact in facts if isinstance(fact, MemberGone)] for facts in (first, rest)]
    assert gone == [["g-a"], ["g-c"]]
    assert "g-b" not in world.manager.group_metadata_cache
