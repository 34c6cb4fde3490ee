"""The cause, the causing client and the outcome of rebalances, derived from requests and replies alone.

The broker is the model, so each rebalance is one that Kafka would prepare.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from group_sidecar.codecs.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, MemberIdentity
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from group_sidecar.codecs.schema import encode
from group_sidecar.coordinator.model.events import (
    GroupDescribed,
    JoinAccepted,
    JoiningMember,
    JoinSent,
    MembersLeft,
    NotCoordinatorReplied,
    RebalanceSeen,
)
from group_sidecar.coordinator.model.facts import (
    CoordinatorMoved,
    Departure,
    Fact,
    MemberGone,
    MemberInfo,
    MemberJoined,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceReason,
    RebalanceStarted,
)
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.coordinator.rules.joins import join_accepted, join_sent
from group_sidecar.coordinator.state.expired_clients import ExpiredClientsBudget
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.rebalance import CauseDetails, Rebalance
from group_sidecar.coordinator.state.unread_writes import UnreadWrites
from tests.coordinator.model import Broker
from tests.coordinator.world import SESSION_MS, Client, World

SESSION = SESSION_MS / 1000
REJOINED = "need to re-join with the given member-id: x"


def subscription(*topics: str, owned: tuple[int, ...] = (), user_data: bytes | None = None) -> bytes:
    parts = (TopicPartition(topic="t", partitions=owned),) if owned else ()
    wants = ConsumerProtocolSubscription(topics=topics, owned_partitions=parts, user_data=user_data)
    return b"\0\1" + encode(wants, 1)


class Member(Client):
    """A member that subscribes to topic "t". As leader, it assigns the partitions to members in the order of joins."""

    partitions = 4
    speaks: tuple[str, ...] = ("range",)

    def join(self, protocols: Sequence[str] = ()) -> None:
        super().join(protocols or self.speaks)

    def sync(self, salt: str = "") -> None:
        def share(number: int) -> bytes:
            mine = tuple(range(number, self.partitions, len(self.roster)))
            parts = (TopicPartition(topic="t", partitions=mine),) if mine else ()
            return b"\0\1" + encode(ConsumerProtocolAssignment(assigned_partitions=parts), 1)

        assignments = tuple(
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=share(number))
            for number, member in enumerate(self.roster)
        )
        self.send(
            SyncGroupRequest(
                group_id=self.group_id, generation_id=self.generation, member_id=self.member_id, assignments=assignments
            ),
            3,
        )


@pytest.fixture
def world() -> World:
    return World(Broker())


def member(world: World, name: str, instance_id: str | None = None, **fields: Any) -> Member:
    return Member(world, name, "g", instance_id, **({"metadata": subscription("t")} | fields))


def stable(world: World, *clients: Client) -> None:
    world.gather(*clients, steps=10)
    assert all(client.synced for client in clients)
    world.facts.clear()


def of(world: World, kind: type[Any]) -> list[Any]:
    return [fact for fact in world.facts if isinstance(fact, kind)]


def rebalanced(world: World, *clients: Client) -> RebalanceCompleted:
    """Makes the members complete the current rebalance. Returns the fact about its completion.

    Asserts that exactly one start was reported, with the same cause.
    """
    world.gather(*clients, steps=10)
    [started] = of(world, RebalanceStarted)
    [completed] = of(world, RebalanceCompleted)
    assert isinstance(completed, RebalanceCompleted)
    assert (started.cause, started.said, started.reason) == (completed.cause, completed.said, completed.reason)
    assert (started.by and started.by.client_id) == (completed.by and completed.by.client_id)
    assert completed.moved_partitions is not None
    return completed


def let_in(world: World, a: Client, b: Client) -> None:
    """Adds b to the group of a: both have joined, and neither has synced."""
    b.join()
    world.settle()
    b.join()
    world.settle()
    a.heartbeat()
    world.settle()
    a.join()
    world.settle()


def hand_over_syncs(world: World, a: Client, b: Client) -> None:
    """The broker handles both syncs. Their replies are not delivered."""
    for client in (b, a):
        client.sync()
        world.handle(client.connection)


def caused_by(fact: RebalanceCompleted | RebalanceStarted) -> str:
    """Returns the client id of the client that caused a rebalance."""
    return fact.by.client_id if fact.by else ""


# Joins.


@pytest.mark.parametrize("version", [2, 9])
def test_new_member(world: World, version: int) -> None:
    """A new member is the cause of the rebalance, with its member id, reason and counts."""
    a, b = member(world, "a"), member(world, "b", version=version, said=REJOINED if version >= 8 else None)
    stable(world, a)
    fact = rebalanced(world, a, b)
    assert (fact.cause, fact.reason, caused_by(fact)) == (RebalanceCause.NEW_MEMBER, RebalanceReason.JOIN, "b")
    assert fact.by is not None
    assert fact.by.member_id == b.member_id, "the fact has the member id that the broker issued after the join"
    assert fact.said == (b.said or "")
    assert (fact.members, fact.joined, fact.gone, fact.generation) == (2, 1, 0, b.generation)
    assert fact.moved_partitions == 2
    [joined] = of(world, MemberJoined)
    assert (joined.client_id, joined.said) == ("b", fact.said)


@pytest.mark.parametrize("first", ["a", "b"])
def test_join_reason_in_any_reply_order(world: World, first: str) -> None:
    """The reason of a new member is reported whichever join reply arrives first."""
    a, b = member(world, "a"), member(world, "b", said=REJOINED)
    stable(world, a)
    for _ in range(2):
        b.join()
        world.settle()
    a.heartbeat()
    world.settle()
    a.join()
    world.handle(a.connection)
    world.deliver((a if first == "a" else b).connection)
    [joined] = of(world, MemberJoined)
    assert (joined.client_id, joined.said) == ("b", REJOINED)


def test_first_member_causes_rebalance() -> None:
    """The first member of a group causes a rebalance that starts with its join and has no slowest joiner."""
    world = World(Broker(initial_delay=3))
    a = member(world, "a")
    a.join()
    world.settle()
    a.join()
    world.settle()
    begun = world.now()
    world.pass_time(4)
    fact = rebalanced(world, a)
    [started] = of(world, RebalanceStarted)
    assert started.at == pytest.approx(begun, abs=0.1), "the rebalance starts with the join, not with the reply"
    assert fact.duration_seconds == pytest.approx(fact.at - started.at)
    assert (fact.cause, caused_by(fact), fact.joined, fact.moved_partitions) == (RebalanceCause.NEW_MEMBER, "a", 1, 0)
    assert fact.slowest is None, "the group has only one joiner"


def test_described_as_dead_before_first_join() -> None:
    """The first member causes a rebalance even if the broker, which has issued its id, describes the group as Dead."""
    world = World(Broker(), exclusive=False)
    a = member(world, "a")
    a.join()
    world.settle()
    dead = GroupDescribed(
        group_id="g",
        sent_at=world.now(),
        state=GroupState.DEAD,
        protocol_type="",
        protocol="",
        members=(),
        as_of=world.manager.changes_of("g")[0],
    )
    world.apply([dead], world.now())
    fact = rebalanced(world, a)
    assert (fact.cause, caused_by(fact)) == (RebalanceCause.NEW_MEMBER, "a")


def test_first_cause_is_kept(world: World) -> None:
    """A rebalance keeps its first cause and counts later joins and departures."""
    a, b, c, d = (member(world, name) for name in "abcd")
    stable(world, a, b)
    c.join()
    world.settle()
    c.join()
    world.settle()
    b.leave()
    d.join()
    world.settle()
    d.join()
    world.settle()
    a.heartbeat()
    fact = rebalanced(world, a, c, d)
    assert (fact.cause, caused_by(fact)) == (RebalanceCause.NEW_MEMBER, "c")
    assert (fact.members, fact.joined, fact.gone) == (3, 2, 1)


@pytest.mark.parametrize("slow", ["a", "b"])
def test_slowest_joiner(world: World, slow: str) -> None:
    """The slowest joiner is the member that joined last, with its delay in seconds."""
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a, b)
    first, last = (a, b) if slow == "b" else (b, a)
    c.join()
    world.settle()
    c.join()
    world.settle()
    first.heartbeat()
    world.settle()
    first.join()
    world.settle()
    world.pass_time(4)
    last.heartbeat()
    world.settle()
    last.join()
    world.handle(last.connection)
    world.deliver(first.connection)
    fact = rebalanced(world, a, b, c)
    assert fact.slowest is not None
    assert (fact.slowest.client_id, fact.slowest.member_id) == (slow, last.member_id)
    assert fact.slowest.seconds == pytest.approx(4, abs=0.1)
    assert fact.duration_seconds >= fact.slowest.seconds


def test_rebalance_ends_before_next_begins(world: World) -> None:
    """A rebalance completes before the next one starts, even if the next one's first join is sent before that."""
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a)
    for _ in range(2):
        b.join()
        world.settle()
    a.heartbeat()
    world.settle()
    a.join()
    c.join()
    world.settle()
    c.join()
    world.gather(a, b, c, steps=10)
    rebalances = [fact for fact in world.facts if isinstance(fact, RebalanceStarted | RebalanceCompleted)]
    kinds = [type(fact) for fact in sorted(rebalances, key=lambda fact: fact.at)]
    assert kinds == 2 * [RebalanceStarted, RebalanceCompleted]


