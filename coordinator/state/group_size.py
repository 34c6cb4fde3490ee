"""The size of a group for a size limit (KIP-389), from members, joins in flight and the broker's last description."""

from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.model.views import GroupKind, GroupState, Occupancy
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.pending_joins import BrokerDescription


def occupancy_of(group: Group, now: float, *, exclusive: bool) -> Occupancy:
    """Returns the members and joins that count towards a group's size.

    `exclusive`: whether every client reaches the broker through this sidecar.
    """
    pending = group.pending_joins
    if group.kind is not GroupKind.CLASSIC:
        here = {*group.members, *pending.unlogged_members.joining_ids(now), *pending.parked_ids}.difference(
            pending.unlogged_members.leaving_ids(now)
        )
        return Occupancy(state=group.apparent_state, members=here, certain=group.consumer is not None)
    timely = not group.overdue and now <= group.earliest_timeout(now)
    guessed = group.metadata_omitted and bool(group.joins)  # Only their metadata shows whether they rebalance.
    is_certain = exclusive and group.incomplete_reason is None and not (pending.has_lost_joins or guessed) and timely
    description = pending.described_since(group.generation_at, now)
    # Lost joins may have begun a rebalance, in which known members have no priority over new members.
    state = GroupState.PREPARING_REBALANCE if pending.has_lost_joins else group.apparent_state
    members = frozenset(group.members)
    if description is not None and not is_certain:
        state, members = _state_since(description, group), description.members
    certain = is_certain or description is not None
    # The broker rejects joins with unknown member ids, for instance of clients that still use ids of a removed group.
    unknown = pending.parked_unknown(members, group.pending) if certain else 0
    return Occupancy(
        state=state,
        members=members.union(pending.unlogged_members.joining_ids(now)),
        parked=pending.parked - unknown,
        is_parked=pending.is_parked,
        certain=certain,
    )


def _state_since(description: BrokerDescription, group: Group) -> GroupState:
    """Returns the state that the broker described, unless a rebalance has begun since or a lost join may begin one."""
    since = group.rebalance.waiting_since if group.rebalance else NEVER
    begun = group.state is GroupState.PREPARING_REBALANCE and since > description.asked_at
    if begun or group.rebalancing_join or group.pending_joins.has_lost_joins:
        return GroupState.PREPARING_REBALANCE
    return description.state
