"""Tests the shrinking of groups over their limit: which members are removed, and how many groups at a time."""

from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.coordinator.model.events import JoiningMember, JoinSent, RebalanceSeen
from group_sidecar.coordinator.model.facts import Departure, MemberGone
from group_sidecar.coordinator.model.views import GroupState
from group_sidecar.proxy.broker.shrink import GROUPS_A_SECOND, LONGEST_RETRY, REMEMBERED_SECONDS
from tests.proxy.broker.shrink_stage import BROKER, Stage, limited, staged
from tests.proxy.scripted_broker import HangUp, MemoryNetwork, Said, ScriptedBroker

Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The log lines."""
    with structlog.testing.capture_logs() as captured:
        yield captured


@pytest.fixture(params=[True, False], ids=["exclusive", "not exclusive"])
async def stage(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, lines: Lines
) -> Stage:
    network, broker = MemoryNetwork(nursery), ScriptedBroker()
    network.brokers[BROKER] = broker
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    stage = staged(broker, exclusive=request.param)
    nursery.start_soon(stage.run)
    return stage


def removed(stage: Stage) -> list[str]:
    gone = [fact for fact in stage.facts if isinstance(fact, MemberGone)]
    return [fact.member_id for fact in gone if fact.how is Departure.REMOVED_BY_POLICY]


async def test_newest_members_are_removed(stage: Stage, autojump_clock: MockClock) -> None:
    """A group over its limit loses the members that joined last."""
    stage.gather("g", "xy")
    await trio.sleep(5)
    stage.gather("g", "bxay", leader="x")
    await trio.sleep(5)
    stage.gather("g", "bxa0y", leader="x")
    stage.limit(3)
    await trio.sleep(60)
    assert [members for _, _, members in stage.left] == [("b", "0")]
    assert set(stage.groups["g"].members) == {"x", "y", "a"}


async def test_leader_is_not_removed(stage: Stage, autojump_clock: MockClock) -> None:
    """The leader is not removed although it joined last."""
    stage.gather("g", "abc")
    await trio.sleep(5)
    stage.gather("g", "abcz", leader="z")
    stage.limit(1)
    await trio.sleep(60)
    assert set(stage.groups["g"].members) == {"z"}


async def test_members_leave_in_one_request(stage: Stage, autojump_clock: MockClock) -> None:
    """All surplus members of a group are removed in one LeaveGroup request with a reason."""
    stage.gather("g", "abcde")
    stage.limit(3)
    await trio.sleep(60)
    [request] = stage.broker.requests(LeaveGroupRequest)
    assert [(m.member_id, m.group_instance_id) for m in request.members] == [("d", None), ("e", None)]
    assert {m.reason for m in request.members} == {"The group has 5 members, where 3 are allowed."}


async def test_static_members_leave_by_instance_id(stage: Stage, autojump_clock: MockClock) -> None:
    """Static members are removed by their instance ids."""
    stage.gather("g", "abc", static=True)
    stage.limit(1)
    await trio.sleep(60)
    [request] = stage.broker.requests(LeaveGroupRequest)
    assert [(m.member_id, m.group_instance_id) for m in request.members] == [("", "B"), ("", "C")]
    assert removed(stage) == ["b", "c"]


async def test_old_broker_gets_request_per_member(stage: Stage, autojump_clock: MockClock) -> None:
    """A broker without batched LeaveGroup gets one request for each member."""
    stage.broker.versions = {LeaveGroupRequest: (0, 2), DescribeGroupsRequest: (0, 1)}
    stage.gather("g", "abcde")
    stage.limit(3)
    await trio.sleep(60)
    assert [members for _, _, members in stage.left] == [("d",), ("e",)]
    assert [fact.client_id for fact in stage.refused()] == ["client d", "client e"]


async def test_removal_reports_members_and_limit(stage: Stage, autojump_clock: MockClock, lines: Lines) -> None:
    """A removal reports a refusal for each member with size and limit, and logs one line for the group."""
    stage.gather("g", "abcde")
    stage.limit(3, error_code=81)
    await trio.sleep(60)
    assert removed(stage) == ["d", "e"]
    first, second = stage.refused()
    assert (first.group_id, first.policy, first.error_code) == ("g", "group_max_size", 81)
    assert (first.client_id, first.client_host, first.size, first.limit) == ("client d", "/host-d", 5, 3)
    assert first.enforced
    assert second.client_id == "client e"
    [line] = lines
    assert (line["event"], line["group"], line["size"], line["limit"], line["removed"]) == (
        "group shrunk",
        "g",
        5,
        3,
        2,
    )
    assert stage.state.copy.manager.view("g", trio.current_time()).state is GroupState.PREPARING_REBALANCE


async def test_group_within_limit_is_unchanged(stage: Stage, autojump_clock: MockClock) -> None:
    """A group within its limit causes no request."""
    stage.gather("g", "abc")
    stage.limit(3)
    await trio.sleep(60)
    assert stage.broker.asked == []


async def test_no_limit_causes_no_request(stage: Stage, autojump_clock: MockClock) -> None:
    """Without a limit, no request is sent."""
    stage.gather("g", "abc")
    await trio.sleep(60)
    assert stage.broker.asked == []


async def test_lowered_limit_applies_at_once(stage: Stage, autojump_clock: MockClock) -> None:
    """A lowered limit shrinks the group within seconds."""
    stage.gather("g", "abcde")
    stage.limit(5)
    await trio.sleep(60)
    for most in (4, 2):
        stage.limit(most)
        await trio.sleep(3)
        assert len(stage.groups["g"].members) == most
        stage.gather("g", list(stage.groups["g"].members))


async def test_rebalancing_group_is_not_shrunk(stage: Stage, autojump_clock: MockClock) -> None:
    """A group that the broker describes as rebalancing is not shrunk until it is stable."""
    stage.gather("g", "abcde")
    stage.groups["g"].state = "PreparingRebalance"
    stage.limit(3)
    await trio.sleep(60)
    assert stage.broker.requests(DescribeGroupsRequest)
    assert stage.left == []
    stage.gather("g", "abcde")
    await trio.sleep(60)
    assert len(stage.left) == 1


async def test_known_rebalance_sends_no_request(stage: Stage, autojump_clock: MockClock) -> None:
    """A group that the copy knows to rebalance is not described."""
    stage.gather("g", "abcde")
    now = trio.current_time()
    stage.state.copy.apply(
        [RebalanceSeen(group_id="g", sent_at=now, member_id="a", generation=1, is_heartbeat=True)], now
    )
    stage.limit(3)
    await trio.sleep(60)
    assert stage.broker.asked == []


async def test_disagreement_postpones_removal(stage: Stage, autojump_clock: MockClock) -> None:
    """No member is removed until the broker's description and the copy agree."""
    stage.gather("g", "abcde")
    describe = stage.broker.answers[DescribeGroupsRequest]

    def overtaken(request: DescribeGroupsRequest, version: int) -> Said:
        assert callable(describe)
        description = describe(request, version)
        stage.broker.answers[DescribeGroupsRequest] = describe
        stage.gather("g", "abcdef")
        return description

    stage.broker.answers[DescribeGroupsRequest] = overtaken
    stage.limit(3)
    await trio.sleep(60)
    assert len(stage.broker.requests(DescribeGroupsRequest)) == 2
    assert [members for _, _, members in stage.left] == [("d", "e", "f")]


