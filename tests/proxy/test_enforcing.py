"""Joins that may not pass: when that is judged, what the client is told, and what the broker."""

from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.codecs.headers import REQUEST_HEAD, decode_request_header
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
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import decode
from group_sidecar.coordinator.facts import ClientRefused, Departure, Fact, MemberGone
from group_sidecar.coordinator.views import GroupState
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.policies.group_max_size import GroupMaxSize, GroupMaxSizeSettings
from group_sidecar.proxy import enforcing
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import Close, Command, ToClient, ToUpstream
from group_sidecar.proxy.enforcing import DESCRIPTION_CORRELATION, MOST_ASKED, REMOVAL_CORRELATION
from tests.proxy.playbook import (
    EPOCH,
    Line,
    broker_copy,
    certain_copy,
    joining,
    reply,
    request,
    settled,
    to_client,
    to_upstream,
)

REFUSALS = {
    0: "00000001 004d ffffffff 0000 0000 0000 00000000",
    1: "00000001 004d ffffffff 0000 0000 0000 00000000",
    2: "00000001 00000000 004d ffffffff 0000 0000 0000 00000000",
    3: "00000001 00000000 004d ffffffff 0000 0000 0000 00000000",
    4: "00000001 00000000 004d ffffffff 0000 0000 0000 00000000",
    5: "00000001 00000000 004d ffffffff 0000 0000 0000 00000000",
    6: "00000001 00 00000000 004d ffffffff 01 01 01 01 00",
    7: "00000001 00 00000000 004d ffffffff 00 00 01 01 01 00",
    8: "00000001 00 00000000 004d ffffffff 00 00 01 01 01 00",
    9: "00000001 00 00000000 004d ffffffff 00 00 01 00 01 01 00",
}
"""The error replies of Kafka 4.3.1 to a JoinGroup of each version, with error 77 and no member id."""


def limited(limit: int, facts: list[Fact] | None = None, error_code: int = 77) -> BrokerCopy:
    """A broker before which groups have a limit."""
    tell = (lambda fact: None) if facts is None else facts.append
    return certain_copy(tell, policies={"group_max_size": {"limit": limit, "error_code": error_code}})


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS)
def test_a_full_group_refuses_as_kafka_would_in_every_version(version: int) -> None:
    facts: list[Fact] = []
    copy = limited(1, facts)
    settled(copy, "m1")
    facts.clear()
    line = Line(copy, client_id="late", client_host="10.0.0.9")
    assert line.says(joining(), version) == [
        ToClient(len(bytes.fromhex(REFUSALS[version])).to_bytes(4, "big") + bytes.fromhex(REFUSALS[version]))
    ]
    assert facts == [
        ClientRefused(
            group_id="g",
            at=EPOCH + line.now,
            policy="group_max_size",
            error_code=77,
            client_id="late",
            client_host="/10.0.0.9",
            size=1,
            limit=1,
        )
    ]
    assert copy.traffic.policy_evaluations == {"group_max_size": 2}
    assert copy.traffic.policy_rejections == {("group_max_size", 77): 1}
    assert copy.traffic.decode_failures == {}
    assert sum(copy.traffic.durations[ApiKey.JOIN_GROUP].counts) == 2


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS)
def test_the_error_code_is_the_configured_one(version: int) -> None:
    copy = limited(1, error_code=81)
    settled(copy, "m1")
    line, message = Line(copy, client_id=None), joining()
    assert line.reads(line.says(message, version), message, version).error_code == 81


def test_a_refused_client_may_go_on_with_its_connection() -> None:
    copy = limited(1)
    settled(copy, "m1")
    line, message = Line(copy), joining()
    line.reads(line.says(message, 9), message, 9)
    line.exchange(joining("other"), JoinGroupResponse(error_code=27, protocol_name="", leader="", member_id=""), 5)


def test_members_of_a_full_group_and_joins_of_others_pass() -> None:
    copy = limited(1)
    (member,) = settled(copy, "m1")
    again = member.frame(joining(member_id="m1"), 5)
    assert member.client(again) == [ToUpstream(again)]
    other = Line(copy)
    elsewhere = other.frame(joining("h"), 5)
    assert other.client(elsewhere) == [ToUpstream(elsewhere)]
    assert copy.traffic.policy_rejections == {}


