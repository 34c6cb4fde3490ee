"""Tests refused joins: when a policy judges them, the client's reply, and the requests to the broker."""

from dataclasses import replace
from typing import Any

import pytest

from group_sidecar.codecs.api_registry import ApiKey
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
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from group_sidecar.codecs.schema import decode
from group_sidecar.coordinator.model.facts import ClientRefused, Departure, Fact, MemberGone
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.policies.group_max_size import GroupMaxSize, GroupMaxSizeSettings
from group_sidecar.policies.verdicts import ALLOW, Verdict
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import Close, Command, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.handlers import enforcement
from group_sidecar.proxy.handlers.enforcement import MAX_CONFIRMATIONS
from group_sidecar.proxy.handlers.injected_requests import DESCRIPTION_CORRELATION, REMOVAL_CORRELATION
from tests.proxy.dataplane.playbook import (
    EPOCH,
    Line,
    access_of,
    broker_state,
    complete_state,
    joining,
    reply,
    request,
    stable_group,
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


def limited(limit: int, facts: list[Fact] | None = None, error_code: int = 77) -> BrokerState:
    """Returns the state of a broker whose groups have a limit."""
    tell = (lambda fact: None) if facts is None else facts.append
    return complete_state(tell, policies={"group_max_size": {"limit": limit, "error_code": error_code}})


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS)
def test_full_group_refusal_in_every_version(version: int) -> None:
    """A full group refuses a join with Kafka's error reply in every version, which is recorded and counted."""
    facts: list[Fact] = []
    state = limited(1, facts)
    stable_group(state, "m1")
    facts.clear()
    line = Line(state, client_id="late", client_host="10.0.0.9")
    assert line.sends(joining(), version) == [
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
    assert state.traffic.policy_evaluations == {"group_max_size": 2}
    assert state.traffic.policy_rejections == {("group_max_size", 77): 1}
    assert state.traffic.decode_failures == {}
    assert sum(state.traffic.durations[ApiKey.JOIN_GROUP].counts) == 2


@pytest.mark.parametrize("depends_on_group", [True, False])
def test_policies_get_principal(monkeypatch: pytest.MonkeyPatch, depends_on_group: bool) -> None:
    """A policy gets the principal of the client, whether it judges at once or after the earlier requests' replies."""
    judged: list[str] = []

    def judge(self: Any, request: Any, group: Any, principal: str) -> Verdict:
        judged.append(principal)
        return ALLOW

    monkeypatch.setattr(GroupMaxSize, "judge", judge)
    monkeypatch.setattr(GroupMaxSize, "depends_on_group", depends_on_group)
    line = Line(limited(1))
    line.session.origin.subject = "CN=alice"
    line.sends(joining(), 5)
    assert judged == ["User:CN=alice"]


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS)
def test_refusal_has_configured_error_code(version: int) -> None:
    """A refused join gets the configured error code in every version."""
    state = limited(1, error_code=81)
    stable_group(state, "m1")
    line, message = Line(state, client_id=None), joining()
    assert line.reads_reply(line.sends(message, version), message, version).error_code == 81


def test_refused_client_keeps_connection() -> None:
    """A refused client may send further requests on the same connection."""
    state = limited(1)
    stable_group(state, "m1")
    line, message = Line(state), joining()
    line.reads_reply(line.sends(message, 9), message, 9)
    line.exchange(joining("other"), JoinGroupResponse(error_code=27, protocol_name="", leader="", member_id=""), 5)


def test_full_group_lets_members_rejoin() -> None:
    """A member of a full group may rejoin, and joins of other groups pass."""
    state = limited(1)
    (member,) = stable_group(state, "m1")
    again = member.frame(joining(member_id="m1"), 5)
    assert member.client(again) == [ToUpstream(again)]
    other = Line(state)
    elsewhere = other.frame(joining("h"), 5)
    assert other.client(elsewhere) == [ToUpstream(elsewhere)]
    assert state.traffic.policy_rejections == {}