def test_departed_joiner_is_not_slowest() -> None:
    """A member that leaves while its join waits is not the slowest joiner."""
    joins = [
        JoinSent(
            group_id="g",
            sent_at=at,
            joining=JoiningMember(
                token=name,
                member_id=name,
                instance_id=None,
                client_id=name,
                client_host="/h",
                session_timeout_ms=1,
                rebalance_timeout_ms=1,
                protocol_type="consumer",
                protocols=(),
                will_park=True,
            ),
        )
        for name, at in (("a", 1.0), ("b", 2.0), ("c", 4.0))
    ]
    rebalance = Rebalance(cause_details=CauseDetails(), started_at=1.0, waiting_since=1.0)
    rebalance.begin_generation(joins)
    slowest = rebalance.slowest({"a", "b"})
    assert slowest is not None
    assert (slowest.client_id, slowest.seconds) == ("b", 1.0)


def test_slowest_joiner_is_of_last_generation(world: World) -> None:
    """The slowest joiner belongs to the last generation if a second join interrupts the first generation."""
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a)
    b.join()
    world.settle()
    b.join()
    world.settle()
    world.pass_time(4)
    a.heartbeat()
    world.settle()
    a.join()
    world.settle()
    for _ in range(2):
        c.join()  # Before any member has synced.
        world.settle()
    world.gather(a, b, c, steps=10)
    [fact] = of(world, RebalanceCompleted)
    assert (fact.cause, caused_by(fact), fact.joined) == (RebalanceCause.NEW_MEMBER, "b", 2)
    assert fact.slowest.seconds < 1 < 4 < fact.duration_seconds