async def test_rejoining_member_is_not_removed(stage: Stage, autojump_clock: MockClock) -> None:
    """A member that joins again between two requests is not removed."""
    stage.broker.versions = {LeaveGroupRequest: (0, 2)}
    leave = stage.broker.answers[LeaveGroupRequest]
    joining = JoiningMember(
        token="1:1",
        member_id="e",
        instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocol_type="consumer",
        protocols=(),
        will_park=True,
    )

    def while_another_joins(request: LeaveGroupRequest, version: int) -> Said:
        assert callable(leave)
        now = trio.current_time()
        stage.state.copy.apply([JoinSent(group_id="g", sent_at=now, joining=joining)], now)
        return leave(request, version)

    stage.broker.answers[LeaveGroupRequest] = while_another_joins
    stage.gather("g", "abcde")
    stage.limit(3)
    await trio.sleep(60)
    assert [members for _, _, members in stage.left] == [("d",)]


async def test_audit_mode_reports_once_per_generation(stage: Stage, autojump_clock: MockClock, lines: Lines) -> None:
    """In audit mode, surplus members are reported once for each generation and not removed."""
    stage.gather("g", "abcde")
    stage.limit(3, "audit")
    await trio.sleep(60)
    stage.state.active_policies.replace([limited(3, "audit")])
    await trio.sleep(60)
    assert [(fact.client_id, fact.enforced) for fact in stage.refused()] == [("client d", False), ("client e", False)]
    [line] = lines
    assert (line["event"], line["group"], line["surplus"]) == ("group over its limit", "g", 2)
    assert len(stage.broker.asked) == 1
    stage.gather("g", "abcde")
    await trio.sleep(60)
    assert (len(stage.refused()), len(lines), stage.left) == (4, 2, [])


async def test_enforcing_policy_acts_despite_audit(stage: Stage, autojump_clock: MockClock) -> None:
    """An enforcing policy removes members although another policy only audits."""
    stage.gather("g", "abcde")
    stage.state.active_policies.replace([limited(4), limited(1, "audit"), limited(3)])
    await trio.sleep(60)
    assert [fact.enforced for fact in stage.refused()] == [False] * 4 + [True] * 2
    assert len(stage.groups["g"].members) == 3


async def test_many_groups_are_shrunk_gradually(stage: Stage, autojump_clock: MockClock) -> None:
    """The number of groups shrunk in one second is bounded."""
    for number in range(5 * GROUPS_A_SECOND):
        stage.gather(f"g{number}", "ab")
    stage.limit(1)
    await trio.sleep(60)
    assert len({group for _, group, _ in stage.left}) == len(stage.left) == 5 * GROUPS_A_SECOND
    times = [at for at, _, _ in stage.left]
    for first, later in zip(times, times[GROUPS_A_SECOND:], strict=False):
        assert later - first >= 0.999
    assert times[-1] - times[0] < 10


