"""The facts about rebalances of KIP-848 groups, from the differences between two views of a group.

The members of a KIP-848 group do not wait for each other. The group's epoch grows with each change of its members or of
their topics. A new epoch counts as the beginning of a rebalance. The rebalance ends when each member owns its target
assignment of that epoch.
"""

from collections.abc import Mapping

from group_sidecar.coordinator.model.facts import (
    Fact,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.model.views import ConsumerGroupView, ConsumerMemberView, GroupKind, GroupState
from group_sidecar.coordinator.rules.causes import cause_of_departure, departure_of_missing
from group_sidecar.coordinator.rules.fact_builder import member_gone_facts, member_joined_facts, member_noticed_facts
from group_sidecar.coordinator.rules.partition_moves import consumer_moves, consumer_owners
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.member import Member
from group_sidecar.coordinator.state.rebalance import CauseDetails, Rebalance


def rebalance_facts(
    group: Group, before: Mapping[str, Member], old: ConsumerGroupView | None, now: float
) -> list[Fact]:
    """Returns the facts that follow from a change of the group's view.

    `before` and `old` are the members and the view before the change. The log may still contain members whose leave was
    seen on the wire. Such members cause no fact here.
    """
    view = group.consumer
    if view is None or view.kind is not GroupKind.CONSUMER:
        return []
    facts, causes = _membership_facts(group, before, now)
    if old is None or view.epoch > old.epoch:
        facts += _begin_rebalance(group, old, view, causes, now)
    if view.state is GroupState.STABLE and group.rebalance is not None:
        facts.append(_completed_fact(group, group.rebalance, view, now))
    elif view.state is GroupState.EMPTY:
        group.rebalances.drop()
        group.rebalances.forget()
    return facts


def _membership_facts(group: Group, before: Mapping[str, Member], now: float) -> tuple[list[Fact], list[CauseDetails]]:
    """Returns the facts about members that joined or left, and each join or departure as a rebalance's cause."""
    facts, causes = list[Fact](), list[CauseDetails]()
    previous_instance_ids = {member.instance_id for member in before.values() if member.instance_id}
    for member in group.members.values():
        if member.member_id in before or member.member_id in group.left_member_ids:
            continue
        back = member.instance_id in previous_instance_ids
        facts += (member_noticed_facts if back else member_joined_facts)(group, [member], now)
        cause = RebalanceCause.STATIC_REPLACED if back else RebalanceCause.NEW_MEMBER
        causes.append(CauseDetails(cause=cause, member=member.info))
    static = group.roster.static_members()
    for member in [before[each] for each in before.keys() - group.members.keys() - group.left_member_ids]:
        departure, reason = departure_of_missing(group, member, now, static)
        facts += member_gone_facts(group, member, departure, now, reason)
        causes.append(cause_of_departure(member, departure, reason))
    group.roster.retain_left_ids(group.members)
    return facts, causes


def _begin_rebalance(
    group: Group, old: ConsumerGroupView | None, view: ConsumerGroupView, causes: list[CauseDetails], now: float
) -> list[Fact]:
    """Begins a rebalance for a new epoch and returns its fact. A rebalance in progress keeps its first cause."""
    if view.state is GroupState.EMPTY:
        return []
    expected_cause = group.rebalances.take_expected()
    details = causes[0] if causes else expected_cause or _cause_without_member_change(group, old, view)
    group.rebalances.begin_consumer(details, now, consumer_owners(old))
    return [
        RebalanceStarted(group_id=group.group_id, at=now, cause=details.cause, by=details.member, said=details.reason)
    ]


def _completed_fact(group: Group, rebalance: Rebalance, view: ConsumerGroupView, now: float) -> Fact:
    group.rebalances.finish(now)
    joined_count, left_count = group.rebalances.take_counts(group.members)
    return RebalanceCompleted(
        group_id=group.group_id,
        at=now,
        cause=rebalance.cause_details.cause,
        by=rebalance.cause_details.member,
        said=rebalance.cause_details.reason,
        generation=view.epoch,
        protocol=view.assignors[0] if len(view.assignors) == 1 else "",
        members=len(view.members),
        duration_seconds=now - rebalance.started_at,
        joined=joined_count,
        gone=left_count,
        moved_partitions=consumer_moves(rebalance.owners, consumer_owners(view)),
    )


def _cause_without_member_change(group: Group, old: ConsumerGroupView | None, view: ConsumerGroupView) -> CauseDetails:
    """Returns the cause of a rebalance for which no member joined or left: a member or a topic changed."""
    if old is None:  # A new group, whose first member was seen on the wire.
        first = next((member for member in view.members if not member.classic), None)
        member_info = group.members[first.member_id].info if first else None
        return CauseDetails(cause=RebalanceCause.NEW_MEMBER, member=member_info) if member_info else CauseDetails()
    known = {member.member_id: _subscription(member) for member in old.members}
    for member in view.members:
        if known.get(member.member_id, _subscription(member)) != _subscription(member):
            return CauseDetails(cause=RebalanceCause.SUBSCRIPTION_CHANGED, member=group.members[member.member_id].info)
    return CauseDetails(cause=RebalanceCause.TOPIC_METADATA)


def _subscription(member: ConsumerMemberView) -> tuple[object, ...]:
    return frozenset(member.subscribed_topic_names), member.subscribed_topic_regex, member.server_assignor