def test_static_restart_causes_no_rebalance(world: World) -> None:
    """A static member that restarts causes no rebalance, fences its old member id, and does not count as joined."""
    a, b = member(world, "a", "i"), member(world, "b")
    stable(world, b)
    stable(world, a, b)
    a.restart()
    world.gather(a, b)
    assert of(world, RebalanceStarted) == []
    [gone] = of(world, MemberGone)
    assert (gone.how, gone.instance_id) == (Departure.FENCED, "i")
    world.facts.clear()
    b.leave()
    world.settle()
    fact = rebalanced(world, a)
    assert (fact.joined, fact.gone) == (0, 1), "a static member that restarts does not count as joined"
    assert fact.moved_partitions == 2


def test_static_restart_with_other_protocols(world: World) -> None:
    """A static member that restarts with other protocols causes a rebalance with the cause STATIC_REPLACED."""
    a, b = member(world, "a", "i"), member(world, "b")
    a.speaks = b.speaks = ("range", "sticky")
    stable(world, b)
    stable(world, a, b)
    a.restart()
    a.speaks = ("sticky",)
    a.join()
    world.settle()
    b.heartbeat()
    world.settle()
    [started] = of(world, RebalanceStarted)
    assert (started.cause, started.reason, caused_by(started)) == (
        RebalanceCause.STATIC_REPLACED,
        RebalanceReason.JOIN,
        "a",
    )


# Reasons and subscriptions of members.


