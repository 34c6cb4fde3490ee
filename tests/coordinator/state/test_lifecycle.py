"""Tests that the state machine of a group accepts the changes of its table and refuses all others."""

import pytest

from group_sidecar.coordinator.model.state_transitions import (
    REPORTED,
    TRANSITIONS,
    InvalidTransition,
    StateChange,
    next_state,
)
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.coordinator.state.lifecycle import Lifecycle

KAFKA = {
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
}
"""The valid previous states of each state in Kafka's ClassicGroupState."""


def test_kafkas_transitions_are_in_the_table() -> None:
    """The table has a change for each transition of Kafka's coordinator."""
    found = {(before, after) for (before, change), after in TRANSITIONS.items() if change not in REPORTED.values()}
    assert {(before, after) for after, all_before in KAFKA.items() for before in all_before} <= found


@pytest.mark.parametrize(
    ("state", "change"),
    [
        (GroupState.EMPTY, StateChange.JOINS_COMPLETED),
        (GroupState.STABLE, StateChange.SYNCED),
        (GroupState.PREPARING_REBALANCE, StateChange.SYNCED),
        (GroupState.PREPARING_REBALANCE, StateChange.REBALANCE_BEGAN),
        (GroupState.STABLE, StateChange.CREATED),
        (GroupState.COMPLETING_REBALANCE, StateChange.REBALANCE_DISPROVED),
        (GroupState.COMPLETING_REBALANCE, StateChange.MEMBER_FOUND),
        (GroupState.DEAD, StateChange.LAST_MEMBER_LEFT),
    ],
)
def test_invalid_changes_are_refused(state: GroupState, change: StateChange) -> None:
    """A change that is not in the table raises an exception that names the state and the change."""
    with pytest.raises(InvalidTransition, match=rf"{change.name} of a group that is {state}"):
        next_state(state, change)


@pytest.mark.parametrize("before", list(GroupState))
@pytest.mark.parametrize("after", list(GroupState))
def test_reported_state_is_accepted(before: GroupState, after: GroupState) -> None:
    """A state that the broker or the log reports is accepted after any previous state."""
    assert next_state(before, REPORTED[after]) is after


def test_a_refused_change_changes_nothing() -> None:
    """A lifecycle keeps its state when it refuses a change."""
    lifecycle = Lifecycle()
    lifecycle.create()
    with pytest.raises(InvalidTransition):
        lifecycle.stabilise()
    assert lifecycle.state is GroupState.EMPTY