def test_joins_pass_without_policy() -> None:
    """Without a policy, joins pass and no evaluation is counted."""
    state = broker_state()
    stable_group(state, *"abcdef")
    assert state.traffic.policy_evaluations == {}


def test_in_flight_joins_count_towards_limit() -> None:
    """Joins in flight count towards the limit, and after one of their connections closes, the next join is not refused
    at once.
    """
    state = limited(2)
    lines, message = [Line(state) for _ in range(3)], joining()
    for line in lines[:2]:
        assert to_client(line.sends(message, 3)) == b""
    assert lines[2].reads_reply(lines[2].sends(message, 3), message, 3).error_code == 77
    lines[0].session.close(lines[0].now)
    assert to_client(lines[2].sends(message, 3)) == b""


def test_failed_refusal_forwards_join(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """If building the refusal fails, the error is logged and the join goes to the broker."""

    def fails(*_: object) -> bytes:
        raise RuntimeError("a fault of ours")

    state = limited(1)
    stable_group(state, "m1")
    monkeypatch.setattr(enforcement, "encode_reply", fails)
    line = Line(state)
    accepted = JoinGroupResponse(error_code=0, generation_id=2, protocol_name="range", leader="m1", member_id="m2")
    line.exchange(joining(), accepted, 3)
    assert {member.member_id for member in state.copy.manager.view("g", EPOCH + line.now).members} == {"m1", "m2"}
    assert "a fault of ours" in capsys.readouterr().out


# The turn of a join.


def test_waiting_join_does_not_count() -> None:
    """A join waits for the replies to earlier requests and does not count towards the limit before its turn."""
    state = limited(2)
    line, others = Line(state), [Line(state), Line(state)]
    before, join = request(1, 90), line.frame(joining(), 3)
    assert to_upstream(line.client(before, join)) == before
    assert not line.session.should_read_client
    for other in others:
        assert to_client(other.sends(joining(), 3)) == b""
    assert line.reads_reply(line.upstream(reply(90))[1:], joining(), 3).error_code == 77


def test_second_join_of_connection_waits() -> None:
    """The second of two joins on one connection waits at the sidecar and does not count towards the limit."""
    state = limited(2)
    line, message = Line(state), joining()
    first, second = line.frame(message, 3), line.frame(message, 3)
    assert to_upstream(line.client(first, second)) == first
    assert to_client(Line(state).sends(message, 3)) == b""


def test_refusal_waits_for_earlier_replies() -> None:
    """A refusal goes to the client after the replies to earlier requests."""
    state = limited(1)
    stable_group(state, "m1")
    line = Line(state)
    assert line.client(request(1, 90), line.frame(joining(), 3)) == [ToUpstream(request(1, 90))]
    commands = line.upstream(reply(90))
    assert commands[0] == ToClient(reply(90))
    assert line.reads_reply(commands[1:], joining(), 3).error_code == 77


def leaving(member_id: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=member_id),))


def test_leave_makes_room_for_next_join() -> None:
    """A leave makes room for a later join on the same connection."""
    facts: list[Fact] = []
    state = limited(1, facts)
    (line,) = stable_group(state, "m1")
    leave, join = line.frame(replace(leaving(""), member_id="m1", members=()), 2), line.frame(joining(), 3)
    assert line.client(leave, join) == [ToUpstream(leave)]
    commands = line.broker_replies(LeaveGroupResponse(error_code=0), 2, correlation=3)
    assert [type(command) for command in commands] == [ToClient, ToUpstream]
    assert to_upstream(commands) == join
    assert state.copy.manager.group_metadata_cache["g"].parked_ids  # The forwarded join occupies a place.
    assert not any(isinstance(fact, ClientRefused) for fact in facts)
    assert state.traffic.policy_evaluations == {"group_max_size": 2}
    assert state.traffic.policy_rejections == {}


