"""Tests which local answers clients of a broker with an authorizer get, while rights are granted and revoked."""

from typing import Any

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.proxy.broker.authorization_cache import RULE_CHANGE_SECONDS
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import ToUpstream
from tests.proxy.broker.test_authorization_cache import answered, described, group
from tests.proxy.dataplane.playbook import (
    ANONYMOUS_CLIENT,
    EPOCH,
    Line,
    access_of,
    broker_state,
    complete_state,
    reply,
    request,
    stable_group,
    to_upstream,
)
from tests.proxy.handlers.test_local_answers import COMMITTED, committing

DESCRIBING = DescribeGroupsRequest(groups=("g",))
DESCRIBED = DescribeGroupsResponse(groups=(described("g"),))
HIDDEN = DescribeGroupsResponse(groups=(described("g", 30),))
FETCHING = OffsetFetchRequest(group_id="g", topics=None)


def guarded(**answers: Any) -> BrokerState:
    """A broker with an authorizer and a complete copy: a Stable group g with an offset of topic t."""
    state = broker_state(answers={"exclusive": True, **answers})
    state.learn_authorizer(present=True)
    state.learn_initial_groups([])
    (line,) = stable_group(state, "m1")
    line.exchange(committing(42), COMMITTED, 7)
    return state


def user(state: BrokerState, name: str) -> Line:
    """Returns a connection on which this user has authenticated."""
    line = Line(state)
    line.exchange(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(error_code=0, mechanisms=()), 1)
    authenticates(line, name)
    return line


def authenticates(line: Line, name: str) -> None:
    taken = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
    line.exchange(SaslAuthenticateRequest(auth_bytes=f"\0{name}\0secret".encode()), taken, 2)


def at_certificate(state: BrokerState, number: int) -> Line:
    """Returns a served connection without SASL that the sidecar has opened with this certificate."""
    line = Line(state)
    line.session.origin.certificate = number
    line.exchange(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse(error_code=25), 3)
    return line


def user_with_token(state: BrokerState) -> Line:
    """Returns a served connection whose SASL mechanism does not show the user."""
    line = Line(state)
    token_accepted(line)
    return line


def token_accepted(line: Line) -> None:
    """The broker accepts a token by OAUTHBEARER, and serves a request."""
    line.exchange(SaslHandshakeRequest(mechanism="OAUTHBEARER"), SaslHandshakeResponse(error_code=0, mechanisms=()), 1)
    authenticates(line, "token")
    line.exchange(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse(error_code=25), 3)


def answers_itself(line: Line, question: Struct, version: int) -> bool:
    """Whether the sidecar answers a question itself. A forwarded question gets no reply here."""
    return to_upstream(line.sends(question, version)) == b""


def test_grant_holds_on_all_connections_of_user() -> None:
    """After the broker described a group to a user, this user gets local answers on every connection, and other users'
    questions go to the broker.
    """
    state = guarded()
    alice, bob, again = user(state, "alice"), user(state, "bob"), user(state, "alice")
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    bob.exchange(DESCRIBING, HIDDEN, 5)
    found = [answers_itself(line, DESCRIBING, 5) for line in (alice, again, bob, Line(state))]
    assert found == [True, True, False, False]
    assert state.traffic.fallbacks == {(ApiKey.DESCRIBE_GROUPS, FallbackReason.UNAUTHORIZED): 4}


def test_grants_without_sasl_belong_to_the_certificate() -> None:
    """Without SASL, a grant holds only on the connections that the sidecar has opened with the same certificate."""
    state = guarded()
    alice, bob, again, plain = (at_certificate(state, number) for number in (1, 2, 1, 0))
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    bob.exchange(DESCRIBING, HIDDEN, 5)
    found = [answers_itself(line, DESCRIBING, 5) for line in (alice, again, bob, plain)]
    assert found == [True, True, False, False]


