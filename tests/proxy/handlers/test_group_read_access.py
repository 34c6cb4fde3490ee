"""A join counts towards the group's size only after the broker has authorized its sender."""

from typing import Any

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.headers import decode_request_header
from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupResponse
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.codecs.schema import Struct, decode
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Command, ToUpstream
from group_sidecar.proxy.handlers.injected_requests import ACCESS_CORRELATION, DESCRIPTION_CORRELATION
from tests.proxy.dataplane.playbook import (
    EPOCH,
    Line,
    complete_state,
    joining,
    reply,
    to_client,
    to_upstream,
)

DENIED, UNKNOWN_MEMBER = 30, 25
LIMITED = {"group_max_size": {"limit": 1}}


def authorizing(**answers: Any) -> BrokerState:
    """Returns the state of a broker with an authorizer, whose groups have a limit of one member."""
    state = complete_state(policies=LIMITED, answers={"exclusive": True, **answers})
    state.learn_authorizer(True)
    return state


def user(state: BrokerState, name: str) -> Line:
    """Returns a connection on which this user has authenticated."""
    line = Line(state, client_id=name)
    line.exchange(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(error_code=0, mechanisms=()), 1)
    taken = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
    line.exchange(SaslAuthenticateRequest(auth_bytes=f"\0{name}\0secret".encode()), taken, 2)
    return line


def is_asked(commands: list[Command]) -> bool:
    """Whether the commands only send a Heartbeat without a member to the broker, which authorizes it."""
    assert to_client(commands) == b""
    header, body = decode_request_header(to_upstream(commands)[4:], flexible=False)
    heartbeat = decode(HeartbeatRequest, 0, body)
    return (header.api_key, header.correlation_id) == (ApiKey.HEARTBEAT, ACCESS_CORRELATION) and heartbeat == (
        HeartbeatRequest(group_id="g", generation_id=-1, member_id="")
    )


def answers(line: Line, error_code: int) -> list[Command]:
    """The broker replies to the sidecar's Heartbeat."""
    return line.broker_replies(HeartbeatResponse(error_code=error_code), 0, correlation=ACCESS_CORRELATION)


JOINS: list[tuple[Struct, int]] = [
    (joining(), 3),
    (joining(member_id="m"), 9),
    (
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=("t",)),
        1,
    ),
]


@pytest.mark.parametrize(("join", "version"), JOINS)
def test_unauthorized_join_is_not_counted(join: Struct, version: int) -> None:
    """A join of a user without access goes to the broker and does not count towards the limit."""
    state = authorizing()
    for line in [user(state, "mallory") for _ in range(3)]:
        frame = line.frame(join, version)
        assert is_asked(line.client(frame))
        assert answers(line, DENIED) == [ToUpstream(frame)]
    assert not state.copy.manager.view_with_occupancy("g", EPOCH).occupancy.parked
    assert not state.copy.manager.view_with_occupancy("g", EPOCH).occupancy.members
    alice = user(state, "alice")
    frame = alice.frame(joining(), 3)
    assert is_asked(alice.client(frame))
    assert answers(alice, UNKNOWN_MEMBER) == [ToUpstream(frame)]
    assert state.traffic.policy_rejections == {}


def test_lost_unauthorized_join_is_not_counted() -> None:
    """A lost join of a user without access does not count, and the broker's description ends the group's doubt."""
    state = authorizing()
    for cut_in in ("question", "join"):
        line = user(state, "mallory")
        line.client(line.frame(joining(), 3))
        if cut_in == "join":
            answers(line, DENIED)
        line.session.close(line.now)
    assert not state.copy.manager.view_with_occupancy("g", EPOCH).occupancy.parked
    alice = user(state, "alice")
    frame = alice.frame(joining(), 3)
    alice.client(frame)
    answers(alice, UNKNOWN_MEMBER)
    nobody = DescribedGroup(
        error_code=0, group_id="g", group_state="Dead", protocol_type="", protocol_data="", members=()
    )
    description = DescribeGroupsResponse(groups=(nobody,))
    assert alice.broker_replies(description, 0, correlation=DESCRIPTION_CORRELATION) == [ToUpstream(frame)]


