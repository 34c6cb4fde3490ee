"""What each event does to a group's membership.

Owns: the rules by which events become changes of a `Group`, and the facts they give; those of joins stand in
`joining`. Must not know: offsets, the cache of groups, where events come from.

Replies on different connections may overtake each other. What keeps the copy right nonetheless: generations
only grow; a member id that has gone never comes back; who is in a generation is taken from its leader's reply,
and the assignments from its leader's sync; and an event whose request went out before the last change was
seen cannot bring back what that change took away.
"""

from collections.abc import Callable
from typing import Any

from group_sidecar.coordinator.causes import by_admin, join_before, of_departure, silence_tells
from group_sidecar.coordinator.events import (
    FOREVER,
    LEAVING_EPOCH,
    NEVER,
    ConsumerJoinAnswered,
    ConsumerJoinSent,
    ConsumerMemberSeen,
    Event,
    GroupDescribed,
    JoinAccepted,
    JoinRejected,
    JoinSent,
    LeaveSent,
    Leaving,
    MemberIdIssued,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    RebalanceSeen,
    ReplyLost,
    SignOfLife,
    Synced,
)
from group_sidecar.coordinator.facts import Departure, Fact
from group_sidecar.coordinator.groups import UNKNOWN_GENERATION, Group, StaticMembers
from group_sidecar.coordinator.joining import join_accepted, join_rejected, join_sent, member_id_issued, reply_lost
from group_sidecar.coordinator.members import Leave, Member
from group_sidecar.coordinator.ownership import keep_owners
from group_sidecar.coordinator.rebalances import Blame
from group_sidecar.coordinator.states import CLASSIC, PREPARING_REBALANCE
from group_sidecar.coordinator.telling import (
    begin,
    completed,
    forget_past,
    gone,
    interrupted,
    joined,
    noticed,
    overdue_conclusion,
)
from group_sidecar.coordinator.views import GroupKind, GroupState, Lacking

CONSUMER_SESSION_MS = 45_000
"""`group.consumer.session.timeout.ms` as the broker has it by default: KIP-848 clients are not told."""
_LEFT, _RESTARTING = LEAVING_EPOCH, -2
"""Member epochs. A static member that is restarting keeps its place."""


def expire(group: Group, now: float) -> list[Fact]:
    """Sets members aside whose session must have run out. Until the broker confirms it, the group is in doubt."""
    facts = overdue_conclusion(group, now) if group.rebalance is not None else []
    late = group.expire(now)
    if late:
        group.touch(now)
    for member in late:
        if silence_tells(group, member):
            silent = member.silent(now, group.tenure.began_at)
            facts += gone(group, [member], Departure.EXPIRED if silent else Departure.DROPPED, now)
    return facts


def _heard(group: Group, event: SignOfLife, now: float) -> tuple[Member | None, list[Fact]]:
    """The member that the broker took a request from, and the facts; no member where that is overtaken.

    Of a member or a generation that is new to the copy, it learns.
    """
    member = group.members.get(event.member_id)
    if member is not None and member.true_host == event.client_host and event.generation == group.generation:
        return member, []  # As nearly always.
    if event.generation < group.generation and event.sent_at < group.generation_at:
        return None, []
    if group.generation == UNKNOWN_GENERATION:
        if event.sent_at < group.changed_at:
            return member, []  # Of which generation it was does not say which it is now.
        group.generation, group.generation_at = event.generation, now
    elif event.generation != group.generation:
        group.adopt_generation(event.generation, now)
        group.touch(now)
    if member is not None and member.client_host:
        group.locate(member, event.client_host)
        return member, []
    if event.member_id in group.departed:
        return None, []
    return _found(group, event, now)


def _found(group: Group, event: SignOfLife, now: float) -> tuple[Member, list[Fact]]:
    """A member that was not known, or only by its id, or was thought to be gone."""
    member = group.members.get(event.member_id) or group.overdue.pop(event.member_id, None)
    if member is None:
        member = Member(member_id=event.member_id, since=now, instance_id=event.instance_id)
        group.unsure = group.unsure or Lacking.COLD
        if group.state in (GroupState.DEAD, GroupState.EMPTY):
            group.become(GroupState.STABLE)
    group.members[member.member_id] = member
    member.identify(event.client_id, event.client_host)
    group.touch(now)
    return member, noticed(group, [member], now)


def _synced(group: Group, event: Synced, now: float) -> list[Fact]:
    if group.kind is not GroupKind.CLASSIC:
        return _refreshed(group, event.member_id, event.sent_at, now, event.client_host)
    member, facts = _heard(group, event, now)
    if member is None:
        return []
    member.sync_by, member.heard = FOREVER, True
    if group.stable_at == NEVER:
        group.stable_at = now
    if event.sent_at <= group.stable_at:  # It waited for the leader, and then its session began anew.
        member.seen_at = max(member.seen_at, group.stable_at)
    if event.member_id == group.leader and not group.assigned:
        group.assigned = True
        for each in group.members.values():
            each.assignment = event.assignments.get(each.member_id, b"")
    member.assignment = event.assignment
    if group.state is GroupState.COMPLETING_REBALANCE:
        group.become(GroupState.STABLE)
        facts += completed(group, now)
    elif group.assigned and group.rebalance is not None and group.state is GroupState.STABLE:
        facts += completed(group, now)
    return facts


