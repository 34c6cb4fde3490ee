"""Finds the cause of a rebalance.

The cause follows from joins and leaves in flight, from expired sessions, and from the reasons that clients give
(KIP-800). Kafka's GroupCoordinator, later GroupMetadataManager, calls prepareRebalance in these cases:

- a new member joins, a known member joins with other protocols, or the leader joins again
- a member leaves, sends no heartbeat within its session timeout, or does not sync in time
"""

from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter

from group_sidecar.codecs.consumer_protocol import ConsumerProtocolSubscription, decode_subscription
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.model.events import JoiningMember, JoinSent
from group_sidecar.coordinator.model.facts import ISSUED_ID_REASON, Departure, RebalanceCause
from group_sidecar.coordinator.model.state_transitions import SETTLED, STABLE
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.member import Member
from group_sidecar.coordinator.state.rebalance import CauseDetails
from group_sidecar.coordinator.state.roster import StaticMembers

COORDINATOR_MOVED_SECONDS = 60.0
"""A join without a reason counts as caused by a coordinator move for this many seconds after the move."""
LOAD_DELAY_SECONDS = 5.0
"""How many seconds later than the broker the copy may begin the sessions of a group that the broker has loaded. The
sidecar first has to connect and to find the partitions again."""
UNANSWERED_LEAVE_SECONDS = 30.0
"""A leave without a reply may be the cause of a rebalance for this many seconds."""

FOLLOW_UP_REASONS = ("group is already rebalancing", "rebalance failed due to RebalanceInProgressException")
"""Reasons of Java's AbstractCoordinator for a join that follows from a rebalance. Such a join does not cause the
rebalance."""
_JAVA_REASONS = {
    "cached metadata has changed": RebalanceCause.TOPIC_METADATA,
    "subscription has changed": RebalanceCause.SUBSCRIPTION_CHANGED,
    "need to revoke partitions": RebalanceCause.PARTITIONS_REVOKED,
}
"""The prefixes of the reasons that Java's ConsumerCoordinator gives, and the cause for each of them."""
_COORDINATOR_ERRORS = ("notcoordinator", "coordinatornotavailable", "coordinatorloadinprogress")
_ADMIN_REASON = "member was removed by an admin"
"""The prefix of the reason that Java's KafkaAdminClient gives."""
_WEAK_CAUSES = frozenset({RebalanceCause.UNKNOWN, RebalanceCause.STATIC_REPLACED})
"""Causes of joins that may not need a rebalance. A join with any other cause takes precedence."""
_UNEXPLAINED_REJOINS = frozenset({RebalanceCause.UNKNOWN, RebalanceCause.LEADER_REJOINED})
"""Causes of joins that known members send without a reason."""


def silence_is_conclusive(group: Group, member: Member, now: float) -> bool:
    """Whether a member without observed requests certainly sends none.

    Otherwise the member may bypass this sidecar. It may also have sent its requests through a predecessor that drains
    its connections. A session that such requests may have prolonged must have ended since then.
    """
    if member.was_seen:
        return True
    return group.exclusive and not member.bypasses and now > group.unknown_until + member.session_seconds


def session_has_ended(group: Group, member: Member, now: float) -> bool:
    """Whether the broker has ended the session of a member.

    If the member was silent since the broker loaded the group, the result is also True if the session may have ended:
    the broker's timer began before the copy's timer.
    """
    began_at = group.leader_term.began_at
    is_loaded = member.seen_at < began_at and member.since <= began_at + LOAD_DELAY_SECONDS
    delay = min(LOAD_DELAY_SECONDS, member.session_seconds / 3) if is_loaded else 0.0
    return group.roster.has_expired(member, now + delay, began_at)


def find_cause(group: Group, now: float) -> CauseDetails:
    """Returns the cause of a rebalance that was just observed. The earliest of several likely causes counts."""
    static = _static_members_of_joins(group)
    joins = [_cause_of_join(group, sent, static) for sent in _joins_forcing_rebalance(group)]
    sent_at = min((sent.sent_at for sent in _joins_forcing_rebalance(group)), default=now)
    silent = (*group.overdue.values(), *group.expired_members(now))
    late = {member.member_id: member for member in silent if silence_is_conclusive(group, member, now)}
    if late:
        timeout_at, first = min(
            ((each.timeout_at(group.leader_term.began_at), each) for each in late.values()), key=itemgetter(0)
        )
        others = {*group.members, *group.overdue}.difference(late)
        alone = not others  # If no other member is left, the group becomes Empty, so a join begins the rebalance.
        if not joins or not (alone or sent_at < timeout_at):
            return CauseDetails(cause=RebalanceCause.SESSION_EXPIRED, member=first.info)
    for member_id, leave in group.roster.pending_leaves.items():
        member = group.members.get(member_id)
        if member is not None and leave.at + UNANSWERED_LEAVE_SECONDS > now and not (joins and sent_at < leave.at):
            cause = RebalanceCause.MEMBER_REMOVED if leave.by_admin else RebalanceCause.MEMBER_LEFT
            return CauseDetails(cause=cause, member=member.info, reason=leave.reason)
    if not joins and (ended := _earliest_ended_session(group, now)) is not None:
        return CauseDetails(cause=RebalanceCause.SESSION_EXPIRED, member=ended.info)
    strong = (each for each in joins if each.cause not in _WEAK_CAUSES)
    found = next(strong, joins[0] if joins else CauseDetails())
    return adjust_for_coordinator_move(group, found, now)