def test_changed_subscription_causes_rebalance(world: World) -> None:
    """A member's changed subscription is the cause SUBSCRIPTION_CHANGED."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    b.metadata = subscription("t", "u")
    b.join()
    fact = rebalanced(world, a, b)
    assert (fact.cause, caused_by(fact)) == (RebalanceCause.SUBSCRIPTION_CHANGED, "b")
    assert (fact.reason, fact.joined, fact.gone) == (RebalanceReason.METADATA, 0, 0)


def test_leader_changes_subscription(world: World) -> None:
    """The leader's changed subscription is the cause SUBSCRIPTION_CHANGED."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    a.metadata = subscription("u")
    a.join()
    assert rebalanced(world, a, b).cause is RebalanceCause.SUBSCRIPTION_CHANGED


def test_leader_rejoins(world: World) -> None:
    """A leader that rejoins without a change is the cause LEADER_REJOINED and moves no partitions."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    a.join()
    fact = rebalanced(world, a, b)
    assert (fact.cause, caused_by(fact), fact.moved_partitions) == (RebalanceCause.LEADER_REJOINED, "a", 0)


def test_new_partitions_change_cause(world: World) -> None:
    """A rebalance that the leader started has the cause TOPIC_METADATA if the assignment contains new partitions."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    a.partitions = 6
    a.join()
    world.gather(a, b, steps=10)
    [started], [fact] = of(world, RebalanceStarted), of(world, RebalanceCompleted)
    assert (started.cause, fact.cause) == (RebalanceCause.LEADER_REJOINED, RebalanceCause.TOPIC_METADATA)
    assert (caused_by(fact), fact.moved_partitions) == ("a", 0)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("cached metadata has changed", RebalanceCause.TOPIC_METADATA),
        ("subscription has changed", RebalanceCause.SUBSCRIPTION_CHANGED),
        ("need to revoke partitions and re-join", RebalanceCause.PARTITIONS_REVOKED),
        ("encountered NOT_COORDINATOR from HEARTBEAT response", RebalanceCause.COORDINATOR_MOVED),
        ("rebalance failed due to CoordinatorNotAvailableException", RebalanceCause.COORDINATOR_MOVED),
        ("rebalance enforced by user", RebalanceCause.LEADER_REJOINED),
    ],
)
def test_stated_reason_gives_cause(world: World, reason: str, cause: RebalanceCause) -> None:
    """The reason that a member states in its join gives the rebalance cause."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    a.said = reason
    a.join()
    fact = rebalanced(world, a, b)
    assert (fact.cause, fact.said, caused_by(fact)) == (cause, reason, "a")


def test_revoked_partitions_cause_rebalance(world: World) -> None:
    """A member that gives up owned partitions is the cause PARTITIONS_REVOKED."""
    a, b = member(world, "a"), member(world, "b", metadata=subscription("t", owned=(1, 2)))
    stable(world, a, b)
    b.metadata = subscription("t", owned=(2,))
    b.join()
    fact = rebalanced(world, a, b)
    assert (fact.cause, caused_by(fact)) == (RebalanceCause.PARTITIONS_REVOKED, "b")


def test_changed_user_data_is_new_subscription(world: World) -> None:
    """Changed user data counts as a changed subscription, as at the broker."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    b.metadata = subscription("t", user_data=b"!")
    b.join()
    assert rebalanced(world, a, b).cause is RebalanceCause.SUBSCRIPTION_CHANGED


