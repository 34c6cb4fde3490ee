"""Long frames are held only if that is safe, decoded only as far as that is quick, and never bypass a policy."""

from dataclasses import replace
from typing import Any

import pytest
import structlog

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.errors import TooManyElements
from group_sidecar.codecs.headers import MAX_HEADER_TAGS, decode_request_header
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.codecs.schema import MAX_LAYOUT_BYTES, decode_start, encode
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Close, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.held_request_budget import SMALL_FRAME, UNAUTHENTICATED_FRAME
from group_sidecar.proxy.handlers.dispatcher import BrokerDispatcher
from tests.proxy.dataplane.playbook import (
    EPOCH,
    Line,
    broker_state,
    complete_state,
    joining,
    new_dispatcher,
    reply,
    request,
    stable_group,
    to_client,
)

LIMITED = {"group_max_size": {"limit": 5}}
AUDITED = {"group_max_size": {"limit": 5, "mode": "audit"}}
HELLO, SHAKEN = SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))
TOKEN = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
TAKEN = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")


def begun(size: int, key: int = ApiKey.JOIN_GROUP, version: int = 3) -> bytes:
    """Returns the first bytes of a request of `size` bytes."""
    return size.to_bytes(4, "big") + request(key, 1, version=version, body=bytes(100))[4:]


def shaken(state: BrokerState) -> Line:
    """Returns a connection on which the broker has accepted a mechanism, but no authentication yet."""
    line = Line(state)
    line.exchange(HELLO, SHAKEN, 1)
    return line


def opened(state: BrokerState, dispatcher: BrokerDispatcher | None = None) -> Line:
    """Returns a connection without SASL, over which the broker has answered a request."""
    line = Line(state, dispatcher=dispatcher)
    line.exchange(HeartbeatRequest(group_id="x", generation_id=1, member_id="m"), HeartbeatResponse(error_code=0), 3)
    return line


# Before authentication.


@pytest.mark.parametrize("policies", [{}, LIMITED])
def test_long_unauthenticated_frame_closes(policies: dict[str, Any]) -> None:
    """Before authentication, a frame longer than Kafka's default sasl.server.max.receive.size ends the connection."""
    state = broker_state(policies=policies)
    line = shaken(state)
    assert line.client(begun(UNAUTHENTICATED_FRAME + 1)) == [Close(CloseReason.UNAUTHENTICATED_FRAME)]
    assert Line(state).client(begun(UNAUTHENTICATED_FRAME + 1)) == [Close(CloseReason.UNAUTHENTICATED_FRAME)]
    assert line.session.held_bytes == 0


@pytest.mark.parametrize(
    ("size", "limits", "reason", "cause"),
    [
        (UNAUTHENTICATED_FRAME + 1, {}, CloseReason.UNAUTHENTICATED_FRAME, f"{UNAUTHENTICATED_FRAME + 1} bytes"),
        (SMALL_FRAME + 1, {"held_frames": 1024}, CloseReason.REQUEST_TOO_LONG, "limits.held_frames"),
    ],
)
def test_log_names_client_of_refused_frame(size: int, limits: dict[str, int], reason: str, cause: str) -> None:
    """The log entry of a frame that is not held names its client, API and cause."""
    line = shaken(broker_state(policies=LIMITED, limits=limits))
    with structlog.testing.capture_logs() as lines:
        assert line.client(begun(size)) == [Close(CloseReason(reason))]
    [log_line] = lines
    assert (log_line["event"], log_line["api"], log_line["reason"]) == ("a connection is closed", "JoinGroup", reason)
    assert log_line["client"]
    assert cause in log_line["cause"]


def test_long_frame_is_held_after_authentication() -> None:
    """A long frame is held once the broker has accepted the client's SASL token."""
    line = shaken(broker_state(policies=LIMITED))
    line.exchange(TOKEN, TAKEN, 2)
    assert line.client(begun(UNAUTHENTICATED_FRAME + 1)) == []
    assert line.session.held_bytes > 0


def test_refused_token_does_not_authenticate() -> None:
    """After a refused SASL token, a long frame still closes the connection."""
    line = shaken(broker_state(policies=LIMITED))
    line.exchange(TOKEN, replace(TAKEN, error_code=58), 2)
    assert line.client(begun(UNAUTHENTICATED_FRAME + 1)) == [Close(CloseReason.UNAUTHENTICATED_FRAME)]


