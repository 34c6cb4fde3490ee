"""The states of a group.

Owns: the transition table, and which states last. Must not know: any group.
"""

from group_sidecar.coordinator.views import GroupState

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
