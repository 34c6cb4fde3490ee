"""Facts about a group's members and rebalances.

Owns: how a change of a `Group` is told. Must not know: what brought it about.
"""

from collections.abc import Iterable

from group_sidecar.coordinator.facts import (
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCompleted,
    RebalanceReason,
    RebalanceStarted,
)
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.members import Member


def gone(group: Group, members: Iterable[Member], how: Departure, now: float) -> list[Fact]:
    """The facts that these members went. One of whom only the id was known was never told of."""
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
        if member.client_host
    ]


def joined(group: Group, members: Iterable[Member], now: float) -> list[Fact]:
    """The facts that these members are in. One of whom only the id is known is told of when it is known who it is."""
    return [
        MemberJoined(
            group_id=group.group_id,
            at=now,
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            instance_id=member.instance_id,
        )
        for member in members
        if member.client_host
    ]


def begin(group: Group, reason: RebalanceReason, now: float) -> list[Fact]:
    """The group prepares a rebalance, since the first join that waits for it; no fact where it did so already."""
    since = min((sent.sent_at for sent in group.joins.values() if sent.joining.parks), default=now)
    if group.begin_rebalance(reason, since):
        return [RebalanceStarted(group_id=group.group_id, at=now, reason=reason)]
    return []


def cause(group: Group, now: float) -> RebalanceReason:
    """Why a rebalance that was just seen has begun."""
    if group.overdue or group.late(now):
        return RebalanceReason.EXPIRED
    if (join := group.rebalancing_join) is None:
        return RebalanceReason.UNKNOWN
    return RebalanceReason.METADATA if join.joining.member_id in group.members else RebalanceReason.JOIN


def completed(group: Group, now: float) -> list[Fact]:
    """The rebalance is over; no fact where its beginning was not seen."""
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