def test_undelivered_refusal_is_not_recorded() -> None:
    """A refusal that is not delivered because the connection ends is not recorded."""
    facts: list[Fact] = []
    state = limited(1, facts)
    stable_group(state, "m1")
    line = Line(state)
    line.client(request(1, 90), line.frame(joining(), 3))
    assert isinstance(line.upstream_closed()[-1], Close)
    assert not any(isinstance(fact, ClientRefused) for fact in facts)


# Refusal of a member during a rebalance.


def rebalancing(facts: list[Fact]) -> tuple[BrokerState, list[Line]]:
    """Returns a group of three members with a limit of two. Two joins are parked, and the third is missing."""
    state = limited(3, facts)
    lines = stable_group(state, "m1", "m2", "m3")
    state.active_policies.replace([GroupMaxSize(GroupMaxSizeSettings(limit=2))])
    for line, member in zip(lines[:2], ("m1", "m2"), strict=True):
        assert to_client(line.sends(joining(member_id=member), 3)) == b""
    assert state.copy.manager.view("g", EPOCH + lines[0].now).state is GroupState.PREPARING_REBALANCE
    facts.clear()
    return state, lines


@pytest.mark.parametrize("client_id", ["m3", None])
def test_refused_member_leaves_at_broker_first(client_id: str | None) -> None:
    """During a rebalance, the sidecar removes a member at the broker with LeaveGroup before it refuses the join."""
    facts: list[Fact] = []
    state, _ = rebalancing(facts)
    line, message = Line(state, client_id), joining(member_id="m3")
    (removal,) = line.sends(message, 3)
    assert isinstance(removal, ToUpstream)
    assert int.from_bytes(removal.data[:4], "big") == len(removal.data) - 4
    header, body = decode_request_header(removal.data[4:], flexible=False)
    assert (header.api_key, header.api_version, header.correlation_id) == (ApiKey.LEAVE_GROUP, 0, REMOVAL_CORRELATION)
    assert header.client_id == client_id
    assert decode(LeaveGroupRequest, 0, body) == LeaveGroupRequest(group_id="g", member_id="m3")
    assert not line.session.should_read_client

    answer = line.broker_replies(LeaveGroupResponse(error_code=0), 0, correlation=REMOVAL_CORRELATION)
    assert line.reads_reply(answer, message, 3).error_code == 77
    gone = next(fact for fact in facts if isinstance(fact, MemberGone))
    assert (gone.member_id, gone.how) == ("m3", Departure.REMOVED_BY_POLICY)
    assert any(isinstance(fact, ClientRefused) for fact in facts)
    assert ApiKey.LEAVE_GROUP not in state.traffic.durations
    assert {m.member_id for m in state.copy.manager.view("g", EPOCH + line.now).members} == {"m1", "m2"}


def test_removal_waits_for_earlier_replies() -> None:
    """The sidecar sends the removal after the replies to earlier requests."""
    state, _ = rebalancing([])
    line = Line(state)
    assert line.client(request(1, 90), line.frame(joining(member_id="m3"), 3)) == [ToUpstream(request(1, 90))]
    commands = line.upstream(reply(90))
    assert to_client(commands) == reply(90)
    assert REQUEST_HEAD.unpack_from(to_upstream(commands))[1:] == (ApiKey.LEAVE_GROUP, 0, REMOVAL_CORRELATION)


def test_failed_removal_still_refuses_join() -> None:
    """The join is refused even if the broker refuses the removal or sends an unreadable reply."""
    for body in (b"\0\x19", b""):
        state, _ = rebalancing([])
        line, message = Line(state), joining(member_id="m3")
        line.sends(message, 3)
        answer = line.upstream(reply(REMOVAL_CORRELATION, body))
        assert line.reads_reply(answer, message, 3).error_code == 77


def test_parked_member_may_rejoin() -> None:
    """A parked member that joins again on another connection is not refused."""
    state, _ = rebalancing([])
    again = Line(state)
    assert to_client(again.sends(joining(member_id="m2"), 3)) == b""


