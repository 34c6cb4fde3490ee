"""Joins that may not pass: when that is judged, what the client is told, and what the broker."""

from dataclasses import replace

import pytest

from group_sidecar.codecs.headers import REQUEST_HEAD, decode_request_header
from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import decode
from group_sidecar.coordinator.facts import ClientRefused, Departure, Fact, MemberGone
from group_sidecar.coordinator.views import GroupState
from group_sidecar.proxy import enforcing
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.enforcing import REMOVAL_CORRELATION
from group_sidecar.proxy.session import Close, ToClient, ToUpstream
from tests.proxy.playbook import (
    EPOCH,
    Line,
    broker_copy,
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
    return broker_copy(tell, policies={"group_max_size": {"limit": limit, "error_code": error_code}})


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


def test_members_that_must_have_expired_do_not_count() -> None:
    copy = limited(1)
    settled(copy, "m1")
    line = Line(copy)
    line.now += 31
    assert to_client(line.says(joining(), 3)) == b""


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


def test_a_join_that_may_pass_is_not_delayed() -> None:
    line = Line(limited(1))
    before, join = request(1, 90), line.frame(joining(), 3)
    assert to_upstream(line.client(before, join)) == before + join
    assert line.session.wants_client


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
    assert copy.manager.view("g", EPOCH + line.now).awaiting  # The join that goes on holds its place.
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
    assert copy.group_max_size is not None
    copy.group_max_size.limit = 2
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
