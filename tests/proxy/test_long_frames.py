"""Frames that are long: held only where that is safe, decoded only as far as that is quick, and past no policy."""

from dataclasses import replace
from typing import Any

import pytest
import structlog

from group_sidecar.codecs.errors import TooManyElements
from group_sidecar.codecs.headers import MOST_TAGS, decode_request_header
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
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import LONGEST_ODD, decode_start, encode
from group_sidecar.coordinator.views import Lacking
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import Close, ToClient, ToUpstream
from group_sidecar.proxy.desk import BrokerDesk
from group_sidecar.proxy.holding import SMALL_FRAME, UNAUTHENTICATED_FRAME
from tests.proxy.playbook import EPOCH, Line, broker_copy, certain_copy, joining, reply, request, settled, to_client

LIMITED = {"group_max_size": {"limit": 5}}
AUDITED = {"group_max_size": {"limit": 5, "mode": "audit"}}
HELLO, SHAKEN = SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))
TOKEN = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
TAKEN = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")


def begun(size: int, key: int = ApiKey.JOIN_GROUP, version: int = 3) -> bytes:
    """The first bytes of a request of `size`."""
    return size.to_bytes(4, "big") + request(key, 1, version=version, body=bytes(100))[4:]


def shaken(copy: BrokerCopy) -> Line:
    """A connection on which the broker has accepted a mechanism, and nothing more."""
    line = Line(copy)
    line.exchange(HELLO, SHAKEN, 1)
    return line


def opened(copy: BrokerCopy, desk: BrokerDesk | None = None) -> Line:
    """A connection without SASL that the broker has served."""
    line = Line(copy, desk=desk)
    line.exchange(HeartbeatRequest(group_id="x", generation_id=1, member_id="m"), HeartbeatResponse(error_code=0), 3)
    return line


# Before authentication.


@pytest.mark.parametrize("policies", [{}, LIMITED])
def test_a_long_frame_before_authentication_ends_the_connection(policies: dict[str, Any]) -> None:
    """As in Kafka's SaslServerAuthenticator, where such a frame is longer than sasl.server.max.receive.size."""
    copy = broker_copy(policies=policies)
    line = shaken(copy)
    assert line.client(begun(UNAUTHENTICATED_FRAME + 1)) == [Close(CloseReason.UNAUTHENTICATED_FRAME)]
    assert Line(copy).client(begun(UNAUTHENTICATED_FRAME + 1)) == [Close(CloseReason.UNAUTHENTICATED_FRAME)]
    assert line.session.held_bytes == 0


@pytest.mark.parametrize(
    ("size", "limits", "reason", "cause"),
    [
        (UNAUTHENTICATED_FRAME + 1, {}, CloseReason.UNAUTHENTICATED_FRAME, f"{UNAUTHENTICATED_FRAME + 1} bytes"),
        (SMALL_FRAME + 1, {"held_frames": 1024}, CloseReason.REQUEST_TOO_LONG, "limits.held_frames"),
    ],
)
def test_log_names_the_client_of_a_request_that_is_not_held(
    size: int, limits: dict[str, int], reason: str, cause: str
) -> None:
    line = shaken(broker_copy(policies=LIMITED, limits=limits))
    with structlog.testing.capture_logs() as lines:
        assert line.client(begun(size)) == [Close(CloseReason(reason))]
    [told] = lines
    assert (told["event"], told["api"], told["reason"]) == ("a connection is closed", "JoinGroup", reason)
    assert told["client"]
    assert cause in told["cause"]


def test_a_long_frame_is_held_once_the_broker_has_accepted_sasl() -> None:
    line = shaken(broker_copy(policies=LIMITED))
    line.exchange(TOKEN, TAKEN, 2)
    assert line.client(begun(UNAUTHENTICATED_FRAME + 1)) == []
    assert line.session.held_bytes > 0


def test_a_refused_token_admits_nobody() -> None:
    line = shaken(broker_copy(policies=LIMITED))
    line.exchange(TOKEN, replace(TAKEN, error_code=58), 2)
    assert line.client(begun(UNAUTHENTICATED_FRAME + 1)) == [Close(CloseReason.UNAUTHENTICATED_FRAME)]


