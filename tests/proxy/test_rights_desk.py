"""Clients before a broker with an authorizer: who is shown what, as it comes to be granted and is taken back."""

from typing import Any

import pytest

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
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.views import Lacking
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import ToUpstream
from group_sidecar.proxy.principals import ANONYMOUS
from group_sidecar.proxy.rights import SETTLING_SECONDS
from tests.proxy.playbook import EPOCH, Line, broker_copy, certain_copy, reply, request, settled, to_upstream
from tests.proxy.test_answering import COMMITTED, committing
from tests.proxy.test_rights import answered, described, group

DESCRIBING = DescribeGroupsRequest(groups=("g",))
DESCRIBED = DescribeGroupsResponse(groups=(described("g"),))
HIDDEN = DescribeGroupsResponse(groups=(described("g", 30),))
FETCHING = OffsetFetchRequest(group_id="g", topics=None)


def guarded(**answers: Any) -> BrokerCopy:
    """A broker with an authorizer, of which all is known: a Stable group g, with an offset for topic t."""
    copy = broker_copy(answers={"exclusive": True, **answers})
    copy.learn_authorizer(present=True)
    copy.learn_groups_at_start([])
    (line,) = settled(copy, "m1")
    line.exchange(committing(42), COMMITTED, 7)
    return copy


def user(copy: BrokerCopy, name: str) -> Line:
    """A connection on which somebody has authenticated."""
    line = Line(copy)
    line.exchange(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(error_code=0, mechanisms=()), 1)
    authenticates(line, name)
    return line


def authenticates(line: Line, name: str) -> None:
    taken = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
    line.exchange(SaslAuthenticateRequest(auth_bytes=f"\0{name}\0secret".encode()), taken, 2)


def answers_itself(line: Line, question: Struct, version: int) -> bool:
    """Whether the sidecar answers; a question that it leaves to the broker stays open."""
    return to_upstream(line.says(question, version)) == b""


def test_what_the_broker_shows_a_user_is_shown_to_that_user_on_any_connection() -> None:
    copy = guarded()
    alice, bob, again = user(copy, "alice"), user(copy, "bob"), user(copy, "alice")
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    bob.exchange(DESCRIBING, HIDDEN, 5)
    found = [answers_itself(line, DESCRIBING, 5) for line in (alice, again, bob, Line(copy))]
    assert found == [True, True, False, False]
    assert copy.traffic.fallbacks == {(ApiKey.DESCRIBE_GROUPS, Lacking.UNAUTHORIZED): 4}


def test_a_grant_runs_out_however_often_it_is_used() -> None:
    copy = guarded(rights_seconds=20)
    alice = user(copy, "alice")
    frame = alice.frame(DESCRIBING, 5)
    alice.client(frame)
    alice.now += 5
    alice.broker_says(DESCRIBED, 5)
    found = []
    for _ in range(4):
        alice.now += 4.9
        found.append(answers_itself(alice, DESCRIBING, 5))
    assert found == [True, True, True, False]


def test_all_offsets_are_shown_to_whom_each_topic_of_the_group_was_shown() -> None:
    copy = guarded()
    alice, bob = user(copy, "alice"), user(copy, "bob")
    alice.exchange(FETCHING, OffsetFetchResponse(topics=(answered("t", 0),)), 5)
    bob.exchange(FETCHING, OffsetFetchResponse(), 5)
    assert [answers_itself(line, FETCHING, 5) for line in (alice, bob)] == [True, False]


def test_what_a_user_is_not_told_is_not_taken_for_absent() -> None:
    copy = guarded()
    bob = user(copy, "bob")
    bob.exchange(FETCHING, OffsetFetchResponse(), 5)
    bob.exchange(ListGroupsRequest(), ListGroupsResponse(error_code=0, groups=()), 4)
    view = copy.manager.view("g", EPOCH + 100)
    assert view.offsets["t", 0].offset == 42
    assert (view.lacking, view.offsets_lacking) == (None, None)


@pytest.mark.parametrize("present", [False, True])
def test_a_group_that_is_not_listed_may_be_hidden(present: bool) -> None:
    copy = broker_copy(answers={"exclusive": True})
    copy.learn_authorizer(present)
    copy.learn_groups_at_start(["old"])
    user(copy, "bob").exchange(ListGroupsRequest(), ListGroupsResponse(error_code=0, groups=()), 4)
    assert copy.manager.view("old", EPOCH + 100).lacking is (Lacking.COLD if present else None)


