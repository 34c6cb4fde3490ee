"""The rules of JoinGroup: how a sent, accepted, rejected or lost join changes a group, and which facts follow."""

from collections.abc import Iterable

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.model.events import (
    LOST_REQUEST_SECONDS,
    NEW_MEMBER_JOIN_TIMEOUT_SECONDS,
    JoinAccepted,
    JoiningMember,
    JoinRejected,
    JoinSent,
    MemberIdIssued,
    ReplyLost,
)
from group_sidecar.coordinator.model.facts import Departure, Fact, RebalanceCause
from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.coordinator.rules.causes import cause_of_departure, cause_of_return, departure_of_missing
from group_sidecar.coordinator.rules.fact_builder import (
    begin_rebalance,
    member_gone_facts,
    member_joined_facts,
    member_noticed_facts,
    member_returned_facts,
)
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.member import Member
from group_sidecar.coordinator.state.rebalance import CauseDetails

HARMLESS_JOIN_ERRORS = frozenset(
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
"""Errors after which the group is unchanged, or another reply shows the change."""

_STATES_WITHOUT_MEMBERS = (GroupState.DEAD, GroupState.EMPTY)
"""States without members. A generation that follows such a state is new, even if its number is not higher."""


def join_sent(group: Group, event: JoinSent, now: float) -> list[Fact]:
    """Counts a join without a reply towards the size of the group."""
    group.pending_joins.add_join(event, has_issued_id=event.joining.member_id in group.pending)
    return []


def reply_lost(group: Group, event: ReplyLost, now: float) -> list[Fact]:
    """Puts the group in doubt, because the outcome of a request is unknown. A join becomes a lost join."""
    group.pending_joins.unlogged_members.lose_join(event.token, now)
    sent = group.pending_joins.mark_lost(event.token, now)
    if sent is not None:
        _contest(group, sent.joining)
    group.doubt_lost(now + LOST_REQUEST_SECONDS)
    return []


def member_id_issued(group: Group, event: MemberIdIssued, now: float) -> list[Fact]:
    """Notes a member id that the broker issued. The group exists, and the broker waits for a join with the new id."""
    group.pending_joins.remove_join(event.joining.token)
    if group.state is GroupState.DEAD:
        group.lifecycle.create()
    group.pending.issue(event.member_id, now + event.joining.session_timeout_ms / 1000)
    return []


def join_rejected(group: Group, event: JoinRejected, now: float) -> list[Fact]:
    """Removes a join that the broker rejected. The join may have been parked in a rebalance before."""
    joining = event.joining
    group.pending_joins.remove_join(joining.token)
    if event.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL and not joining.member_id:
        if group.state is GroupState.DEAD:
            group.lifecycle.create()  # The coordinator creates the group before it compares the protocols.
    elif event.error_code == ErrorCode.FENCED_INSTANCE_ID:
        _contest(group, joining)
    waited = event.error_code == ErrorCode.UNKNOWN_MEMBER_ID and now - event.sent_at >= NEW_MEMBER_JOIN_TIMEOUT_SECONDS
    if joining.will_park and (waited or event.error_code not in HARMLESS_JOIN_ERRORS):
        group.doubt(now)
    return []


def _contest(group: Group, joining: JoiningMember) -> None:
    """Marks the instance id of a new static member as contested (see `Roster.contested`).

    The broker may have accepted the member, and another client may then have replaced the member without a reply that
    shows the replacement.
    """
    if joining.instance_id and not joining.member_id:
        group.roster.contest(joining.instance_id)


def join_accepted(group: Group, event: JoinAccepted, now: float) -> list[Fact]:
    """Adds the member to the generation in the reply. The generation may be new to the copy."""
    if event.generation < group.generation and event.sent_at < group.generation_at:
        group.pending_joins.remove_join(event.joining.token)
        _contest(group, event.joining)
        return []  # A reply with a later generation has overtaken this reply.
    if group.kind is not GroupKind.CLASSIC and group.members:
        group.pending_joins.remove_join(event.joining.token)
        group.pending_joins.unlogged_members.add_joined(
            event.member_id, now, event.joining.client_host, event.joining.principal
        )
        # A classic member has joined a KIP-848 group, which has epochs instead of generations.
        group.await_epoch(now)
        return _add_member(group, event, now)
    facts: list[Fact] = []
    if group.continues_generation(event.generation, now):
        group.adopt_generation(event.generation, now)
    elif event.generation != group.generation or group.state in _STATES_WITHOUT_MEMBERS or _is_recreated(group, event):
        facts += begin_rebalance(group, now, _cause_of_immediate_join(group, event))
        group.start_generation(event, now)
        group.rebalances.joins_complete(group.joins.values())
    group.pending_joins.remove_join(event.joining.token)
    if event.sent_at <= group.generation_at:
        group.rebalances.join_answered(event)
        facts += _add_member(group, event, now)
    else:
        facts += _apply_late_join(group, event, now)
    return facts + _apply_roster(group, event, now)


def _is_recreated(group: Group, event: JoinAccepted) -> bool:
    """Whether the broker may have removed the empty group and created it again, so that its generations begin again."""
    return not group.members and not group.overdue and event.sent_at > group.generation_at


def _cause_of_immediate_join(group: Group, event: JoinAccepted) -> CauseDetails | None:
    """Returns the cause if the broker accepted a new member without first issuing an id; None otherwise (KIP-394)."""
    joining = event.joining
    if joining.will_park:
        return None
    return cause_of_return(group, joining, event.sent_at) or CauseDetails(
        cause=RebalanceCause.NEW_MEMBER, member=joining.member_info(event.member_id), reason=joining.reason
    )


def _add_member(group: Group, event: JoinAccepted, now: float) -> list[Fact]:
    """Adds a member whose join waited for this generation."""
    joining, facts = event.joining, list[Fact]()
    if event.member_id in group.left_member_ids:
        return []  # The member has left since.
    if (old := group.roster.predecessor(joining.instance_id, event.member_id)) is not None:
        facts += _replace_static(group, old, event, now)
    member = group.add_member(joining, event.member_id, now)
    if member.identify(joining.client_id, joining.client_host, joining.principal):
        # The counts of a Stable generation are final. This member was counted with the leader's reply.
        late = group.kind is GroupKind.CLASSIC and group.state is GroupState.STABLE
        build_facts = member_noticed_facts if late else member_joined_facts
        return facts + build_facts(group, [member], now, joining.reason)
    return facts + member_returned_facts(group, [member], now)


def _replace_static(group: Group, old: Member, event: JoinAccepted, now: float) -> list[Fact]:
    is_current = old.member_id in group.members
    new = group.replace_static(old, event, now)
    return [
        *(member_gone_facts(group, old, Departure.FENCED, now) if is_current else ()),
        *member_noticed_facts(group, [new], now, event.joining.reason),
    ]


def _apply_late_join(group: Group, event: JoinAccepted, now: float) -> list[Fact]:
    """Applies a join that the broker answered at once, because the generation was complete.

    Such a join changes nothing except the member id of a static member. A member that is unknown to the copy puts the
    group in doubt.
    """
    old = group.roster.predecessor(event.joining.instance_id, event.member_id)
    if event.member_id not in group.members and group.incomplete_reason is None:
        group.pending_joins.discard_description()  # It may contain the member under its previous id.
    if old is not None and event.member_id not in group.left_member_ids:
        if event.sent_at < group.changed_at or not group.assignments_known:
            group.doubt(now)  # The broker may have executed the join before or after the last observed change.
        return _replace_static(group, old, event, now)
    if event.member_id not in {*group.members, *group.overdue, *group.left_member_ids}:
        group.doubt(now)
    return []


def _count_unidentified(group: Group, new: Iterable[Member]) -> None:
    """Counts new members in the leader's reply whose own joins have no reply yet.

    The replies to these joins may arrive after the rebalance has ended. A join without a member id does not show which
    of the members it is, so at most as many members are counted as there are such joins.
    """
    joins = sum(not sent.joining.member_id for sent in group.joins.values())
    unidentified = [member.member_id for member in new if not member.client_host]
    if joins and unidentified:
        group.rebalances.count_unidentified(unidentified[:joins])


def _apply_roster(group: Group, event: JoinAccepted, now: float) -> list[Fact]:
    """Applies the list of all members in the leader's reply.

    If the copy already has all members, a list that differs from them puts the group in doubt.
    """
    if not event.roster:
        return []
    if group.incomplete_reason is None:
        if {member_id for member_id, _, _ in event.roster} != group.members.keys():
            group.doubt(now)
        return []
    unreported = [member for member in group.overdue.values() if not member.is_reported_gone]
    new, dropped = group.replace_members(event.roster, event.protocol, now)
    dropped += [member for member in unreported if member.member_id not in group.members]
    overtaken = group.generation_at < event.sent_at < group.changed_at
    if event.sent_at >= group.settled_at and not overtaken:
        group.mark_complete()
    taken_over = {member.instance_id for member in dropped if member.instance_id}
    reasons = {sent.joining.member_id: sent.joining.reason for sent in group.joins.values()}
    gone, joined = list[Fact](), list[Fact]()
    for member in new:
        build_facts = member_noticed_facts if member.instance_id in taken_over else member_joined_facts
        joined += build_facts(group, [member], now, reasons.get(member.member_id, ""))
    _count_unidentified(group, [member for member in new if member.instance_id not in taken_over])
    static = group.roster.static_members() if dropped else {}
    for member in dropped:
        departure, reason = departure_of_missing(group, member, now, static)
        group.rebalances.explain(cause_of_departure(member, departure, reason))
        gone += member_gone_facts(group, member, departure, now, reason)
    return gone + joined + member_returned_facts(group, group.members.values(), now)
