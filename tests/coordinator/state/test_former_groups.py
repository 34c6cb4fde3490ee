"""What the copy keeps of a group whose state it forgets, because the broker has stopped or gave the group away."""

from dataclasses import replace

import pytest

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.model.events import (
    DescribedMember,
    GroupDescribed,
    JoinAccepted,
    JoiningMember,
    JoinRejected,
    JoinSent,
    MemberSeen,
    MembersLeft,
    NotCoordinatorReplied,
    RebalanceSeen,
    Synced,
)
from group_sidecar.coordinator.model.facts import (
    Departure,
    Fact,
    MemberGone,
    MemberInfo,
    MemberJoined,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.coordinator.state.expired_clients import ExpiredClient
from group_sidecar.coordinator.state.former_groups import (
    FORMER_GENERATION_SECONDS,
    NOTHING_KNOWN,
    FormerGroup,
    FormerGroups,
)
from group_sidecar.coordinator.state.group import MAX_LEFT_MEMBERS_KEPT
from group_sidecar.coordinator.state.lifecycle import UNKNOWN_GENERATION
from tests.coordinator.rules.test_logged_rebalances import WHO, Copy, generation, of, sends_join
from tests.coordinator.sweeping import swept

GROUP = generation(1, static=True, ax=(0,), by=(1,))
"""A generation of two static members: `ax` and `by` with the instance ids `a` and `b`."""


def _loaded() -> Copy:
    copy = Copy(exclusive=True)
    copy.follower.count_partitions(2, copy.now)  # The copy begins anew, because the number of partitions changes.
    copy.follower.count_partitions(1, copy.now)
    copy.log = copy.follower.begin_load(0, 4, 0, copy.now)
    copy.log_says(GROUP)
    return copy


def _restarts(copy: Copy, *steps: str) -> None:
    """The broker restarts. `steps`: how the copy learns of the restart."""
    for step in steps:
        copy.now += 1
        match step:
            case "resigned":
                copy.follower.resign(0, 5, copy.now)
            case "moved":
                copy.wire_says(NotCoordinatorReplied)
            case "load":
                copy.log = copy.follower.begin_load(0, 6, 0, copy.now)
            case "described":
                _described(copy, "ax", "by")
            case "refused":
                joining = replace(sends_join(copy, ""), token="1:", instance_id="a")
                copy.wire_says(JoinRejected, joining=joining, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _described(copy: Copy, *member_ids: str) -> list[Fact]:
    members = tuple(
        DescribedMember(member_id=each, instance_id=each[0], metadata=b"", assignment=b"", **WHO) for each in member_ids
    )
    copy.now += 1
    event = GroupDescribed(
        group_id="g",
        sent_at=copy.now,
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol="range",
        members=members,
        as_of=copy.manager.changes_of("g")[0],
    )
    return copy.manager.apply([event], copy.now)


def _returns(copy: Copy, name: str, number: int) -> list[Fact]:
    """The client of a static member sends a join without its member id, and the broker replies. Returns the facts."""
    joining = replace(sends_join(copy, ""), token=f"2:{name}", instance_id=name[0], client_id=f"client-{name}")
    return _accepted(copy, joining, name, number)


def _accepted(copy: Copy, joining: JoiningMember, name: str, number: int) -> list[Fact]:
    facts = copy.wire_says(JoinSent, joining=joining)
    facts += copy.wire_says(
        JoinAccepted,
        joining=joining,
        member_id=f"{name}-new",
        generation=number,
        protocol_type="consumer",
        protocol="range",
        leader="ax",
        roster=(),
    )
    who = {"member_id": f"{name}-new", "instance_id": name[0], **WHO}
    return facts + copy.wire_says(Synced, generation=number, assignment=b"", assignments={}, **who)


LESSONS = [
    ("resigned", "moved"),
    ("resigned", "moved", "load"),
    ("resigned", "refused", "moved", "refused", "refused"),
    ("moved",),
    ("moved", "load", "refused"),
    ("load",),
    ("moved", "moved", "described"),
    ("resigned", "load", "described"),
]
"""How a copy learns that the broker restarts, before the copy has read the log again."""


@pytest.mark.parametrize("lessons", LESSONS, ids="-".join)
def test_immediate_reply_begins_no_rebalance(lessons: tuple[str, ...]) -> None:
    """After the broker has restarted, it answers the joins of static members at once, with the last generation. The
    copy reports no rebalance, also if it reads the log only later.
    """
    copy = _loaded()
    _restarts(copy, *lessons)
    facts = _returns(copy, "ax", 1) + _returns(copy, "by", 1)
    assert not of(facts, RebalanceStarted) + of(facts, RebalanceCompleted)
    if "load" not in lessons:
        _restarts(copy, "load")
    new = generation(1, static=True, **{"ax-new": (0,), "by-new": (1,)})
    assert not of(copy.log_says(GROUP, new), RebalanceCompleted)
    assert copy.manager.view("g", copy.now).generation == 1
    [started] = of(copy.log_says(generation(2, static=True, **{"ax-new": (0, 1)})), RebalanceStarted)
    assert started.by.member_id == "by-new", "the next generation begins a rebalance"


@pytest.mark.parametrize("lessons", LESSONS, ids="-".join)
def test_new_generation_begins_rebalance(lessons: tuple[str, ...]) -> None:
    """A join that the broker answers with a new generation begins a rebalance, also before the log is read."""
    copy = _loaded()
    _restarts(copy, *lessons)
    assert len(of(_returns(copy, "ax", 2), RebalanceStarted)) == 1


def _expired(copy: Copy) -> list[str]:
    """The broker is suspended, so the copy hears of no member. Returns who is reported as expired."""
    copy.wire_says(MemberSeen, member_id="ax", instance_id="a", generation=1, no_rebalance=True, **WHO)
    copy.wire_says(MemberSeen, member_id="by", instance_id="b", generation=1, no_rebalance=True, **WHO)
    copy.now += 60
    return [fact.member_id for fact in of(swept(copy.manager, copy.now), MemberGone)]


@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize("lessons", [each for each in LESSONS if "described" not in each], ids="-".join)
def test_departure_is_reported_once(lessons: tuple[str, ...], described: bool) -> None:
    """The broker is suspended for longer than the sessions, and then loads the groups again, with their members. The
    departure of these members is not reported again when the broker removes them.
    """
    copy = _loaded()
    assert _expired(copy) == ["ax", "by"]
    _restarts(copy, *lessons)
    if "load" not in lessons:
        _restarts(copy, "load")
    facts = copy.log_says(GROUP)
    copy.now += 1
    if described:
        facts += _described(copy, "ax", "by")
    copy.now += 60
    facts += swept(copy.manager, copy.now)
    facts += copy.log_says(generation(3))
    assert facts == []


@pytest.mark.parametrize("lessons", [each for each in LESSONS if each[-1] == "load"], ids="-".join)
def test_leave_is_reported_once(lessons: tuple[str, ...]) -> None:
    """A member leaves, and then the broker loads a generation from before the leave. When the broker removes the member
    again, its departure is not reported again. The cause of the rebalance is the end of its session.
    """
    copy = _loaded()
    facts = copy.wire_says(MembersLeft, members=(("ax", None),), **WHO)
    assert [(fact.member_id, fact.how) for fact in of(facts, MemberGone)] == [("ax", Departure.LEFT)]
    _restarts(copy, *lessons)
    copy.log_says(GROUP)
    copy.now += 4
    facts = copy.wire_says(RebalanceSeen, member_id="by", generation=1, is_heartbeat=True)
    assert [(started.cause, started.by.member_id) for started in of(facts, RebalanceStarted)] == [
        (RebalanceCause.SESSION_EXPIRED, "ax")
    ]
    assert not of(copy.log_says(generation(2, static=True, by=(0, 1))), MemberGone)


def test_left_members_are_bounded() -> None:
    """Only so many of the members that have left are kept."""
    copy = _loaded()
    group = copy.manager.group_metadata_cache["g"]
    group.left_member_ids.update(map(str, range(MAX_LEFT_MEMBERS_KEPT + 1)))
    assert len(group.former().reported_gone) == MAX_LEFT_MEMBERS_KEPT


def test_returned_member_departs_again() -> None:
    """A member that sends a heartbeat after the load is reported as joined, and its next departure is reported."""
    copy = _loaded()
    assert _expired(copy) == ["ax", "by"]
    _restarts(copy, "resigned", "moved", "load")
    copy.log_says(GROUP)
    facts = copy.wire_says(MemberSeen, member_id="ax", instance_id="a", generation=1, no_rebalance=True, **WHO)
    assert [fact.member_id for fact in of(facts, MemberJoined)] == ["ax"]
    copy.now += 60
    facts = swept(copy.manager, copy.now) + copy.log_says(generation(3))
    assert [(fact.member_id, fact.how) for fact in of(facts, MemberGone)] == [("ax", Departure.EXPIRED)]


def test_generation_is_dropped_with_next() -> None:
    """After a new generation, the number of the former generation shows nothing any more."""
    copy = _loaded()
    _restarts(copy, "resigned", "moved")
    _returns(copy, "ax", 2)
    assert copy.manager.group_metadata_cache["g"].former().generation == 2
    copy.manager.group_metadata_cache["g"].lifecycle.forget_generation()
    assert copy.manager.group_metadata_cache["g"].former().generation == UNKNOWN_GENERATION


@pytest.mark.parametrize(("silent_for", "begins"), [(FORMER_GENERATION_SECONDS, 1), (10.0, 0)])
def test_former_generation_expires(silent_for: float, begins: int) -> None:
    """Long after the group was last seen, the same generation may be one of a new group. A join begins a rebalance."""
    copy = _loaded()
    _restarts(copy, "resigned", "moved")
    copy.now += silent_for
    assert len(of(_returns(copy, "ax", 1), RebalanceStarted)) == begins


def test_clients_count_as_bytes() -> None:
    """The texts of expired clients count towards the bound in bytes."""
    groups = FormerGroups(2, max_member_bytes=1000)
    client = ExpiredClient(MemberInfo(member_id="m", client_id="c", client_host="/h"), 1.0)
    groups.put("a", FormerGroup(expired=(client,)))
    assert groups.table.bytes > client.bytes > 500
    groups.put("b", FormerGroup(expired=(client,)))
    assert (groups.take("a").expired, groups.take("b").expired) == ((), (client,))
    assert groups.table[1:] == (0, 0)


def test_bounds() -> None:
    """The oldest groups are evicted beyond the number of groups and beyond the memory for member ids."""
    groups = FormerGroups(2, max_member_bytes=1000)
    for name in "abc":
        groups.put(name, FormerGroup(1))
    groups.put("d", NOTHING_KNOWN)
    assert groups.table.entries == 2
    assert [groups.take(name).generation for name in "abc"] == [-1, 1, 1]
    assert groups.table[1:] == (0, 0)
    large = {f"member-{number}": 1.0 for number in range(3)}
    groups.put("a", FormerGroup(1, reported_gone=large))
    groups.put("b", FormerGroup(2, reported_gone=large))
    assert (groups.take("a"), groups.take("b")) == (FormerGroup(1), FormerGroup(2, reported_gone=large))
    assert groups.table[1:] == (0, 0)


def test_clients_are_evicted_first() -> None:
    """If the bytes do not suffice, the clients of the oldest groups are evicted, then reported members, and never
    generations. A group of which nothing is known any more is evicted.
    """
    clients = tuple(ExpiredClient(MemberInfo(member_id=n, client_id=n, client_host="/h"), 1.0) for n in "ab")
    size = sum(client.bytes for client in clients)
    groups = FormerGroups(9, max_member_bytes=size + 500)
    groups.put("gone", FormerGroup(1, 5.0, {"m": 1.0}))
    groups.put("both", FormerGroup(2, 5.0, {"m": 1.0}, clients))
    groups.put("deleted", FormerGroup(expired=clients))
    assert groups.table.entries == 3
    groups.put("last", FormerGroup(3, 5.0, {}, clients))
    assert groups.table.entries == 3
    assert groups.take("deleted") == NOTHING_KNOWN
    assert groups.take("both") == FormerGroup(2, 5.0, {"m": 1.0})
    assert groups.take("last") == FormerGroup(3, 5.0, {}, clients)
    assert groups.take("gone") == FormerGroup(1, 5.0, {"m": 1.0})
    assert groups.table[1:] == (0, 0)
    groups.put("first", FormerGroup(1, 5.0, {"m": 1.0}))
    groups.put("large", FormerGroup(2, 5.0, {str(n): 1.0 for n in range((size + 500) // 200)}))
    assert groups.take("first") == FormerGroup(1, 5.0)