def member_seen(group: Group, event: MemberSeen, now: float) -> list[Fact]:
    """The member is alive. What changes how the group is listed counts as a change."""
    if group.kind is not CLASSIC:
        return _refreshed(group, event.member_id, event.sent_at, now, event.client_host)
    member, facts = _heard(group, event, now)
    if member is None:
        return []
    member.heard = True
    if member.seen_at < event.sent_at:
        member.seen_at = event.sent_at
    if event.steady and group.state is PREPARING_REBALANCE and event.sent_at > group.changed_at:
        _still_stable(group, now)
    return facts


def _still_stable(group: Group, now: float) -> None:
    """No rebalance is prepared after all: the broker would have said REBALANCE_IN_PROGRESS."""
    if group.stable_at != NEVER and not group.joins:
        group.rebalance = None
        group.state = GroupState.STABLE
        group.touch(now)


def _refreshed(group: Group, member_id: str, sent_at: float, now: float, client_host: str = "") -> list[Fact]:
    """A known member is alive; one that was thought to be gone is back. `client_host`: where that is known."""
    facts: list[Fact] = []
    if (back := group.overdue.pop(member_id, None)) is not None:
        group.members[member_id] = back
        group.locate(back, client_host)
        group.touch(now)
        facts += noticed(group, [back], now)
    if (member := group.members.get(member_id)) is not None:
        member.seen_at, member.heard = max(member.seen_at, sent_at), True
        group.locate(member, client_host)
    return facts


def _rebalance_seen(group: Group, event: RebalanceSeen, now: float) -> list[Fact]:
    facts = _refreshed(group, event.member_id, event.sent_at, now) if event.alive else []
    overtaken = event.generation < group.generation and event.sent_at < group.generation_at
    busy = group.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
    if overtaken or busy or group.kind is not GroupKind.CLASSIC:
        return facts
    group.touch(now)
    return facts + begin(group, now)


# Departures.


def _member_unknown(group: Group, event: MemberUnknown, now: float) -> list[Fact]:
    here, leave = group.members.get(event.member_id), group.leaving.get(event.member_id)
    if here is not None:
        keep_owners(group)
    if (dropped := group.drop(event.member_id, now)) is None:
        return []
    if dropped.instance_id:
        group.contest(dropped.instance_id)  # Another may have taken over who it is.
    how, said = _how_unknown(group, dropped, event, leave, now), leave.said if leave else ""
    facts = gone(group, [here] if here else [], how, now, said)
    went_at = dropped.due_at(group.tenure.began_at) if how is Departure.EXPIRED else event.sent_at
    facts += _after_departure(group, join_before(group, went_at) or of_departure(dropped, how, said), now)
    if group.state is GroupState.EMPTY:
        group.doubt(now)  # For who knows how long: it may have been cleared away, and made anew.
    return facts


def _how_unknown(group: Group, member: Member, event: MemberUnknown, leave: Leave | None, now: float) -> Departure:
    """How a member went that the broker does not know any more."""
    if leave is not None:
        return Departure.KICKED if leave.kicked else Departure.LEFT
    # A timer that has not run out here has not at the broker: it began later there.
    lasts = member.session_timeout_ms is not None and not member.silent(now, group.tenure.began_at)
    return Departure.DROPPED if event.refused or lasts else Departure.EXPIRED


def _static_of(group: Group, event: Leaving) -> StaticMembers | None:
    """The static members, where many leave: looking for each among all of 5,000 would take a second."""
    return group.static_members() if len(event.members) > 1 else None


def _leave_sent(group: Group, event: LeaveSent, now: float) -> list[Fact]:
    """Members ask to leave. Others may be told of it sooner than they are."""
    static = _static_of(group, event)
    for named, instance_id, said in event.each:
        member_id = named or group.by_instance(instance_id, static)
        if (member := group.members.get(member_id)) is not None:
            kicked = by_admin(member, named, said, event.client_id, event.client_host)
            group.leaving[member_id] = Leave(at=event.sent_at, said=said, kicked=kicked)
    return []


def _members_left(group: Group, event: MembersLeft, now: float) -> list[Fact]:
    facts, why = list[Fact](), None
    group.reservations.outdate()
    keep_owners(group)
    static = _static_of(group, event)
    for named, instance_id, said in event.each:
        member_id = named or group.by_instance(instance_id, static)
        if (here := group.members.get(member_id)) is not None:
            how = _how_left(here, event, named, said)
            facts += gone(group, [here], how, now, said)
            why = why or of_departure(here, how, said)
        dropped = group.drop(member_id, now)
        if dropped is None:
            group.depart(member_id, now)
        if not member_id and instance_id:
            group.contest(instance_id, static)
        # Kafka 4 rebalances also when an id leaves that was only issued. And which member had an instance id
        # is not sure if something came in between.
        if dropped is None or (not named and event.sent_at < group.changed_at):
            group.doubt(now)
    return facts + (_after_departure(group, join_before(group, event.sent_at) or why, now) if why else [])


