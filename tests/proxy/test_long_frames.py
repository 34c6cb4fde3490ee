"""Frames that are long: held only where that is safe, decoded only as far as that is quick, and past no policy."""

from dataclasses import replace
from typing import Any

import pytest

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
from group_sidecar.proxy.commands import Close, ToUpstream
from group_sidecar.proxy.desk import BrokerDesk
from group_sidecar.proxy.holding import SMALL_FRAME, UNAUTHENTICATED_FRAME, Holding
from tests.proxy.playbook import EPOCH, Line, broker_copy, certain_copy, joining, request, settled, to_client

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
    assert line.session.held_bytes == 0 or not line.session.wants_client


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


def test_what_is_held_is_bounded_in_all_and_less_for_those_who_have_not_authenticated() -> None:
    size = SMALL_FRAME + 1
    holding = Holding(80 * size)
    assert [holding.holds(number, size, admitted=False) for number in range(11)] == [True] * 10 + [False]
    assert [holding.holds(number, size, admitted=True) for number in range(20, 101)] == [True] * 80 + [False]
    assert holding.holds(200, SMALL_FRAME, admitted=False)
    for number in range(101):
        holding.release(number)
    assert holding.holds(1, 80 * size, admitted=True)


def test_beyond_the_bound_a_request_passes_unread_and_a_judged_one_ends_its_connection() -> None:
    limits = {"held_frames": 100_000}
    copy = certain_copy(limits=limits)
    desk = BrokerDesk(copy)
    first, frame = opened(copy, desk), begun(90_000)
    assert first.client(frame) == []
    assert opened(copy, desk).client(frame) == [ToUpstream(frame)]
    assert first.client(bytes(90_004 - len(frame))) != []
    again = opened(copy, desk)
    assert again.client(frame) == []
    again.session.close(0)
    assert opened(copy, desk).client(frame) == []
    copy = certain_copy(limits=limits, policies=LIMITED)
    desk = BrokerDesk(copy)
    assert opened(copy, desk).client(frame) == []
    assert opened(copy, desk).client(frame) == [Close(CloseReason.REQUEST_TOO_LONG)]


def test_a_handshake_that_cannot_be_held_or_read_ends_its_connection() -> None:
    """Unread, it would make the connection one whose frames nobody reads, and so lead past every policy."""
    copy = broker_copy(policies=LIMITED, limits={"held_frames": 8 * 30_000})
    desk, frame = BrokerDesk(copy), begun(20_000, ApiKey.SASL_HANDSHAKE, 0)
    assert Line(copy, desk=desk).client(begun(20_000, version=3)) == []
    assert Line(copy, desk=desk).client(frame) == [Close(CloseReason.REQUEST_TOO_LONG)]
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
    assert line.says(crowded(5_001), 3) == [Close(CloseReason.REQUEST_TOO_LONG)]
    assert to_client(Line(copy).says(crowded(4_999), 3)) == b""


@pytest.mark.parametrize(("partitions", "passes"), [(15_000, True), (20_001, False)])
def test_a_commit_that_kafka_would_store_is_judged_whole(partitions: int, passes: bool) -> None:
    line = Line(certain_copy(policies={"offset_metadata_max_bytes": {"limit": 1}}))
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    topic = OffsetCommitRequestTopic(name="t", partitions=(partition,) * partitions)
    frame = line.frame(OffsetCommitRequest(group_id="g", topics=(topic,)), 8)
    assert line.client(frame) == [ToUpstream(frame) if passes else Close(CloseReason.REQUEST_TOO_LONG)]


@pytest.mark.parametrize("policies", [{}, AUDITED])
def test_without_a_policy_a_request_of_too_many_elements_passes_and_marks_its_group(policies: dict[str, Any]) -> None:
    copy = certain_copy(policies=policies)
    settled(copy, "m1")
    line = Line(copy)
    frame = line.frame(crowded(5_001), 3)
    assert line.client(frame) == [ToUpstream(frame)]
    assert copy.manager.view("g", EPOCH + 100).lacking is Lacking.UNDECODABLE
    assert copy.traffic.decode_failures == {ApiKey.JOIN_GROUP: 1}


def test_a_question_of_too_many_groups_is_the_brokers() -> None:
    line = Line(certain_copy())
    frame = line.frame(DescribeGroupsRequest(groups=("g",) * 501), 3)
    assert line.client(frame) == [ToUpstream(frame)]


def test_a_reply_of_too_many_elements_passes_unread() -> None:
    copy = broker_copy()
    line = Line(copy)
    line.says(ListGroupsRequest(), 2)
    groups = tuple(ListedGroup(group_id=f"g{number}", protocol_type="") for number in range(5_001))
    told = line.broker_says(ListGroupsResponse(error_code=0, groups=groups), 2)
    assert len(to_client(told)) > 5_001
    assert copy.traffic.decode_failures == {ApiKey.LIST_GROUPS: 1}
