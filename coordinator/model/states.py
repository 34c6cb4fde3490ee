"""The states of a group and the transitions between them.

The table has two kinds of changes. Some follow the state machine of Kafka's coordinator, as its ClassicGroup has it.
The others let the copy catch up with a broker whose steps were not all seen. No group is known here.
"""

from enum import Enum, auto

from group_sidecar.coordinator.model.views import GroupKind, GroupState

CLASSIC = GroupKind.CLASSIC
DEAD, EMPTY, PREPARING_REBALANCE = GroupState.DEAD, GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE, STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE
"""For what runs with every request: Python 3.11 takes longer to find a member of an enum than for most other steps."""


class StateChange(Enum):
    """What changes the state of a group."""

    CREATED = auto()
    """The broker has created the group."""
    REBALANCE_BEGAN = auto()
    """The broker waits for the joins of the members."""
    REBALANCE_DISPROVED = auto()
    """The broker accepted a heartbeat, so it prepares no rebalance."""
    JOINS_COMPLETED = auto()
    """The broker answered the first join of a new generation."""
    SYNCED = auto()
    """The broker has the assignments of the generation."""
    LAST_MEMBER_LEFT = auto()
    """The last member has left, and no join waits."""
    MEMBER_FOUND = auto()
    """The broker accepted a request of a member that the copy did not know."""
    GENERATION_FOUND = auto()
    """The broker accepted a request of a generation whose beginning was not seen."""
    REPORTED_DEAD = auto()
    """The broker or the log reported the state. It may have been reached by steps that were not seen."""
    REPORTED_EMPTY = auto()
    REPORTED_PREPARING_REBALANCE = auto()
    REPORTED_COMPLETING_REBALANCE = auto()
    REPORTED_STABLE = auto()
    REPORTED_ASSIGNING = auto()
    REPORTED_RECONCILING = auto()


REPORTED = {state: StateChange[f"REPORTED_{state.name}"] for state in GroupState}
"""The change of a state that was reported."""

TRANSITIONS: dict[tuple[GroupState, StateChange], GroupState] = {
    (DEAD, StateChange.CREATED): EMPTY,
    (EMPTY, StateChange.REBALANCE_BEGAN): PREPARING_REBALANCE,
    (STABLE, StateChange.REBALANCE_BEGAN): PREPARING_REBALANCE,
    (COMPLETING_REBALANCE, StateChange.REBALANCE_BEGAN): PREPARING_REBALANCE,
    (PREPARING_REBALANCE, StateChange.JOINS_COMPLETED): COMPLETING_REBALANCE,
    (COMPLETING_REBALANCE, StateChange.SYNCED): STABLE,
    (PREPARING_REBALANCE, StateChange.LAST_MEMBER_LEFT): EMPTY,
    # Steps of the broker that were not all seen.
    (DEAD, StateChange.REBALANCE_BEGAN): PREPARING_REBALANCE,
    (PREPARING_REBALANCE, StateChange.REBALANCE_DISPROVED): STABLE,
    (COMPLETING_REBALANCE, StateChange.LAST_MEMBER_LEFT): EMPTY,
    (STABLE, StateChange.LAST_MEMBER_LEFT): EMPTY,
    (DEAD, StateChange.MEMBER_FOUND): STABLE,
    (EMPTY, StateChange.MEMBER_FOUND): STABLE,
    **{(before, StateChange.GENERATION_FOUND): STABLE for before in GroupState},
    **{(before, change): after for before in GroupState for after, change in REPORTED.items()},
}
"""The next state, by the state and what changes it. A pair that is not here cannot happen."""

SETTLED = frozenset({GroupState.STABLE, GroupState.EMPTY})
"""States that last, and of which DescribeGroups tells the same whichever coordinator answers."""


class InvalidTransition(Exception):
    """A change that a group cannot go through in its state."""


def next_state(state: GroupState, change: StateChange) -> GroupState:
    """Returns the state after a change. Raises InvalidTransition where the table has none."""
    after = TRANSITIONS.get((state, change))
    if after is None:
        raise InvalidTransition(f"{change.name} of a group that is {state}")
    return after
