"""Rebalances after the broker has become the coordinator: in whatever order joins, log and broker's word come.

What the copy cannot know is unknown to it; no order makes it name a wrong cause.
"""

from itertools import combinations

import pytest

from group_sidecar.coordinator.causes import MOVED_SECONDS
from group_sidecar.coordinator.events import CoordinatorMoved, MemberSeen, MembersLeft, MemberUnknown, Synced
from group_sidecar.coordinator.facts import CoordinatorMoved as CoordinatorMovedFact
from group_sidecar.coordinator.facts import (
    Departure,
    Fact,
    MemberGone,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.partitions import PartitionState
from tests.coordinator.sweeping import swept
from tests.coordinator.test_logged_rebalances import WHO, Copy, assignment, generation, is_let_in, of, sends_join

MOVED, REJOINED = RebalanceCause.COORDINATOR_MOVED, RebalanceCause.LEADER_REJOINED
UNKNOWN = RebalanceCause.UNKNOWN
SOON, LATE = 1.0, MOVED_SECONDS + 1
GROUP = generation(1, a=(0, 1))


def found(*, leader_epoch: int | None, exclusive: bool = False) -> Copy:
    """A copy that has just looked who leads what: another broker in that epoch, or None, this one."""
    copy = Copy(exclusive=exclusive)
    for count in (2, 1):
        copy.follower.count_partitions(count, copy.now)
    if leader_epoch is not None:
        copy.follower.partitions.watch({0: leader_epoch})
    return copy


def take_over(copy: Copy, leader_epoch: int = 5, *, serves: bool = True) -> None:
    """The broker leads the partition now."""
    copy.log = copy.follower.begin_load(0, leader_epoch, 0, copy.now, serves=serves)


def cause(copy: Copy, number: int = 2) -> RebalanceCause:
    """What the leader is told to have brought about that joins again as it was."""
    [started] = of(is_let_in(copy, sends_join(copy), number), RebalanceStarted)
    told: RebalanceCause = started.cause
    return told


def syncs(copy: Copy, *partitions: int) -> list[Fact]:
    share = assignment(*partitions)
    who = {"member_id": "a", "instance_id": None, "client_id": "client-a", "client_host": "/h"}
    return copy.wire_says(Synced, generation=2, assignment=share, assignments={"a": share}, **who)


# Whether it has moved.


@pytest.mark.parametrize("passed", [0.0, 2.0, 1000.0])
@pytest.mark.parametrize(("before", "epoch"), [(4, 5), (-1, -1), (0, 1)])
@pytest.mark.parametrize(("after", "told"), [(SOON, MOVED), (LATE, REJOINED)])
def test_the_broker_leads_what_another_led_however_soon_after_the_first_look(
    before: int, epoch: int, passed: float, after: float, told: RebalanceCause
) -> None:
    copy = found(leader_epoch=before)
    copy.now += passed
    take_over(copy, epoch)
    assert copy.log_says(GROUP) == []
    copy.now += after
    assert cause(copy) is told


@pytest.mark.parametrize("epoch", [5, -1])
def test_the_broker_leads_again_what_it_gave_away(epoch: int) -> None:
    copy = found(leader_epoch=None)
    take_over(copy, min(epoch, 3))
    copy.log_says(GROUP)
    copy.now += 1000
    copy.follower.resign(0, min(epoch, 4), copy.now)
    take_over(copy, epoch)
    copy.log_says(GROUP)
    assert cause(copy) is MOVED


@pytest.mark.parametrize(
    ("first", "epoch", "after", "told"),
    [
        (None, 0, SOON, REJOINED),  # There was no leader before it.
        (0, 0, SOON, REJOINED),  # It had not heard of that yet.
        (None, 3, SOON, UNKNOWN),
        (3, 3, SOON, UNKNOWN),
        (None, -1, SOON, UNKNOWN),
        (None, 3, LATE, REJOINED),
    ],
)
def test_the_broker_leads_it_when_it_is_first_looked_at(
    first: int | None, epoch: int, after: float, told: RebalanceCause
) -> None:
    copy = found(leader_epoch=first)
    take_over(copy, epoch)
    copy.log_says(GROUP)
    copy.now += after
    assert cause(copy) is told


@pytest.mark.parametrize("read_anew", ["failed", "lost connection"])
@pytest.mark.parametrize(("after", "told"), [(SOON, MOVED), (LATE, REJOINED)])
def test_what_is_read_anew_has_moved_when_it_moved(read_anew: str, after: float, told: RebalanceCause) -> None:
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(GROUP)
    copy.now += after
    if read_anew == "failed":
        copy.follower.fail(0, "damaged", copy.now)
        take_over(copy)
        copy.log_says(GROUP, generation(2, a=(0, 1)))
    else:
        list(copy.follower.lose(copy.now, serves=False))
        copy.log_says(generation(2, a=(0, 1)))
        copy.follower.serves(0, copy.now)
    assert cause(copy, 3) is told


def test_a_group_that_is_younger_has_not_moved() -> None:
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says()
    copy.log_says(GROUP)
    assert cause(copy) is REJOINED


@pytest.mark.parametrize(("after", "told"), [(SOON, UNKNOWN), (LATE, REJOINED)])
@pytest.mark.parametrize("other", ["joins", "leaves"])
def test_what_comes_after_the_leader_has_not_brought_it_about(other: str, after: float, told: RebalanceCause) -> None:
    """Also where it may have come for the move, of which nobody knows."""
    copy = found(leader_epoch=None)
    take_over(copy)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    copy.now += after
    joining = sends_join(copy)
    if other == "joins":
        sends_join(copy, "")
        facts = is_let_in(copy, joining)
    else:
        facts = copy.wire_says(MembersLeft, members=(("b", None),))
    assert [(started.cause, started.by.member_id) for started in of(facts, RebalanceStarted)] == [(told, "a")]


# What comes first.


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("loads", list(combinations(range(7), 3)))
def test_the_member_is_back_whenever_the_log_is_read(loads: tuple[int, ...], exclusive: bool) -> None:
    """Its heartbeat, its join, the reply to that and its sync come in between the three steps of a load."""
    copy = found(leader_epoch=4, exclusive=exclusive)
    facts, read_before = list[Fact](), ""
    wire = iter(("heartbeat", "join", "reply", "sync"))
    log = iter(("lead", "read", "serve"))
    for step in range(7):
        match next(log) if step in loads else next(wire):
            case "lead":
                take_over(copy, serves=False)
            case "read":
                facts += copy.log_says(GROUP)
                read_before = read_before or "nothing"
            case "serve":
                copy.follower.serves(0, copy.now)
            case "heartbeat":
                facts += copy.wire_says(MemberSeen, member_id="a", instance_id=None, generation=1, steady=True, **WHO)
            case "join":
                joining = sends_join(copy)
            case "reply":
                facts += is_let_in(copy, joining)
                read_before = read_before and "reply"
            case "sync":
                facts += syncs(copy, 0, 1)
                read_before = read_before or "sync"
    [started], [completed] = of(facts, RebalanceStarted), of(facts, RebalanceCompleted)
    known = {"reply": (MOVED, MOVED), "nothing": (UNKNOWN, MOVED), "sync": (UNKNOWN, UNKNOWN)}[read_before]
    assert (started.cause, completed.cause) == known
    assert (started.by.client_id, completed.by.client_id) == (2 * ("client-a",))


def test_all_join_again_and_the_first_is_named() -> None:
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    sends_join(copy, "b", ("range", "sticky"))
    [started] = of(is_let_in(copy, sends_join(copy)), RebalanceStarted)
    assert (started.cause, started.by.member_id) == (MOVED, "b")


@pytest.mark.parametrize(("epoch", "told"), [(5, MOVED), (4, UNKNOWN)])
def test_a_long_rebalance_has_begun_for_what_its_first_join_came_for(epoch: int, told: RebalanceCause) -> None:
    """The others may take their time, up to the rebalance timeout."""
    copy = found(leader_epoch=4)
    take_over(copy, epoch)
    copy.log_says(GROUP)
    joining = sends_join(copy)
    copy.now += LATE
    [started] = of(is_let_in(copy, joining), RebalanceStarted)
    assert started.cause is told


@pytest.mark.parametrize(("after", "told"), [(SOON, MOVED), (LATE, REJOINED)])
def test_the_broker_reads_its_log_for_longer_than_the_sidecar(after: float, told: RebalanceCause) -> None:
    copy = found(leader_epoch=4)
    take_over(copy, serves=False)
    copy.log_says(GROUP)
    copy.now += LATE
    copy.follower.serves(0, copy.now)
    assert copy.follower.partitions.states == {0: PartitionState.OWNED}
    copy.now += after
    assert cause(copy) is told


@pytest.mark.parametrize("exclusive", [False, True])
def test_sessions_begin_when_the_broker_has_read_its_log(exclusive: bool) -> None:
    copy = found(leader_epoch=4, exclusive=exclusive)
    take_over(copy, serves=False)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    copy.now += LATE
    copy.follower.serves(0, copy.now)
    assert swept(copy.manager, copy.now) == []
    facts = is_let_in(copy, sends_join(copy))
    assert [started.cause for started in of(facts, RebalanceStarted)] == [MOVED]
    assert [gone.how for gone in of(facts, MemberGone)] == [Departure.DROPPED], "nobody was silent for a session"


def test_a_join_comes_before_a_session_that_begins_when_the_broker_has_read_its_log() -> None:
    copy = found(leader_epoch=4, exclusive=True)
    take_over(copy, serves=False)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    copy.now += 20
    copy.follower.serves(0, copy.now)
    joining = sends_join(copy)
    copy.now += 10
    swept(copy.manager, copy.now)
    [started] = of(is_let_in(copy, joining), RebalanceStarted)
    assert started.cause is MOVED


def test_who_is_not_known_to_a_broker_that_has_just_read_its_log_has_not_expired_there() -> None:
    copy = found(leader_epoch=4)
    take_over(copy, serves=False)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    copy.now += 20
    copy.follower.serves(0, copy.now)
    facts = copy.wire_says(MemberUnknown, member_id="b")
    assert [gone.how for gone in of(facts, MemberGone)] == [Departure.DROPPED]


def test_the_broker_does_not_know_yet_that_it_is_the_coordinator() -> None:
    copy = found(leader_epoch=4)
    take_over(copy, serves=False)
    copy.log_says(GROUP)
    assert copy.wire_says(CoordinatorMoved) == []
    copy.follower.serves(0, copy.now + 2)
    assert copy.wire_says(CoordinatorMoved) == [], "it was asked before"
    assert cause(copy) is MOVED


def test_a_member_of_which_only_heartbeats_were_seen_may_have_joined_again_as_it_was() -> None:
    copy = Copy()
    copy.wire_says(MemberSeen, member_id="a", instance_id=None, generation=1, steady=True, **WHO)
    assert cause(copy) is UNKNOWN


@pytest.mark.parametrize("epoch", [4, 5])
def test_the_leader_joins_again_for_partitions_that_nobody_had(epoch: int) -> None:
    """It says nothing, as librdkafka's does; that the coordinator has moved, or may have, is no better reason."""
    copy = found(leader_epoch=4)
    take_over(copy, epoch)
    copy.log_says(GROUP)
    assert cause(copy) is (MOVED if epoch == 5 else UNKNOWN)
    [completed] = of(syncs(copy, 0, 1, 2), RebalanceCompleted)
    assert completed.cause is RebalanceCause.TOPIC_METADATA


@pytest.mark.parametrize(
    ("protocols", "told"),
    [(("range", "sticky"), MOVED), (("sticky",), RebalanceCause.SUBSCRIPTION_CHANGED)],
)
def test_another_than_the_leader_joins_again(protocols: tuple[str, ...], told: RebalanceCause) -> None:
    """Of what it offered the log tells what was chosen, and no more."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    [started] = of(is_let_in(copy, sends_join(copy, "b", protocols)), RebalanceStarted)
    assert started.cause is told


# Whose it was.


def test_the_broker_gives_the_group_away() -> None:
    copy = Copy(load=[GROUP])
    copy.follower.resign(0, 4, copy.now)
    [moved] = copy.wire_says(CoordinatorMoved)
    assert isinstance(moved, CoordinatorMovedFact)
    assert copy.wire_says(CoordinatorMoved) == []


def test_the_broker_takes_the_group_back_before_anybody_hears() -> None:
    copy = Copy(load=[GROUP])
    copy.follower.resign(0, 4, copy.now)
    take_over(copy)
    assert len(copy.follower.left_behind) == 0
