"""The hosts of members in local answers and in the broker's replies: `answers.client_host`."""

from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.headers import encode_reply
from group_sidecar.codecs.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)
from group_sidecar.codecs.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from group_sidecar.codecs.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import FallbackReason, MemberView
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import ToClient, ToUpstream
from group_sidecar.proxy.handlers.injected_requests import RELAY_CORRELATION
from tests.proxy.dataplane.playbook import EPOCH, Line, broker_state, complete_state, joining, stable_group, to_upstream

SIDECAR, CLIENT = "/10.1.1.9", "/10.0.0.1"
QUESTION = DescribeGroupsRequest(groups=("g",))
OPERATIONS = DescribeGroupsRequest(groups=("g",), include_authorized_operations=True)
"""A question that only the broker can answer."""
VERSIONS = range(3, 7)


def answers(**settings: Any) -> dict[str, Any]:
    """Returns settings of an exclusive sidecar."""
    return {"answers": {"exclusive": True, "authorizer": "none", **settings}}


def described(*members: str, host: str = SIDECAR) -> DescribeGroupsResponse:
    """Returns the broker's description of group "g"."""
    described_members = tuple(
        DescribedGroupMember(
            member_id=member,
            client_id=member,
            client_host=host,
            member_metadata=b"subscription",
            member_assignment=b"for " + member.encode(),
        )
        for member in members
    )
    group = DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        protocol_type="",
        protocol_data="range",
        members=described_members,
    )
    return DescribeGroupsResponse(groups=(group,))


def hosts(reply: Any) -> list[str]:
    """Returns the hosts in a reply."""
    return [member.client_host for group in reply.groups for member in group.members]


def members(state: BrokerState, at: float = 100) -> list[MemberView]:
    """Returns the members in the copy."""
    return list(state.copy.manager.view("g", EPOCH + at).members)