def _earliest_ended_session(group: Group, now: float) -> Member | None:
    """Returns the silent member of a loaded group whose session the broker has ended first; None if there is none.

    The broker ends no session while it waits for the joins or syncs of the members.
    """
    began_at = group.leader_term.began_at
    if group.joins or group.state is not STABLE:
        return None
    silent = (
        member
        for member in group.members.values()
        if member.seen_at < began_at
        and session_has_ended(group, member, now)
        and silence_is_conclusive(group, member, now)
    )
    return min(silent, key=lambda member: member.timeout_at(began_at), default=None)


def cause_of_earlier_join(group: Group, at: float) -> CauseDetails | None:
    """Returns the cause of a rebalance that a join without a reply, sent before the time `at`, may have begun.

    The result is None if there is no such join, or if its cause is weak (`_WEAK_CAUSES`).
    """
    if not group.joins:
        return None
    static = _static_members_of_joins(group)
    earlier = (_cause_of_join(group, sent, static) for sent in _joins_forcing_rebalance(group) if sent.sent_at < at)
    found = next((each for each in earlier if each.cause not in _WEAK_CAUSES), None)
    return found and adjust_for_coordinator_move(group, found, at)


def _static_members_of_joins(group: Group) -> StaticMembers | None:
    """Returns the static members by instance id if several static members have a join without a reply, else None.

    For a single join, a search through the members is faster than this index.
    """
    statics = sum(bool(sent.joining.instance_id) for sent in group.joins.values())
    return group.roster.static_members() if statics > 1 else None


def _joins_forcing_rebalance(group: Group) -> Iterator[JoinSent]:
    """Yields the joins without a reply that may have begun a rebalance, in the order in which they were sent."""
    return (
        sent
        for sent in group.joins.values()
        if group.forces_rebalance(sent) and not sent.joining.reason.startswith(FOLLOW_UP_REASONS)
    )


def _cause_of_join(group: Group, sent: JoinSent, static: StaticMembers | None) -> CauseDetails:
    """Returns why a join forces a rebalance. `static` may have the static members, for a faster search."""
    joining = sent.joining
    if (found := cause_of_return(group, joining, sent.sent_at)) is not None:
        return found
    member = group.members.get(joining.member_id) or group.overdue.get(joining.member_id)
    cause = _cause_of_new_member(group, joining, static) if member is None else _cause_of_rejoin(group, member, joining)
    member_info = joining.member_info(joining.member_id)
    found = CauseDetails(cause=cause, member=member_info, reason=joining.reason, token=joining.token, at=sent.sent_at)
    return adjust_for_coordinator_move(group, found, sent.sent_at) if group.leader_term.moved else found


def cause_of_return(group: Group, joining: JoiningMember, sent_at: float) -> CauseDetails | None:
    """Returns the cause of a join with which a client comes back after its member's session has expired, else None.

    If the sessions of all members have expired, the group becomes Empty. Then only such a join begins a rebalance.
    """
    if joining.member_id in group.members or joining.member_id in group.overdue:
        return None
    expired = group.rebalances.expired_clients.find(joining.client_id, joining.client_host, sent_at)
    if expired is None:
        return None
    return CauseDetails(cause=RebalanceCause.SESSION_EXPIRED, member=expired, token=joining.token, at=sent_at)


def adjust_for_coordinator_move(group: Group, found: CauseDetails, now: float) -> CauseDetails:
    """Returns the cause, corrected for a broker that has, or may have, just become the group's coordinator."""
    at = now if found.at is None else found.at
    late = at >= group.leader_term.began_at + COORDINATOR_MOVED_SECONDS
    if late or group.leader_term.moved is False or found.cause not in _UNEXPLAINED_REJOINS or not found.token:
        return found  # Without a join, the rebalance has another cause: the broker has removed a member.
    return replace(found, cause=RebalanceCause.COORDINATOR_MOVED if group.leader_term.moved else RebalanceCause.UNKNOWN)