# Incomplete copies.


def unsure(**policy: Any) -> BrokerState:
    """Returns the state of a broker whose groups have a limit, and whose clients may bypass the sidecar."""
    state = broker_state(policies={"group_max_size": {"limit": 1, **policy}}, answers={"authorizer": "none"})
    access_of(state).learn_anonymous_access(Origin("10.0.0.1"))
    return state


def described(state: str, *members: str, error_code: int = 0) -> DescribeGroupsResponse:
    described_members = (
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
        members=tuple(described_members),
    )
    return DescribeGroupsResponse(groups=(group,))


def broker_describes(line: Line, answer: DescribeGroupsResponse) -> list[Command]:
    """The broker replies to the sidecar's DescribeGroups."""
    return line.broker_replies(answer, 0, correlation=DESCRIPTION_CORRELATION)


def requests_description(commands: list[Command], client_id: str = "client") -> bool:
    """Whether the commands only send a DescribeGroups for group g to the broker, with the client's id."""
    frame = to_upstream(commands)
    header, body = decode_request_header(frame[4:], flexible=False)
    assert to_client(commands) == b""
    return (header.api_key, header.correlation_id, header.client_id) == (
        ApiKey.DESCRIBE_GROUPS,
        DESCRIPTION_CORRELATION,
        client_id,
    ) and decode(DescribeGroupsRequest, 0, body) == DescribeGroupsRequest(groups=("g",))


@pytest.mark.parametrize(
    ("description", "code"),
    [
        (described("Stable", "x"), 77),
        (described("AwaitingSync", "x"), 77),
        (described("Stable", "x", "y"), 77),
        (described("PreparingRebalance", "x"), 0),
        (described("Empty"), 0),
        (described("Dead"), 0),
    ],
)
def test_broker_confirms_uncertain_verdict(description: DescribeGroupsResponse, code: int) -> None:
    """If the copy is uncertain, the broker describes the group before the sidecar judges the join."""
    state = unsure()
    line, message = Line(state), joining()
    join = line.frame(message, 3)
    assert requests_description(line.client(join))
    assert not line.session.should_read_client
    commands = broker_describes(line, description)
    if code:
        assert line.reads_reply(commands, message, 3).error_code == code
    else:
        assert commands == [ToUpstream(join)]
    assert state.traffic.policy_evaluations == {"group_max_size": 1}


def test_join_passes_if_broker_cannot_describe() -> None:
    """A join passes after the broker has failed MAX_CONFIRMATIONS times to describe the group."""
    line, message = Line(unsure()), joining()
    join = line.frame(message, 3)
    commands = line.client(join)
    for _ in range(MAX_CONFIRMATIONS):
        assert requests_description(commands)
        commands = broker_describes(line, described("", error_code=30))
    assert commands == [ToUpstream(join)]


def test_last_of_many_descriptions_counts() -> None:
    """After MAX_CONFIRMATIONS descriptions, the last one counts, although the group has changed since its request."""
    state = unsure()
    line, message = Line(state), joining()
    commands = line.client(line.frame(message, 3))
    for generation in range(MAX_CONFIRMATIONS):
        assert requests_description(commands)
        heartbeat = HeartbeatRequest(group_id="g", generation_id=generation + 1, member_id="x")
        later = Line(state)
        later.now = line.now = line.now + 0.1
        later.exchange(heartbeat, HeartbeatResponse(error_code=0), 3)
        commands = broker_describes(line, described("Stable", "x"))
    assert line.reads_reply(commands, message, 3).error_code == 77


