"""The rules of the broker's descriptions of groups: what the copy adopts, and which facts follow."""

from group_sidecar.coordinator.model.events import GroupDescribed
from group_sidecar.coordinator.model.facts import Departure, Fact
from group_sidecar.coordinator.model.state_transitions import STABLE
from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.coordinator.rules.causes import departure_of_missing
from group_sidecar.coordinator.rules.fact_builder import (
    begin_rebalance,
    complete_rebalance,
    conclude_rebalance,
    member_gone_facts,
    member_returned_facts,
)
from group_sidecar.coordinator.rules.internal_events import InstanceIdsMissing, MembersOrdered, SizeDescribed
from group_sidecar.coordinator.state.group import Group


def described(group: Group, event: GroupDescribed, now: float) -> list[Fact]:
    """Adopts a description by the broker. An outdated description changes nothing."""
    # DescribeGroups returns a group of a newer protocol as Dead.
    classic = group.kind is GroupKind.CLASSIC or event.state is not GroupState.DEAD
    if group.joins or not classic or event.sent_at < group.settled_at:
        return []  # A request in flight or a lost request may change the group after this description.
    if event.state is GroupState.DEAD and group.pending.may_be_used(now):
        # The broker issued a member id, so it has the group in memory. Kafka 4 describes what it has committed to the
        # log (GroupCoordinatorService.describeGroups), which may lack the group for a moment.
        return []
    facts = _facts_of_description(group, event, now)
    group.adopt_description(event, now)
    if event.state is GroupState.STABLE and group.rebalance is not None:
        facts += complete_rebalance(group, now)
    return facts + member_returned_facts(group, group.members.values(), now)


def _facts_of_description(group: Group, event: GroupDescribed, now: float) -> list[Fact]:
    """Applies changes that a description shows before the replies to leaves, syncs and heartbeats have come.

    Replies on different connections may overtake each other. A description that is up to date may show that members
    have left, that a rebalance has begun, or that the generation is stable. The facts are returned now, because the
    later replies no longer change the group.
    """
    facts = list[Fact]()
    if group.kind is not GroupKind.CLASSIC:
        return facts
    described_ids = {member.member_id for member in event.members}
    instance_ids = {member.instance_id for member in event.members if member.instance_id}
    if event.state is GroupState.PREPARING_REBALANCE and group.state in (STABLE, GroupState.COMPLETING_REBALANCE):
        facts += begin_rebalance(group, now)
    elif event.state is GroupState.STABLE and group.state is GroupState.COMPLETING_REBALANCE:
        if described_ids == group.members.keys():
            group.lifecycle.stabilise()
    elif event.state in (GroupState.EMPTY, GroupState.DEAD):
        facts += conclude_rebalance(group, now)
    known = group.roster.known().values()
    missing = [m for m in known if m.member_id not in described_ids and m.instance_id not in instance_ids]
    static = group.roster.static_members() if missing else {}
    for member in missing:
        departure, reason = departure_of_missing(group, member, now, static)
        # Without instance ids, the description may have a static member under another member id.
        may_be_there = departure is Departure.DROPPED and member.instance_id and not event.has_instance_ids
        if departure is not Departure.FENCED and not may_be_there:
            facts += member_gone_facts(group, member, departure, now, reason)
    if event.state in (GroupState.EMPTY, GroupState.DEAD):
        group.rebalances.forget()
    return facts


def members_ordered(group: Group, event: MembersOrdered, now: float) -> list[Fact]:
    """Sets the order of the members of a group of a newer protocol."""
    group.logged_state.set_member_order(event.members)
    return []


def size_described(group: Group, event: SizeDescribed, now: float) -> list[Fact]:
    """Uses a description to decide which lost joins have become members."""
    group.pending_joins.apply_description(event.description, event.before, now, roster_complete=event.roster_complete)
    return []


def instance_ids_missing(group: Group, event: InstanceIdsMissing, now: float) -> list[Fact]:
    """Puts the group in doubt, because its members may have instance ids that the broker has left out."""
    group.doubt(now)
    return []
