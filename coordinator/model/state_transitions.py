"""The states of a group and the transitions between them.

`TRANSITIONS` has two kinds of changes. Some changes follow the state machine of Kafka's ClassicGroup. The other changes
correct the copy after steps of the broker that the sidecar did not observe.
"""

from enum import Enum, auto

from group_sidecar.coordinator.model.views import GroupKind, GroupState

CLASSIC = GroupKind.CLASSIC
DEAD, EMPTY, PREPARING_REBALANCE = GroupState.DEAD, GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE, STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE
"""Module constants for code that runs with every request, because access to an enum member is slow in Python 3.11."""


class StateChange(Enum):
    """A change of a group's state."""

    CREATED = auto()
    """The broker has created the group."""
    REBALANCE_BEGAN = auto()
    """The broker waits for the joins of the members."""
    REBALANCE_DISPROVED = auto()
    """The broker accepted a heartbeat, so it prepares no rebalance."""
    JOINS_COMPLETED = auto()
    """The broker replied to the first join of a new generation."""
    SYNCED = auto()
    """The broker has the assignments of the generation."""
    LAST_MEMBER_LEFT = auto()
    """The last member has left, and no join is parked."""
    MEMBER_FOUND = auto()
    """The broker accepted a request of a member that the copy did not know."""
    GENERATION_FOUND = auto()
    """The broker accepted a request of a generation whose beginning was not observed."""
    REPORTED_DEAD = auto()
    """The broker or the log reported the state Dead. Unobserved steps may have led to it, as in all changes below."""
    REPORTED_EMPTY = auto()
    REPORTED_PREPARING_REBALANCE = auto()
    REPORTED_COMPLETING_REBALANCE = auto()
    REPORTED_STABLE = auto()
    REPORTED_ASSIGNING = auto()
    REPORTED_RECONCILING = auto()


REPORTED = {state: StateChange[f"REPORTED_{state.name}"] for state in GroupState}
"""The change that sets a reported state, by that state."""

TRANSITIONS: dict[tuple[GroupState, StateChange], GroupState] = {
    (DEAD, StateChange.CREATED): EMPTY,
    (EMPTY, StateChange.REBALANCE_BEGAN): PREPARING_REBALANCE,
    (STABLE, StateChange.REBALANCE_BEGAN): PREPARING_REBALANCE,
    (COMPLETING_REBALANCE, StateChange.REBALANCE_BEGAN): PREPARING_REBALANCE,
    (PREPARING_REBALANCE, StateChange.JOINS_COMPLETED): COMPLETING_REBALANCE,
    (COMPLETING_REBALANCE, StateChange.SYNCED): STABLE,
    (PREPARING_REBALANCE, StateChange.LAST_MEMBER_LEFT): EMPTY,
    # Corrections after unobserved steps of the broker.
    (DEAD, StateChange.REBALANCE_BEGAN): PREPARING_REBALANCE,
    (PREPARING_REBALANCE, StateChange.REBALANCE_DISPROVED): STABLE,
    (COMPLETING_REBALANCE, StateChange.LAST_MEMBER_LEFT): EMPTY,
    (STABLE, StateChange.LAST_MEMBER_LEFT): EMPTY,
    (DEAD, StateChange.MEMBER_FOUND): STABLE,
    (EMPTY, StateChange.MEMBER_FOUND): STABLE,
    **{(before, StateChange.GENERATION_FOUND): STABLE for before in GroupState},
    **{(before, change): after for before in GroupState for after, change in REPORTED.items()},
}
"""The next state, by the current state and its change. A pair that is missing here is invalid."""

SETTLED = frozenset({GroupState.STABLE, GroupState.EMPTY})
"""Lasting states. In these states, the brokers of all releases describe a group alike."""
STATES_COUNTING_MEMBERS = frozenset({GroupState.COMPLETING_REBALANCE, GroupState.STABLE})
"""The states in which the members of a group count towards its size limit. In PreparingRebalance, the parked joins
count."""


class InvalidTransition(Exception):
    """A change that is not valid in the group's state."""


def next_state(state: GroupState, change: StateChange) -> GroupState:
    """Returns the state after a change. Raises InvalidTransition if the table does not contain the change."""
    after = TRANSITIONS.get((state, change))
    if after is None:
        raise InvalidTransition(f"{change.name} of a group that is {state}")
    return after