def test_served_connection_is_authenticated() -> None:
    """A connection whose authentication is unclear may send long frames once the broker has served it."""
    state = broker_state(policies=LIMITED)
    line = shaken(state)
    line.exchange(HELLO, replace(SHAKEN, error_code=33), 1)
    assert Line(state).client(begun(UNAUTHENTICATED_FRAME + 1)) == [Close(CloseReason.UNAUTHENTICATED_FRAME)]
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    line.exchange(beat, HeartbeatResponse(error_code=0), 3)
    assert line.client(begun(UNAUTHENTICATED_FRAME + 1)) == []


def test_long_frame_before_first_service() -> None:
    """Before the broker has served any client, a long frame streams unheld. If a policy judges it, its connection
    closes.
    """
    for policies in ({}, AUDITED):
        line, frame = Line(broker_state(policies=policies)), begun(UNAUTHENTICATED_FRAME + 1)
        assert line.client(frame) == [ToUpstream(frame)]
        assert line.session.held_bytes == 0
    line = Line(broker_state(policies=LIMITED))
    assert line.client(begun(UNAUTHENTICATED_FRAME + 1)) == [Close(CloseReason.REQUEST_TOO_LONG)]


# Without SASL.


def test_overlong_judged_request_closes() -> None:
    """A judged request longer than limits.inspected_frame closes its connection at once."""
    longest = 600_000
    state = broker_state(policies=LIMITED, limits={"inspected_frame": longest})
    line = opened(state)
    assert opened(state).client(begun(longest)) == []
    assert line.client(begun(longest + 1)) == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_audit_policy_closes_no_long_request() -> None:
    """A policy in audit mode lets a request longer than limits.inspected_frame pass."""
    line = opened(broker_state(policies=AUDITED, limits={"inspected_frame": 1024}))
    frame = begun(5000)
    assert line.client(frame) == [ToUpstream(frame)]


def test_evicted_pending_request_closes() -> None:
    """A long pending request counts as held until its reply arrives. Its eviction closes its connection."""
    state = complete_state(limits={"held_frames": 100_000})
    dispatcher, frame = new_dispatcher(state), begun(90_000)
    first, second, third = (opened(state, dispatcher) for _ in range(3))
    assert first.client(frame) == []
    assert first.client(bytes(90_004 - len(frame))) != []
    assert second.client(frame) == []
    assert state.held_request_budget.take_evicted() == [first.session.origin.number]
    assert first.session.evict_held_request(0, CloseReason.REQUEST_TOO_LONG) == [Close(CloseReason.REQUEST_TOO_LONG)]
    assert second.client(bytes(90_004 - len(frame))) != []
    assert second.upstream(reply(1)) == [ToClient(reply(1))]
    assert third.client(frame) == []
    assert state.held_request_budget.take_evicted() == []


def test_unheld_handshake_closes() -> None:
    """A SASL handshake that is too long to hold or inspect closes its connection, because its content decides about
    later frames.
    """
    state = broker_state(policies=LIMITED, limits={"held_frames": 8 * 30_000})
    dispatcher, frame = new_dispatcher(state), begun(20_000, ApiKey.SASL_HANDSHAKE, 0)
    assert Line(state, dispatcher=dispatcher).client(frame) == []
    long = begun(30_001, ApiKey.SASL_HANDSHAKE, 0)
    assert Line(state, dispatcher=dispatcher).client(long) == [Close(CloseReason.REQUEST_TOO_LONG)]
    line = Line(broker_state(policies=LIMITED, limits={"inspected_frame": 1024}))
    assert line.client(begun(1025, ApiKey.SASL_HANDSHAKE, 0)) == [Close(CloseReason.REQUEST_TOO_LONG)]


# Many elements.


