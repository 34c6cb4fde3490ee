"""The size of a group for a size limit (KIP-389), from members, joins in flight and the broker's last description."""

from group_sidecar.coordinator.model.events import LOST_REQUEST_SECONDS, NEVER
from group_sidecar.coordinator.model.state_transitions import STATES_COUNTING_MEMBERS
from group_sidecar.coordinator.model.views import GroupKind, GroupState, Occupancy
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.pending_joins import BrokerDescription


def occupancy_of(group: Group, now: float, *, exclusive: bool, asked_often: bool = False) -> Occupancy:
    """Returns the members and joins that count towards a group's size.

    `exclusive`: whether every client reaches the broker through this sidecar. `asked_often`: whether the broker has
    described the group several times for this request. Its last description then counts, although the group may have
    changed since.
    """
    pending = group.pending_joins
    if group.kind is not GroupKind.CLASSIC:
        remaining = group.members.keys() - set(pending.unlogged_members.leaving_ids(now))
        here = remaining.union(pending.unlogged_members.joining_ids(now), pending.parked_ids)
        return Occupancy(state=group.apparent_state, members=here, certain=group.consumer is not None)
    is_certain = exclusive and _is_certain(group, now)
    description = _valid_description(group, now) or (pending.last_description(now) if asked_often else None)
    # Lost joins may have begun a rebalance, in which known members have no priority over new members.
    state = GroupState.PREPARING_REBALANCE if pending.has_lost_joins else group.apparent_state
    members, may_be_settled = frozenset(group.members), False
    if description is not None and not is_certain:
        state, members = _state_since(description, group), description.members.difference(group.left_member_ids)
        may_be_settled = description.state in STATES_COUNTING_MEMBERS and not _has_begun(description, group)
    certain = is_certain or description is not None
    # The broker rejects joins with unknown member ids, for instance of clients that still use ids of a removed group.
    unknown = pending.parked_unknown(members, group.pending) if certain else 0
    return Occupancy(
        state=state,
        members=members.union(pending.unlogged_members.joining_ids(now)),
        parked=pending.parked - unknown,
        is_parked=pending.is_parked,
        certain=certain,
        may_be_settled=may_be_settled,
    )


def _is_certain(group: Group, now: float) -> bool:
    """Whether the copy has exactly the members and joins that the broker has, if no client bypasses the sidecar."""
    if group.overdue or now > group.earliest_timeout(now):
        return False
    pending = group.pending_joins
    # Only the metadata of a join shows whether the join begins a rebalance.
    may_be_rebalancing = group.metadata_omitted and bool(group.joins)
    doubtful = pending.has_lost_joins or pending.has_join_before_generation or may_be_rebalancing
    return group.incomplete_reason is None and not doubtful


def _valid_description(group: Group, now: float) -> BrokerDescription | None:
    """Returns the broker's description of the group; None if the members or parked joins may have changed since.

    In a rebalance, only the parked joins count, and the sessions of their members do not end.
    """
    pending = group.pending_joins
    description = pending.described_since(group.generation_at, now)
    if description is None or description.state is GroupState.PREPARING_REBALANCE:
        return description
    has_removed_member = description.asked_at <= pending.sessions_ended_at
    may_have_removed_member = description.asked_at < group.earliest_timeout(now) < now
    return None if has_removed_member or may_have_removed_member else description


def _state_since(description: BrokerDescription, group: Group) -> GroupState:
    """Returns the state that the broker described, unless a rebalance has begun since, or a join may begin one.

    A join without a reply may have been replaced by another, or it may still be on its way to a busy broker.
    """
    parked = any(sent.joining.will_park for sent in group.joins.values())
    if parked or group.pending_joins.has_lost_joins or _has_begun(description, group):
        return GroupState.PREPARING_REBALANCE
    return description.state


def _has_begun(description: BrokerDescription, group: Group) -> bool:
    """Whether a rebalance must have begun since the description, or shortly before it."""
    since = group.rebalance.waiting_since if group.rebalance else NEVER
    begun = group.state is GroupState.PREPARING_REBALANCE and since > description.asked_at
    sent_since = description.asked_at - LOST_REQUEST_SECONDS
    return begun or any(sent.sent_at >= sent_since and group.forces_rebalance(sent) for sent in group.joins.values())