def test_without_the_policy_nothing_is_judged() -> None:
    copy = broker_copy()
    settled(copy, *"abcdef")
    assert copy.traffic.policy_evaluations == {}


def test_joins_under_way_hold_their_places() -> None:
    copy = limited(2)
    lines, message = [Line(copy) for _ in range(3)], joining()
    for line in lines[:2]:
        assert to_client(line.says(message, 3)) == b""
    assert lines[2].reads(lines[2].says(message, 3), message, 3).error_code == 77
    lines[0].session.close(lines[0].now)
    assert to_client(lines[2].says(message, 3)) == b""


def test_a_refusal_that_cannot_be_made_leaves_the_join_to_the_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> bytes:
        raise RuntimeError("a fault of ours")

    copy = limited(1)
    settled(copy, "m1")
    monkeypatch.setattr(enforcing, "encode_reply", fails)
    line = Line(copy)
    accepted = JoinGroupResponse(error_code=0, generation_id=2, protocol_name="range", leader="m1", member_id="m2")
    line.exchange(joining(), accepted, 3)
    assert {member.member_id for member in copy.manager.view("g", EPOCH + line.now).members} == {"m1", "m2"}
    assert "a fault of ours" in capsys.readouterr().out


# Its turn.


def test_a_join_that_may_pass_waits_for_its_turn_too_and_holds_no_place_before() -> None:
    copy = limited(2)
    line, others = Line(copy), [Line(copy), Line(copy)]
    before, join = request(1, 90), line.frame(joining(), 3)
    assert to_upstream(line.client(before, join)) == before
    assert not line.session.wants_client
    for other in others:
        assert to_client(other.says(joining(), 3)) == b""
    assert line.reads(line.upstream(reply(90))[1:], joining(), 3).error_code == 77


def test_of_two_joins_on_one_connection_the_broker_has_one() -> None:
    copy = limited(2)
    line, message = Line(copy), joining()
    first, second = line.frame(message, 3), line.frame(message, 3)
    assert to_upstream(line.client(first, second)) == first
    assert to_client(Line(copy).says(message, 3)) == b""


def test_a_refusal_waits_for_the_replies_before_it() -> None:
    copy = limited(1)
    settled(copy, "m1")
    line = Line(copy)
    assert line.client(request(1, 90), line.frame(joining(), 3)) == [ToUpstream(request(1, 90))]
    commands = line.upstream(reply(90))
    assert commands[0] == ToClient(reply(90))
    assert line.reads(commands[1:], joining(), 3).error_code == 77


def leaving(member_id: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=member_id),))


def test_a_leave_on_the_same_connection_makes_room() -> None:
    facts: list[Fact] = []
    copy = limited(1, facts)
    (line,) = settled(copy, "m1")
    leave, join = line.frame(replace(leaving(""), member_id="m1", members=()), 2), line.frame(joining(), 3)
    assert line.client(leave, join) == [ToUpstream(leave)]
    commands = line.broker_says(LeaveGroupResponse(error_code=0), 2, correlation=3)
    assert [type(command) for command in commands] == [ToClient, ToUpstream]
    assert to_upstream(commands) == join
    assert copy.manager.group_metadata_cache["g"].awaiting  # The join that goes on holds its place.
    assert not any(isinstance(fact, ClientRefused) for fact in facts)
    assert copy.traffic.policy_evaluations == {"group_max_size": 2}
    assert copy.traffic.policy_rejections == {}


def test_a_refusal_that_is_never_given_is_none() -> None:
    facts: list[Fact] = []
    copy = limited(1, facts)
    settled(copy, "m1")
    line = Line(copy)
    line.client(request(1, 90), line.frame(joining(), 3))
    assert isinstance(line.upstream_closed()[-1], Close)
    assert not any(isinstance(fact, ClientRefused) for fact in facts)


# A member that is refused while its group rebalances.


def rebalancing(facts: list[Fact]) -> tuple[BrokerCopy, list[Line]]:
    """A group of three, above its limit of two: two have joined again and are parked, the third has not."""
    copy = limited(3, facts)
    lines = settled(copy, "m1", "m2", "m3")
    copy.rulebook.replace([GroupMaxSize(GroupMaxSizeSettings(limit=2))])
    for line, member in zip(lines[:2], ("m1", "m2"), strict=True):
        assert to_client(line.says(joining(member_id=member), 3)) == b""
    assert copy.manager.view("g", EPOCH + lines[0].now).state is GroupState.PREPARING_REBALANCE
    facts.clear()
    return copy, lines


