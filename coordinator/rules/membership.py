"""The rules of members: how each event other than a join or a timeout changes a group, and which facts follow.

Replies on different connections may overtake each other. Four rules keep the copy correct nonetheless:

- Generations only grow.
- The broker does not issue a member id again after its member has left.
- The reply to the leader's join decides which members a generation has, and the leader's sync decides the assignments.
- An event cannot undo a change that was seen after the event's request was sent.
"""

from group_sidecar.coordinator.model.events import (
    NEVER,
    LeaveSent,
    Leaving,
    MemberActivity,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    RebalanceSeen,
    Synced,
)
from group_sidecar.coordinator.model.facts import Departure, Fact
from group_sidecar.coordinator.model.state_transitions import CLASSIC, PREPARING_REBALANCE
from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.coordinator.rules.causes import (
    cause_of_departure,
    cause_of_earlier_join,
    is_removed_by_admin,
    session_has_ended,
)
from group_sidecar.coordinator.rules.fact_builder import (
    begin_rebalance,
    complete_rebalance,
    conclude_rebalance,
    member_gone_facts,
    member_seen_facts,
)
from group_sidecar.coordinator.rules.internal_events import MetadataDropped, RequestsCrossed
from group_sidecar.coordinator.rules.partition_moves import save_owners
from group_sidecar.coordinator.rules.session_timeouts import refresh
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.lifecycle import UNKNOWN_GENERATION
from group_sidecar.coordinator.state.member import Leave, Member
from group_sidecar.coordinator.state.rebalance import CauseDetails
from group_sidecar.coordinator.state.roster import StaticMembers


def _active_member(group: Group, event: MemberActivity, now: float) -> tuple[Member | None, list[Fact]]:
    """Returns the member whose request the broker accepted, and the facts that follow.

    The request may be the first sign of a member or of a generation. The member is None if a later event has overtaken
    the request.
    """
    member = group.members.get(event.member_id)
    if (
        member is not None
        and member.principal is event.principal
        and member.true_host == event.client_host
        and member.true_client_id == event.client_id
        and event.generation == group.generation
    ):
        return member, []  # By far the most frequent case.
    if event.generation < group.generation and event.sent_at < group.generation_at:
        return None, []
    if group.generation == UNKNOWN_GENERATION:
        if event.sent_at < group.changed_at:
            return member, []  # The generation in the request may not be the current generation.
        group.lifecycle.number_generation(event.generation, now)
    elif event.generation != group.generation:
        group.adopt_generation(event.generation, now)
        group.touch(now)
    if member is not None and member.client_host:
        group.set_client(member, event.client_host, event.principal, event.client_id)
        return member, member_seen_facts(group, member, event.sent_at, now)
    if event.member_id in group.left_member_ids:
        return None, []
    return _new_or_returned_member(group, event, now)


def _new_or_returned_member(group: Group, event: MemberActivity, now: float) -> tuple[Member, list[Fact]]:
    """Adds a member that was unknown, overdue, or known only by its id. Returns the member and the facts."""
    member = group.members.get(event.member_id) or group.roster.restore(event.member_id)
    if member is None:
        member = Member(member_id=event.member_id, since=now, instance_id=event.instance_id)
        group.completeness.miss_members()
        if group.state in (GroupState.DEAD, GroupState.EMPTY):
            group.lifecycle.find_member()
            group.rebalances.drop()
        group.roster.include(member)
    member.learn_instance_id(event.instance_id)
    is_new = member.identify(event.client_id, event.client_host, event.principal)
    group.touch(now)
    return member, member_seen_facts(group, member, event.sent_at, now, is_new=is_new)


