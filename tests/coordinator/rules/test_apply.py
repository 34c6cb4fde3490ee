"""Tests that the table of rules has a rule for each kind of event."""

from types import ModuleType

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model import events
from group_sidecar.coordinator.model.events import (
    Event,
    GroupsListed,
    Leaving,
    LogEndsSeen,
    LogStartsSeen,
    MemberActivity,
    TransactionEnded,
)
from group_sidecar.coordinator.rules import internal_events
from group_sidecar.coordinator.rules.apply import INTERNAL_RULES, QUIET, WIRE_RULES
from group_sidecar.coordinator.rules.internal_events import InternalEvent


def kinds(module: ModuleType, base: type) -> set[type]:
    """Returns the classes of a module that derive from a base class."""
    return {each for each in vars(module).values() if isinstance(each, type) and issubclass(each, base)} - {base}


def test_each_internal_event_has_a_rule() -> None:
    """The table has a rule for each event that no request or reply shows, and no other rules."""
    assert kinds(internal_events, InternalEvent) == INTERNAL_RULES.keys()


def test_each_wire_event_has_a_rule() -> None:
    """The manager has a rule for each kind of event, and no other rules."""
    of_groups = kinds(events, Event) - {MemberActivity, Leaving}
    rules = GroupMetadataManager(exclusive=True)._rules
    assert rules.keys() == of_groups | {GroupsListed, TransactionEnded, LogEndsSeen, LogStartsSeen}
    assert WIRE_RULES.keys() <= of_groups


def test_quiet_events_have_wire_rules() -> None:
    """Each quiet event, which changes nothing by itself, has a rule for events of requests and replies."""
    assert WIRE_RULES.keys() >= QUIET
