"""Tests how the sidecar forwards a question that it does not answer."""

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.headers import RequestHeader
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.outcomes import AnswerInOrder, Forward, Pass, PendingReply, RequestOutcome
from group_sidecar.proxy.handlers.api_table import ApiTable, make_reply_builder
from group_sidecar.proxy.handlers.broker_questions import BrokerQuestions
from group_sidecar.proxy.handlers.disconnect import Disconnector
from tests.proxy.dataplane.playbook import EPOCH, access_of, broker_state, complete_state

DESCRIBING = DescribeGroupsRequest(groups=("g",))


def outcome_of(state: BrokerState, request: Struct, version: int = 0) -> RequestOutcome:
    """Returns the outcome of a question that the sidecar forwards."""
    replies = ApiTable(state, access_of(state), make_reply_builder(state), Disconnector()).replies
    questions = BrokerQuestions(state.copy, state.versions, state.authorizer_state, replies, state.traffic)
    exchange = Exchange(request=request, version=version, token="1:1", client_id="", client_host="", sent_at=EPOCH)
    return questions.ask(exchange, RequestHeader(request.KEY, version, 1, "c"), 100.0)


def test_question_is_forwarded_and_teaches_the_copy() -> None:
    """The sidecar forwards a question and handles the reply."""
    outcome = outcome_of(complete_state(), DESCRIBING)
    assert isinstance(outcome, Forward)
    assert isinstance(outcome.pending, PendingReply)
    assert outcome.pending.api_key == ApiKey.DESCRIBE_GROUPS


def test_other_question_passes_unread() -> None:
    """A question whose reply contains nothing about groups passes, and its reply is not read."""
    assert isinstance(outcome_of(complete_state(), MetadataRequest(topics=())), Pass)


@pytest.mark.parametrize(("state", "outcome"), [(complete_state(), Pass), (broker_state(), Forward)])
def test_list_is_read_where_it_teaches(state: BrokerState, outcome: type[RequestOutcome]) -> None:
    """The list of groups is decoded only if the copy learns groups or rights from it."""
    assert isinstance(outcome_of(state, ListGroupsRequest()), outcome)


def test_added_version_is_translated() -> None:
    """A question in a version that the broker lacks is sent in a version that the broker supports, and is counted."""
    state = complete_state()
    state.versions.learn({ApiKey.DESCRIBE_GROUPS: (0, 1)})
    outcome = outcome_of(state, DESCRIBING, 2)
    assert isinstance(outcome, AnswerInOrder)
    [(frame, pending)] = outcome.inject
    assert frame[4:8] == ApiKey.DESCRIBE_GROUPS.to_bytes(2, "big") + (1).to_bytes(2, "big")
    assert pending.api_key == ApiKey.DESCRIBE_GROUPS
    assert state.traffic.relays == {ApiKey.DESCRIBE_GROUPS: 1}