def test_grant_expires_despite_use() -> None:
    """A grant expires rights_seconds after its request, even if the user asks again meanwhile."""
    state = guarded(rights_seconds=20)
    alice = user(state, "alice")
    frame = alice.frame(DESCRIBING, 5)
    alice.client(frame)
    alice.now += 5
    alice.broker_replies(DESCRIBED, 5)
    found = []
    for _ in range(4):
        alice.now += 4.9
        found.append(answers_itself(alice, DESCRIBING, 5))
    assert found == [True, True, True, False]


def test_all_offsets_need_every_topic_granted() -> None:
    """A user gets all offsets of a group locally only if the broker showed the user every topic of the group."""
    state = guarded()
    alice, bob = user(state, "alice"), user(state, "bob")
    alice.exchange(FETCHING, OffsetFetchResponse(topics=(answered("t", 0),)), 5)
    bob.exchange(FETCHING, OffsetFetchResponse(), 5)
    assert [answers_itself(line, FETCHING, 5) for line in (alice, bob)] == [True, False]


def test_hidden_groups_stay_in_copy() -> None:
    """Groups and offsets that the broker hides from a user stay in the copy."""
    state = guarded()
    bob = user(state, "bob")
    bob.exchange(FETCHING, OffsetFetchResponse(), 5)
    bob.exchange(ListGroupsRequest(), ListGroupsResponse(error_code=0, groups=()), 4)
    view = state.copy.manager.view("g", EPOCH + 100)
    assert view.offsets["t", 0].offset == 42
    assert (view.fallback_reason, view.offsets_fallback_reason) == (None, None)


@pytest.mark.parametrize("present", [False, True])
def test_unlisted_group_may_be_hidden(present: bool) -> None:
    """With an authorizer, an unlisted group stays cold because the broker may hide it, and without an authorizer, the
    group counts as absent.
    """
    state = broker_state(answers={"exclusive": True})
    state.learn_authorizer(present)
    state.learn_initial_groups(["old"])
    user(state, "bob").exchange(ListGroupsRequest(), ListGroupsResponse(error_code=0, groups=()), 4)
    assert state.copy.manager.view("old", EPOCH + 100).fallback_reason is (FallbackReason.COLD if present else None)


def test_listing_grant_needs_every_group_listed() -> None:
    """A user gets local lists only if the broker listed every group to that user, and a list grants no description."""
    state = guarded()
    alice, bob = user(state, "alice"), user(state, "bob")
    alice.exchange(
        ListGroupsRequest(),
        ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="g", protocol_type="consumer"),)),
        2,
    )
    bob.exchange(ListGroupsRequest(), ListGroupsResponse(error_code=0, groups=()), 2)
    assert [answers_itself(line, ListGroupsRequest(), 2) for line in (alice, bob)] == [True, False]
    assert not answers_itself(alice, DESCRIBING, 5)  # alice may only list the group.


def test_anonymous_answers_wait_for_broker() -> None:
    """Where SASL is configured, the sidecar answers an unauthenticated client only after the broker has served one."""
    state = complete_state(own_connection={"sasl": {"mechanism": "PLAIN", "username": "u", "password": "p"}})
    alice = user(state, "alice")
    alice.exchange(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse(error_code=25), 3)
    stranger = Line(state)
    assert not answers_itself(stranger, DESCRIBING, 5)
    assert answers_itself(alice, DESCRIBING, 5)
    stranger.broker_replies(HIDDEN, 5)
    assert answers_itself(Line(state), DESCRIBING, 5)


def test_question_after_reauth_uses_new_user() -> None:
    """A question sent after a new authentication is authorized for the new user, not for the earlier one."""
    state = guarded()
    alice = user(state, "alice")
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    shake = alice.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = alice.frame(SaslAuthenticateRequest(auth_bytes=b"\0bob\0secret"), 2)
    question = alice.frame(DESCRIBING, 5)
    assert to_upstream(alice.client(shake, token, question)) == shake + token
    alice.broker_replies(SaslHandshakeResponse(error_code=0, mechanisms=()), 1, correlation=4)
    taken = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
    assert alice.broker_replies(taken, 2, correlation=5)[1:] == [ToUpstream(question)]
    alice.broker_replies(HIDDEN, 5)
    assert not answers_itself(user(state, "bob"), DESCRIBING, 5)
    assert answers_itself(user(state, "alice"), DESCRIBING, 5)


