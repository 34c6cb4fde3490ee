"""Where members are, in answers made here and in the broker's own: `answers.client_host`."""

from dataclasses import replace
from typing import Any

import pytest

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
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.views import Lacking, MemberView
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import ToClient, ToUpstream
from group_sidecar.proxy.relaying import CORRELATION
from tests.proxy.playbook import EPOCH, Line, broker_copy, certain_copy, joining, settled, to_upstream

SIDECAR, CLIENT = "/10.1.1.9", "/10.0.0.1"
QUESTION = DescribeGroupsRequest(groups=("g",))
OPERATIONS = DescribeGroupsRequest(groups=("g",), include_authorized_operations=True)
"""Which only the broker can answer."""
VERSIONS = range(3, 7)


def answers(**settings: Any) -> dict[str, Any]:
    """Settings of a sidecar that nobody gets past."""
    return {"answers": {"exclusive": True, "authorizer": "none", **settings}}


def described(*members: str, host: str = SIDECAR) -> DescribeGroupsResponse:
    """The broker's word of group "g"."""
    told = tuple(
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
        error_code=0, group_id="g", group_state="Stable", protocol_type="", protocol_data="range", members=told
    )
    return DescribeGroupsResponse(groups=(group,))


def hosts(reply: Any) -> list[str]:
    """The hosts that a reply tells."""
    return [member.client_host for group in reply.groups for member in group.members]


def members(copy: BrokerCopy, at: float = 100) -> list[MemberView]:
    """The members as the copy has them."""
    return list(copy.manager.view("g", EPOCH + at).members)


def asked(line: Line, question: Struct, version: int, reply: Struct) -> Any:
    """What the client reads where the broker is asked."""
    frame = line.frame(question, version)
    assert line.client(frame) == [ToUpstream(frame)]
    return line.reads(line.broker_says(reply, version), question, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_brokers_reply_tells_where_members_are_and_the_copy_learns_what_it_said(version: int) -> None:
    copy = certain_copy()
    line, *_ = settled(copy, "a", "b")
    told = described("a", "b", "stranger")
    reply = asked(line, OPERATIONS, version, told)
    assert hosts(reply) == [CLIENT, CLIENT, SIDECAR]
    there = tuple(replace(member, client_host=SIDECAR) for member in reply.groups[0].members)
    assert replace(reply.groups[0], members=there) == told.groups[0]
    known = [(member.client_host, member.broker_host) for member in members(copy)]
    assert known == [(CLIENT, SIDECAR), (CLIENT, SIDECAR), (SIDECAR, SIDECAR)]
    assert copy.traffic.decode_failures == {}


def test_a_reply_that_tells_it_already_passes_as_it_came() -> None:
    line, *_ = settled(certain_copy(), "a")
    line.exchange(OPERATIONS, described("a", host=CLIENT), 5)


def test_what_is_not_described_behind_a_reply_stays() -> None:
    line, *_ = settled(certain_copy(), "a")
    line.says(OPERATIONS, 4)
    frame = encode_reply(described("a"), 4, line._correlation) + b"more"
    back = line.upstream((len(frame) - 4).to_bytes(4, "big") + frame[4:])
    told = encode_reply(described("a", host=CLIENT), 4, line._correlation) + b"more"
    assert back == [ToClient((len(told) - 4).to_bytes(4, "big") + told[4:])]


@pytest.mark.parametrize(
    "settings", [{"client_host": "broker"}, {"enabled": False}, {"apis": ["ListGroups"]}], ids=lambda each: str(each)
)
def test_where_it_is_not_wanted_the_brokers_reply_passes_as_it_came(settings: Any) -> None:
    copy = certain_copy(**answers(**settings))
    line, *_ = settled(copy, "a")
    line.exchange(OPERATIONS, described("a"), 5)
    assert [(each.client_host, each.broker_host) for each in members(copy)] == [(CLIENT, SIDECAR)]


def test_a_reply_too_long_to_be_looked_into_passes_as_it_came() -> None:
    copy = certain_copy(limits={"inspected_frame": 1024})
    line, *_ = settled(copy, "a")
    line.says(OPERATIONS, 5)
    back = encode_reply(described("a", *map(str, range(100))), 5, line._correlation)
    assert b"".join(each.data for each in line.upstream(back) if isinstance(each, ToClient)) == back


@pytest.mark.parametrize(("setting", "host"), [("client", CLIENT), ("broker", SIDECAR)])
def test_where_the_broker_is_asked_in_another_version_likewise(setting: str, host: str) -> None:
    copy = certain_copy(**answers(client_host=setting))
    line, *_ = settled(copy, "a")
    copy.learn_versions({ApiKey.DESCRIBE_GROUPS: (0, 0), ApiKey.LIST_GROUPS: (0, 0)})
    Line(copy).says(joining(), 3)  # Now only the broker knows.
    assert to_upstream(line.says(QUESTION, 5))
    told = line.broker_says(described("a", "stranger"), 0, CORRELATION)
    assert hosts(line.reads(told, QUESTION, 5)) == [host, SIDECAR]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_made_here_tells_what_the_brokers_does(version: int) -> None:
    line, *_ = settled(certain_copy(), "a", "b")
    first = line.reads(line.says(QUESTION, version), QUESTION, version)
    assert hosts(first) == [CLIENT, CLIENT]
    assert hosts(asked(line, OPERATIONS, version, described("a", "b"))) == hosts(first)
    assert hosts(line.reads(line.says(QUESTION, version), QUESTION, version)) == hosts(first)


def test_the_broker_is_asked_where_it_sees_a_new_member_and_then_that_is_told() -> None:
    copy = certain_copy(**answers(client_host="broker"))
    line, *_ = settled(copy, "a")
    line.exchange(QUESTION, described("a"), 5)
    assert copy.traffic.fallbacks == {(ApiKey.DESCRIBE_GROUPS, Lacking.IN_DOUBT): 1}
    assert hosts(line.reads(line.says(QUESTION, 5), QUESTION, 5)) == [SIDECAR]
    assert [member.client_host for member in members(copy)] == [CLIENT], "as the page and the journal have it"


def test_an_answer_that_is_kept_is_made_anew_when_a_member_speaks_from_elsewhere() -> None:
    copy = certain_copy()
    line, *_ = settled(copy, "a")
    assert hosts(line.reads(line.says(QUESTION, 5), QUESTION, 5)) == [CLIENT]
    elsewhere = Line(copy, "a", "10.0.0.2")
    elsewhere.exchange(
        HeartbeatRequest(group_id="g", generation_id=1, member_id="a"), HeartbeatResponse(error_code=0), 3
    )
    assert hosts(line.reads(line.says(QUESTION, 5), QUESTION, 5)) == ["/10.0.0.2"]


# Groups of KIP-848.


def consumer_described(*members: str) -> ConsumerGroupDescribeResponse:
    """The broker's word of group "g"."""
    nothing = Assignment(topic_partitions=())
    told = tuple(
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
        members=told,
    )
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=(group,))


@pytest.mark.parametrize(("setting", "host"), [("client", CLIENT), ("broker", SIDECAR)])
def test_consumer_groups_likewise(setting: str, host: str) -> None:
    line = Line(broker_copy(**answers(client_host=setting)))
    beat: Any = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    beaten = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=0, member_id="a", member_epoch=1, heartbeat_interval_ms=5000
    )
    line.exchange(beat, beaten, 0)
    question = ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)
    reply = asked(line, question, 0, consumer_described("a", "stranger"))
    assert hosts(reply) == [host, SIDECAR]