def _cause_of_new_member(group: Group, joining: JoiningMember, static: StaticMembers | None) -> RebalanceCause:
    if group.roster.predecessor(joining.instance_id, joining.member_id, static) is not None:
        return RebalanceCause.STATIC_REPLACED
    empty = group.state in SETTLED and group.state is not STABLE and group.incomplete_reason is None
    # The copy may not have seen the broker issue the id. The reason shows it nonetheless.
    issued = group.pending_joins.has_issued_id(joining.token) or joining.reason.startswith(ISSUED_ID_REASON)
    if not joining.member_id or issued or empty:
        return RebalanceCause.NEW_MEMBER
    return _cause_in_reason(joining.reason)  # The broker knew the member before this sidecar did.


def _cause_of_rejoin(group: Group, member: Member, joining: JoiningMember) -> RebalanceCause:
    """Returns why a known member joined again, from the reason that it gives or from changes in its subscription.

    The encoded subscription also contains the partitions that the member owns, and their generation. A change of only
    these fields does not count as a change of the subscription.
    """
    if (cause := _cause_in_reason(joining.reason)) is not RebalanceCause.UNKNOWN:
        return cause
    pairs = [(member.protocols[name], new) for name, new in joining.protocols if name in member.protocols]
    alike = bool(pairs) and pairs[0][0] == pairs[0][1]
    if pairs and not alike:
        try:
            old, new = (decode_subscription(metadata) for metadata in pairs[0])
        except DecodeError:
            return RebalanceCause.SUBSCRIPTION_CHANGED
        if set(old.topics) != set(new.topics):
            return RebalanceCause.SUBSCRIPTION_CHANGED
        if _owned(old) - _owned(new):
            return RebalanceCause.PARTITIONS_REVOKED
        alike = (old.user_data, old.rack_id) == (new.user_data, new.rack_id)
    if member.member_id == group.leader:
        return RebalanceCause.LEADER_REJOINED
    if not member.protocols:
        return RebalanceCause.UNKNOWN  # Only heartbeats of the member were seen.
    all_known = len(member.protocols) > 1 or len(joining.protocols) == 1  # The log has only one protocol of a member.
    same = alike and not (all_known and list(member.protocols) != [name for name, _ in joining.protocols])
    return RebalanceCause.UNKNOWN if same else RebalanceCause.SUBSCRIPTION_CHANGED


def _owned(subscription: ConsumerProtocolSubscription) -> set[tuple[str, int]]:
    return {(topic.topic, each) for topic in subscription.owned_partitions for each in topic.partitions}


def _cause_in_reason(reason: str) -> RebalanceCause:
    for beginning, cause in _JAVA_REASONS.items():
        if reason.startswith(beginning):
            return cause
    words = reason.replace("_", "").lower()
    return (
        RebalanceCause.COORDINATOR_MOVED
        if any(each in words for each in _COORDINATOR_ERRORS)
        else RebalanceCause.UNKNOWN
    )


def is_removed_by_admin(
    member: Member | None, given_member_id: str, reason: str, client_id: str, client_host: str
) -> bool:
    """Whether a leave removes another client's member.

    A member that leaves names itself by its member id. A static member keeps the client id of its first join, so its
    client id proves nothing. This function compares true hosts, because the broker reports the sidecar's host for every
    client.
    """
    if not given_member_id or reason.startswith(_ADMIN_REASON):
        return True
    if member is None or member.instance_id or not (member.client_host and client_host):
        return False
    return member.client_id != client_id or (bool(member.true_host) and member.true_host != client_host)


def departure_of_missing(group: Group, member: Member, now: float, static: StaticMembers) -> tuple[Departure, str]:
    """Returns how a missing member left, and the reason that was given. `static` has the current static members."""
    if group.roster.predecessor(member.instance_id, member.member_id, static) is not None:
        return Departure.FENCED, ""
    if (leave := group.roster.take_leave(member.member_id)) is not None:
        return Departure.REMOVED_BY_CLIENT if leave.by_admin else Departure.LEFT, leave.reason
    silent = session_has_ended(group, member, now) and silence_is_conclusive(group, member, now)
    return Departure.EXPIRED if silent else Departure.DROPPED, ""


def cause_of_departure(member: Member, departure: Departure, reason: str = "") -> CauseDetails:
    """Returns the cause of a rebalance that follows from the departure of a member."""
    return CauseDetails(cause=_CAUSE_BY_DEPARTURE[departure], member=member.info, reason=reason)


_CAUSE_BY_DEPARTURE = {
    Departure.LEFT: RebalanceCause.MEMBER_LEFT,
    Departure.EXPIRED: RebalanceCause.SESSION_EXPIRED,
    Departure.DROPPED: RebalanceCause.UNKNOWN,
    Departure.REMOVED_BY_POLICY: RebalanceCause.MEMBER_REMOVED,
    Departure.REMOVED_BY_CLIENT: RebalanceCause.MEMBER_REMOVED,
    Departure.FENCED: RebalanceCause.STATIC_REPLACED,
}