async def test_refilled_group_is_shrunk_with_backoff(stage: Stage, autojump_clock: MockClock) -> None:
    """A group that fills up repeatedly is shrunk with growing pauses, which reset after a time within its limit."""
    stage.limit(1)
    for _ in range(100):
        stage.gather("g", "ab")
        await trio.sleep(10)
    times = [at for at, _, _ in stage.left]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses == sorted(pauses)
    assert 6 <= len(times) <= 12
    stage.gather("g", "a")
    await trio.sleep(REMEMBERED_SECONDS)
    before = len(stage.left)
    for _ in range(2):
        stage.gather("g", "ab")
        await trio.sleep(5)
    assert len(stage.left) == before + 2


@pytest.mark.parametrize("described", ["", "xx", "h", "hx", "xh"], ids=["none", "twice", "other", "after", "before"])
async def test_odd_description_skips_one_group(
    stage: Stage, autojump_clock: MockClock, lines: Lines, described: str
) -> None:
    """A description without the requested group, or with several groups, postpones that group alone."""
    for name in "xh":
        stage.gather(name, "abc")
    describe = stage.broker.answers[DescribeGroupsRequest]

    def oddly(request: DescribeGroupsRequest, version: int) -> Said:
        assert callable(describe)
        named = tuple(described) if request.groups == ("x",) else request.groups
        return describe(replace(request, groups=named), version)

    stage.broker.answers[DescribeGroupsRequest] = oddly
    stage.limit(2)
    await trio.sleep(5)
    assert [(group, members) for _, group, members in stage.left] == [("h", ("c",))]
    assert [line["event"] for line in lines] == ["group shrunk"]
    stage.broker.answers[DescribeGroupsRequest] = describe
    await trio.sleep(LONGEST_RETRY)
    assert len(stage.groups["x"].members) == 2


@pytest.mark.parametrize("api", [LeaveGroupRequest, DescribeGroupsRequest])
async def test_missing_right_is_logged_once(stage: Stage, autojump_clock: MockClock, lines: Lines, api: type) -> None:
    """A missing right is logged once and retried with growing pauses until it is granted."""
    stage.gather("g", "ab")
    stage.gather("h", "ab")
    stage.denies = {api}
    stage.limit(1)
    await trio.sleep(100)
    [line] = lines
    assert (line["event"], line["log_level"]) == ("groups may not be shrunk", "warning")
    assert "READ" in line["hint"]
    assert stage.refused() == []
    assert 2 * 5 <= len(stage.broker.requests(DescribeGroupsRequest)) <= 2 * 8
    stage.denies = set()
    await trio.sleep(LONGEST_RETRY)
    assert len(stage.groups["g"].members) == len(stage.groups["h"].members) == 1


async def test_departed_member_is_not_reported(stage: Stage, autojump_clock: MockClock) -> None:
    """A member that left on its own is not reported as removed."""
    stage.gather("g", "abc")
    leave = stage.broker.answers[LeaveGroupRequest]

    def too_late(request: LeaveGroupRequest, version: int) -> Said:
        stage.groups["g"].members.pop("c", None)
        assert callable(leave)
        return leave(request, version)

    stage.broker.answers[LeaveGroupRequest] = too_late
    stage.limit(1)
    await trio.sleep(1.5)
    assert [fact.client_id for fact in stage.refused()] == ["client b"]


async def test_hangup_puts_group_in_doubt(stage: Stage, autojump_clock: MockClock) -> None:
    """A connection that closes during a removal makes the members unknown. The removal is repeated."""
    stage.gather("g", "abc")
    answer, stage.broker.answers[LeaveGroupRequest] = stage.broker.answers[LeaveGroupRequest], HangUp()
    stage.limit(1)
    await trio.sleep(1.5)
    assert not stage.state.copy.manager.view("g", trio.current_time()).roster_known
    stage.broker.answers[LeaveGroupRequest] = answer
    await trio.sleep(30)
    assert len(stage.groups["g"].members) == 1


async def test_unread_log_postpones_shrinking(stage: Stage, autojump_clock: MockClock) -> None:
    """No group is shrunk before the log is read to its end."""
    stage.gather("g", "abc")
    list(stage.state.copy.manager.log.connection_lost(trio.current_time(), coordinator_loaded=False))
    stage.limit(1)
    await trio.sleep(10)
    assert stage.broker.asked == []
    stage.state.copy.manager.log.coordinator_loaded(0, trio.current_time())
    await trio.sleep(10)
    assert len(stage.left) == 1


async def test_consumer_protocol_group_is_not_shrunk(stage: Stage, autojump_clock: MockClock) -> None:
    """A group of the consumer protocol is not shrunk."""
    stage.gather("g", "abc")
    group = stage.state.copy.manager.group_metadata_cache["g"]
    group.lifecycle.become_consumer(0)
    stage.limit(1, consumer_max_size=1)
    await trio.sleep(10)
    assert stage.broker.asked == []
