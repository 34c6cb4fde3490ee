"""Rebalances after the broker has become the coordinator, with any order of joins, log and descriptions.

The copy never reports a wrong cause. If it cannot know the cause, it reports UNKNOWN.
"""

from dataclasses import replace
from itertools import combinations

import pytest

from group_sidecar.coordinator.log.follower import GROUPS_PER_FORGET_STEP
from group_sidecar.coordinator.model.events import (
    MemberIdIssued,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    NotCoordinatorReplied,
    RebalanceSeen,
    Synced,
)
from group_sidecar.coordinator.model.facts import (
    CoordinatorMoved,
    Departure,
    Fact,
    MemberGone,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.rules.causes import COORDINATOR_MOVED_SECONDS
from group_sidecar.coordinator.state.log_partitions import PartitionState, StaleEpoch
from tests.coordinator.rules.test_logged_rebalances import WHO, Copy, assignment, generation, is_let_in, of, sends_join
from tests.coordinator.sweeping import swept

MOVED, REJOINED = RebalanceCause.COORDINATOR_MOVED, RebalanceCause.LEADER_REJOINED
UNKNOWN = RebalanceCause.UNKNOWN
SOON, LATE = 1.0, COORDINATOR_MOVED_SECONDS + 1
GROUP = generation(1, a=(0, 1))


def found(*, leader_epoch: int | None, exclusive: bool = False) -> Copy:
    """Returns a copy that knows the partition's leader: another broker in this epoch, or this broker if None."""
    copy = Copy(exclusive=exclusive)
    for count in (2, 1):
        copy.follower.count_partitions(count, copy.now)
    if leader_epoch is not None:
        copy.follower.partitions.watch({0: leader_epoch})
    return copy


def take_over(copy: Copy, leader_epoch: int = 5, *, serves: bool = True) -> None:
    """Makes this broker the leader of the partition."""
    copy.log = copy.follower.begin_load(0, leader_epoch, 0, copy.now, coordinator_loaded=serves)


def cause(copy: Copy, number: int = 2) -> RebalanceCause:
    """The leader joins again with the same metadata. Returns the cause of the rebalance that its join starts."""
    [started] = of(is_let_in(copy, sends_join(copy), number), RebalanceStarted)
    found: RebalanceCause = started.cause
    return found


def syncs(copy: Copy, *partitions: int) -> list[Fact]:
    share = assignment(*partitions)
    who = {"member_id": "a", "instance_id": None, "client_id": "client-a", "client_host": "/h"}
    return copy.wire_says(Synced, generation=2, assignment=share, assignments={"a": share}, **who)


# Detection of a move.


@pytest.mark.parametrize("passed", [0.0, 2.0, 1000.0])
@pytest.mark.parametrize(("before", "epoch"), [(4, 5), (-1, -1), (0, 1)])
@pytest.mark.parametrize(("after", "expected"), [(SOON, MOVED), (LATE, REJOINED)])
def test_takeover_causes_rejoin(before: int, epoch: int, passed: float, after: float, expected: RebalanceCause) -> None:
    """After the broker takes a partition over, the leader's rejoin has the cause COORDINATOR_MOVED, and later
    LEADER_REJOINED.
    """
    copy = found(leader_epoch=before)
    copy.now += passed
    take_over(copy, epoch)
    assert copy.log_says(GROUP) == []
    copy.now += after
    assert cause(copy) is expected


@pytest.mark.parametrize("epoch", [5, -1])
def test_regained_partition_counts_as_move(epoch: int) -> None:
    """A partition that the broker gave away and leads again gives the cause COORDINATOR_MOVED."""
    copy = found(leader_epoch=None)
    take_over(copy, min(epoch, 3))
    copy.log_says(GROUP)
    copy.now += 1000
    copy.follower.resign(0, min(epoch, 4), copy.now)
    take_over(copy, epoch)
    copy.log_says(GROUP)
    assert cause(copy) is MOVED


@pytest.mark.parametrize(
    ("first", "epoch", "after", "expected"),
    [
        (None, 0, SOON, REJOINED),  # The partition had no leader before this broker.
        (0, 0, SOON, REJOINED),  # The copy did not know yet that this broker leads the partition.
        (None, 3, SOON, UNKNOWN),
        (3, 3, SOON, UNKNOWN),
        (None, -1, SOON, UNKNOWN),
        (None, 3, LATE, REJOINED),
    ],
)
def test_first_look_at_leading_broker(first: int | None, epoch: int, after: float, expected: RebalanceCause) -> None:
    """If the broker already leads the partition at the first look, a rejoin soon afterwards has the cause UNKNOWN,
    except in leader epoch 0.
    """
    copy = found(leader_epoch=first)
    take_over(copy, epoch)
    copy.log_says(GROUP)
    copy.now += after
    assert cause(copy) is expected


@pytest.mark.parametrize("read_anew", ["failed", "lost connection"])
@pytest.mark.parametrize(("after", "expected"), [(SOON, MOVED), (LATE, REJOINED)])
def test_reload_keeps_time_of_move(read_anew: str, after: float, expected: RebalanceCause) -> None:
    """A reload of a partition does not change the time of its move."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(GROUP)
    copy.now += after
    if read_anew == "failed":
        copy.follower.fail(0, "damaged", copy.now)
        take_over(copy)
        copy.log_says(GROUP, generation(2, a=(0, 1)))
    else:
        list(copy.follower.connection_lost(copy.now, coordinator_loaded=False))
        copy.log_says(generation(2, a=(0, 1)))
        copy.follower.coordinator_loaded(0, copy.now)
    assert cause(copy, 3) is expected


def test_younger_group_has_not_moved() -> None:
    """A group created after the takeover gives the cause LEADER_REJOINED."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says()
    copy.log_says(GROUP)
    assert cause(copy) is REJOINED


@pytest.mark.parametrize(("after", "expected"), [(SOON, UNKNOWN), (LATE, REJOINED)])
@pytest.mark.parametrize("other", ["joins", "leaves"])
def test_later_event_is_not_the_cause(other: str, after: float, expected: RebalanceCause) -> None:
    """A join or leave after the leader's rejoin is not the cause of its rebalance."""
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
    assert [(started.cause, started.by.member_id) for started in of(facts, RebalanceStarted)] == [(expected, "a")]


# Order of arrival.


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("loads", list(combinations(range(7), 3)))
def test_rejoin_in_any_order_with_load(loads: tuple[int, ...], exclusive: bool) -> None:
    """The cause of a rejoin after a move is right or UNKNOWN, in any order of load steps and member requests."""
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
                copy.follower.coordinator_loaded(0, copy.now)
            case "heartbeat":
                facts += copy.wire_says(
                    MemberSeen, member_id="a", instance_id=None, generation=1, no_rebalance=True, **WHO
                )
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


def test_first_rejoiner_is_named() -> None:
    """If all members rejoin after a move, the first joiner is named."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    sends_join(copy, "b", ("range", "sticky"))
    [started] = of(is_let_in(copy, sends_join(copy)), RebalanceStarted)
    assert (started.cause, started.by.member_id) == (MOVED, "b")


@pytest.mark.parametrize(("epoch", "expected"), [(5, MOVED), (4, UNKNOWN)])
def test_long_rebalance_keeps_first_cause(epoch: int, expected: RebalanceCause) -> None:
    """A rebalance that takes long keeps the cause that counted at its first join."""
    copy = found(leader_epoch=4)
    take_over(copy, epoch)
    copy.log_says(GROUP)
    joining = sends_join(copy)
    copy.now += LATE
    [started] = of(is_let_in(copy, joining), RebalanceStarted)
    assert started.cause is expected


@pytest.mark.parametrize(("after", "expected"), [(SOON, MOVED), (LATE, REJOINED)])
def test_slow_broker_load_extends_move(after: float, expected: RebalanceCause) -> None:
    """The time for the cause COORDINATOR_MOVED starts when the broker has loaded the partition."""
    copy = found(leader_epoch=4)
    take_over(copy, serves=False)
    copy.log_says(GROUP)
    copy.now += LATE
    copy.follower.coordinator_loaded(0, copy.now)
    assert copy.follower.partitions.states == {0: PartitionState.OWNED}
    copy.now += after
    assert cause(copy) is expected


@pytest.mark.parametrize("exclusive", [False, True])
def test_sessions_start_after_broker_load(exclusive: bool) -> None:
    """Sessions start when the broker has loaded the partition, and a missing member is DROPPED."""
    copy = found(leader_epoch=4, exclusive=exclusive)
    take_over(copy, serves=False)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    copy.now += LATE
    copy.follower.coordinator_loaded(0, copy.now)
    assert swept(copy.manager, copy.now) == []
    facts = is_let_in(copy, sends_join(copy))
    assert [started.cause for started in of(facts, RebalanceStarted)] == [MOVED]
    assert [gone.how for gone in of(facts, MemberGone)] == [Departure.DROPPED], (
        "no session has expired since the broker loaded the partition"
    )


def test_join_precedes_expiry_after_load() -> None:
    """A rejoin before the end of a session that starts at the broker's load has the cause COORDINATOR_MOVED."""
    copy = found(leader_epoch=4, exclusive=True)
    take_over(copy, serves=False)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    copy.now += 20
    copy.follower.coordinator_loaded(0, copy.now)
    joining = sends_join(copy)
    copy.now += 10
    swept(copy.manager, copy.now)
    [started] = of(is_let_in(copy, joining), RebalanceStarted)
    assert started.cause is MOVED


def test_unknown_member_after_load_is_dropped() -> None:
    """A member that a freshly loaded broker does not know is DROPPED and not EXPIRED."""
    copy = found(leader_epoch=4)
    take_over(copy, serves=False)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    copy.now += 20
    copy.follower.coordinator_loaded(0, copy.now)
    facts = copy.wire_says(MemberUnknown, member_id="b")
    assert [gone.how for gone in of(facts, MemberGone)] == [Departure.DROPPED]


def test_not_coordinator_during_takeover() -> None:
    """NOT_COORDINATOR replies while the broker takes over report no move, and the rejoin has the cause
    COORDINATOR_MOVED.
    """
    copy = found(leader_epoch=4)
    take_over(copy, serves=False)
    copy.log_says(GROUP)
    assert copy.wire_says(NotCoordinatorReplied) == []
    copy.follower.coordinator_loaded(0, copy.now + 2)
    assert copy.wire_says(NotCoordinatorReplied) == [], (
        "the request was sent before the broker had loaded the partition"
    )
    assert cause(copy) is MOVED


def test_heartbeat_only_member_gives_unknown() -> None:
    """The rejoin of a member known only from heartbeats has the cause UNKNOWN."""
    copy = Copy()
    copy.wire_says(MemberSeen, member_id="a", instance_id=None, generation=1, no_rebalance=True, **WHO)
    assert cause(copy) is UNKNOWN


@pytest.mark.parametrize("epoch", [4, 5])
def test_new_partitions_beat_moved_cause(epoch: int) -> None:
    """New partitions in the leader's assignment change the cause of a rejoin after a move to TOPIC_METADATA."""
    copy = found(leader_epoch=4)
    take_over(copy, epoch)
    copy.log_says(GROUP)
    assert cause(copy) is (MOVED if epoch == 5 else UNKNOWN)
    [completed] = of(syncs(copy, 0, 1, 2), RebalanceCompleted)
    assert completed.cause is RebalanceCause.TOPIC_METADATA


def test_first_member_after_move_sees_no_new_partitions() -> None:
    """The first member of an Empty group gets all partitions. This does not show that topics have new partitions."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(generation(1))
    copy.manager.note_unread_write("g", copy.now)  # The copy no longer knows that the group is Empty.
    assert cause(copy) is MOVED
    [completed] = of(syncs(copy, 0, 1, 2), RebalanceCompleted)
    assert completed.cause is MOVED


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [(("range", "sticky"), MOVED), (("sticky",), RebalanceCause.SUBSCRIPTION_CHANGED)],
)
def test_follower_rejoins_after_move(protocols: tuple[str, ...], expected: RebalanceCause) -> None:
    """A follower's rejoin after a move has the cause COORDINATOR_MOVED if it offers the logged protocol."""
    copy = found(leader_epoch=4)
    take_over(copy)
    copy.log_says(generation(1, a=(0,), b=(1,)))
    [started] = of(is_let_in(copy, sends_join(copy, "b", protocols)), RebalanceStarted)
    assert started.cause is expected


@pytest.mark.parametrize("epoch", [1, 5])
def test_first_join_waits_during_load(epoch: int) -> None:
    """If the broker loads the partition again while the first join of a group waits, a new member is the cause."""
    copy = found(leader_epoch=None)
    take_over(copy, 0)
    copy.log_says()
    first = sends_join(copy)
    copy.wire_says(MemberIdIssued, joining=replace(first, member_id=""), member_id="a")
    joining = sends_join(copy)
    take_over(copy, epoch)
    copy.log_says()
    [started] = of(is_let_in(copy, joining, 1), RebalanceStarted)
    assert started.cause is RebalanceCause.NEW_MEMBER


# The earlier leader.


def test_group_given_away_is_reported_once() -> None:
    """A group that the broker gives away is reported as moved once."""
    copy = Copy(load=[GROUP])
    copy.follower.resign(0, 4, copy.now)
    [moved] = copy.wire_says(NotCoordinatorReplied)
    assert isinstance(moved, CoordinatorMoved)
    assert copy.wire_says(NotCoordinatorReplied) == []


def test_regained_group_is_not_moved() -> None:
    """A group that the broker takes back is removed from the moved groups."""
    copy = Copy(load=[GROUP])
    copy.follower.resign(0, 4, copy.now)
    take_over(copy)
    assert len(copy.follower.moved_groups) == 0


def _many(copy: Copy) -> list[str]:
    """Adds members of many groups to the copy. Returns the names of the groups."""
    names = [f"g-{number}" for number in range(2 * GROUPS_PER_FORGET_STEP + 1)]
    seen = {"member_id": "a", "instance_id": None, "generation": 1, "no_rebalance": True, **WHO}
    copy.manager.apply([MemberSeen(group_id=name, sent_at=copy.now, **seen) for name in names], copy.now)
    return names


def _kept(copy: Copy) -> int:
    return len(copy.manager.group_metadata_cache)


@pytest.mark.parametrize("moved", [False, True])
def test_groups_are_forgotten_in_steps(moved: bool) -> None:
    """A partition is given up in steps. No answer uses its groups meanwhile, and its groups are reported as moved."""
    copy = Copy(exclusive=True)
    names, left = _many(copy), list[int]()
    for _ in copy.follower.forget_in_steps(0, 4, copy.now, moved=moved):
        left.append(_kept(copy))
        assert copy.manager.group_fallback_reason(names[0], copy.now) is not None
        assert copy.manager.listing_fallback_reason(copy.now) is not None
    assert left == [GROUPS_PER_FORGET_STEP + 1, 1]
    assert _kept(copy) == 0
    if moved:
        copy.follower.resign(0, 4, copy.now)
        facts = copy.manager.apply([NotCoordinatorReplied(group_id=name, sent_at=copy.now) for name in names], copy.now)
        assert [fact.group_id for fact in of(facts, CoordinatorMoved)] == names
    else:
        take_over(copy, 4)
        assert sorted(copy.follower.partitions.leader_partitions[0].known_before) == sorted(names)
        copy.log_says(GROUP)
        assert copy.manager.view("g", copy.now).generation == 1


def test_late_step_forgets_no_loaded_group() -> None:
    """While a partition is given up, it is loaded again. The later steps forget nothing."""
    copy = Copy()
    _many(copy)
    steps = copy.follower.forget_in_steps(0, 4, copy.now, moved=True)
    next(steps)
    take_over(copy)
    _many(copy)
    kept = _kept(copy)
    assert list(steps) == []
    assert _kept(copy) == kept > GROUPS_PER_FORGET_STEP


def test_stale_epoch_gives_nothing_up() -> None:
    """A reply with an old leader epoch does not make the copy forget the groups."""
    copy = found(leader_epoch=4)
    take_over(copy, 5)
    _many(copy)
    kept = _kept(copy)
    with pytest.raises(StaleEpoch):
        list(copy.follower.forget_in_steps(0, 4, copy.now, moved=True))
    assert _kept(copy) == kept
    assert list(copy.follower.forget_in_steps(1, 4, copy.now, moved=True)) == [], (
        "the broker does not lead this partition"
    )


def test_move_is_reported_once_between_steps() -> None:
    """NOT_COORDINATOR arrives for a group whose step is still to come. The group is reported as moved once."""
    copy = Copy(exclusive=True)
    names = _many(copy)
    steps = copy.follower.forget_in_steps(0, 4, copy.now, moved=True)
    next(steps)
    copy.now += 1
    moved = [NotCoordinatorReplied(group_id=name, sent_at=copy.now) for name in names]
    facts = copy.manager.apply(moved, copy.now)
    list(steps)
    copy.follower.resign(0, 4, copy.now)
    facts += copy.manager.apply(moved, copy.now)
    assert sorted(fact.group_id for fact in of(facts, CoordinatorMoved)) == sorted(names)


def test_session_of_later_member_is_not_shortened() -> None:
    """The broker removes a member that joined long after the load before its session can have ended: DROPPED."""
    copy = Copy(exclusive=True)
    take_over(copy, 4)
    copy.log_says(generation(1, a=(0, 1)))
    copy.now += 1000
    copy.log_says(generation(2, a=(0,), b=(1,)))
    copy.now += 3
    [gone] = of(copy.log_says(generation(3, a=(0, 1))), MemberGone)
    assert (gone.member_id, gone.how) == ("b", Departure.DROPPED)


def test_new_group_of_same_name_has_no_expired_clients() -> None:
    """A group is deleted and made again while another broker coordinates it. Its former clients did not expire."""
    copy = Copy()
    take_over(copy, 4)
    copy.log_says(generation(7, a=(0,), b=(1,)))
    for name in "ab":
        seen = {"member_id": name, "instance_id": None, "generation": 7, "no_rebalance": True}
        copy.wire_says(MemberSeen, **seen, client_id=f"client-{name}", client_host="/h")
    copy.follower.resign(0, 5, copy.now)
    copy.now += 100
    take_over(copy, 6)
    copy.log_says(generation(2, x=(0, 1)))
    sends_join(copy, "b")
    [started] = of(copy.wire_says(RebalanceSeen, member_id="x", generation=2, is_heartbeat=True), RebalanceStarted)
    assert started.cause is not RebalanceCause.SESSION_EXPIRED
