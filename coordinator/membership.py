"""What each event does to a group's membership.

Owns: the rules by which events become changes of a `Group`, and the facts they give. Must not
know: offsets, the cache of groups, where events come from.
"""

from collections.abc import Callable, Iterable
from typing import Any

from group_sidecar.coordinator.events import (
    ConsumerMemberSeen,
    Event,
    GroupDescribed,
    JoinAbandoned,
    JoinAccepted,
    JoinRejected,
    JoinSent,
    MemberIdIssued,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    RebalanceSeen,
    Synced,
)
from group_sidecar.coordinator.facts import (
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCompleted,
    RebalanceReason,
    RebalanceStarted,
)
from group_sidecar.coordinator.groups import Group, Member, Rebalance
from group_sidecar.coordinator.views import GroupKind, GroupState

CONSUMER_SESSION_MS = 45_000
"""`group.consumer.session.timeout.ms` as the broker has it by default: KIP-848 clients are not told."""


def gone(group: Group, members: Iterable[Member], how: Departure, now: float) -> list[Fact]:
    """The facts that these members went."""
    return [
        MemberGone(
            group_id=group.group_id,
            at=now,
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            how=how,
        )
        for member in members
    ]


def begin(group: Group, reason: RebalanceReason, now: float) -> list[Fact]:
    """The group prepares a rebalance; no fact where it did so already."""
    if group.begin_rebalance(reason, now):
        return [RebalanceStarted(group_id=group.group_id, at=now, reason=reason)]
    return []


def expire(group: Group, now: float) -> list[Fact]:
    """Sets members aside whose session must have run out. Until the broker confirms it, the group is in doubt."""
    late = group.expire(now)
    if not late:
        return []
    group.changes += 1
    facts = gone(group, late, Departure.EXPIRED, now)
    if group.members and group.kind is GroupKind.CONSUMER:
        return facts  # The broker reassigns without a rebalance that members would see (KIP-848).
    if group.members or group.joins:
        facts += begin(group, RebalanceReason.EXPIRED, now)
    else:
        group.state = GroupState.EMPTY
    return facts


def _join_sent(group: Group, event: JoinSent, now: float) -> list[Fact]:
    group.joins[event.joining.token] = event.joining
    return []


def _join_abandoned(group: Group, event: JoinAbandoned, now: float) -> list[Fact]:
    # The broker may have made a member of it, whose id nobody was told: the roster is no longer sure.
    if (joining := group.joins.pop(event.token, None)) and joining.parks:
        group.roster_known = False
    return []


def _member_id_issued(group: Group, event: MemberIdIssued, now: float) -> list[Fact]:
    group.joins.pop(event.joining.token, None)
    if group.state is GroupState.DEAD:
        group.become(GroupState.EMPTY)
    group.pending[event.member_id] = now + event.joining.session_timeout_ms / 1000
    return []


def _join_rejected(group: Group, event: JoinRejected, now: float) -> list[Fact]:
    group.joins.pop(event.joining.token, None)
    return []


def _join_accepted(group: Group, event: JoinAccepted, now: float) -> list[Fact]:
    reason = _reason_of(group, event)
    group.joins.pop(event.joining.token, None)
    facts: list[Fact] = []
    new_generation = event.generation != group.generation or group.state is GroupState.DEAD
    if new_generation:
        facts += begin(group, reason, now)
        group.rebalance = group.rebalance or Rebalance(since=now, reason=reason)
        group.generation = event.generation
        group.become(GroupState.COMPLETING_REBALANCE)
    group.kind = GroupKind.CLASSIC
    group.protocol_type = event.protocol_type or group.protocol_type
    group.protocol, group.leader = event.protocol, event.leader
    if (replaced := group.replace_static(event.joining, event.member_id)) is not None:
        facts += gone(group, [replaced], Departure.FENCED, now)
    joined = group.admit(event.joining, event.member_id, now)
    if replaced and joined:
        joined.assignment = replaced.assignment
    if event.roster:
        new, dropped = group.call_roll(event.roster, event.protocol, now)
        facts += [_joined(group, member, now) for member in new]
        facts += gone(group, dropped, Departure.DROPPED, now)
    if joined is not None:
        facts.append(_joined(group, joined, now))
    return facts


def _reason_of(group: Group, event: JoinAccepted) -> RebalanceReason:
    if group.overdue:
        return RebalanceReason.EXPIRED
    return RebalanceReason.METADATA if event.member_id in group.members else RebalanceReason.JOIN


def _joined(group: Group, member: Member, now: float) -> MemberJoined:
    return MemberJoined(
        group_id=group.group_id,
        at=now,
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
    )


def _synced(group: Group, event: Synced, now: float) -> list[Fact]:
    if event.generation < group.generation:
        return []
    member = group.members.get(event.member_id) or Member(member_id=event.member_id)
    group.hear(member, event.generation, event.seen_at)
    group.members[event.member_id].assignment = event.assignment
    for member_id, assignment in (event.assignments or {}).items():
        if member_id in group.members and group.state is GroupState.COMPLETING_REBALANCE:
            group.members[member_id].assignment = assignment
    if group.state is not GroupState.COMPLETING_REBALANCE:
        return []
    group.become(GroupState.STABLE)
    return _completed(group, now)


