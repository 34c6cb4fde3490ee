"""Builds the facts about members and rebalances of a group."""

from collections.abc import Iterable
from dataclasses import replace

from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.model.facts import (
    CoordinatorMoved,
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.model.state_transitions import CLASSIC, PREPARING_REBALANCE
from group_sidecar.coordinator.rules.causes import find_cause
from group_sidecar.coordinator.rules.partition_moves import Moves, compare_owners, save_owners
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.member import Member
from group_sidecar.coordinator.state.rebalance import CauseDetails, Rebalance

SYNC_SECONDS = 1.0
"""Seconds to wait for the leader's sync, which contains the assignments. The reply to another member's sync may show
earlier that the generation is stable."""


def member_gone_facts(group: Group, member: Member, departure: Departure, now: float, reason: str = "") -> list[Fact]:
    """Returns the fact that a member left, and counts the member unless it was fenced.

    A member without a known host has no fact. A member that was reported as gone has no further fact until it is
    reported as joined.
    """
    if departure is not Departure.EXPIRED:
        group.rebalances.expired_clients.forget(member.member_id)
    if member.is_reported_gone:
        return []
    if departure is Departure.EXPIRED and group.kind is CLASSIC:
        group.rebalances.expired_clients.note_expired(member, now)
    if departure is not Departure.FENCED:
        group.rebalances.count_left([member])
    return [_gone_fact(group, member, departure, now, reason)] if member.client_host else []


def _gone_fact(group: Group, member: Member, departure: Departure, now: float, reason: str) -> Fact:
    member.note_gone(now)
    return MemberGone(
        group_id=group.group_id,
        at=now,
        member_id=member.member_id,
        client_id=member.info.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        principal=member.principal,
        how=departure,
        said=reason,
    )


def member_joined_facts(group: Group, members: Iterable[Member], now: float, reason: str = "") -> list[Fact]:
    """Returns a fact for each member that joined, and counts the members.

    A member without a known host gets its fact later.
    """
    group.rebalances.count_joined(members)
    return member_noticed_facts(group, members, now, reason)


def member_noticed_facts(group: Group, members: Iterable[Member], now: float, reason: str = "") -> list[Fact]:
    """Returns the facts of `member_joined_facts` without counting the members.

    These members were in the group before: unobserved, overdue, or under another member id.
    """
    return [_joined_fact(group, member, now, reason) for member in members if member.client_host]


def member_seen_facts(group: Group, member: Member, sent_at: float, now: float, *, is_new: bool = False) -> list[Fact]:
    """Returns the facts of `member_noticed_facts` for a member whose request was accepted.

    The result is empty if the member was there all the time, or if it was reported as gone after its request was sent.
    A suspended broker accepts old requests when it continues, also those of clients that are gone by then.

    Args:
        group: the group of the member.
        member: the member.
        sent_at: when the request was sent.
        now: the current time.
        is_new: whether the client of the member was not known before.
    """
    is_back = NEVER < member.reported_gone_at < sent_at
    return member_noticed_facts(group, [member] if is_new or is_back else [], now)


def member_returned_facts(group: Group, members: Iterable[Member], now: float) -> list[Fact]:
    """Returns the facts of `member_noticed_facts` for the members that a fact has reported as gone.

    A broker that has loaded the group since the report has the members of the last generation again. Their clients may
    be gone, so such a member counts as returned only after one of its requests was seen.
    """
    began_at = group.leader_term.began_at
    returned = [
        member
        for member in members
        if member.is_reported_gone and (member.seen_on_wire or began_at <= member.reported_gone_at)
    ]
    return member_noticed_facts(group, returned, now)


def _joined_fact(group: Group, member: Member, now: float, reason: str) -> Fact:
    member.note_joined()
    group.rebalances.expired_clients.note_joined(member)
    return MemberJoined(
        group_id=group.group_id,
        at=now,
        member_id=member.member_id,
        client_id=member.info.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        principal=member.principal,
        said=reason,
    )


def coordinator_moved(group_id: str, now: float) -> list[Fact]:
    """Returns the fact that the broker does not coordinate the group any more."""
    return [CoordinatorMoved(group_id=group_id, at=now)]


def begin_rebalance(group: Group, now: float, details: CauseDetails | None = None) -> list[Fact]:
    """Begins a rebalance at the time of the first parked join. Returns no facts if the group is in PreparingRebalance.

    `details` is the cause; None if the cause has to be found. A rebalance keeps its first known cause.
    """
    if group.state is PREPARING_REBALANCE:
        if details is not None and details.known:
            # The reply that shows the cause came later than the reply that showed the beginning of the rebalance.
            group.rebalances.explain(details)
        return []
    facts = conclude_rebalance(group, now)
    details = details or find_cause(group, now)
    save_owners(group)
    group.lifecycle.prepare_rebalance()
    group.rebalances.begin(details, group.pending_joins.waiting_since(now))
    at = now if details.at is None else max(details.at, group.rebalances.last_rebalance_at or details.at)
    return [
        *facts,
        RebalanceStarted(group_id=group.group_id, at=at, cause=details.cause, by=details.member, said=details.reason),
    ]


def complete_rebalance(group: Group, now: float, *, assignments_unknown: bool = False) -> list[Fact]:
    """Ends the rebalance and returns the fact about its end.

    Returns no fact while the assignments may still arrive, or if the copy did not see the rebalance begin.
    `assignments_unknown` is whether the assignments will not arrive any more.
    """
    rebalance = group.rebalance
    if rebalance is None:
        group.rebalances.stabilise(now, group.members)
        group.rebalances.forget()
        return []
    if rebalance.done_at == NEVER:
        group.rebalances.stabilise(now, group.members)
    if rebalance.leader_join_seen and not (group.assignments_known or assignments_unknown):
        return []
    group.rebalances.drop()
    moves = compare_owners(group)
    return [_completed_fact(group, rebalance, moves)]


def conclude_overdue_rebalance(group: Group, now: float) -> list[Fact]:
    """Returns the fact of a completed rebalance if the sync of the leader was not seen in time."""
    late = group.rebalance is not None and now >= group.rebalance.done_at + SYNC_SECONDS
    return conclude_rebalance(group, now) if late else []


def conclude_rebalance(group: Group, now: float) -> list[Fact]:
    """Returns the fact of a completed rebalance whose assignments will not arrive any more."""
    done = group.rebalance is not None and group.rebalance.done_at != NEVER
    return complete_rebalance(group, now, assignments_unknown=True) if done else []


def _leader_wants_reassignment(group: Group, details: CauseDetails) -> bool:
    """Whether the leader joined again without a reason.

    If the coordinator has or may have moved, the cause of such a join is COORDINATOR_MOVED or UNKNOWN.
    """
    if details.cause in (RebalanceCause.COORDINATOR_MOVED, RebalanceCause.UNKNOWN):
        return details.member is not None and details.member.member_id == group.leader and not details.reason
    return details.cause is RebalanceCause.LEADER_REJOINED


def _completed_fact(group: Group, rebalance: Rebalance, moves: Moves | None) -> Fact:
    """Returns the fact that a rebalance was completed."""
    details = rebalance.cause_details
    if moves is not None and moves.added and _leader_wants_reassignment(group, details):
        details = replace(details, cause=RebalanceCause.TOPIC_METADATA)  # The leader joined because of new partitions.
    return RebalanceCompleted(
        group_id=group.group_id,
        at=rebalance.done_at,
        cause=details.cause,
        by=details.member,
        said=details.reason,
        generation=group.generation,
        protocol=group.protocol,
        members=len(group.members),
        duration_seconds=rebalance.done_at - rebalance.started_at,
        joined=rebalance.joined,
        gone=rebalance.left,
        slowest=rebalance.slowest(group.members),
        moved_partitions=None if moves is None else moves.moved,
    )
