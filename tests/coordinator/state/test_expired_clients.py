"""Clients come back as new members after the sessions of a whole group have expired."""

from itertools import count
from typing import Any

import pytest

from group_sidecar.coordinator.manager import GROUPS_PER_SWEEP_STEP, GroupMetadataManager
from group_sidecar.coordinator.model.events import (
    FOREVER,
    NEVER,
    JoiningMember,
    JoinSent,
    LeaveSent,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    RebalanceSeen,
    Synced,
)
from group_sidecar.coordinator.model.facts import (
    Departure,
    MemberGone,
    MemberInfo,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.model.views import ConsumerGroupView, GroupKind, GroupState
from group_sidecar.coordinator.rules.fact_builder import member_gone_facts
from group_sidecar.coordinator.state.bounded_ids import MAX_ID_LENGTH
from group_sidecar.coordinator.state.expired_clients import (
    MAX_EXPIRED_CLIENTS,
    RETURN_SECONDS,
    ExpiredClients,
    ExpiredClientsBudget,
)
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.member import DEFAULT_SESSION_TIMEOUT_MS
from group_sidecar.coordinator.state.member import Member as StateMember
from group_sidecar.coordinator.state.unread_writes import UnreadWrites
from tests.coordinator.model import Broker
from tests.coordinator.rules.test_causes import REJOINED, SESSION, caused_by, member, of, rebalanced, stable
from tests.coordinator.rules.test_logged_rebalances import WHO, Copy, generation, is_let_in, sends_join
from tests.coordinator.rules.test_logged_rebalances import of as of_kind
from tests.coordinator.sweeping import swept
from tests.coordinator.test_moved_groups import GROUP, found, take_over
from tests.coordinator.world import Client, World

DEFAULT_END = DEFAULT_SESSION_TIMEOUT_MS / 1000
"""When the session of a member ends that was seen at 0, and whose timeout is not known."""
EXPIRED, NEW_MEMBER = RebalanceCause.SESSION_EXPIRED, RebalanceCause.NEW_MEMBER


@pytest.fixture
def world() -> World:
    return World(Broker())


@pytest.mark.parametrize("swept", [False, True])
def test_whole_group_expires(world: World, swept: bool) -> None:
    """After all sessions have expired, the cause is the expired session and not the join that begins the rebalance."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    world.pass_time(SESSION + 1)
    if swept:
        world.sweep()
    world.gather(a, b, steps=10)
    [fact] = of(world, RebalanceCompleted)
    assert (fact.cause, caused_by(fact), fact.said) == (EXPIRED, "a", "")
    assert {started.cause for started in of(world, RebalanceStarted)} == {EXPIRED}
    assert {gone.how for gone in of(world, MemberGone)} == {Departure.EXPIRED}


def test_clients_return_one_by_one(world: World) -> None:
    """Each return after the loss of the whole group has the cause SESSION_EXPIRED. Another client is a new member."""
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a, b)
    world.pass_time(SESSION + 1)
    world.sweep()
    a.forget()
    b.forget()
    assert rebalanced(world, a).cause is EXPIRED
    world.facts.clear()
    returned = rebalanced(world, a, b)
    assert (returned.cause, caused_by(returned)) == (EXPIRED, "b")
    world.facts.clear()
    assert rebalanced(world, a, b, c).cause is NEW_MEMBER


def test_return_after_explained_rebalance(world: World) -> None:
    """A client whose expired session has caused a rebalance is a new member when it comes back."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    for _ in range(5):
        world.pass_time(SESSION / 4)
        a.heartbeat()
        world.settle()
    assert rebalanced(world, a).cause is EXPIRED
    world.facts.clear()
    b.forget()
    assert rebalanced(world, a, b).cause is NEW_MEMBER


def test_late_return_is_new_member(world: World) -> None:
    """A client that comes back long after its session has expired is a new member."""
    a = member(world, "a")
    stable(world, a)
    world.pass_time(SESSION + 1)
    world.sweep()
    world.pass_time(RETURN_SECONDS)
    a.forget()
    assert rebalanced(world, a).cause is NEW_MEMBER


def test_second_expiry_is_noted(world: World) -> None:
    """A client comes back and expires again before a rebalance is completed. Its next return has the same cause."""
    a = member(world, "a")
    stable(world, a)
    for _ in range(2):
        world.pass_time(SESSION + 1)
        world.sweep()
        a.forget()
        fact = rebalanced(world, a)
        assert (fact.cause, caused_by(fact)) == (EXPIRED, "a")
        world.facts.clear()


# The copy drops the group.


def joining(copy: Copy, *, reason: str = "") -> JoiningMember:
    """The client of member a joins with an id that the broker has just issued."""
    request = JoiningMember(
        token="2:a",
        member_id="new-id",
        instance_id=None,
        client_id="client-a",
        client_host="/h",
        session_timeout_ms=5000,
        rebalance_timeout_ms=5000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        will_park=True,
        reason=reason,
    )
    copy.wire_says(JoinSent, joining=request)
    return request


@pytest.mark.parametrize(("silent_for", "reason", "expected"), [(20.0, "", EXPIRED), (0.0, REJOINED, NEW_MEMBER)])
def test_return_after_coordinator_reload(silent_for: float, reason: str, expected: RebalanceCause) -> None:
    """A client comes back after the broker has loaded its groups again: as a new member, or after its session."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(GROUP)
    copy.now += 100
    is_let_in(copy, sends_join(copy))
    copy.now += silent_for
    copy.follower.resign(0, 6, copy.now)
    take_over(copy, 7)
    copy.log_says(GROUP)
    [started] = of_started(copy, joining(copy, reason=reason))
    assert started.cause is expected


CLIENT_A = WHO | {"client_id": "client-a"}
A = {"member_id": "a", "instance_id": None, "generation": 1, **CLIENT_A}


def sees_a(copy: Copy) -> None:
    """The broker accepts a heartbeat of member a."""
    copy.wire_says(MemberSeen, no_rebalance=True, **A)


def reloaded(members: str = "a", *, exclusive: bool = False) -> Copy:
    """Returns a copy of a group whose broker has restarted. A request of member a was seen before."""
    copy = found(leader_epoch=4, exclusive=exclusive)
    take_over(copy)
    copy.log_says(generation(1, *members))
    sees_a(copy)
    copy.now += 3
    copy.follower.resign(0, 6, copy.now)
    take_over(copy, 7)
    copy.log_says(generation(1, *members))
    return copy


@pytest.mark.parametrize("exclusive", [False, True])
def test_session_ends_after_reload(exclusive: bool) -> None:
    """A member sends no request after the restart. The broker's timer expires somewhat earlier than the copy's."""
    copy = reloaded("ab", exclusive=exclusive)
    copy.now += 2.5
    facts = copy.wire_says(RebalanceSeen, member_id="b", generation=1, is_heartbeat=True)
    [started] = of_kind(facts, RebalanceStarted)
    assert (started.cause, started.by and started.by.member_id) == (EXPIRED, "a")
    [gone] = of_kind(copy.log_says(generation(2, "b")), MemberGone)
    assert (gone.member_id, gone.how) == ("a", Departure.EXPIRED)


def test_rebalance_without_join_after_reload() -> None:
    """A rebalance soon after the restart that no join has begun has no known cause."""
    copy = reloaded("ab")
    facts = copy.wire_says(RebalanceSeen, member_id="b", generation=1, is_heartbeat=True)
    assert [started.cause for started in of_kind(facts, RebalanceStarted)] == [RebalanceCause.UNKNOWN]
    [gone] = of_kind(copy.log_says(generation(2, "b")), MemberGone)
    assert (gone.member_id, gone.how) == ("a", Departure.DROPPED)


@pytest.mark.parametrize("removed", [False, True])
def test_only_member_expires_after_reload(removed: bool) -> None:
    """The only member sends no request after the restart. When it comes back, the broker may have deleted the group."""
    copy = reloaded()
    copy.now += 2.5
    [gone] = of_kind(copy.log_says(generation(2)), MemberGone)
    assert gone.how is Departure.EXPIRED
    if removed:
        copy.manager._cache.remove("g", copy.now)
    copy.now += 1
    [started] = of_started(copy, joining(copy, reason=REJOINED))
    assert (started.cause, started.by and started.by.member_id) == (EXPIRED, "a")


def test_unknown_member_after_reload_has_expired() -> None:
    """The broker's timer has expired somewhat earlier than the copy's: the broker does not know the member."""
    copy = reloaded("ab")
    copy.now += 2.5
    [gone] = of_kind(copy.wire_says(MemberUnknown, member_id="a", instance_id=None), MemberGone)
    assert gone.how is Departure.EXPIRED


@pytest.mark.parametrize("signs", ["", "seen", "left", "seen left", "joined", "logged"])
def test_session_goes_on_after_reload(signs: str) -> None:
    """The broker restarts, and then a member sends requests, leaves, or is not in the next generation. Its client has
    not expired, so its return is not caused by an expired session.
    """
    copy = reloaded()
    if "seen" in signs:
        sees_a(copy)
    if "left" in signs:
        copy.wire_says(MembersLeft, members=(("a", None),), **CLIENT_A)
    if "joined" in signs:
        is_let_in(copy, sends_join(copy))
    if "logged" in signs:
        copy.log_says(generation(2, "b"))
    copy.now += 30 if signs else 1.5
    [started] = of_started(copy, joining(copy, reason=REJOINED))
    assert started.cause is not EXPIRED


@pytest.mark.parametrize(("members", "cause"), [("b", NEW_MEMBER), ("ab", EXPIRED)])
def test_group_goes_on_at_another_broker(members: str, cause: RebalanceCause) -> None:
    """A member is not in the generation that another broker has written meanwhile. The member may have left there."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(generation(1, "a", "b"))
    sees_a(copy)
    copy.follower.resign(0, 6, copy.now)
    copy.now += 30
    take_over(copy, 7)
    copy.log_says(generation(1, "a", "b"), generation(2, *members))
    copy.now += 6
    [started] = of_started(copy, joining(copy, reason=REJOINED))
    assert started.cause is cause


def test_heartbeat_in_rebalance_shows_session() -> None:
    """The broker restarts, and a heartbeat shows a rebalance in progress. The session of the member goes on."""
    copy = reloaded()
    clients = copy.manager.group_metadata_cache["g"].rebalances.expired_clients
    assert len(clients) == 1
    copy.wire_says(RebalanceSeen, member_id="a", generation=1, is_heartbeat=True)
    assert not clients


def test_unconfirmed_leave_ends_note() -> None:
    """The broker restarts, and a member leaves. Only a later UNKNOWN_MEMBER_ID shows the leave."""
    copy = reloaded()
    copy.wire_says(LeaveSent, members=(("a", None),), **CLIENT_A)
    copy.wire_says(MemberUnknown, member_id="a", instance_id=None)
    assert not copy.manager.group_metadata_cache["g"].rebalances.expired_clients


def test_sync_shows_session() -> None:
    """The broker restarts, and then answers the sync of a member. The session of the member goes on."""
    copy = reloaded()
    copy.wire_says(Synced, assignment=b"", assignments={}, **A)
    assert not copy.manager.group_metadata_cache["g"].rebalances.expired_clients


def test_session_of_loaded_member_ends() -> None:
    """A member that the broker has loaded sends no request. When its session ends, its client counts as expired."""
    copy = reloaded()
    copy.now += 6
    [started] = of_started(copy, joining(copy, reason=REJOINED))
    assert started.cause is EXPIRED


def test_departure_after_expiry() -> None:
    """The broker accepts the leave of a member that seems to have expired. Its client is a new member afterwards."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(generation(1, "a", "b"))
    sees_a(copy)
    copy.now += 10
    swept(copy.manager, copy.now)
    copy.wire_says(MembersLeft, members=(("a", None),), **CLIENT_A)
    assert not copy.manager.group_metadata_cache["g"].rebalances.expired_clients


def test_deleted_group_keeps_expired_clients(world: World) -> None:
    """The broker deletes a group after all its sessions have expired. A client that comes back has the same cause."""
    a = member(world, "a")
    stable(world, a)
    world.pass_time(SESSION + 1)
    world.sweep()
    world.manager._cache.remove("g", world.now())
    assert world.manager._cache.former_groups.table.entries == 1
    a.forget()
    assert rebalanced(world, a).cause is EXPIRED


@pytest.mark.parametrize(("after_end", "cause"), [(-0.5, NEW_MEMBER), (0.0, EXPIRED)])
def test_deleted_group_keeps_ended_sessions(world: World, after_end: float, cause: RebalanceCause) -> None:
    """The broker deletes a group before or at the end of a session. The client of an ended session has expired."""
    a = member(world, "a")
    stable(world, a)
    [ended_at] = [each.timeout_at(NEVER) for each in world.manager.group_metadata_cache["g"].members.values()]
    world.manager._cache.remove("g", ended_at + after_end)
    world.pass_time(SESSION + 1)
    a.forget()
    assert rebalanced(world, a).cause is cause


@pytest.mark.parametrize(("after_report", "kept"), [(-1.0, True), (0.0, True), (1.0, False)])
def test_late_reply_keeps_expired_client(after_report: float, kept: bool) -> None:
    """The broker accepts a request of a member that was reported as gone. Only a later request shows its session."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(generation(1, "a", "b"))
    sees_a(copy)
    copy.now += 10
    assert of_kind(swept(copy.manager, copy.now), MemberGone)
    clients = copy.manager.group_metadata_cache["g"].rebalances.expired_clients
    seen = MemberSeen(group_id="g", sent_at=copy.now + after_report, no_rebalance=True, **A)
    copy.manager.apply([seen], copy.now + 2)
    assert bool(clients) is kept


def test_stated_reason_shows_new_member() -> None:
    """Java's reason for a join with an issued id shows a new member, even if the copy has not seen the id issued."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(GROUP)
    [started] = of_started(copy, joining(copy, reason=REJOINED))
    assert (started.cause, started.by and started.by.member_id) == (NEW_MEMBER, "new-id")


def of_started(copy: Copy, request: JoiningMember) -> list[RebalanceStarted]:
    """Returns the facts about begun rebalances after the broker has accepted the join."""
    return [fact for fact in is_let_in(copy, request, 9) if isinstance(fact, RebalanceStarted)]


# The bounds.


def test_expired_clients_are_bounded() -> None:
    """Only so many clients are kept, and a client without a known host is not kept."""
    clients = ExpiredClients(ExpiredClientsBudget())
    clients.note([StateMember(member_id="unknown", since=0.0, client_id="c")])
    many = (StateMember(member_id=str(n), since=0.0, client_id=str(n), true_host="/h") for n in range(1000))
    clients.note(many)
    assert len(clients) == MAX_EXPIRED_CLIENTS
    assert clients.find("0", "/h", 100.0) == MemberInfo(member_id="0", client_id="0", client_host="/h")


@pytest.mark.parametrize("field", ["member_id", "client_id", "true_host", "instance_id", "principal"])
def test_long_texts_are_not_kept(field: str) -> None:
    """A client with a long text is not kept."""
    clients = ExpiredClients(ExpiredClientsBudget())
    for length in (MAX_ID_LENGTH + 1, MAX_ID_LENGTH):
        assert not clients
        long = StateMember(member_id="m", since=0.0, client_id="c", true_host="/h")
        setattr(long, field, "x" * length)
        clients.note([long])
    assert len(clients) == 1


def test_expired_clients_are_pruned(world: World) -> None:
    """The clients of a group without members are kept until they count as new members."""
    a = member(world, "a")
    stable(world, a)
    world.pass_time(SESSION + 1)
    world.sweep()
    a.leave()  # The broker does not know the member any more.
    world.settle()
    clients = world.manager.group_metadata_cache["g"].rebalances.expired_clients
    assert len(clients) == 1
    world.pass_time(RETURN_SECONDS)
    world.sweep()
    assert not clients


def test_newer_expiry_replaces_older() -> None:
    """Of two members of one client, the one whose session ended later is kept."""
    clients = ExpiredClients(ExpiredClientsBudget())
    for member_id, seen_at in (("first", 0.0), ("last", 200.0), ("second", 100.0)):
        clients.note([StateMember(member_id=member_id, since=seen_at, client_id="c", true_host="/h")])
    assert clients.find("c", "/h", 300.0) == MemberInfo(member_id="last", client_id="c", client_host="/h")


def test_later_member_of_returned_client_replaces_earlier() -> None:
    """A client has come back before the former session would have ended. Its new member is the one that expires."""
    clients = ExpiredClients(ExpiredClientsBudget())
    former = StateMember(member_id="former", since=200.0, client_id="c", true_host="/h")
    new = StateMember(member_id="new", since=100.0, client_id="c", true_host="/h")
    clients.note([former])
    clients.note_joined(new)
    clients.note([new])
    assert clients.find("c", "/h", 300.0) == MemberInfo(member_id="new", client_id="c", client_host="/h")


def _members(count: int, group: int = 0) -> list[StateMember]:
    names = [f"{group}-{number}" for number in range(count)]
    return [StateMember(member_id=name, since=0.0, client_id=name, true_host="/h") for name in names]


def test_all_groups_share_one_bound() -> None:
    """The clients of all groups together have a bound in bytes. Forgotten clients make room for others."""
    budget = ExpiredClientsBudget(max_bytes=15_000)
    groups = [ExpiredClients(budget) for _ in range(10)]
    for number, clients in enumerate(groups):
        clients.note(_members(5, number))
    entries, size = budget.table[1:]
    assert entries == sum(map(len, groups)) > 10
    assert 14_000 < size <= 15_000
    assert not groups[9]
    groups[0].expire(DEFAULT_END + RETURN_SECONDS + 1)
    groups[1].rebalanced(by_return=False)
    groups[9].note(_members(5, 9))
    assert list(map(len, (groups[0], groups[1], groups[9]))) == [0, 0, 5]
    for clients in groups:
        clients.clear()
    assert budget.table == ("expired_clients", 0, 0)


def test_session_without_end_is_not_kept() -> None:
    """Only the log shows the end of a session of a KIP-848 group, so a member without a timer is not kept."""
    clients = ExpiredClients(ExpiredClientsBudget())
    clients.note([StateMember(member_id="m", since=0.0, client_id="c", true_host="/h", seen_at=FOREVER)])
    assert not clients


def test_table_counts_clients_until_groups_are_forgotten(world: World) -> None:
    """The table of expired clients counts the clients of all kept groups."""
    clients = [Client(world, f"client-{number}", f"g-{number}") for number in range(3)]
    for client in clients:
        world.gather(client)
    world.pass_time(SESSION + 1)
    world.sweep()
    assert _table(world.manager)[0] == 3
    world.manager._cache.forget("g-0")
    world.manager._cache.remove("g-1", world.now())
    assert _table(world.manager)[0] == 1
    world.manager._cache.forget("g-2")
    assert _table(world.manager) == (0, 0)


def _table(manager: GroupMetadataManager) -> tuple[int, int]:
    [found] = [table for table in manager.tables() if table.name == "expired_clients"]
    return found.entries, found.bytes


def test_clients_are_not_visited_before_one_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep does not visit the clients of a group as long as none of them is due."""
    clients = ExpiredClients(ExpiredClientsBudget())
    clients.note(_members(3))
    visited: list[object] = []
    monkeypatch.setattr(clients, "_clients", _Visited(clients._clients, visited))
    clients.expire(DEFAULT_END + RETURN_SECONDS)
    assert not visited
    clients.expire(DEFAULT_END + RETURN_SECONDS + 1)
    assert visited
    assert not clients


class _Visited(dict[tuple[str, str], object]):
    def __init__(self, values: object, visited: list[object]) -> None:
        super().__init__(values)  # type: ignore[call-overload]
        self._visited = visited

    def items(self) -> Any:
        self._visited.append(self)
        return super().items()


def test_sweep_step_ends_after_many_facts(world: World) -> None:
    """A step of a sweep ends early if its groups have many facts."""
    clients = [Client(world, f"client-{number}", f"g-{number}") for number in range(GROUPS_PER_SWEEP_STEP)]
    for client in clients:
        world.gather(client)
    world.pass_time(SESSION + 1)
    counts = [len(of_kind(facts, MemberGone)) for facts in world.manager.sweep(world.now())]
    assert sum(counts) == len(clients)
    assert max(counts) == GROUPS_PER_SWEEP_STEP / 2


def test_sweep_step_ends_after_many_clients() -> None:
    """A step of a sweep ends early if its groups have many clients to forget."""
    manager = GroupMetadataManager(exclusive=False)
    for number in range(GROUPS_PER_SWEEP_STEP):
        group = manager._cache.create(f"g-{number}", None)
        assert group is not None
        group.lifecycle.create()
        group.rebalances.expired_clients.note(_members(GROUPS_PER_SWEEP_STEP))
    left = [_table(manager)[0] for _ in manager.sweep(DEFAULT_END + RETURN_SECONDS + 1)]
    assert left == [*range(left[0], -1, -GROUPS_PER_SWEEP_STEP), 0]


def test_consumer_group_keeps_no_expired_client() -> None:
    """Members of a group that has become a KIP-848 group are not kept. Their sessions end otherwise."""
    budget = ExpiredClientsBudget()
    group = Group("g", None, count(1), set(), UnreadWrites(), budget)
    group.lifecycle.follow_log(ConsumerGroupView(group_id="g", kind=GroupKind.CONSUMER, state=GroupState.STABLE))
    [member] = _members(1)
    assert member_gone_facts(group, member, Departure.EXPIRED, 60.0)
    assert budget.table.entries == 0
