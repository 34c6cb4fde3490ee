"""Who has a place in a group, for what counts members (KIP-389).

Owns: how the copy of a group, the joins under way and the broker's own word add up. Must not know: any limit.
"""

from group_sidecar.coordinator.events import NEVER
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.reservations import Told
from group_sidecar.coordinator.views import GroupKind, GroupState, Seats


def seats(group: Group, now: float, *, exclusive: bool) -> Seats:
    """Who has a place in a group. `exclusive`: whether nobody changes it unseen."""
    held = group.reservations
    if group.kind is not GroupKind.CLASSIC:
        here = {*group.members, *held.arrivals.ins(now), *held.joining}.difference(held.arrivals.outs(now))
        return Seats(state=group.apparent_state, members=here, certain=group.consumer is not None)
    timely = not group.overdue and now <= group.sound_until(now)
    guessed = group.bare and bool(group.joins)  # Whether these begin a rebalance depends on metadata.
    sure = exclusive and group.unsure is None and not (held.haunted or guessed) and timely
    told = held.told_since(group.generation_at, now)
    # Lost joins may have begun a rebalance, in which members have no more right to a place than others.
    state = GroupState.PREPARING_REBALANCE if held.haunted else group.apparent_state
    members = frozenset(group.members)
    if told is not None and not sure:
        state, members = _state_since(told, group), told.members
    certain = sure or told is not None
    # The broker rejects unknown member ids. Clients retry with ids of a group that has since been removed.
    ids_known = certain and not group.pending.forgot_any(now)
    unknown = held.parked_beside({*members, *group.pending}) if ids_known else 0
    return Seats(
        state=state,
        members=members.union(held.arrivals.ins(now)),
        parked=held.parked - unknown,
        is_parked=held.is_parked,
        certain=certain,
    )


def _state_since(told: Told, group: Group) -> GroupState:
    """The state that the broker told, unless a rebalance has begun since, or a lost join may yet begin one."""
    since = group.rebalance.since if group.rebalance else NEVER
    begun = group.state is GroupState.PREPARING_REBALANCE and since > told.asked_at
    if begun or group.rebalancing_join or group.reservations.haunted:
        return GroupState.PREPARING_REBALANCE
    return told.state