def _how_left(member: Member, event: MembersLeft, named: str, said: str) -> Departure:
    if event.removed:
        return Departure.REMOVED
    kicked = by_admin(member, named, said, event.client_id, event.client_host)
    return Departure.KICKED if kicked else Departure.LEFT


def _after_departure(group: Group, why: Blame, now: float) -> list[Fact]:
    if group.kind is not GroupKind.CLASSIC:
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        group.foretold = why
        return []
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return []
    if group.members or group.overdue or group.unsure is not None or group.awaiting - group.departed:
        return begin(group, now, why)
    facts = interrupted(group, now)
    group.empty_out(now)
    forget_past(group)
    return facts


# What others say.


def _described(group: Group, event: GroupDescribed, now: float) -> list[Fact]:
    classic = group.kind is GroupKind.CLASSIC or event.state is not GroupState.DEAD  # Others are described as Dead.
    if group.joins or not classic or event.sent_at < group.settled_at:
        return []  # It tells of a time before something that is known, or will be.
    if group.unsure is not None and group.logged is None:  # The log is behind by no generation.
        group.generation = UNKNOWN_GENERATION
    group.kind = GroupKind.CLASSIC
    group.describe(event.members, event.protocol, now)
    if group.state is not event.state:
        group.rebalance = None
        group.state = event.state
    group.protocol_type = event.protocol_type
    if event.state is GroupState.STABLE:
        group.protocol, group.stable_at = event.protocol, now
    elif event.state is GroupState.EMPTY:
        group.protocol = group.leader = ""
    group.assigned = event.state is GroupState.STABLE
    group.bare = False
    group.be_sure()
    return []


def _consumer_join_sent(group: Group, event: ConsumerJoinSent, now: float) -> list[Fact]:
    group.reservations.arrivals.arriving(event.who, now, event.client_host)
    return []


def _consumer_join_answered(group: Group, event: ConsumerJoinAnswered, now: float) -> list[Fact]:
    group.reservations.forget(event.who)
    return []


def _consumer_member_seen(group: Group, event: ConsumerMemberSeen, now: float) -> list[Fact]:
    if event.joins:
        group.departed.discard(event.member_id)  # Here clients make the ids, and come back with them.
        group.leaving.pop(event.member_id, None)
        group.reservations.arrivals.arriving(event.member_id, now, event.client_host)
        if event.instance_id and (old := group.predecessor(event.instance_id, event.member_id)) is not None:
            group.reservations.arrivals.leaving(old.member_id, now)
    elif event.epoch == _LEFT:
        group.reservations.arrivals.leaving(event.member_id, now)
    if event.changes:
        group.doubt(event.sent_at)
        group.doubted_until = max(group.doubted_until, now)
    if group.consumer is not None or event.epoch == _RESTARTING:
        if (known := group.members.get(event.member_id)) is not None:
            known.heard = True
            group.locate(known, event.client_host)
        return []  # The log tells the rest.
    group.kind, group.protocol_type = GroupKind.CONSUMER, "consumer"
    group.generation = max(group.generation, event.epoch)
    if event.epoch == _LEFT:
        here = group.members.get(event.member_id)
        group.drop(event.member_id, now)
        group.touch(now)
        facts = gone(group, [here] if here else [], Departure.LEFT, now)
        return facts + _after_departure(group, of_departure(here, Departure.LEFT) if here else Blame(), now)
    group.state = GroupState.STABLE
    facts = _refreshed(group, event.member_id, event.sent_at, now, event.client_host)
    if event.member_id in group.members:
        return facts
    member = Member(
        member_id=event.member_id,
        since=now,
        instance_id=event.instance_id,
        client_id=event.client_id,
        true_host=event.client_host,
        session_timeout_ms=CONSUMER_SESSION_MS,
        seen_at=event.sent_at,
        heard=True,
    )
    group.members[event.member_id] = member
    group.touch(now)
    return joined(group, [member], now)


HANDLERS: dict[type[Event], Callable[[Group, Any, float], list[Fact]]] = {
    JoinSent: join_sent,
    ReplyLost: reply_lost,
    JoinRejected: join_rejected,
    MemberIdIssued: member_id_issued,
    JoinAccepted: join_accepted,
    Synced: _synced,
    MemberSeen: member_seen,
    RebalanceSeen: _rebalance_seen,
    MemberUnknown: _member_unknown,
    LeaveSent: _leave_sent,
    MembersLeft: _members_left,
    GroupDescribed: _described,
    ConsumerJoinSent: _consumer_join_sent,
    ConsumerJoinAnswered: _consumer_join_answered,
    ConsumerMemberSeen: _consumer_member_seen,
}
"""The rule of each kind of event."""
QUIET = frozenset(
    {JoinSent, LeaveSent, MemberSeen, RebalanceSeen, ConsumerJoinSent, ConsumerJoinAnswered, ConsumerMemberSeen}
)
"""Events that mostly change nothing, and are often: their rules count the changes. Of the others each is one."""