def _completed(group: Group, now: float) -> list[Fact]:
    rebalance, group.rebalance = group.rebalance, None
    group.last_rebalance_at = now
    if rebalance is None:
        return []
    return [
        RebalanceCompleted(
            group_id=group.group_id,
            at=now,
            reason=rebalance.reason,
            generation=group.generation,
            protocol=group.protocol,
            members=len(group.members),
            duration_seconds=now - rebalance.since,
        )
    ]


def _member_seen(group: Group, event: MemberSeen, now: float) -> list[Fact]:
    if event.generation < group.generation or group.kind is not GroupKind.CLASSIC:
        return []  # Overtaken by a reply on another connection.
    seen = Member(
        member_id=event.member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
    )
    group.hear(seen, event.generation, event.seen_at)
    preparing = group.state is GroupState.PREPARING_REBALANCE and not group.joins
    if preparing and event.steady and (group.rebalance is None or event.seen_at > group.rebalance.since):
        # It was only inferred: the broker would have said REBALANCE_IN_PROGRESS.
        group.rebalance = None
        group.state = GroupState.STABLE
    return []


def _rebalance_seen(group: Group, event: RebalanceSeen, now: float) -> list[Fact]:
    if (member := group.members.get(event.member_id)) is not None:
        member.seen_at = max(member.seen_at, event.seen_at)
    if group.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
        return []
    join = group.rebalancing_join
    if join is not None:
        reason = RebalanceReason.METADATA if join.member_id in group.members else RebalanceReason.JOIN
    else:
        late = group.overdue or any(m.overdue(now) for m in group.members.values())
        reason = RebalanceReason.EXPIRED if late else RebalanceReason.UNKNOWN
    return begin(group, reason, now)


def _member_unknown(group: Group, event: MemberUnknown, now: float) -> list[Fact]:
    member = group.drop(event.member_id)
    if member is None:
        return []
    return _after_departure(group, [member], Departure.FENCED if event.fenced else Departure.EXPIRED, now)


def _members_left(group: Group, event: MembersLeft, now: float) -> list[Fact]:
    how = Departure.REMOVED if event.removed else Departure.LEFT
    dropped = [group.drop(member_id or group.by_instance(instance)) for member_id, instance in event.members]
    return _after_departure(group, [member for member in dropped if member], how, now)


def _after_departure(group: Group, members: list[Member], how: Departure, now: float) -> list[Fact]:
    facts = gone(group, members, how, now)
    if not members or group.state is GroupState.EMPTY:
        return facts
    if group.members or group.joins or not group.roster_known:
        reason = RebalanceReason.EXPIRED if how is Departure.EXPIRED else RebalanceReason.LEAVE
        return facts + begin(group, reason, now)
    group.empty_out(group.generation + 1)
    return facts


def _described(group: Group, event: GroupDescribed, now: float) -> list[Fact]:
    if event.as_of != group.changes or group.joins or group.kind is not GroupKind.CLASSIC:
        return []  # It tells of a time before something that is known.
    group.describe(event.members, event.protocol, now)
    if group.state is not event.state:
        group.rebalance = None
        group.state = event.state
    if event.state is GroupState.EMPTY:
        group.empty_out(group.generation)
    group.protocol_type = event.protocol_type
    if event.state is GroupState.STABLE:
        group.protocol = event.protocol
    group.obscured = None
    return []


def _consumer_member_seen(group: Group, event: ConsumerMemberSeen, now: float) -> list[Fact]:
    group.kind, group.protocol_type = GroupKind.CONSUMER, "consumer"
    group.generation = max(group.generation, event.epoch)
    if event.epoch < 0:
        member = group.drop(event.member_id)
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        return gone(group, [member], Departure.LEFT, now) if member else []
    group.state = GroupState.STABLE
    if (known := group.members.get(event.member_id)) is not None:
        known.seen_at = now
        return []
    member = Member(
        member_id=event.member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=CONSUMER_SESSION_MS,
        seen_at=now,
    )
    group.members[event.member_id] = member
    return [_joined(group, member, now)]


HANDLERS: dict[type[Event], Callable[[Group, Any, float], list[Fact]]] = {
    JoinSent: _join_sent,
    JoinAbandoned: _join_abandoned,
    JoinRejected: _join_rejected,
    MemberIdIssued: _member_id_issued,
    JoinAccepted: _join_accepted,
    Synced: _synced,
    MemberSeen: _member_seen,
    RebalanceSeen: _rebalance_seen,
    MemberUnknown: _member_unknown,
    MembersLeft: _members_left,
    GroupDescribed: _described,
    ConsumerMemberSeen: _consumer_member_seen,
}
"""The rule of each kind of event. `changes` of the group is the caller's to count."""