def test_element_limit_counts_nested_elements() -> None:
    """The decoder raises TooManyElements at the first element above the limit, however the elements are nested."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    topic = OffsetCommitRequestTopic(name="t", partitions=(partition,) * 9)
    message = OffsetCommitRequest(group_id="g", topics=(topic,) * 10)
    for version in (7, 8):
        body = encode(message, version)
        assert decode_start(OffsetCommitRequest, version, body, 100)[0] == message
        with pytest.raises(TooManyElements):
            decode_start(OffsetCommitRequest, version, body, 99)


def test_tagged_fields_count_as_elements() -> None:
    """Tagged fields count towards the element limit."""
    tags = tuple((number, b"") for number in range(200))
    body = encode(DescribeGroupsRequest(groups=("a",), unknown_tags=tags), 5)
    assert len(decode_start(DescribeGroupsRequest, 5, body, 201)[0].unknown_tags) == 200
    with pytest.raises(TooManyElements):
        decode_start(DescribeGroupsRequest, 5, body, 200)


def test_header_tags_are_bounded() -> None:
    """A request header with more than MAX_HEADER_TAGS tagged fields raises TooManyElements."""
    count = MAX_HEADER_TAGS + 1
    varint = bytes([count & 127 | 128, count >> 7])
    with pytest.raises(TooManyElements):
        decode_request_header(request(16, 1, version=3)[4:] + varint + b"\1\0" * count, flexible=True)


def test_long_layout_only_message_is_refused() -> None:
    """A long message that only the slow layout decoder can read raises TooManyElements. A short one is decoded."""
    for size, short in ((100, True), (MAX_LAYOUT_BYTES, False)):
        body = (1).to_bytes(4, "big") + (size).to_bytes(2, "big") + b"\xff" * size
        if short:
            assert decode_start(DescribeGroupsRequest, 0, body, 100)[0].groups == ("\N{REPLACEMENT CHARACTER}" * size,)
        else:
            with pytest.raises(TooManyElements):
                decode_start(DescribeGroupsRequest, 0, body, 100)


def crowded(count: int) -> Any:
    return replace(joining(), protocols=(JoinGroupProtocol(name="", metadata=b""),) * count)


def test_join_with_many_protocols_closes() -> None:
    """Under a policy, a join with too many protocols closes its connection."""
    state = complete_state(policies=LIMITED)
    line = Line(state)
    with structlog.testing.capture_logs() as lines:
        assert line.sends(crowded(6_001), 3) == [Close(CloseReason.REQUEST_TOO_LONG)]
    assert [(each["event"], each["api"], each["reason"]) for each in lines] == [
        ("a connection is closed", "JoinGroup", "request_too_long")  # No line reports a forwarded request.
    ]
    assert to_client(Line(state).sends(crowded(5_999), 3)) == b""


@pytest.mark.parametrize(("partitions", "passes"), [(15_000, True), (21_001, False)])
def test_storable_commit_is_judged_whole(partitions: int, passes: bool) -> None:
    """A commit that Kafka can store is judged with all its partitions. A larger commit closes its connection."""
    line = Line(complete_state(policies={"offset_metadata_max_bytes": {"limit": 1}}))
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    topic = OffsetCommitRequestTopic(name="t", partitions=(partition,) * partitions)
    frame = line.frame(OffsetCommitRequest(group_id="g", topics=(topic,)), 8)
    assert line.client(frame) == [ToUpstream(frame) if passes else Close(CloseReason.REQUEST_TOO_LONG)]


@pytest.mark.parametrize(("policies", "protocols"), [({}, 3_001), (AUDITED, 6_001)])
def test_large_request_marks_group_without_policy(policies: dict[str, Any], protocols: int) -> None:
    """Without an enforced policy, a request with too many elements passes, marks its group, and counts as a decode
    failure.
    """
    state = complete_state(policies=policies)
    stable_group(state, "m1")
    line = Line(state)
    frame = line.frame(crowded(protocols), 3)
    assert line.client(frame) == [ToUpstream(frame)]
    assert state.copy.manager.view("g", EPOCH + 100).fallback_reason is FallbackReason.UNDECODABLE
    assert state.traffic.decode_failures == {ApiKey.JOIN_GROUP: 1}


def test_question_of_many_groups_is_forwarded() -> None:
    """A question with too many groups goes to the broker."""
    line = Line(complete_state())
    frame = line.frame(DescribeGroupsRequest(groups=("g",) * 301), 3)
    assert line.client(frame) == [ToUpstream(frame)]


def test_reply_of_many_elements_is_unread() -> None:
    """A reply with too many elements passes and counts as a decode failure."""
    state = broker_state()
    line = Line(state)
    line.sends(ListGroupsRequest(), 2)
    groups = tuple(ListedGroup(group_id=f"g{number}", protocol_type="") for number in range(3_001))
    commands = line.broker_replies(ListGroupsResponse(error_code=0, groups=groups), 2)
    assert len(to_client(commands)) > 3_001
    assert state.traffic.decode_failures == {ApiKey.LIST_GROUPS: 1}