def test_owned_partitions_are_no_new_subscription(world: World) -> None:
    """Newly owned partitions in a subscription do not count as a changed subscription, and the cause is UNKNOWN."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    b.metadata = subscription("t", owned=(1, 3))
    b.join()
    fact = rebalanced(world, a, b)
    assert (fact.cause, caused_by(fact)) == (RebalanceCause.UNKNOWN, "b")


def test_later_joiner_is_not_the_cause(world: World) -> None:
    """A member that rejoins because of a current rebalance is not the cause of this rebalance."""
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a, b, c)
    world.bypass(LeaveGroupRequest(group_id="g", member_id=c.member_id), 0, "c")
    b.metadata, b.said = subscription("t", owned=(1,)), "group is already rebalancing"
    b.join()
    world.settle()
    a.heartbeat()
    world.settle()
    [started] = of(world, RebalanceStarted)
    assert (started.cause, started.by) == (RebalanceCause.UNKNOWN, None)


# Departures.


def test_leaving_member_states_reason(world: World) -> None:
    """A leaving member is the cause MEMBER_LEFT with its stated reason."""
    a, b = member(world, "a"), member(world, "b", said="the consumer is being closed")
    stable(world, a, b)
    b.leave(5)
    world.settle()
    [gone] = of(world, MemberGone)
    assert (gone.how, gone.said, gone.client_id) == (Departure.LEFT, b.said, "b")
    fact = rebalanced(world, a)
    assert (fact.cause, fact.reason, caused_by(fact), fact.said) == (
        RebalanceCause.MEMBER_LEFT,
        RebalanceReason.LEAVE,
        "b",
        b.said,
    )
    assert (fact.members, fact.joined, fact.gone, fact.moved_partitions) == (1, 0, 1, 2)


@pytest.mark.parametrize("lost", [False, True])
def test_leave_seen_first_by_others(world: World, lost: bool) -> None:
    """A leave whose reply is late or lost is still the cause MEMBER_LEFT with its reason."""
    a, b = member(world, "a"), member(world, "b", said="bye")
    stable(world, a, b)
    b.leave(5)
    world.handle(b.connection)
    a.heartbeat()
    world.settle(b.connection)
    [started] = of(world, RebalanceStarted)
    assert (started.cause, caused_by(started), started.said) == (RebalanceCause.MEMBER_LEFT, "b", "bye")
    if lost:
        world.lose(b.connection)
    fact = rebalanced(world, a)
    assert (fact.cause, fact.gone) == (RebalanceCause.MEMBER_LEFT, 1)
    assert [(gone.how, gone.said) for gone in of(world, MemberGone)] == [(Departure.LEFT, "bye")]


KICKS: Any = {
    "by another client": ("admin", {"named": True}),
    "by instance id": ("b", {"named": False}),
    "with the words of Java's admin client": ("b", {"named": True, "reason": "member was removed by an admin: x"}),
}


@pytest.mark.parametrize("kick", KICKS)
def test_admin_removes_member(world: World, kick: str) -> None:
    """A member that an admin removes is reported as REMOVED_BY_CLIENT with the cause MEMBER_REMOVED."""
    client_id, how = KICKS[kick]
    a, b = member(world, "a"), member(world, "b", None if how["named"] else "i")
    stable(world, a)
    stable(world, a, b)
    named = MemberIdentity(
        member_id=b.member_id if how["named"] else "", group_instance_id=b.instance_id, reason=how.get("reason")
    )
    world.send(world.connect(), LeaveGroupRequest(group_id="g", members=(named,)), 5, client_id)
    world.settle()
    [gone] = of(world, MemberGone)
    assert (gone.how, gone.client_id) == (Departure.REMOVED_BY_CLIENT, "b")
    fact = rebalanced(world, a)
    assert (fact.cause, caused_by(fact)) == (RebalanceCause.MEMBER_REMOVED, "b")
    assert fact.said == how.get("reason", "")


def test_sidecar_removes_member(world: World) -> None:
    """A member that the sidecar removes gives the cause MEMBER_REMOVED."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    world.send(b.connection, LeaveGroupRequest(group_id="g", member_id=b.member_id), 0, "b", removing=True)
    fact = rebalanced(world, a)
    assert (fact.cause, caused_by(fact), fact.reason) == (RebalanceCause.MEMBER_REMOVED, "b", RebalanceReason.LEAVE)


def test_expired_session_causes_rebalance(world: World) -> None:
    """The member whose session expires first is the cause SESSION_EXPIRED, and later expiries are counted."""
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a, b, c)
    for late in (c, b):  # c sends no heartbeat, so its session expires first.
        world.pass_time(SESSION / 4)
        for client in (a, b):
            if client is not late:
                client.heartbeat()
        world.settle()
    world.pass_time(SESSION / 2 + 3)
    a.heartbeat()
    world.settle()
    fact = rebalanced(world, a)
    assert (fact.cause, fact.reason, caused_by(fact)) == (RebalanceCause.SESSION_EXPIRED, RebalanceReason.EXPIRED, "c")
    assert fact.gone == 2


