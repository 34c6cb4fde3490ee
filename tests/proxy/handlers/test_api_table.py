"""The table of handlers, and the common properties of all pending replies."""

from typing import Any

import pytest

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.coordinator.wire import exchange_events
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.policies.all_policies import POLICIES
from group_sidecar.policies.policy import Policy
from group_sidecar.proxy.broker.answer_settings import LOCAL_APIS
from group_sidecar.proxy.broker.authorization_cache import RULE_CHANGE_APIS
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.tail_rewrite import TAIL_APIS
from group_sidecar.proxy.dataplane.framing import DEFER, HOLD, PASS, FrameAction
from group_sidecar.proxy.dataplane.outcomes import DeferredRequest, HangUp, Origin, PendingReply
from group_sidecar.proxy.handlers.api_handler import ApiHandler
from group_sidecar.proxy.handlers.api_table import DEFERRED_APIS, ApiTable, make_reply_builder
from group_sidecar.proxy.handlers.disconnect import Disconnector
from group_sidecar.proxy.handlers.fetches import Fetches
from group_sidecar.proxy.handlers.find_coordinator import FindCoordinatorRequests
from group_sidecar.proxy.handlers.group_requests import GroupQuestions, GroupRequests
from group_sidecar.proxy.handlers.reply_rewriter import ADDRESS_APIS
from group_sidecar.proxy.handlers.rewritten_replies import ApiVersionsRequests, RewrittenReplies, RewrittenTails
from group_sidecar.proxy.handlers.rule_changes import RuleChanges
from group_sidecar.proxy.handlers.sasl import SASL_APIS, SaslRequests
from group_sidecar.proxy.handlers.undecoded_writes import UndecodedWrite
from group_sidecar.proxy.handlers.unread_apis import NamedGroupWrites, TopicDeletions
from tests.proxy.dataplane.playbook import EPOCH, access_of, broker_state, complete_state, new_dispatcher, request

ORIGIN = Origin("10.0.0.1")
ANYWHERE: tuple[tuple[frozenset[int], type[ApiHandler], FrameAction], ...] = (
    (DEFERRED_APIS, GroupRequests, DEFER),
    (exchange_events.REQUEST_EVENT_KEYS, GroupRequests, HOLD),
    (LOCAL_APIS, GroupQuestions, HOLD),
    (exchange_events.GROUP_ONLY_KEYS, NamedGroupWrites, HOLD),
    (frozenset({ApiKey.DELETE_TOPICS}), TopicDeletions, PASS),
    (RULE_CHANGE_APIS, RuleChanges, PASS),
    (SASL_APIS, SaslRequests, HOLD),
    (frozenset({ApiKey.FETCH}), Fetches, PASS),
    (frozenset({ApiKey.API_VERSIONS}), ApiVersionsRequests, PASS),
)
REWRITTEN = frozenset({ApiKey.METADATA})
FIND_COORDINATOR = frozenset({ApiKey.FIND_COORDINATOR})


def gateway() -> BrokerState:
    return broker_state(advertise=lambda node, host, port: (host, port))


def handlers(state: BrokerState) -> dict[int, ApiHandler]:
    return ApiTable(state, access_of(state), make_reply_builder(state), Disconnector()).by_api


@pytest.mark.parametrize(
    ("state", "more"),
    [
        (broker_state(), ((REWRITTEN, RewrittenReplies, PASS),)),
        (
            broker_state(group_metadata_request=True),
            ((REWRITTEN, RewrittenReplies, PASS), (FIND_COORDINATOR, FindCoordinatorRequests, PASS)),
        ),
        (
            gateway(),
            (
                (ADDRESS_APIS - FIND_COORDINATOR, RewrittenReplies, PASS),
                (FIND_COORDINATOR, FindCoordinatorRequests, PASS),
                (TAIL_APIS - {ApiKey.FETCH}, RewrittenTails, PASS),
            ),
        ),
    ],
    ids=["sidecar", "with KIP-40's draft", "gateway"],
)
def test_table_has_one_handler_for_each_api(state: BrokerState, more: Any) -> None:
    found = {key: (type(handler), handler.action) for key, handler in handlers(state).items()}
    assert found == {int(key): (kind, action) for keys, kind, action in (*ANYWHERE, *more) for key in keys}


@pytest.mark.parametrize("key", sorted(handlers(gateway())), ids=lambda key: ApiKey(key).name)
def test_pending_reply_of_undecoded_request(key: int) -> None:
    """The pending reply of an undecoded request has the request's API key, and eviction closes the connection unless
    the request is a write.
    """
    handler = handlers(gateway())[key]
    version = APIS[key].versions[-1] if key in APIS else 0
    pending = handler.undecoded(key, version, None)
    if pending is None:
        assert key not in exchange_events.GROUP_WRITE_KEYS - {ApiKey.HEARTBEAT, ApiKey.END_TXN}
        return
    assert pending.api_key == key
    assert pending.max_reply_seconds() == 0
    if isinstance(pending, UndecodedWrite):
        assert pending.evict(CloseReason.STALLED) is pending
    else:
        assert pending.evict(CloseReason.STALLED) == HangUp(CloseReason.STALLED)
    pending.lost(0)
    assert pending.unreadable(b"", ORIGIN, 0).frame is None


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_judged_requests_are_decoded(policy: type[Policy]) -> None:
    """Each API that a policy judges has a handler that decodes its requests, so that no request bypasses the policy."""
    found = handlers(gateway())
    assert {type(found[key]) for key in policy.judged_apis} == {GroupRequests}


def test_lost_deferred_request_marks_group() -> None:
    """A deferred commit that is lost before it is decoded marks its group as incomplete."""
    state = complete_state()
    dispatcher = new_dispatcher(state)
    commit = request(ApiKey.OFFSET_COMMIT, 1, version=2, body=b"\x00\x01g" + b"\xff")[4:]
    assert state.copy.manager.view("g", EPOCH).fallback_reason is None
    dispatcher.gone([DeferredRequest(commit, ORIGIN, 0)], ORIGIN, 0)
    assert state.copy.manager.view("g", EPOCH).fallback_reason is not None


def test_pending_reply_is_abstract() -> None:
    with pytest.raises(TypeError):
        PendingReply()  # type: ignore[abstract]
