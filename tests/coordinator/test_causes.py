"""Why a rebalance began, who brought it about and what came of it, as replies and requests alone tell.

The broker is the model, so that a rebalance is one that Kafka would prepare.
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
from group_sidecar.coordinator.events import (
    CoordinatorMoved,
    JoinAccepted,
    Joining,
    JoinSent,
    MembersLeft,
    RebalanceSeen,
)
from group_sidecar.coordinator.facts import (
    CoordinatorMoved as CoordinatorMovedFact,
)
from group_sidecar.coordinator.facts import (
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceReason,
    RebalanceStarted,
    Who,
)
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.joining import join_accepted, join_sent
from group_sidecar.coordinator.rebalances import Blame, Rebalance
from group_sidecar.coordinator.unread import Unread
from tests.coordinator.model import Broker
from tests.coordinator.world import SESSION_MS, Client, World

SESSION = SESSION_MS / 1000
REJOINED = "need to re-join with the given member-id: x"


def subscription(*topics: str, owned: tuple[int, ...] = (), user_data: bytes | None = None) -> bytes:
    parts = (TopicPartition(topic="t", partitions=owned),) if owned else ()
    wants = ConsumerProtocolSubscription(topics=topics, owned_partitions=parts, user_data=user_data)
    return b"\0\1" + encode(wants, 1)


class Member(Client):
    """A member that wants the topic "t", and as the leader shares it out, member by member in the order of joins."""

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
    """What is told of a rebalance that is under way, when its members have gone through it.

    It was told to have begun, once, and for the same cause.
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
    """A group of a has b in it: both have joined, nobody has synced."""
    b.join()
    world.settle()
    b.join()
    world.settle()
    a.heartbeat()
    world.settle()
    a.join()
    world.settle()


def hand_over_syncs(world: World, a: Client, b: Client) -> None:
    """The broker has both syncs; nobody has heard of it."""
    for client in (b, a):
        client.sync()
        world.handle(client.connection)


def whom(told: RebalanceCompleted | RebalanceStarted) -> str:
    """The client that brought a rebalance about."""
    return told.by.client_id if told.by else ""


# Joins.


@pytest.mark.parametrize("version", [2, 9])
def test_a_new_member(world: World, version: int) -> None:
    a, b = member(world, "a"), member(world, "b", version=version, said=REJOINED if version >= 8 else None)
    stable(world, a)
    told = rebalanced(world, a, b)
    assert (told.cause, told.reason, whom(told)) == (RebalanceCause.NEW_MEMBER, RebalanceReason.JOIN, "b")
    assert told.by is not None
    assert told.by.member_id == b.member_id, "which it had not been given yet when it joined"
    assert told.said == (b.said or "")
    assert (told.members, told.joined, told.gone, told.generation) == (2, 1, 0, b.generation)
    assert told.moved_partitions == 2
    [joined] = of(world, MemberJoined)
    assert (joined.client_id, joined.said) == ("b", told.said)


@pytest.mark.parametrize("first", ["a", "b"])
def test_what_a_new_member_said_whoever_is_answered_first(world: World, first: str) -> None:
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


def test_the_first_member_of_all() -> None:
    world = World(Broker(initial_delay=3))
    a = member(world, "a")
    a.join()
    world.settle()
    a.join()
    world.settle()
    begun = world.now()
    world.pass_time(4)
    told = rebalanced(world, a)
    [started] = of(world, RebalanceStarted)
    assert started.at == pytest.approx(begun, abs=0.1), "it was told when the broker answered"
    assert told.duration_seconds == pytest.approx(told.at - started.at)
    assert (told.cause, whom(told), told.joined, told.moved_partitions) == (RebalanceCause.NEW_MEMBER, "a", 1, 0)
    assert told.slowest is None, "it was the first, too"


def test_a_rebalance_keeps_its_first_cause_and_counts_the_rest(world: World) -> None:
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
    told = rebalanced(world, a, c, d)
    assert (told.cause, whom(told)) == (RebalanceCause.NEW_MEMBER, "c")
    assert (told.members, told.joined, told.gone) == (3, 2, 1)


@pytest.mark.parametrize("slow", ["a", "b"])
def test_the_slowest_joiner(world: World, slow: str) -> None:
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
    told = rebalanced(world, a, b, c)
    assert told.slowest is not None
    assert (told.slowest.client_id, told.slowest.member_id) == (slow, last.member_id)
    assert told.slowest.seconds == pytest.approx(4, abs=0.1)
    assert told.duration_seconds >= told.slowest.seconds


def test_one_rebalance_ends_before_the_next_begins(world: World) -> None:
    """The join of the next one may go out while the last one is not over."""
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