def test_failed_judgement_after_confirmation_forwards_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the sidecar fails after the broker has described the group, the join goes to the broker."""
    line, message = Line(unsure()), joining()
    join = line.frame(message, 3)
    assert requests_description(line.client(join))

    def fails(*_: object) -> None:
        raise RuntimeError("a fault of the policy")

    monkeypatch.setattr(GroupMaxSize, "judge", fails)
    assert broker_describes(line, described("Stable", "x")) == [ToUpstream(join)]


def test_confirmation_with_odd_client_id() -> None:
    """The confirming request contains a shortened replacement for a client id that is not valid UTF-8."""
    line, message = Line(unsure(), client_id="x" * 0x7FFF), joining()
    join = line.frame(message, 3).replace(b"x" * 0x7FFF, b"\xff" * 0x7FFF)
    assert requests_description(line.client(join), "\ufffd" * 0x1FFF)
    assert line.reads_reply(broker_describes(line, described("Stable", "x")), message, 3).error_code == 77


def test_no_confirmation_without_describe_groups() -> None:
    """With a broker without DescribeGroups, the sidecar judges joins from the copy alone."""
    state = unsure()
    state.versions.learn({int(ApiKey.JOIN_GROUP): (0, 3)})
    first, second, message = Line(state), Line(state), joining()
    join = first.frame(message, 3)
    assert first.client(join) == [ToUpstream(join)]
    assert second.reads_reply(second.sends(message, 3), message, 3).error_code == 77


def test_confirmation_is_valid_for_one_second() -> None:
    """The broker's description of a group decides further joins for one second."""
    state = unsure()
    first, message = Line(state), joining()
    first.sends(message, 3)
    assert first.reads_reply(broker_describes(first, described("Stable", "x")), message, 3).error_code == 77
    again = Line(state)
    again.now += 0.9
    assert again.reads_reply(again.sends(message, 3), message, 3).error_code == 77
    again.now += 0.2
    assert requests_description(again.sends(message, 3))


def test_leave_invalidates_confirmation() -> None:
    """A leave invalidates the broker's earlier description of the group."""
    state = unsure()
    line, message = Line(state), joining()
    line.sends(message, 3)
    assert line.reads_reply(broker_describes(line, described("Stable", "x")), message, 3).error_code == 77
    leaving_by_instance = LeaveGroupRequest(
        group_id="g", members=(MemberIdentity(member_id="", group_instance_id="i"),)
    )
    left = MemberResponse(member_id="", group_instance_id="i", error_code=0)
    Line(state).exchange(leaving_by_instance, LeaveGroupResponse(error_code=0, members=(left,)), 3)
    assert requests_description(line.sends(message, 3))


def test_expired_members_need_confirmation() -> None:
    """If a member's session must have expired, the broker describes the group before the verdict."""
    state = limited(1)
    stable_group(state, "m1")
    line = Line(state)
    line.now += 31
    join = line.frame(joining(), 3)
    assert requests_description(line.client(join))
    assert broker_describes(line, described("Empty")) == [ToUpstream(join)]


def test_lost_join_counts_for_one_second() -> None:
    """A join whose connection closed counts towards the limit for one second, because the join may still arrive."""
    state = limited(1)
    gone, message = Line(state), joining()
    gone.sends(message, 3)
    gone.session.close(gone.now)
    early, late = Line(state), Line(state)
    early.now += 0.1
    assert requests_description(early.client(early.frame(message, 3)))
    assert early.reads_reply(broker_describes(early, described("Empty")), message, 3).error_code == 77, (
        "the lost join may still arrive"
    )
    late.now += 1.1
    join = late.frame(message, 3)
    assert requests_description(late.client(join))
    assert broker_describes(late, described("Empty")) == [ToUpstream(join)], "the lost join no longer counts"


def test_arrived_lost_join_keeps_counting() -> None:
    """A lost join that arrived at the broker counts towards the limit until the next generation."""
    state = limited(1)
    gone, message = Line(state), joining()
    gone.sends(message, 3)
    gone.session.close(gone.now)
    for seconds in (1.1, 2.2):
        line = Line(state)
        line.now += seconds
        assert requests_description(line.client(line.frame(message, 3)))
        assert (
            line.reads_reply(broker_describes(line, described("PreparingRebalance", "x")), message, 3).error_code == 77
        )
    line = Line(state)
    line.now += 3.3
    assert requests_description(line.client(line.frame(message, 3)))
    assert line.reads_reply(broker_describes(line, described("Stable", "x")), message, 3).error_code == 77


