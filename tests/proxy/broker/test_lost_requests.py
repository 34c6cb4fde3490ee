"""Tests that many lost requests of a closed connection are handled in slices, without a local answer in between."""

from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.lost_requests import BYTES_AT_ONCE, MAX_WAITING_BYTES
from group_sidecar.proxy.handlers.dispatcher import BrokerDispatcher
from tests.proxy.dataplane.playbook import (
    EPOCH,
    Line,
    complete_state,
    new_dispatcher,
    stable_group,
    to_client,
    to_upstream,
)

GROUPS = tuple(f"a-group-of-some-length-{number:05}" for number in range(100))
OWED = 12
"""The number of in-flight requests when the connection ends: 36 KB."""
REQUEST = len(Line(complete_state()).frame(DeleteGroupsRequest(groups_names=(*GROUPS, "g")), 2)) - 4


def lose(dispatcher: BrokerDispatcher, state: BrokerState, requests: int = OWED) -> None:
    """Ends a connection with `requests` DeleteGroups requests in flight. The last request names the group g."""
    line = Line(state, dispatcher=dispatcher)
    for number in range(requests):
        line.sends(DeleteGroupsRequest(groups_names=(*GROUPS, "g" if number == requests - 1 else "f")), 2)
    line.upstream_closed()


def waiting(state: BrokerState) -> int:
    return {table.name: table.entries for table in state.tables}["lost_requests"]


def lacking(state: BrokerState) -> FallbackReason | None:
    return state.copy.manager.group_fallback_reason("g", EPOCH + 100)


def is_answered(dispatcher: BrokerDispatcher, state: BrokerState, group: str) -> bool:
    """Whether a client's question about a group is answered locally."""
    commands = Line(state, dispatcher=dispatcher).sends(DescribeGroupsRequest(groups=(group,)), 5)
    assert bool(to_client(commands)) is not bool(to_upstream(commands))
    return bool(to_client(commands))


def test_many_lost_requests_handled_in_slices() -> None:
    """Many lost requests of a closed connection are handled in slices, because one pass would delay all clients."""
    state = complete_state()
    dispatcher = new_dispatcher(state)
    stable_group(state, "m1")
    lose(dispatcher, state)
    assert waiting(state) == OWED
    assert lacking(state) is None
    turns = 1
    while dispatcher.apply_lost_requests():
        assert waiting(state) >= OWED - turns * (BYTES_AT_ONCE // REQUEST + 1)
        turns += 1
    assert turns == -(-OWED // (BYTES_AT_ONCE // REQUEST + 1))
    assert lacking(state) is FallbackReason.IN_DOUBT
    assert not dispatcher.apply_lost_requests()


def test_no_answers_until_losses_are_applied() -> None:
    """No question is answered locally before all lost requests are applied."""
    state = complete_state()
    dispatcher = new_dispatcher(state)
    stable_group(state, "m1", group="other")
    assert is_answered(dispatcher, state, "other")
    lose(dispatcher, state)
    assert not is_answered(dispatcher, state, "other")
    assert state.traffic.fallbacks[DescribeGroupsRequest.KEY, FallbackReason.STALE] == 1
    while dispatcher.apply_lost_requests():
        assert not is_answered(dispatcher, state, "other")
    assert is_answered(dispatcher, state, "other")


def test_few_lost_requests_handled_at_once() -> None:
    """A few lost requests are handled at once."""
    state = complete_state()
    stable_group(state, "m1")
    lose(new_dispatcher(state), state, BYTES_AT_ONCE // REQUEST)
    assert waiting(state) == 0
    assert lacking(state) is FallbackReason.IN_DOUBT


def test_waiting_requests_are_bounded() -> None:
    """The bytes of waiting lost requests are bounded."""
    state = complete_state()
    dispatcher = new_dispatcher(state)
    for _ in range(MAX_WAITING_BYTES // (OWED * REQUEST) + 10):
        lose(dispatcher, state)
    assert waiting(state) * REQUEST <= MAX_WAITING_BYTES