@pytest.mark.parametrize("client_id", ["m3", None])
def test_a_refused_member_is_removed_at_the_broker_first(client_id: str | None) -> None:
    facts: list[Fact] = []
    copy, _ = rebalancing(facts)
    line, message = Line(copy, client_id), joining(member_id="m3")
    (removal,) = line.says(message, 3)
    assert isinstance(removal, ToUpstream)
    assert int.from_bytes(removal.data[:4], "big") == len(removal.data) - 4
    header, body = decode_request_header(removal.data[4:], flexible=False)
    assert (header.api_key, header.api_version, header.correlation_id) == (ApiKey.LEAVE_GROUP, 0, REMOVAL_CORRELATION)
    assert header.client_id == client_id
    assert decode(LeaveGroupRequest, 0, body) == LeaveGroupRequest(group_id="g", member_id="m3")
    assert not line.session.wants_client

    answer = line.broker_says(LeaveGroupResponse(error_code=0), 0, correlation=REMOVAL_CORRELATION)
    assert line.reads(answer, message, 3).error_code == 77
    gone = next(fact for fact in facts if isinstance(fact, MemberGone))
    assert (gone.member_id, gone.how) == ("m3", Departure.REMOVED)
    assert any(isinstance(fact, ClientRefused) for fact in facts)
    assert ApiKey.LEAVE_GROUP not in copy.traffic.durations
    assert {m.member_id for m in copy.manager.view("g", EPOCH + line.now).members} == {"m1", "m2"}


def test_the_removal_comes_at_the_turn_of_the_join() -> None:
    copy, _ = rebalancing([])
    line = Line(copy)
    assert line.client(request(1, 90), line.frame(joining(member_id="m3"), 3)) == [ToUpstream(request(1, 90))]
    commands = line.upstream(reply(90))
    assert to_client(commands) == reply(90)
    assert REQUEST_HEAD.unpack_from(to_upstream(commands))[1:] == (ApiKey.LEAVE_GROUP, 0, REMOVAL_CORRELATION)


def test_a_removal_that_the_broker_refuses_or_garbles_refuses_the_join_nonetheless() -> None:
    for body in (b"\0\x19", b""):
        copy, _ = rebalancing([])
        line, message = Line(copy), joining(member_id="m3")
        line.says(message, 3)
        answer = line.upstream(reply(REMOVAL_CORRELATION, body))
        assert line.reads(answer, message, 3).error_code == 77


def test_a_parked_member_that_joins_again_passes() -> None:
    copy, _ = rebalancing([])
    again = Line(copy)
    assert to_client(again.says(joining(member_id="m2"), 3)) == b""


# What the copy is not sure of.


def unsure(**policy: Any) -> BrokerCopy:
    """A broker that clients may reach around the sidecar, before which groups have a limit."""
    copy = broker_copy(policies={"group_max_size": {"limit": 1, **policy}}, answers={"authorizer": "none"})
    copy.learn_open()
    return copy


def described(state: str, *members: str, error_code: int = 0) -> DescribeGroupsResponse:
    told = (
        DescribedGroupMember(
            member_id=m, client_id="c", client_host="/1.2.3.4", member_metadata=b"", member_assignment=b""
        )
        for m in members
    )
    group = DescribedGroup(
        error_code=error_code,
        group_id="g",
        group_state=state,
        protocol_type="consumer",
        protocol_data="",
        members=tuple(told),
    )
    return DescribeGroupsResponse(groups=(group,))


def tells(line: Line, answer: DescribeGroupsResponse) -> list[Command]:
    """The broker answers what the sidecar has asked."""
    return line.broker_says(answer, 0, correlation=DESCRIPTION_CORRELATION)