def synced(group: Group, event: Synced, now: float) -> list[Fact]:
    """Stores the assignment in the reply to a sync. The first such reply shows that the generation is stable."""
    if group.kind is not GroupKind.CLASSIC:
        return refresh(group, event.member_id, event.sent_at, now, event.client_host, event.principal)
    member, facts = _active_member(group, event, now)
    if member is None:
        return []
    group.lifecycle.first_sync(now)
    group.roster.sync(member, event.sent_at, group.stable_at)
    group.note_session(member, event.sent_at)
    if event.member_id == group.leader and not group.assignments_known:
        group.lifecycle.know_assignments()
        group.roster.assign(event.assignments)
    member.assign(event.assignment)
    if group.state is GroupState.COMPLETING_REBALANCE:
        group.lifecycle.stabilise()
        group.doubt_unknown_metadata()
        facts += complete_rebalance(group, now)
    elif group.assignments_known and group.rebalance is not None and group.state is GroupState.STABLE:
        facts += complete_rebalance(group, now)
    return facts


def member_seen(group: Group, event: MemberSeen, now: float) -> list[Fact]:
    """Resets the session timer of a member whose request was accepted.

    Most such requests change nothing else, so this rule calls `Group.touch` only if something else has changed.
    """
    if group.kind is not CLASSIC:
        return refresh(group, event.member_id, event.sent_at, now, event.client_host, event.principal)
    member, facts = _active_member(group, event, now)
    if member is None:
        return []
    group.record_activity(member, event.sent_at)
    if event.no_rebalance and group.state is PREPARING_REBALANCE and event.sent_at > group.changed_at:
        _still_stable(group, now)
    return facts


def _still_stable(group: Group, now: float) -> None:
    """Returns the group to Stable, because a broker that prepares a rebalance would reply REBALANCE_IN_PROGRESS."""
    if group.stable_at != NEVER and not group.joins:
        group.disprove_rebalance(now)


def rebalance_seen(group: Group, event: RebalanceSeen, now: float) -> list[Fact]:
    """Begins the rebalance that a reply shows, unless the copy has newer state than the reply."""
    facts = refresh(group, event.member_id, event.sent_at, now) if event.is_heartbeat else []
    overtaken = event.generation < group.generation and event.sent_at < group.generation_at
    busy = group.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
    if overtaken or busy or group.kind is not GroupKind.CLASSIC:
        return facts
    group.touch(now)
    return facts + begin_rebalance(group, now)


# Departures.


def member_unknown(group: Group, event: MemberUnknown, now: float) -> list[Fact]:
    """Removes a member that the broker does not have."""
    if event.protocol not in (None, group.kind) or group.roster.may_still_have(event) or _has_just_joined(group, event):
        return []
    here, leave = group.members.get(event.member_id), group.roster.pending_leaves.get(event.member_id)
    if here is not None:
        save_owners(group)
    if (dropped := group.drop(event.member_id, now)) is None:
        return []
    group.await_epoch(now)
    if dropped.instance_id:
        group.roster.contest(dropped.instance_id)  # Another member may have taken over its identity.
    departure, reason = _departure_of_unknown(group, dropped, event, leave, now), leave.reason if leave else ""
    facts = member_gone_facts(group, here, departure, now, reason) if here else []
    left_at = dropped.timeout_at(group.leader_term.began_at) if departure is Departure.EXPIRED else event.sent_at
    details = cause_of_earlier_join(group, left_at) or cause_of_departure(dropped, departure, reason)
    facts += after_departure(group, details, now)
    if group.state is GroupState.EMPTY:
        group.doubt(now)  # The broker may have removed the empty group and created it again.
    return facts


def _has_just_joined(group: Group, event: MemberUnknown) -> bool:
    """Whether UNKNOWN_MEMBER_ID does not show that a newly accepted KIP-848 member is gone.

    The broker may have accepted the member after the request was sent. The broker also returns this error for a known
    member id with a wrong instance id.
    """
    joined_at = group.pending_joins.unlogged_members.joined_at(event.member_id)
    return joined_at != NEVER and (event.instance_id is not None or event.sent_at < joined_at)


def _departure_of_unknown(
    group: Group, member: Member, event: MemberUnknown, leave: Leave | None, now: float
) -> Departure:
    """Returns the departure of a member that the broker does not have any more."""
    if leave is not None:
        return Departure.REMOVED_BY_CLIENT if leave.by_admin else Departure.LEFT
    # Usually the copy's timer starts when a request is sent, so it expires before the broker's. After a join or a sync,
    # it may expire up to `session_timeouts.TIMER_DELAY_SECONDS` later.
    is_timed = member.session_timeout_ms is not None or group.roster.heartbeat_seconds is not None
    lasts = is_timed and not session_has_ended(group, member, now)
    return Departure.DROPPED if event.group_is_full or lasts else Departure.EXPIRED