def test_certain_copy_needs_no_confirmation() -> None:
    """A certain copy decides a join without a request to the broker."""
    state = limited(2)
    (line,) = stable_group(state, "m1")
    join = line.frame(joining(member_id="m1"), 3)
    assert line.client(join) == [ToUpstream(join)]


# Clients that retry.


def test_retries_get_longer_throttle_times() -> None:
    """Each refused retry on a connection gets a longer throttle time, up to 30 s; another connection starts at 0."""
    state = limited(1)
    stable_group(state, "m1")
    line, message = Line(state), joining()
    waits = []
    for _ in range(12):
        waits.append(line.reads_reply(line.sends(message, 3), message, 3).throttle_time_ms)
        line.now += 1
    assert waits == [0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
    other = Line(state)
    assert other.reads_reply(other.sends(message, 3), message, 3).throttle_time_ms == 0


# Audit mode.


def test_audit_mode_forwards_and_records() -> None:
    """In audit mode, a join above the limit passes, and its refusal is recorded and counted as an audit."""
    facts: list[Fact] = []
    state = complete_state(facts.append, policies={"group_max_size": {"limit": 1, "mode": "audit"}})
    stable_group(state, "m1")
    line = Line(state)
    join = line.frame(joining(), 3)
    assert line.client(join) == [ToUpstream(join)]
    (fact,) = [fact for fact in facts if isinstance(fact, ClientRefused)]
    assert (fact.enforced, fact.size, fact.limit) == (False, 1, 1)
    assert state.traffic.policy_audits == {("group_max_size", 77): 1}
    assert state.traffic.policy_rejections == {}


# Frames above the decode limit.


def test_overlong_join_closes_under_policy() -> None:
    """A join longer than limits.inspected_frame closes its connection, so that the join cannot bypass the limit."""
    state = complete_state(policies={"group_max_size": {"limit": 1}}, limits={"inspected_frame": 1024})
    stable_group(state, "m1")
    line = Line(state)
    message = replace(joining(), protocols=(JoinGroupProtocol(name="range", metadata=bytes(5000)),))
    assert line.sends(message, 3) == [Close(CloseReason.REQUEST_TOO_LONG)]


# Members of consumer groups (KIP-848).


def beating(member_id: str, epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)


def let_in(member_id: str, epoch: int = 1) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=0, member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=5000
    )


@pytest.mark.parametrize("version", ConsumerGroupHeartbeatRequest.VERSIONS)
def test_full_consumer_group_refuses_new_members(version: int) -> None:
    """A full consumer group refuses new members with Kafka's reply until a member leaves."""
    state = complete_state(policies={"group_max_size": {"consumer_max_size": 1}})
    member, late = Line(state), Line(state)
    member.exchange(beating("a"), let_in("a"), version)
    message = beating("b")
    answer = late.reads_reply(late.sends(message, version), message, version)
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


def test_in_flight_consumer_members_count() -> None:
    """A new consumer group member in flight counts towards the limit until the broker refuses it."""
    state = complete_state(policies={"group_max_size": {"consumer_max_size": 1}})
    first, second = Line(state), Line(state)
    assert to_client(first.sends(beating("a"), 1)) == b""
    assert second.reads_reply(second.sends(beating("b"), 1), beating("b"), 1).error_code == 81
    refused = ConsumerGroupHeartbeatResponse(throttle_time_ms=0, error_code=42, member_epoch=0, heartbeat_interval_ms=0)
    first.broker_replies(refused, 1)
    second.exchange(beating("b"), let_in("b"), 1)


def test_classic_limit_spares_consumer_groups() -> None:
    """The limit of classic groups does not apply to consumer groups."""
    state = limited(1)
    for member in "abc":
        Line(state).exchange(beating(member), let_in(member), 1)