def test_concurrent_joins_respect_limit() -> None:
    """Joins of authorized users never exceed the limit, even if many arrive at once."""
    state = authorizing()
    lines = [user(state, "alice") for _ in range(5)]
    for line in lines:
        assert is_asked(line.sends(joining(), 3))
    passed = [to_upstream(answers(line, UNKNOWN_MEMBER)) for line in lines]
    assert [bool(frame) for frame in passed] == [True, False, False, False, False]


def test_grant_is_cached_by_user_and_group() -> None:
    """An access grant is cached for its user and group until the grant expires, and for no other user or group."""
    state = authorizing()
    first = user(state, "alice")
    first.sends(joining(), 3)
    answers(first, UNKNOWN_MEMBER)
    second = user(state, "alice")
    assert second.reads_reply(second.sends(joining(), 3), joining(), 3).error_code == 77
    assert is_asked(user(state, "bob").sends(joining(), 3))
    elsewhere = user(state, "alice").sends(joining("h"), 3)
    assert to_upstream(elsewhere)[4:6] == int(ApiKey.HEARTBEAT).to_bytes(2, "big")
    late = user(state, "alice")
    late.now += 31
    assert is_asked(late.sends(joining(), 3))


def test_uncached_grant_is_asked_each_time() -> None:
    """With rights_seconds set to 0, the broker authorizes each join again."""
    state = authorizing(rights_seconds=0)
    line = user(state, "alice")
    for _ in range(2):
        frame = line.frame(joining(), 3)
        assert is_asked(line.client(frame))
        assert answers(line, UNKNOWN_MEMBER) == [ToUpstream(frame)]
        line.broker_replies(JoinGroupResponse(error_code=25, protocol_name="", leader="", member_id=""), 3)


def test_anonymous_join_needs_authorization() -> None:
    """A broker with an authorizer authorizes an anonymous user's join too, and the grant is cached."""
    state = authorizing()
    line = Line(state)
    assert is_asked(line.sends(joining(), 3))
    answers(line, UNKNOWN_MEMBER)
    again = Line(state)
    assert again.reads_reply(again.sends(joining(), 3), joining(), 3).error_code == 77


def test_unauthenticated_join_is_not_counted() -> None:
    """Where SASL is required, a join before authentication does not count, and the broker closes its connection on the
    authorization request.
    """
    own = {"sasl": {"mechanism": "PLAIN", "username": "u", "password": "p"}}
    state = complete_state(policies=LIMITED, own_connection=own)
    strangers = [Line(state) for _ in range(3)]
    for line in strangers:
        assert is_asked(line.sends(joining(), 3))
    halfway = Line(state)
    halfway.exchange(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(error_code=0, mechanisms=()), 1)
    assert is_asked(halfway.sends(joining(), 3))
    for line in (*strangers, halfway):
        line.upstream_closed()
    alice = user(state, "alice")
    frame = alice.frame(joining(), 3)
    assert alice.client(frame) == [ToUpstream(frame)], "without an authorizer, authentication is enough"


def test_open_listener_needs_no_authorization() -> None:
    """On a listener without SASL and authorizer, a join passes without an authorization request."""
    state = complete_state(policies=LIMITED)
    line = Line(state)
    frame = line.frame(joining(), 3)
    assert line.client(frame) == [ToUpstream(frame)]


def test_member_heartbeat_needs_no_authorization() -> None:
    """A heartbeat of an existing consumer group member passes without an authorization request."""
    line = user(authorizing(), "alice")
    heartbeat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    frame = line.frame(heartbeat, 1)
    assert line.client(frame) == [ToUpstream(frame)]


def test_unreadable_answer_is_no_denial() -> None:
    """An unreadable authorization reply is not a denial: the join counts, and the limit holds."""
    state = authorizing()
    lines = [user(state, "alice") for _ in range(2)]
    passed = []
    for line in lines:
        line.sends(joining(), 3)
        passed.append(bool(to_upstream(line.upstream(reply(ACCESS_CORRELATION, b"\0")))))
    assert passed == [True, False]
