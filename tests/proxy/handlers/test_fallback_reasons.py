"""Tests the reasons for which the sidecar forwards a question, and their priority."""

from collections.abc import Callable

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.lost_requests import BYTES_AT_ONCE
from group_sidecar.proxy.dataplane.outcomes import DeferredRequest, Origin
from group_sidecar.proxy.handlers import fallback_reasons as room
from group_sidecar.proxy.handlers.fallback_reasons import FallbackReasons
from tests.proxy.dataplane.playbook import EPOCH, access_of, complete_state, stable_group

ORIGIN = Origin("10.0.0.1")
DESCRIBING = DescribeGroupsRequest(groups=("g",))
NOW = 100.0


def reason(state: BrokerState, request: Struct = DESCRIBING, version: int = 0) -> FallbackReason | None:
    """Returns the reason for which a question of an unauthenticated client is forwarded, or None."""
    exchange = Exchange(request=request, version=version, token="1:1", client_id="", client_host="", sent_at=EPOCH)
    reasons = FallbackReasons(state.copy, state.versions, access_of(state), state.answer_settings, state.lost_requests)
    return reasons.fallback_reason(exchange, ORIGIN, NOW)


def lose_requests(state: BrokerState) -> None:
    """Defers a lost request that is not applied yet."""
    assert state.lost_requests.defer([DeferredRequest(bytes(BYTES_AT_ONCE + 1), ORIGIN, NOW)], NOW)


CHANGES: dict[FallbackReason, Callable[[BrokerState], object]] = {
    FallbackReason.UNDECODABLE: lambda state: state.copy.manager.note_unread_write("g"),
    FallbackReason.STALE: lose_requests,
    FallbackReason.UNAUTHORIZED: lambda state: access_of(state).broker_lost(),
    FallbackReason.VERSION: lambda state: state.versions.learn({ApiKey.DESCRIBE_GROUPS: (1, 1)}),
}
"""The change that causes each reason. Each reason has priority over all reasons before it."""


def test_known_group_has_no_reason() -> None:
    """A question about a completely known group is not forwarded."""
    state = complete_state()
    stable_group(state, "m1")
    assert reason(state) is None


def test_reasons_have_an_order() -> None:
    """Settings have the highest priority, then reasons that concern all groups, then reasons of one group."""
    state = complete_state()
    stable_group(state, "m1")
    found = []
    for change in CHANGES.values():
        change(state)
        found.append(reason(state))
    assert found == list(CHANGES)
    disabled = complete_state(answers={"enabled": False})
    for change in CHANGES.values():
        change(disabled)
    assert reason(disabled) is FallbackReason.OFF


@pytest.mark.parametrize("authorizer", [True, False])
def test_long_list_is_not_authorized_here(authorizer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an authorizer, a long list is forwarded, because a lookup of the right to each group would take too long."""
    monkeypatch.setattr(room, "MAX_RIGHTS_LOOKED_UP", 1)
    state = complete_state(answers={"exclusive": True})
    state.learn_authorizer(authorizer)
    for group in "gh":
        stable_group(state, f"of {group}", group=group)
    assert reason(state, ListGroupsRequest()) is (FallbackReason.UNAUTHORIZED if authorizer else None)


def test_missing_api_gets_best_answer() -> None:
    """If the broker lacks the API, doubt and lost requests are no reasons, because the question cannot be forwarded."""
    state = complete_state()
    state.versions.learn({ApiKey.JOIN_GROUP: (0, 3)})
    lose_requests(state)
    state.copy.manager.note_unread_write("g")
    assert reason(state) is None