def test_session_expires_during_join_rebalance(world: World) -> None:
    """A session that expires during a rebalance counts as a departure, and the new member stays the cause."""
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a, b)
    world.pass_time(SESSION - 1)
    for _ in range(2):
        c.join()
        world.settle()
    a.heartbeat()
    world.handle(a.connection)
    world.pass_time(1.5)
    world.sweep()  # For the sidecar both are silent, although a has sent a heartbeat.
    world.settle()
    fact = rebalanced(world, a, c)
    assert (fact.cause, caused_by(fact), fact.joined, fact.gone) == (RebalanceCause.NEW_MEMBER, "c", 1, 1)


def test_group_is_empty_after_last_expiry(world: World) -> None:
    """After its only member has expired, the group is empty and the next member is the cause."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    world.pass_time(SESSION + 1)
    fact = rebalanced(world, b)
    assert (fact.cause, caused_by(fact)) == (RebalanceCause.NEW_MEMBER, "b")


def test_replaced_member_expires_in_rebalance(world: World) -> None:
    """If a consumer is killed and restarted, the cause is the new join, and the old member expires later."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    b.join()
    world.settle()
    b.join()
    world.settle()
    world.pass_time(SESSION + 1)
    fact = rebalanced(world, b)
    assert (fact.cause, caused_by(fact), fact.joined, fact.gone) == (RebalanceCause.NEW_MEMBER, "b", 1, 1)
    assert [gone.how for gone in of(world, MemberGone)] == [Departure.EXPIRED]
    assert fact.moved_partitions == 4


def test_member_without_sync_is_dropped(world: World) -> None:
    """A member that does not sync is dropped and is the cause of the next rebalance."""
    a, b = member(world, "a"), member(world, "b")
    world.gather(a)
    let_in(world, a, b)
    a.sync()
    world.settle()
    world.facts.clear()
    for _ in range(8):
        world.pass_time(3)
        for client, generation in ((a, a.generation), (b, b.generation)):
            client.heartbeat()
            world.settle()
            client.generation = generation
        if of(world, RebalanceStarted):
            break
    assert [(gone.client_id, gone.how) for gone in of(world, MemberGone)] == [("b", Departure.DROPPED)]
    [started] = of(world, RebalanceStarted)
    assert caused_by(started) == "b"


def test_counts_restart_after_empty_group(world: World) -> None:
    """A rebalance after an empty group counts no earlier departures and no moved partitions."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    a.leave()
    fact = rebalanced(world, b)
    assert (fact.cause, fact.joined, fact.gone, fact.moved_partitions) == (RebalanceCause.NEW_MEMBER, 1, 0, 0)


def test_unknown_member_gives_unknown_cause(world: World) -> None:
    """A member that the broker no longer knows before its session ends is dropped with the cause UNKNOWN."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    world.bypass(LeaveGroupRequest(group_id="g", member_id=b.member_id), 0, "b")
    b.heartbeat()
    world.settle()
    [gone], [started] = of(world, MemberGone), of(world, RebalanceStarted)
    assert (gone.how, started.cause, caused_by(started)) == (Departure.DROPPED, RebalanceCause.UNKNOWN, "b")