def test_a_connection_that_is_not_understood_is_admitted_once_the_broker_serves_it() -> None:
    copy = broker_copy(policies=LIMITED)
    line = shaken(copy)
    line.exchange(HELLO, replace(SHAKEN, error_code=33), 1)
    assert Line(copy).client(begun(UNAUTHENTICATED_FRAME + 1)) == [Close(CloseReason.UNAUTHENTICATED_FRAME)]
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    line.exchange(beat, HeartbeatResponse(error_code=0), 3)
    assert line.client(begun(UNAUTHENTICATED_FRAME + 1)) == []


def test_while_nobody_was_served_a_long_frame_passes_unheld_unless_a_policy_judges_it() -> None:
    for policies in ({}, AUDITED):
        line, frame = Line(broker_copy(policies=policies)), begun(UNAUTHENTICATED_FRAME + 1)
        assert line.client(frame) == [ToUpstream(frame)]
        assert line.session.held_bytes == 0
    line = Line(broker_copy(policies=LIMITED))
    assert line.client(begun(UNAUTHENTICATED_FRAME + 1)) == [Close(CloseReason.REQUEST_TOO_LONG)]


# Where no SASL is used.


def test_a_judged_request_longer_than_what_is_inspected_ends_its_connection_before_it_is_held() -> None:
    longest = 600_000
    copy = broker_copy(policies=LIMITED, limits={"inspected_frame": longest})
    line = opened(copy)
    assert opened(copy).client(begun(longest)) == []
    assert line.client(begun(longest + 1)) == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_a_policy_that_only_reports_ends_no_connection_over_a_long_request() -> None:
    line = opened(broker_copy(policies=AUDITED, limits={"inspected_frame": 1024}))
    frame = begun(5000)
    assert line.client(frame) == [ToUpstream(frame)]


def test_a_request_whose_reply_is_owed_counts_and_gives_way_with_its_connection() -> None:
    copy = certain_copy(limits={"held_frames": 100_000})
    desk, frame = BrokerDesk(copy), begun(90_000)
    first, second, third = (opened(copy, desk) for _ in range(3))
    assert first.client(frame) == []
    assert first.client(bytes(90_004 - len(frame))) != []
    assert second.client(frame) == []
    assert desk.crowded_out() == [first.session.origin.number]
    assert first.session.give_way(0, CloseReason.REQUEST_TOO_LONG) == [Close(CloseReason.REQUEST_TOO_LONG)]
    assert second.client(bytes(90_004 - len(frame))) != []
    assert second.upstream(reply(1)) == [ToClient(reply(1))]
    assert third.client(frame) == []
    assert desk.crowded_out() == []


def test_a_handshake_that_cannot_be_held_or_read_ends_its_connection() -> None:
    """Unread, it would make the connection one whose frames nobody reads, and so lead past every policy."""
    copy = broker_copy(policies=LIMITED, limits={"held_frames": 8 * 30_000})
    desk, frame = BrokerDesk(copy), begun(20_000, ApiKey.SASL_HANDSHAKE, 0)
    assert Line(copy, desk=desk).client(frame) == []
    long = begun(30_001, ApiKey.SASL_HANDSHAKE, 0)
    assert Line(copy, desk=desk).client(long) == [Close(CloseReason.REQUEST_TOO_LONG)]
    line = Line(broker_copy(policies=LIMITED, limits={"inspected_frame": 1024}))
    assert line.client(begun(1025, ApiKey.SASL_HANDSHAKE, 0)) == [Close(CloseReason.REQUEST_TOO_LONG)]


# Many elements.


def test_a_reader_stops_at_the_first_element_too_many_however_they_are_nested() -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    topic = OffsetCommitRequestTopic(name="t", partitions=(partition,) * 9)
    message = OffsetCommitRequest(group_id="g", topics=(topic,) * 10)
    for version in (7, 8):
        body = encode(message, version)
        assert decode_start(OffsetCommitRequest, version, body, 100)[0] == message
        with pytest.raises(TooManyElements):
            decode_start(OffsetCommitRequest, version, body, 99)