def ask_broker(line: Line, question: Struct, version: int, reply: Struct) -> Any:
    """Sends a question that goes to the broker. Returns the reply that the client gets."""
    frame = line.frame(question, version)
    assert line.client(frame) == [ToUpstream(frame)]
    return line.reads_reply(line.broker_replies(reply, version), question, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_broker_reply_gets_client_hosts(version: int) -> None:
    """A forwarded DescribeGroups reply gets the client hosts that the copy knows, and the copy learns the hosts that
    the broker reported.
    """
    state = complete_state()
    line, *_ = stable_group(state, "a", "b")
    response = described("a", "b", "stranger")
    reply = ask_broker(line, OPERATIONS, version, response)
    assert hosts(reply) == [CLIENT, CLIENT, SIDECAR]
    there = tuple(replace(member, client_host=SIDECAR) for member in reply.groups[0].members)
    assert replace(reply.groups[0], members=there) == response.groups[0]
    known = [(member.client_host, member.broker_host) for member in members(state)]
    assert known == [(CLIENT, SIDECAR), (CLIENT, SIDECAR), (SIDECAR, SIDECAR)]
    assert state.traffic.decode_failures == {}


def test_reply_with_client_hosts_is_unchanged() -> None:
    """A broker's reply that already contains the client hosts passes unchanged."""
    line, *_ = stable_group(complete_state(), "a")
    line.exchange(OPERATIONS, described("a", host=CLIENT), 5)


def test_trailing_bytes_survive_host_rewrite() -> None:
    """Bytes after the declared fields at the end of a reply stay when the sidecar rewrites the hosts."""
    line, *_ = stable_group(complete_state(), "a")
    line.sends(OPERATIONS, 4)
    frame = encode_reply(described("a"), 4, line._correlation) + b"more"
    back = line.upstream((len(frame) - 4).to_bytes(4, "big") + frame[4:])
    reply = encode_reply(described("a", host=CLIENT), 4, line._correlation) + b"more"
    assert back == [ToClient((len(reply) - 4).to_bytes(4, "big") + reply[4:])]


@pytest.mark.parametrize(
    "settings", [{"client_host": "broker"}, {"enabled": False}, {"apis": ["ListGroups"]}], ids=lambda each: str(each)
)
def test_disabled_host_rewrite_keeps_reply(settings: Any) -> None:
    """A reply passes unchanged if a setting disables host rewriting, and the copy still learns the broker's hosts."""
    state = complete_state(**answers(**settings))
    line, *_ = stable_group(state, "a")
    line.exchange(OPERATIONS, described("a"), 5)
    assert [(each.client_host, each.broker_host) for each in members(state)] == [(CLIENT, SIDECAR)]


def test_overlong_reply_keeps_hosts() -> None:
    """A reply longer than limits.inspected_frame passes unchanged."""
    state = complete_state(limits={"inspected_frame": 1024})
    line, *_ = stable_group(state, "a")
    line.sends(OPERATIONS, 5)
    back = encode_reply(described("a", *map(str, range(100))), 5, line._correlation)
    assert b"".join(each.data for each in line.upstream(back) if isinstance(each, ToClient)) == back


@pytest.mark.parametrize(("setting", "host"), [("client", CLIENT), ("broker", SIDECAR)])
def test_translated_reply_has_configured_hosts(setting: str, host: str) -> None:
    """A reply translated from another version contains the client host or the broker's host, as configured."""
    state = complete_state(**answers(client_host=setting))
    line, *_ = stable_group(state, "a")
    state.versions.learn({ApiKey.DESCRIBE_GROUPS: (0, 0), ApiKey.LIST_GROUPS: (0, 0)})
    Line(state).sends(joining(), 3)  # Now only the broker knows the host.
    assert to_upstream(line.sends(QUESTION, 5))
    reply = line.broker_replies(described("a", "stranger"), 0, RELAY_CORRELATION)
    assert hosts(line.reads_reply(reply, QUESTION, 5)) == [host, SIDECAR]


@pytest.mark.parametrize("version", VERSIONS)
def test_local_answer_has_same_hosts_as_broker(version: int) -> None:
    """A local answer and a forwarded reply contain the same client hosts in every version."""
    state = complete_state()
    state.versions.learn({ApiKey.DESCRIBE_GROUPS: (0, VERSIONS[-1])})  # Version 3 lacks instance ids.
    line, *_ = stable_group(state, "a", "b")
    first = line.reads_reply(line.sends(QUESTION, version), QUESTION, version)
    assert hosts(first) == [CLIENT, CLIENT]
    assert hosts(ask_broker(line, OPERATIONS, version, described("a", "b"))) == hosts(first)
    assert hosts(line.reads_reply(line.sends(QUESTION, version), QUESTION, version)) == hosts(first)


def test_broker_host_of_new_member_is_asked() -> None:
    """With client_host set to broker, the first question about a new member goes to the broker, and later local answers
    contain the broker's host.
    """
    state = complete_state(**answers(client_host="broker"))
    line, *_ = stable_group(state, "a")
    line.exchange(QUESTION, described("a"), 5)
    assert state.traffic.fallbacks == {(ApiKey.DESCRIBE_GROUPS, FallbackReason.IN_DOUBT): 1}
    assert hosts(line.reads_reply(line.sends(QUESTION, 5), QUESTION, 5)) == [SIDECAR]
    assert [member.client_host for member in members(state)] == [CLIENT], "the copy must keep the client's own host"


def test_cached_answer_follows_member_host() -> None:
    """A cached answer is rebuilt when a member sends a request from another host."""
    state = complete_state()
    line, *_ = stable_group(state, "a")
    assert hosts(line.reads_reply(line.sends(QUESTION, 5), QUESTION, 5)) == [CLIENT]
    elsewhere = Line(state, "a", "10.0.0.2")
    elsewhere.exchange(
        HeartbeatRequest(group_id="g", generation_id=1, member_id="a"), HeartbeatResponse(error_code=0), 3
    )
    assert hosts(line.reads_reply(line.sends(QUESTION, 5), QUESTION, 5)) == ["/10.0.0.2"]


# Groups of KIP-848.


def consumer_described(*members: str) -> ConsumerGroupDescribeResponse:
    """Returns the broker's description of group "g"."""
    nothing = Assignment(topic_partitions=())
    described_members = tuple(
        Member(
            member_id=member,
            member_epoch=1,
            client_id=member,
            client_host=SIDECAR,
            subscribed_topic_names=("t",),
            assignment=nothing,
            target_assignment=nothing,
        )
        for member in members
    )
    group = DescribedConsumerGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        group_epoch=1,
        assignment_epoch=1,
        assignor_name="uniform",
        members=described_members,
    )
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=(group,))


@pytest.mark.parametrize(("setting", "host"), [("client", CLIENT), ("broker", SIDECAR)])
def test_consumer_group_reply_hosts(setting: str, host: str) -> None:
    """A ConsumerGroupDescribe reply contains the client host or the broker's host of a known member, as configured."""
    line = Line(broker_state(**answers(client_host=setting)))
    beat: Any = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    beaten = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=0, member_id="a", member_epoch=1, heartbeat_interval_ms=5000
    )
    line.exchange(beat, beaten, 0)
    question = ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)
    reply = ask_broker(line, question, 0, consumer_described("a", "stranger"))
    assert hosts(reply) == [host, SIDECAR]