def test_late_event_updates_cause(world: World) -> None:
    """A leave that is reported after its rebalance has started changes the cause to MEMBER_REMOVED."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    world.bypass(LeaveGroupRequest(group_id="g", member_id=b.member_id), 0, "b")
    a.heartbeat()
    world.settle()
    left = MembersLeft(group_id="g", sent_at=world.now(), members=((b.member_id, None),), removed=True)
    world.apply([left], world.now())
    world.gather(a)
    [started], [completed] = of(world, RebalanceStarted), of(world, RebalanceCompleted)
    assert (started.cause, completed.cause) == (RebalanceCause.UNKNOWN, RebalanceCause.MEMBER_REMOVED)
    assert caused_by(completed) == "b"


# Coordinators.


def moves(world: World) -> list[Fact]:
    event = NotCoordinatorReplied(group_id="g", sent_at=world.now())
    return world.manager.apply([event], world.now())


def test_coordinator_move_is_reported_once(world: World) -> None:
    """A coordinator move is reported once for a known group."""
    stable(world, member(world, "a"))
    [moved] = moves(world)
    assert isinstance(moved, CoordinatorMoved)
    assert moves(world) == [], "the second NOT_COORDINATOR reports nothing"


def test_unknown_group_reports_no_move(world: World) -> None:
    """A coordinator move is not reported for an unknown group."""
    assert moves(world) == []


def test_members_with_unseen_history_rejoin(world: World) -> None:
    """Members of a group older than the sidecar rejoin with the cause UNKNOWN or NEW_MEMBER."""
    a, b = member(world, "a"), member(world, "b")
    world.manager.set_existing_groups(["g"])
    a.member_id, b.member_id = "a-1", "b-2"
    world.gather(a, b)
    started = of(world, RebalanceStarted)
    assert {fact.cause for fact in started} <= {RebalanceCause.UNKNOWN, RebalanceCause.NEW_MEMBER}


# Information from assignments.


def test_unparsable_assignments_have_no_moves(world: World) -> None:
    """Assignments that are not in the consumer protocol give no number of moved partitions."""
    a = Client(world, "a", "g")
    world.gather(a)
    [fact] = of(world, RebalanceCompleted)
    assert fact.moved_partitions is None


@pytest.mark.parametrize("leader_first", [True, False])
def test_moves_wait_for_assignments(world: World, leader_first: bool) -> None:
    """A rebalance is reported complete with its number of moved partitions only after all assignments arrived, timed at
    the leader's sync.
    """
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    let_in(world, a, b)
    hand_over_syncs(world, a, b)
    first, second = (a, b) if leader_first else (b, a)
    world.deliver(first.connection)
    assert len(of(world, RebalanceCompleted)) == leader_first
    assert world.view().last_rebalance_at is not None
    stable_at = world.view().last_rebalance_at
    world.deliver(second.connection)
    [fact] = of(world, RebalanceCompleted)
    assert (fact.moved_partitions, fact.at) == (2, stable_at)


def test_missing_assignments_time_out(world: World) -> None:
    """A rebalance whose assignments do not arrive is reported complete after a short wait, without a number of moved
    partitions.
    """
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    let_in(world, a, b)
    hand_over_syncs(world, a, b)
    world.deliver(b.connection)
    world.sweep()
    assert of(world, RebalanceCompleted) == []
    world._now += 2
    world.sweep()
    [fact] = of(world, RebalanceCompleted)
    assert (fact.cause, fact.moved_partitions, fact.members) == (RebalanceCause.NEW_MEMBER, None, 2)


def test_disproved_rebalance_reports_start_only(world: World) -> None:
    """A rebalance that a heartbeat disproves reports only its start."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    seen = RebalanceSeen(
        group_id="g", sent_at=world.now(), member_id=a.member_id, generation=a.generation, is_heartbeat=True
    )
    world.apply([seen], world.now())
    b.heartbeat()
    world.settle()
    assert [type(fact) for fact in world.facts] == [RebalanceStarted]


def test_new_member_without_issued_id() -> None:
    """A new member that the broker accepts without issuing an id first is the cause NEW_MEMBER with its accepted id."""
    group = Group("g", None, count(1), set(), UnreadWrites(), ExpiredClientsBudget())
    joining = JoiningMember(
        token="1:1",
        member_id="",
        instance_id=None,
        client_id="a",
        client_host="/10.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        will_park=False,
    )
    join_sent(group, JoinSent(group_id="g", sent_at=1.0, joining=joining), 1.0)
    accepted = JoinAccepted(
        group_id="g",
        sent_at=1.0,
        joining=joining,
        member_id="a-1",
        generation=1,
        protocol_type="consumer",
        protocol="range",
        leader="a-1",
        roster=(),
    )
    [started, *_] = join_accepted(group, accepted, 2.0)
    assert isinstance(started, RebalanceStarted)
    assert started.cause is RebalanceCause.NEW_MEMBER
    assert started.by == MemberInfo(member_id="a-1", client_id="a", client_host="/10.0.0.1")