def test_tagged_fields_are_elements_too() -> None:
    tags = tuple((number, b"") for number in range(200))
    body = encode(DescribeGroupsRequest(groups=("a",), unknown_tags=tags), 5)
    assert len(decode_start(DescribeGroupsRequest, 5, body, 201)[0].unknown_tags) == 200
    with pytest.raises(TooManyElements):
        decode_start(DescribeGroupsRequest, 5, body, 200)


def test_a_header_has_a_bounded_number_of_tagged_fields() -> None:
    count = MOST_TAGS + 1
    varint = bytes([count & 127 | 128, count >> 7])
    with pytest.raises(TooManyElements):
        decode_request_header(request(16, 1, version=3)[4:] + varint + b"\1\0" * count, flexible=True)


def test_a_long_message_that_only_the_layout_can_read_is_not_read() -> None:
    for size, short in ((100, True), (LONGEST_ODD, False)):
        body = (1).to_bytes(4, "big") + (size).to_bytes(2, "big") + b"\xff" * size
        if short:
            assert decode_start(DescribeGroupsRequest, 0, body, 100)[0].groups == ("\N{REPLACEMENT CHARACTER}" * size,)
        else:
            with pytest.raises(TooManyElements):
                decode_start(DescribeGroupsRequest, 0, body, 100)


def crowded(count: int) -> Any:
    return replace(joining(), protocols=(JoinGroupProtocol(name="", metadata=b""),) * count)


def test_a_join_of_too_many_protocols_gets_past_no_policy() -> None:
    copy = certain_copy(policies=LIMITED)
    line = Line(copy)
    with structlog.testing.capture_logs() as lines:
        assert line.says(crowded(6_001), 3) == [Close(CloseReason.REQUEST_TOO_LONG)]
    assert [(each["event"], each["api"], each["reason"]) for each in lines] == [
        ("a connection is closed", "JoinGroup", "request_too_long")  # And not that it was passed on.
    ]
    assert to_client(Line(copy).says(crowded(5_999), 3)) == b""


@pytest.mark.parametrize(("partitions", "passes"), [(15_000, True), (21_001, False)])
def test_a_commit_that_kafka_would_store_is_judged_whole(partitions: int, passes: bool) -> None:
    line = Line(certain_copy(policies={"offset_metadata_max_bytes": {"limit": 1}}))
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    topic = OffsetCommitRequestTopic(name="t", partitions=(partition,) * partitions)
    frame = line.frame(OffsetCommitRequest(group_id="g", topics=(topic,)), 8)
    assert line.client(frame) == [ToUpstream(frame) if passes else Close(CloseReason.REQUEST_TOO_LONG)]


@pytest.mark.parametrize(("policies", "protocols"), [({}, 3_001), (AUDITED, 6_001)])
def test_without_a_policy_a_request_of_too_many_elements_passes_and_marks_its_group(
    policies: dict[str, Any], protocols: int
) -> None:
    copy = certain_copy(policies=policies)
    settled(copy, "m1")
    line = Line(copy)
    frame = line.frame(crowded(protocols), 3)
    assert line.client(frame) == [ToUpstream(frame)]
    assert copy.manager.view("g", EPOCH + 100).lacking is Lacking.UNDECODABLE
    assert copy.traffic.decode_failures == {ApiKey.JOIN_GROUP: 1}


def test_a_question_of_too_many_groups_is_the_brokers() -> None:
    line = Line(certain_copy())
    frame = line.frame(DescribeGroupsRequest(groups=("g",) * 301), 3)
    assert line.client(frame) == [ToUpstream(frame)]


def test_a_reply_of_too_many_elements_passes_unread() -> None:
    copy = broker_copy()
    line = Line(copy)
    line.says(ListGroupsRequest(), 2)
    groups = tuple(ListedGroup(group_id=f"g{number}", protocol_type="") for number in range(3_001))
    told = line.broker_says(ListGroupsResponse(error_code=0, groups=groups), 2)
    assert len(to_client(told)) > 3_001
    assert copy.traffic.decode_failures == {ApiKey.LIST_GROUPS: 1}