def test_a_join_of_one_that_is_not_in_the_generation_is_not_its_slowest() -> None:
    """It has gone while it waited."""
    joins = [
        JoinSent(
            group_id="g",
            sent_at=at,
            joining=Joining(
                token=name,
                member_id=name,
                instance_id=None,
                client_id=name,
                client_host="/h",
                session_timeout_ms=1,
                rebalance_timeout_ms=1,
                protocol_type="consumer",
                protocols=(),
                parks=True,
            ),
        )
        for name, at in (("a", 1.0), ("b", 2.0), ("c", 4.0))
    ]
    rebalance = Rebalance(blame=Blame(), began=1.0, since=1.0)
    rebalance.begin_generation(joins)
    slowest = rebalance.slowest({"a", "b"})
    assert slowest is not None
    assert (slowest.client_id, slowest.seconds) == ("b", 1.0)


def test_the_slowest_joiner_is_one_of_the_generation_that_is_complete(world: World) -> None:
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
        c.join()  # Before anybody has synced.
        world.settle()
    world.gather(a, b, c, steps=10)
    [told] = of(world, RebalanceCompleted)
    assert (told.cause, whom(told), told.joined) == (RebalanceCause.NEW_MEMBER, "b", 2)
    assert told.slowest.seconds < 1 < 4 < told.duration_seconds


def test_a_static_member_that_is_back_disturbs_nobody(world: World) -> None:
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
    told = rebalanced(world, a)
    assert (told.joined, told.gone) == (0, 1), "who is back has not come"
    assert told.moved_partitions == 2


def test_a_static_member_that_is_back_with_other_protocols(world: World) -> None:
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
    assert (started.cause, started.reason, whom(started)) == (
        RebalanceCause.STATIC_REPLACED,
        RebalanceReason.JOIN,
        "a",
    )


# What members say and want.