def asks(commands: list[Command], client_id: str = "client") -> bool:
    """Whether all that is done is to have the broker describe the group, in the client's name."""
    frame = to_upstream(commands)
    header, body = decode_request_header(frame[4:], flexible=False)
    assert to_client(commands) == b""
    return (header.api_key, header.correlation_id, header.client_id) == (
        ApiKey.DESCRIBE_GROUPS,
        DESCRIPTION_CORRELATION,
        client_id,
    ) and decode(DescribeGroupsRequest, 0, body) == DescribeGroupsRequest(groups=("g",))


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (described("Stable", "x"), 77),
        (described("AwaitingSync", "x"), 77),
        (described("Stable", "x", "y"), 77),
        (described("PreparingRebalance", "x"), 0),
        (described("Empty"), 0),
        (described("Dead"), 0),
    ],
)
def test_the_broker_is_asked_before_a_verdict_that_is_not_sure(told: DescribeGroupsResponse, code: int) -> None:
    copy = unsure()
    line, message = Line(copy), joining()
    join = line.frame(message, 3)
    assert asks(line.client(join))
    assert not line.session.wants_client
    commands = tells(line, told)
    if code:
        assert line.reads(commands, message, 3).error_code == code
    else:
        assert commands == [ToUpstream(join)]
    assert copy.traffic.policy_evaluations == {"group_max_size": 1}


def test_where_the_broker_does_not_tell_the_join_passes() -> None:
    line, message = Line(unsure()), joining()
    join = line.frame(message, 3)
    commands = line.client(join)
    for _ in range(MOST_ASKED):
        assert asks(commands)
        commands = tells(line, described("", error_code=30))
    assert commands == [ToUpstream(join)]


def test_the_broker_is_asked_in_the_name_of_a_client_id_that_cannot_be_written_again() -> None:
    line, message = Line(unsure(), client_id="x" * 0x7FFF), joining()
    join = line.frame(message, 3).replace(b"x" * 0x7FFF, b"\xff" * 0x7FFF)
    assert asks(line.client(join), "\ufffd" * 0x1FFF)
    assert line.reads(tells(line, described("Stable", "x")), message, 3).error_code == 77


def test_a_broker_that_cannot_describe_groups_is_not_asked() -> None:
    copy = unsure()
    copy.learn_versions({int(ApiKey.JOIN_GROUP): (0, 3)})
    first, second, message = Line(copy), Line(copy), joining()
    join = first.frame(message, 3)
    assert first.client(join) == [ToUpstream(join)]
    assert second.reads(second.says(message, 3), message, 3).error_code == 77


def test_its_word_is_good_for_a_second() -> None:
    copy = unsure()
    first, message = Line(copy), joining()
    first.says(message, 3)
    assert first.reads(tells(first, described("Stable", "x")), message, 3).error_code == 77
    again = Line(copy)
    again.now += 0.9
    assert again.reads(again.says(message, 3), message, 3).error_code == 77
    again.now += 0.2
    assert asks(again.says(message, 3))


def test_its_word_is_not_so_any_longer_when_somebody_has_left() -> None:
    copy = unsure()
    line, message = Line(copy), joining()
    line.says(message, 3)
    assert line.reads(tells(line, described("Stable", "x")), message, 3).error_code == 77
    leaving_by_instance = LeaveGroupRequest(
        group_id="g", members=(MemberIdentity(member_id="", group_instance_id="i"),)
    )
    left = MemberResponse(member_id="", group_instance_id="i", error_code=0)
    Line(copy).exchange(leaving_by_instance, LeaveGroupResponse(error_code=0, members=(left,)), 3)
    assert asks(line.says(message, 3))


def test_members_that_must_have_expired_are_asked_about() -> None:
    copy = limited(1)
    settled(copy, "m1")
    line = Line(copy)
    line.now += 31
    join = line.frame(joining(), 3)
    assert asks(line.client(join))
    assert tells(line, described("Empty")) == [ToUpstream(join)]


def test_a_join_whose_connection_has_gone_keeps_its_place() -> None:
    copy = limited(1)
    gone, message = Line(copy), joining()
    gone.says(message, 3)
    gone.session.close(gone.now)
    early, late = Line(copy), Line(copy)
    early.now += 0.1
    assert asks(early.client(early.frame(message, 3)))
    assert early.reads(tells(early, described("Empty")), message, 3).error_code == 77, "it may yet arrive"
    late.now += 1.1
    join = late.frame(message, 3)
    assert asks(late.client(join))
    assert tells(late, described("Empty")) == [ToUpstream(join)], "it never has"