def test_a_listing_is_shown_to_whom_each_group_was_listed() -> None:
    copy = guarded()
    alice, bob = user(copy, "alice"), user(copy, "bob")
    alice.exchange(
        ListGroupsRequest(),
        ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="g", protocol_type="consumer"),)),
        2,
    )
    bob.exchange(ListGroupsRequest(), ListGroupsResponse(error_code=0, groups=()), 2)
    assert [answers_itself(line, ListGroupsRequest(), 2) for line in (alice, bob)] == [True, False]
    assert not answers_itself(alice, DESCRIBING, 5)  # Whoever may describe the cluster is listed what they may not see.


def test_before_the_broker_has_served_anybody_without_sasl_such_are_not_answered() -> None:
    copy = certain_copy(own_connection={"sasl": {"mechanism": "PLAIN", "username": "u", "password": "p"}})
    alice = user(copy, "alice")
    alice.exchange(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse(error_code=25), 3)
    stranger = Line(copy)
    assert not answers_itself(stranger, DESCRIBING, 5)
    assert answers_itself(alice, DESCRIBING, 5)
    stranger.broker_says(HIDDEN, 5)
    assert answers_itself(Line(copy), DESCRIBING, 5)


def test_a_question_behind_a_new_authentication_is_judged_by_it() -> None:
    copy = guarded()
    alice = user(copy, "alice")
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    shake = alice.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = alice.frame(SaslAuthenticateRequest(auth_bytes=b"\0bob\0secret"), 2)
    question = alice.frame(DESCRIBING, 5)
    assert to_upstream(alice.client(shake, token, question)) == shake + token
    alice.broker_says(SaslHandshakeResponse(error_code=0, mechanisms=()), 1, correlation=4)
    taken = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
    assert alice.broker_says(taken, 2, correlation=5)[1:] == [ToUpstream(question)]
    alice.broker_says(HIDDEN, 5)
    assert not answers_itself(user(copy, "bob"), DESCRIBING, 5)
    assert answers_itself(user(copy, "alice"), DESCRIBING, 5)


def test_a_reply_that_comes_once_its_asker_is_another_grants_that_one_nothing() -> None:
    copy = guarded()
    line = user(copy, "alice")
    question, shake = line.frame(DESCRIBING, 5), line.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    line.client(question, shake)
    line.broker_says(DESCRIBED, 5, correlation=3)
    line.broker_says(SaslHandshakeResponse(error_code=0, mechanisms=()), 1, correlation=4)
    authenticates(line, "bob")
    assert not answers_itself(line, DESCRIBING, 5)
    assert answers_itself(user(copy, "alice"), DESCRIBING, 5)


@pytest.mark.parametrize(
    "key",
    [ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.INCREMENTAL_ALTER_CONFIGS],
)
@pytest.mark.parametrize("way", ["reply", "gone"])
def test_a_change_of_the_rules_that_passes_by_ends_all_grants(key: int, way: str) -> None:
    copy = guarded()
    alice, admin = user(copy, "alice"), Line(copy)
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    change = request(key, 1, version=3, body=bytes(40))
    assert admin.client(change[:20]) == [ToUpstream(change[:20])]  # It is not even read.
    admin.client(change[20:])
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    if way == "reply":
        assert len(admin.upstream(reply(1, b"done"))) == 1
    else:
        admin.session.close(admin.now)
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    alice.now += SETTLING_SECONDS
    alice.exchange(DESCRIBING, DESCRIBED, 5)
    assert answers_itself(alice, DESCRIBING, 5)


def test_what_a_connection_alone_was_granted_ends_with_it() -> None:
    copy = guarded()
    line = Line(copy)
    line.exchange(SaslHandshakeRequest(mechanism="GSSAPI"), SaslHandshakeResponse(error_code=0, mechanisms=()), 1)
    authenticates(line, "alice")
    before = copy.traffic.remembered_rights
    line.exchange(DESCRIBING, DESCRIBED, 5)
    assert answers_itself(line, DESCRIBING, 5)
    assert copy.traffic.remembered_rights == before + 1
    line.session.close(line.now)
    assert copy.traffic.remembered_rights == before


def test_on_a_listener_without_sasl_all_are_one_user() -> None:
    copy = guarded()
    Line(copy).exchange(DESCRIBING, DESCRIBED, 5)
    assert answers_itself(Line(copy), DESCRIBING, 5)
    assert copy.rights.hold(ANONYMOUS, [group("g")], EPOCH + 100)


def test_with_no_seconds_all_is_left_to_a_broker_with_an_authorizer() -> None:
    copy = guarded(rights_seconds=0)
    alice = user(copy, "alice")
    for _ in range(3):
        alice.exchange(DESCRIBING, DESCRIBED, 5)
