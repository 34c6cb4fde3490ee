"""A join counts for others only once the broker has let its sender into the group."""

from typing import Any

import pytest

from group_sidecar.codecs.headers import decode_request_header
from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupResponse
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import Struct, decode
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import Command, ToUpstream
from group_sidecar.proxy.enforcing import DESCRIPTION_CORRELATION
from group_sidecar.proxy.group_access import PROBE_CORRELATION
from tests.proxy.playbook import EPOCH, Line, certain_copy, joining, reply, to_client, to_upstream

DENIED, UNKNOWN_MEMBER = 30, 25
LIMITED = {"group_max_size": {"limit": 1}}


def authorizing(**answers: Any) -> BrokerCopy:
    """A broker with an authorizer, before which groups have a limit of one member."""
    copy = certain_copy(policies=LIMITED, answers={"exclusive": True, **answers})
    copy.learn_authorizer(True)
    return copy


def user(copy: BrokerCopy, name: str) -> Line:
    """A connection on which a user has authenticated."""
    line = Line(copy, client_id=name)
    line.exchange(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(error_code=0, mechanisms=()), 1)
    taken = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
    line.exchange(SaslAuthenticateRequest(auth_bytes=f"\0{name}\0secret".encode()), taken, 2)
    return line


def is_asked(commands: list[Command]) -> bool:
    """Whether all that is done is to have the broker authorize a heartbeat of no member."""
    assert to_client(commands) == b""
    header, body = decode_request_header(to_upstream(commands)[4:], flexible=False)
    asked = decode(HeartbeatRequest, 0, body)
    return (header.api_key, header.correlation_id) == (ApiKey.HEARTBEAT, PROBE_CORRELATION) and asked == (
        HeartbeatRequest(group_id="g", generation_id=-1, member_id="")
    )


def answers(line: Line, error_code: int) -> list[Command]:
    """The broker answers the question."""
    return line.broker_says(HeartbeatResponse(error_code=error_code), 0, correlation=PROBE_CORRELATION)


JOINS: list[tuple[Struct, int]] = [
    (joining(), 3),
    (joining(member_id="m"), 9),
    (
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=("t",)),
        1,
    ),
]


@pytest.mark.parametrize(("join", "version"), JOINS)
def test_join_without_rights_goes_to_broker_and_counts_for_nobody(join: Struct, version: int) -> None:
    copy = authorizing()
    for line in [user(copy, "mallory") for _ in range(3)]:
        frame = line.frame(join, version)
        assert is_asked(line.client(frame))
        assert answers(line, DENIED) == [ToUpstream(frame)]
    assert not copy.manager.seated("g", EPOCH).seats.parked
    assert not copy.manager.seated("g", EPOCH).seats.members
    alice = user(copy, "alice")
    frame = alice.frame(joining(), 3)
    assert is_asked(alice.client(frame))
    assert answers(alice, UNKNOWN_MEMBER) == [ToUpstream(frame)]
    assert copy.traffic.policy_rejections == {}


def test_lost_join_without_rights_keeps_nobody_out() -> None:
    """The group is in doubt, as after any lost request. The broker's word settles it."""
    copy = authorizing()
    for cut_in in ("question", "join"):
        line = user(copy, "mallory")
        line.client(line.frame(joining(), 3))
        if cut_in == "join":
            answers(line, DENIED)
        line.session.close(line.now)
    assert not copy.manager.seated("g", EPOCH).seats.parked
    alice = user(copy, "alice")
    frame = alice.frame(joining(), 3)
    alice.client(frame)
    answers(alice, UNKNOWN_MEMBER)
    nobody = DescribedGroup(
        error_code=0, group_id="g", group_state="Dead", protocol_type="", protocol_data="", members=()
    )
    told = DescribeGroupsResponse(groups=(nobody,))
    assert alice.broker_says(told, 0, correlation=DESCRIPTION_CORRELATION) == [ToUpstream(frame)]


def test_joins_with_rights_never_pass_limit_however_many_come_at_once() -> None:
    copy = authorizing()
    lines = [user(copy, "alice") for _ in range(5)]
    for line in lines:
        assert is_asked(line.says(joining(), 3))
    passed = [to_upstream(answers(line, UNKNOWN_MEMBER)) for line in lines]
    assert [bool(frame) for frame in passed] == [True, False, False, False, False]


def test_granted_right_is_remembered_for_principal_and_group() -> None:
    copy = authorizing()
    first = user(copy, "alice")
    first.says(joining(), 3)
    answers(first, UNKNOWN_MEMBER)
    second = user(copy, "alice")
    assert second.reads(second.says(joining(), 3), joining(), 3).error_code == 77
    assert is_asked(user(copy, "bob").says(joining(), 3))
    elsewhere = user(copy, "alice").says(joining("h"), 3)
    assert to_upstream(elsewhere)[4:6] == int(ApiKey.HEARTBEAT).to_bytes(2, "big")
    late = user(copy, "alice")
    late.now += 31
    assert is_asked(late.says(joining(), 3))


def test_right_is_asked_for_each_join_where_none_is_remembered() -> None:
    copy = authorizing(rights_seconds=0)
    line = user(copy, "alice")
    for _ in range(2):
        frame = line.frame(joining(), 3)
        assert is_asked(line.client(frame))
        assert answers(line, UNKNOWN_MEMBER) == [ToUpstream(frame)]
        line.broker_says(JoinGroupResponse(error_code=25, protocol_name="", leader="", member_id=""), 3)


def test_right_is_asked_of_anonymous_users_before_authorizer() -> None:
    copy = authorizing()
    line = Line(copy)
    assert is_asked(line.says(joining(), 3))
    answers(line, UNKNOWN_MEMBER)
    again = Line(copy)
    assert again.reads(again.says(joining(), 3), joining(), 3).error_code == 77


def test_unauthenticated_join_counts_for_nobody_where_sasl_is_wanted() -> None:
    """The broker hangs up on the question, as it would on the join."""
    own = {"sasl": {"mechanism": "PLAIN", "username": "u", "password": "p"}}
    copy = certain_copy(policies=LIMITED, own_connection=own)
    strangers = [Line(copy) for _ in range(3)]
    for line in strangers:
        assert is_asked(line.says(joining(), 3))
    halfway = Line(copy)
    halfway.exchange(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(error_code=0, mechanisms=()), 1)
    assert is_asked(halfway.says(joining(), 3))
    for line in (*strangers, halfway):
        line.upstream_closed()
    alice = user(copy, "alice")
    frame = alice.frame(joining(), 3)
    assert alice.client(frame) == [ToUpstream(frame)], "whoever has authenticated is in where nobody authorizes"


def test_join_counts_at_once_on_open_listener_without_authorizer() -> None:
    copy = certain_copy(policies=LIMITED)
    line = Line(copy)
    frame = line.frame(joining(), 3)
    assert line.client(frame) == [ToUpstream(frame)]


def test_members_heartbeats_ask_for_no_right() -> None:
    line = user(authorizing(), "alice")
    heartbeat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    frame = line.frame(heartbeat, 1)
    assert line.client(frame) == [ToUpstream(frame)]


def test_unreadable_answer_is_no_denial() -> None:
    """What is not understood must not let a join past the limit."""
    copy = authorizing()
    lines = [user(copy, "alice") for _ in range(2)]
    passed = []
    for line in lines:
        line.says(joining(), 3)
        passed.append(bool(to_upstream(line.upstream(reply(PROBE_CORRELATION, b"\0")))))
    assert passed == [True, False]