def test_a_lost_join_that_has_arrived_keeps_its_place_until_the_generation() -> None:
    copy = limited(1)
    gone, message = Line(copy), joining()
    gone.says(message, 3)
    gone.session.close(gone.now)
    for seconds in (1.1, 2.2):
        line = Line(copy)
        line.now += seconds
        assert asks(line.client(line.frame(message, 3)))
        assert line.reads(tells(line, described("PreparingRebalance", "x")), message, 3).error_code == 77
    line = Line(copy)
    line.now += 3.3
    assert asks(line.client(line.frame(message, 3)))
    assert line.reads(tells(line, described("Stable", "x")), message, 3).error_code == 77


def test_the_broker_is_not_asked_where_the_copy_is_sure() -> None:
    copy = limited(2)
    (line,) = settled(copy, "m1")
    join = line.frame(joining(member_id="m1"), 3)
    assert line.client(join) == [ToUpstream(join)]


# Clients that try again and again.


def test_a_client_that_tries_again_is_asked_to_wait_longer_each_time() -> None:
    copy = limited(1)
    settled(copy, "m1")
    line, message = Line(copy), joining()
    waits = []
    for _ in range(12):
        waits.append(line.reads(line.says(message, 3), message, 3).throttle_time_ms)
        line.now += 1
    assert waits == [0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
    other = Line(copy)
    assert other.reads(other.says(message, 3), message, 3).throttle_time_ms == 0


# What is only reported.


def test_in_audit_mode_what_would_be_refused_passes_and_is_told() -> None:
    facts: list[Fact] = []
    copy = certain_copy(facts.append, policies={"group_max_size": {"limit": 1, "mode": "audit"}})
    settled(copy, "m1")
    line = Line(copy)
    join = line.frame(joining(), 3)
    assert line.client(join) == [ToUpstream(join)]
    (fact,) = [fact for fact in facts if isinstance(fact, ClientRefused)]
    assert (fact.enforced, fact.size, fact.limit) == (False, 1, 1)
    assert copy.traffic.policy_audits == {("group_max_size", 77): 1}
    assert copy.traffic.policy_rejections == {}


# Frames that are too long to be looked into otherwise.


def test_nobody_gets_past_a_limit_by_being_long() -> None:
    copy = certain_copy(policies={"group_max_size": {"limit": 1}}, limits={"inspected_frame": 1024})
    settled(copy, "m1")
    line = Line(copy)
    message = replace(joining(), protocols=(JoinGroupProtocol(name="range", metadata=bytes(5000)),))
    assert line.says(message, 3) == [Close(CloseReason.REQUEST_TOO_LONG)]


# Members of consumer groups (KIP-848).


def beating(member_id: str, epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)


def let_in(member_id: str, epoch: int = 1) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=0, member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=5000
    )


@pytest.mark.parametrize("version", ConsumerGroupHeartbeatRequest.VERSIONS)
def test_a_full_consumer_group_refuses_new_members_as_kafka_does(version: int) -> None:
    copy = certain_copy(policies={"group_max_size": {"consumer_max_size": 1}})
    member, late = Line(copy), Line(copy)
    member.exchange(beating("a"), let_in("a"), version)
    message = beating("b")
    answer = late.reads(late.says(message, version), message, version)
    assert answer == ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=81,
        error_message="The consumer group has reached its maximum capacity of 1 members.",
        member_epoch=0,
        heartbeat_interval_ms=0,
    )
    member.exchange(beating("a", 1), let_in("a", 1), version)
    member.exchange(beating("a", -1), let_in("a", -1), version)
    late.exchange(message, let_in("b"), version)


def test_new_members_under_way_hold_their_places() -> None:
    copy = certain_copy(policies={"group_max_size": {"consumer_max_size": 1}})
    first, second = Line(copy), Line(copy)
    assert to_client(first.says(beating("a"), 1)) == b""
    assert second.reads(second.says(beating("b"), 1), beating("b"), 1).error_code == 81
    refused = ConsumerGroupHeartbeatResponse(throttle_time_ms=0, error_code=42, member_epoch=0, heartbeat_interval_ms=0)
    first.broker_says(refused, 1)
    second.exchange(beating("b"), let_in("b"), 1)


def test_a_limit_of_classic_groups_is_none_of_consumer_groups() -> None:
    copy = limited(1)
    for member in "abc":
        Line(copy).exchange(beating(member), let_in(member), 1)
