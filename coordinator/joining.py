"""What the replies to joins do to a group.

Owns: the rules by which JoinGroup's outcomes become changes of a `Group`, and the facts they give. Must not
know: other requests, offsets, where events come from.
"""

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.causes import how_dropped, of_departure, silence_tells
from group_sidecar.coordinator.events import (
    LOST_SECONDS,
    NEW_MEMBER_SECONDS,
    JoinAccepted,
    Joining,
    JoinRejected,
    JoinSent,
    MemberIdIssued,
    ReplyLost,
)
from group_sidecar.coordinator.facts import Departure, Fact, RebalanceCause
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.members import Member
from group_sidecar.coordinator.rebalances import Blame
from group_sidecar.coordinator.telling import begin, gone, joined, noticed
from group_sidecar.coordinator.views import GroupKind, GroupState

TOLD_OTHERWISE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""Errors of a join that changed nothing in the group, or after which the change is told by another reply."""

_BETWEEN = (GroupState.DEAD, GroupState.EMPTY)
"""Whatever its number, the next generation is a new one."""


def join_sent(group: Group, event: JoinSent, now: float) -> list[Fact]:
    """A reservation."""
    group.reservations.hold(event)
    return []


def reply_lost(group: Group, event: ReplyLost, now: float) -> list[Fact]:
    """The group is in doubt, and the reservation gone, if it was one."""
    sent = group.reservations.lose(event.token, now)
    if sent is not None:
        _contest(group, sent.joining)
    group.doubt(now + LOST_SECONDS)
    return []


def member_id_issued(group: Group, event: MemberIdIssued, now: float) -> list[Fact]:
    """The group exists, and waits for the id to be used."""
    group.reservations.release(event.joining.token)
    if group.state is GroupState.DEAD:
        group.become(GroupState.EMPTY)
    group.pending.issue(event.member_id, now + event.joining.session_timeout_ms / 1000)
    return []


def join_rejected(group: Group, event: JoinRejected, now: float) -> list[Fact]:
    """The reservation is gone; the join may have waited in a rebalance before."""
    joining = event.joining
    group.reservations.release(joining.token)
    if event.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL and not joining.member_id:
        if group.state is GroupState.DEAD:
            group.become(GroupState.EMPTY)  # The coordinator makes the group before it looks at the protocols.
    elif event.error_code == ErrorCode.FENCED_INSTANCE_ID:
        _contest(group, joining)
    waited = event.error_code == ErrorCode.UNKNOWN_MEMBER_ID and now - event.sent_at >= NEW_MEMBER_SECONDS
    if joining.parks and (waited or event.error_code not in TOLD_OTHERWISE):
        group.doubt(now)
    return []


def _contest(group: Group, joining: Joining) -> None:
    """A new static member may have been in the group that the copy never had in."""
    if joining.instance_id and not joining.member_id:
        group.contest(joining.instance_id)


def join_accepted(group: Group, event: JoinAccepted, now: float) -> list[Fact]:
    """The member is in a generation, new to the copy or not."""
    if event.generation < group.generation and event.sent_at < group.generation_at:
        group.reservations.release(event.joining.token)
        _contest(group, event.joining)
        return []  # Overtaken by a later generation.
    if group.kind is not GroupKind.CLASSIC and group.members:
        group.reservations.release(event.joining.token)
        group.reservations.arrivals.arriving(event.member_id, now, event.joining.client_host)
        return _admitted(group, event, now)  # A classic member of a KIP-848 group, which has no such generations.
    facts: list[Fact] = []
    if event.generation != group.generation or group.state in _BETWEEN or _made_anew(group, event):
        facts += begin(group, now, _let_in_at_once(event))
        group.start_generation(event, now)
        if group.rebalance is not None:
            group.rebalance.begin_generation(group.joins.values())
    group.reservations.release(event.joining.token)
    if event.sent_at <= group.generation_at:
        if group.rebalance is not None:
            group.rebalance.answered(event)
        facts += _admitted(group, event, now)
    else:
        facts += _answered_again(group, event, now)
    return facts + _roll_called(group, event, now)


def _made_anew(group: Group, event: JoinAccepted) -> bool:
    """Whether the broker has counted from the beginning again: nobody was left, and then there is no such generation
    any more.
    """
    return not group.members and not group.overdue and event.sent_at > group.generation_at


def _let_in_at_once(event: JoinAccepted) -> Blame | None:
    """What a new member brought about that got id and place at once: not every broker hands out ids first (KIP-394)."""
    joining = event.joining
    if joining.parks:
        return None
    return Blame(cause=RebalanceCause.NEW_MEMBER, by=joining.who(event.member_id), said=joining.said)


def _admitted(group: Group, event: JoinAccepted, now: float) -> list[Fact]:
    """The member waited for this generation."""
    joining, facts = event.joining, list[Fact]()
    if event.member_id in group.departed:
        return []  # It has gone since.
    if (old := group.predecessor(joining.instance_id, event.member_id)) is not None:
        facts += _replaced(group, old, event, now)
    member = group.admit(joining, event.member_id, now)
    if member.identify(joining.client_id, joining.client_host):
        facts += joined(group, [member], now, joining.said)
    return facts


def _replaced(group: Group, old: Member, event: JoinAccepted, now: float) -> list[Fact]:
    here = [old] if old.member_id in group.members else []
    new = group.replace_static(old, event, now)
    return [*gone(group, here, Departure.FENCED, now), *noticed(group, [new], now, event.joining.said)]


def _answered_again(group: Group, event: JoinAccepted, now: float) -> list[Fact]:
    """A join that came when the generation was complete got it at once: nothing changes but a static member's id."""
    old = group.predecessor(event.joining.instance_id, event.member_id)
    if old is not None and event.member_id not in group.departed:
        if event.sent_at < group.changed_at or not group.assigned:
            group.doubt(now)  # What came in between may have been before it or after it.
        return _replaced(group, old, event, now)
    if event.member_id not in {*group.members, *group.overdue, *group.departed}:
        group.doubt(now)
    return []


def _roll_called(group: Group, event: JoinAccepted, now: float) -> list[Fact]:
    """The leader's reply names all members. Later in a generation it only has to agree with what is known."""
    if not event.roster:
        return []
    if group.unsure is None:
        if {member_id for member_id, _, _ in event.roster} != group.members.keys():
            group.doubt(now)
        return []
    unheard = [member for member in group.overdue.values() if not silence_tells(group, member)]
    new, dropped = group.call_roll(event.roster, event.protocol, now)
    dropped += [member for member in unheard if member.member_id not in group.members]
    overtaken = group.generation_at < event.sent_at < group.changed_at
    if event.sent_at >= group.settled_at and not overtaken:
        group.be_sure()
    taken_over = {member.instance_id for member in dropped if member.instance_id}
    said = {sent.joining.member_id: sent.joining.said for sent in group.joins.values()}
    facts: list[Fact] = []
    for member in new:
        tell = noticed if member.instance_id in taken_over else joined
        facts += tell(group, [member], now, said.get(member.member_id, ""))
    static = group.static_members() if dropped else {}
    for member in dropped:
        how, its_words = how_dropped(group, member, now, static)
        if group.rebalance is not None and not group.rebalance.blame.known:
            group.rebalance.blame = of_departure(member, how, its_words)
        facts += gone(group, [member], how, now, its_words)
    return facts