def test_a_subscription_has_changed(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    b.metadata = subscription("t", "u")
    b.join()
    told = rebalanced(world, a, b)
    assert (told.cause, whom(told)) == (RebalanceCause.SUBSCRIPTION_CHANGED, "b")
    assert (told.reason, told.joined, told.gone) == (RebalanceReason.METADATA, 0, 0)


def test_the_leader_may_change_its_subscription_too(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    a.metadata = subscription("u")
    a.join()
    assert rebalanced(world, a, b).cause is RebalanceCause.SUBSCRIPTION_CHANGED


def test_a_leader_joins_again(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    a.join()
    told = rebalanced(world, a, b)
    assert (told.cause, whom(told), told.moved_partitions) == (RebalanceCause.LEADER_REJOINED, "a", 0)


def test_topics_have_more_partitions_as_the_leader_finds(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    a.partitions = 6
    a.join()
    world.gather(a, b, steps=10)
    [started], [told] = of(world, RebalanceStarted), of(world, RebalanceCompleted)
    assert (started.cause, told.cause) == (RebalanceCause.LEADER_REJOINED, RebalanceCause.TOPIC_METADATA)
    assert (whom(told), told.moved_partitions) == ("a", 0)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("cached metadata has changed", RebalanceCause.TOPIC_METADATA),
        ("subscription has changed", RebalanceCause.SUBSCRIPTION_CHANGED),
        ("need to revoke partitions and re-join", RebalanceCause.PARTITIONS_REVOKED),
        ("encountered NOT_COORDINATOR from HEARTBEAT response", RebalanceCause.COORDINATOR_MOVED),
        ("rebalance failed due to CoordinatorNotAvailableException", RebalanceCause.COORDINATOR_MOVED),
        ("rebalance enforced by user", RebalanceCause.LEADER_REJOINED),
    ],
)
def test_a_member_says_why(world: World, said: str, cause: RebalanceCause) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    a.said = said
    a.join()
    told = rebalanced(world, a, b)
    assert (told.cause, told.said, whom(told)) == (cause, said, "a")


def test_partitions_are_given_up(world: World) -> None:
    a, b = member(world, "a"), member(world, "b", metadata=subscription("t", owned=(1, 2)))
    stable(world, a, b)
    b.metadata = subscription("t", owned=(2,))
    b.join()
    told = rebalanced(world, a, b)
    assert (told.cause, whom(told)) == (RebalanceCause.PARTITIONS_REVOKED, "b")


def test_other_metadata_is_another_subscription_as_the_broker_sees_it(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    b.metadata = subscription("t", user_data=b"!")
    b.join()
    assert rebalanced(world, a, b).cause is RebalanceCause.SUBSCRIPTION_CHANGED


def test_what_a_member_owns_by_now_is_no_other_subscription(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    b.metadata = subscription("t", owned=(1, 3))
    b.join()
    told = rebalanced(world, a, b)
    assert (told.cause, whom(told)) == (RebalanceCause.UNKNOWN, "b")


def test_who_joins_since_a_rebalance_is_under_way_has_not_brought_it_about(world: World) -> None:
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a, b, c)
    world.around(LeaveGroupRequest(group_id="g", member_id=c.member_id), 0, "c")
    b.metadata, b.said = subscription("t", owned=(1,)), "group is already rebalancing"
    b.join()
    world.settle()
    a.heartbeat()
    world.settle()
    [started] = of(world, RebalanceStarted)
    assert (started.cause, started.by) == (RebalanceCause.UNKNOWN, None)


# Departures.


def test_a_member_leaves_and_says_why(world: World) -> None:
    a, b = member(world, "a"), member(world, "b", said="the consumer is being closed")
    stable(world, a, b)
    b.leave(5)
    world.settle()
    [gone] = of(world, MemberGone)
    assert (gone.how, gone.said, gone.client_id) == (Departure.LEFT, b.said, "b")
    told = rebalanced(world, a)
    assert (told.cause, told.reason, whom(told), told.said) == (
        RebalanceCause.MEMBER_LEFT,
        RebalanceReason.LEAVE,
        "b",
        b.said,
    )
    assert (told.members, told.joined, told.gone, told.moved_partitions) == (1, 0, 1, 2)


@pytest.mark.parametrize("lost", [False, True])
def test_others_hear_of_a_leave_first(world: World, lost: bool) -> None:
    a, b = member(world, "a"), member(world, "b", said="bye")
    stable(world, a, b)
    b.leave(5)
    world.handle(b.connection)
    a.heartbeat()
    world.settle(b.connection)
    [started] = of(world, RebalanceStarted)
    assert (started.cause, whom(started), started.said) == (RebalanceCause.MEMBER_LEFT, "b", "bye")
    if lost:
        world.lose(b.connection)
    told = rebalanced(world, a)
    assert (told.cause, told.gone) == (RebalanceCause.MEMBER_LEFT, 1)
    assert [(gone.how, gone.said) for gone in of(world, MemberGone)] == [(Departure.LEFT, "bye")]


KICKS: Any = {
    "by another client": ("admin", {"named": True}),
    "by instance id": ("b", {"named": False}),
    "with the words of Java's admin client": ("b", {"named": True, "reason": "member was removed by an admin: x"}),
}


@pytest.mark.parametrize("kick", KICKS)
def test_an_admin_removes_a_member(world: World, kick: str) -> None:
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
    assert (gone.how, gone.client_id) == (Departure.KICKED, "b")
    told = rebalanced(world, a)
    assert (told.cause, whom(told)) == (RebalanceCause.MEMBER_REMOVED, "b")
    assert told.said == how.get("reason", "")


def test_the_sidecar_removes_a_member(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    world.send(b.connection, LeaveGroupRequest(group_id="g", member_id=b.member_id), 0, "b", removing=True)
    told = rebalanced(world, a)
    assert (told.cause, whom(told), told.reason) == (RebalanceCause.MEMBER_REMOVED, "b", RebalanceReason.LEAVE)


def test_a_session_expires(world: World) -> None:
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a, b, c)
    for late in (c, b):  # The session of c runs out first: its was the last heartbeat but one.
        world.pass_time(SESSION / 4)
        for client in (a, b):
            if client is not late:
                client.heartbeat()
        world.settle()
    world.pass_time(SESSION / 2 + 3)
    a.heartbeat()
    world.settle()
    told = rebalanced(world, a)
    assert (told.cause, told.reason, whom(told)) == (RebalanceCause.SESSION_EXPIRED, RebalanceReason.EXPIRED, "c")
    assert told.gone == 2


def test_a_session_expires_in_a_rebalance_that_a_join_has_begun(world: World) -> None:
    a, b, c = (member(world, name) for name in "abc")
    stable(world, a, b)
    world.pass_time(SESSION - 1)
    for _ in range(2):
        c.join()
        world.settle()
    a.heartbeat()
    world.handle(a.connection)
    world.pass_time(1.5)
    world.sweep()  # It finds both of them silent, but one is not.
    world.settle()
    told = rebalanced(world, a, c)
    assert (told.cause, whom(told), told.joined, told.gone) == (RebalanceCause.NEW_MEMBER, "c", 1, 1)


def test_the_group_was_empty_when_its_only_member_had_expired(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    world.pass_time(SESSION + 1)
    told = rebalanced(world, b)
    assert (told.cause, whom(told)) == (RebalanceCause.NEW_MEMBER, "b")


def test_a_member_is_replaced_before_its_session_is_over(world: World) -> None:
    """A consumer is killed and started anew: the join is the cause, and the old one goes with the rebalance."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    b.join()
    world.settle()
    b.join()
    world.settle()
    world.pass_time(SESSION + 1)
    told = rebalanced(world, b)
    assert (told.cause, whom(told), told.joined, told.gone) == (RebalanceCause.NEW_MEMBER, "b", 1, 1)
    assert [gone.how for gone in of(world, MemberGone)] == [Departure.EXPIRED]
    assert told.moved_partitions == 4


def test_a_member_does_not_sync(world: World) -> None:
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
    assert whom(started) == "b"


def test_what_was_before_the_group_was_empty_does_not_count(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    a.leave()
    told = rebalanced(world, b)
    assert (told.cause, told.joined, told.gone, told.moved_partitions) == (RebalanceCause.NEW_MEMBER, 1, 0, 0)


def test_who_is_unknown_though_its_session_lasts_went_for_a_reason_that_was_not_seen(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    world.around(LeaveGroupRequest(group_id="g", member_id=b.member_id), 0, "b")
    b.heartbeat()
    world.settle()
    [gone], [started] = of(world, MemberGone), of(world, RebalanceStarted)
    assert (gone.how, started.cause, whom(started)) == (Departure.DROPPED, RebalanceCause.UNKNOWN, "b")


def test_what_made_a_rebalance_is_told_after_it_was_seen(world: World) -> None:
    """As of a leave that the sidecar has sent itself, or whose reply is overtaken by others."""
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    world.around(LeaveGroupRequest(group_id="g", member_id=b.member_id), 0, "b")
    a.heartbeat()
    world.settle()
    left = MembersLeft(group_id="g", sent_at=world.now(), members=((b.member_id, None),), removed=True)
    world.apply([left], world.now())
    world.gather(a)
    [started], [completed] = of(world, RebalanceStarted), of(world, RebalanceCompleted)
    assert (started.cause, completed.cause) == (RebalanceCause.UNKNOWN, RebalanceCause.MEMBER_REMOVED)
    assert whom(completed) == "b"


# Coordinators.


def moves(world: World) -> list[Fact]:
    event = CoordinatorMoved(group_id="g", sent_at=world.now())
    return world.manager.apply([event], world.now())


def test_the_coordinator_moves_away(world: World) -> None:
    stable(world, member(world, "a"))
    [moved] = moves(world)
    assert isinstance(moved, CoordinatorMovedFact)
    assert moves(world) == [], "once is enough"


def test_of_a_group_that_is_not_known_it_says_nothing(world: World) -> None:
    assert moves(world) == []


def test_members_with_an_unseen_past_join_again(world: World) -> None:
    """The sidecar was started when the group was there."""
    a, b = member(world, "a"), member(world, "b")
    world.manager.inherit(["g"])
    a.member_id, b.member_id = "a-1", "b-2"
    world.gather(a, b)
    started = of(world, RebalanceStarted)
    assert {told.cause for told in started} <= {RebalanceCause.UNKNOWN, RebalanceCause.NEW_MEMBER}


# What assignments tell.


def test_assignments_that_are_no_consumers(world: World) -> None:
    a = Client(world, "a", "g")
    world.gather(a)
    [told] = of(world, RebalanceCompleted)
    assert told.moved_partitions is None


@pytest.mark.parametrize("leader_first", [True, False])
def test_assignments_are_waited_for(world: World, leader_first: bool) -> None:
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
    [told] = of(world, RebalanceCompleted)
    assert (told.moved_partitions, told.at) == (2, stable_at)


def test_assignments_that_do_not_come_are_not_waited_for_for_long(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a)
    let_in(world, a, b)
    hand_over_syncs(world, a, b)
    world.deliver(b.connection)
    world.sweep()
    assert of(world, RebalanceCompleted) == []
    world._now += 2
    world.sweep()
    [told] = of(world, RebalanceCompleted)
    assert (told.cause, told.moved_partitions, told.members) == (RebalanceCause.NEW_MEMBER, None, 2)


def test_a_rebalance_that_was_none_is_told_to_have_begun_only(world: World) -> None:
    a, b = member(world, "a"), member(world, "b")
    stable(world, a, b)
    seen = RebalanceSeen(group_id="g", sent_at=world.now(), member_id=a.member_id, generation=a.generation, alive=True)
    world.apply([seen], world.now())
    b.heartbeat()
    world.settle()
    assert [type(fact) for fact in world.facts] == [RebalanceStarted]


def test_a_new_member_may_be_let_in_without_an_id_first() -> None:
    group = Group("g", None, count(1), set(), Unread())
    joining = Joining(
        token="1:1",
        member_id="",
        instance_id=None,
        client_id="a",
        client_host="/10.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        parks=False,
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
    assert started.by == Who(member_id="a-1", client_id="a", client_host="/10.0.0.1")