def _static_members_of_leaves(group: Group, event: Leaving) -> StaticMembers | None:
    """Returns an index of the static members if several members leave: without it, 5,000 searches take a second."""
    return group.roster.static_members() if len(event.members) > 1 else None


def leave_sent(group: Group, event: LeaveSent, now: float) -> list[Fact]:
    """Notes the members that are about to leave.

    Replies to other members may show the departure before the reply to the leave is seen.
    """
    static = _static_members_of_leaves(group, event)
    for given_member_id, instance_id, reason in event.members_with_reasons:
        member_id = given_member_id or group.roster.member_id_of_instance(instance_id, static)
        if (member := group.members.get(member_id)) is not None:
            removed_by_admin = is_removed_by_admin(member, given_member_id, reason, event.client_id, event.client_host)
            group.roster.note_leave(member_id, Leave(at=event.sent_at, reason=reason, by_admin=removed_by_admin))
    return []


def members_left(group: Group, event: MembersLeft, now: float) -> list[Fact]:
    """Removes the members that left."""
    facts, details = list[Fact](), None
    group.pending_joins.discard_description()
    group.await_epoch(now)
    save_owners(group)
    static = _static_members_of_leaves(group, event)
    for given_member_id, instance_id, reason in event.members_with_reasons:
        member_id = given_member_id or group.roster.member_id_of_instance(instance_id, static)
        if (here := group.members.get(member_id)) is not None:
            departure = _departure_of_leave(here, event, given_member_id, reason)
            facts += member_gone_facts(group, here, departure, now, reason)
            details = details or cause_of_departure(here, departure, reason)
        else:
            group.rebalances.expired_clients.forget(member_id)  # An overdue member that leaves had not expired.
        dropped = group.drop(member_id, now)
        if dropped is None:
            group.record_departure(member_id, now)
        # If a leave names only an instance id, another member may have taken over that id since the request was sent.
        may_be_successor = not given_member_id and event.sent_at < group.changed_at
        if instance_id and (not member_id or may_be_successor):
            group.roster.contest(instance_id, static)
        # Kafka 4 rebalances even if an unused issued id leaves.
        if dropped is None or may_be_successor:
            group.doubt(now)
    return facts + (
        after_departure(group, cause_of_earlier_join(group, event.sent_at) or details, now) if details else []
    )


def _departure_of_leave(member: Member, event: MembersLeft, given_member_id: str, reason: str) -> Departure:
    if event.removed:
        return Departure.REMOVED_BY_POLICY
    removed_by_admin = is_removed_by_admin(member, given_member_id, reason, event.client_id, event.client_host)
    return Departure.REMOVED_BY_CLIENT if removed_by_admin else Departure.LEFT


def after_departure(group: Group, details: CauseDetails, now: float) -> list[Fact]:
    """Changes the state of a group after members have left. `details`: the cause of the rebalance that may follow."""
    if group.kind is not GroupKind.CLASSIC:
        group.lifecycle.report(GroupState.STABLE if group.members else GroupState.EMPTY)
        group.rebalances.expect(details)
        return []
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return []
    if (
        group.members
        or group.overdue
        or group.incomplete_reason is not None
        or group.parked_ids - group.left_member_ids
    ):
        return begin_rebalance(group, now, details)
    facts = conclude_rebalance(group, now)
    group.empty_out(now)
    group.rebalances.forget()
    return facts


# Events that no request of a client shows.


def metadata_dropped(group: Group, event: MetadataDropped, now: float) -> list[Fact]:
    """Notes that metadata and assignments of members are missing."""
    group.completeness.drop_metadata()
    return []


def requests_crossed(group: Group, event: RequestsCrossed, now: float) -> list[Fact]:
    """Puts the group in doubt, because the broker may have deleted the group and created it again."""
    group.doubt(now)
    return []
