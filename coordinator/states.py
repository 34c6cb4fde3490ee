"""The states of a group.

Owns: the transition table, which states last, and short names. Must not know: any group.
"""

from group_sidecar.coordinator.views import GroupKind, GroupState

CLASSIC = GroupKind.CLASSIC
DEAD, EMPTY, PREPARING_REBALANCE = GroupState.DEAD, GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE, STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE
"""For what runs with every request: Python 3.11 takes longer to find a member of an enum than for most other steps."""

TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(),
}
"""Kafka's GroupState.validPreviousStates turned round; every state may also become DEAD."""
SETTLED = frozenset({GroupState.STABLE, GroupState.EMPTY})
"""States that last, and of which DescribeGroups tells the same whichever coordinator answers."""