def test_late_reply_grants_only_original_user() -> None:
    """A reply grants access only to the user who asked, even if another user authenticates on the connection
    afterwards.
    """
    state = guarded()
    line = user(state, "alice")
    question, shake = line.frame(DESCRIBING, 5), line.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    line.client(question, shake)
    line.broker_replies(DESCRIBED, 5, correlation=3)
    line.broker_replies(SaslHandshakeResponse(error_code=0, mechanisms=()), 1, correlation=4)
    authenticates(line, "bob")
    assert not answers_itself(line, DESCRIBING, 5)
    assert answers_itself(user(state, "alice"), DESCRIBING, 5)


@pytest.mark.parametrize(
    "key",
    [ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.INCREMENTAL_ALTER_CONFIGS],
)
@pytest.mark.parametrize("way", ["reply", "gone"])
def test_rule_change_revokes_all_grants(key: int, way: str) -> None:
    """A forwarded change of access rules revokes all grants, and no grant counts until RULE_CHANGE_SECONDS after the
    change has ended.
    """
    state = guarded()
    alice, admin = user(state, "alice"), Line(state)
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    change = request(key, 1, version=3, body=bytes(40))
    assert admin.client(change[:20]) == [ToUpstream(change[:20])]  # The request is not even decoded.
    admin.client(change[20:])
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    if way == "reply":
        assert len(admin.upstream(reply(1, b"done"))) == 1
    else:
        admin.session.close(admin.now)
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    alice.now += RULE_CHANGE_SECONDS
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    assert answers_itself(alice, DESCRIBING, 5)


def test_connection_grant_ends_with_connection() -> None:
    """A grant of a connection whose user name is unknown ends when the connection closes."""
    state = guarded()
    line = Line(state)
    line.exchange(SaslHandshakeRequest(mechanism="GSSAPI"), SaslHandshakeResponse(error_code=0, mechanisms=()), 1)
    authenticates(line, "alice")
    before = state.traffic.cached_authorizations
    line.exchange(DESCRIBING, DESCRIBED, 5)
    assert answers_itself(line, DESCRIBING, 5)
    assert state.traffic.cached_authorizations == before + 1
    line.session.close(line.now)
    assert state.traffic.cached_authorizations == before


def test_clients_without_sasl_share_one_user() -> None:
    """All clients of a listener without SASL share the anonymous user and its grants."""
    state = guarded()
    Line(state).exchange(DESCRIBING, DESCRIBED, 5)
    assert answers_itself(Line(state), DESCRIBING, 5)
    assert access_of(state).rights.has_all(ANONYMOUS_CLIENT, [group("g")], EPOCH + 100)


def test_zero_rights_seconds_grants_nothing() -> None:
    """With rights_seconds set to 0 and an authorizer, every question goes to the broker."""
    state = guarded(rights_seconds=0)
    alice = user(state, "alice")
    for _ in range(3):
        alice.exchange(DESCRIBING, DESCRIBED, 5)


def test_reauthentication_drops_grants_of_unnamed_user() -> None:
    """After another token on the same connection, grants of the first token do not count, because a broker other than
    Kafka may let the connection change its user.
    """
    state = guarded()
    line = user_with_token(state)
    line.exchange(DESCRIBING, DESCRIBED, 5)
    assert answers_itself(line, DESCRIBING, 5)
    token_accepted(line)
    assert not answers_itself(line, DESCRIBING, 5)
    line.broker_replies(DESCRIBED, 5)
    assert answers_itself(line, DESCRIBING, 5)
