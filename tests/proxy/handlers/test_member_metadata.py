"""Members whose metadata exceeds the bound: the copy still follows their group, and the broker describes the group."""

from typing import Any

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.events import JoiningMember, JoinSent
from group_sidecar.coordinator.model.views import FallbackReason, GroupState
from group_sidecar.coordinator.state.bounded_table import TABLE_BYTES
from group_sidecar.proxy.broker.broker_state import BrokerState
from tests.proxy.dataplane.playbook import EPOCH, Line, complete_state, joining, stable_group, to_upstream

DESCRIBE = DescribeGroupsRequest(groups=("g",))
NOW = EPOCH + 100


def crowded(max_bytes: int, **settings: Any) -> BrokerState:
    """Returns a copy with this bound on member metadata."""
    state = complete_state(**settings)
    state.copy.manager._cache.metadata.max_bytes = max_bytes
    return state


def kept(state: BrokerState) -> int:
    """Returns the bytes of member metadata in the copy."""
    return {table.name: table.bytes for table in state.copy.manager.tables()}["member_metadata"]


def swept(state: BrokerState) -> int:
    for _ in state.copy.manager.sweep(NOW):
        pass
    return kept(state)


@pytest.mark.parametrize("most", [30, 40, 60])
def test_group_without_room_is_still_followed(most: int) -> None:
    """A group whose metadata has no room is listed and judged locally, and only its description goes to the broker."""
    state = crowded(most, policies={"group_max_size": {"limit": 2}})
    stable_group(state, "m1", "m2")
    view = state.copy.manager.view("g", NOW)
    assert (view.state, [member.member_id for member in view.members]) == (GroupState.STABLE, ["m1", "m2"])
    assert state.copy.manager.group_fallback_reason("g", NOW) is FallbackReason.COLD
    assert state.copy.manager.overflowed > 0
    assert kept(state) <= most
    line = Line(state)
    assert to_upstream(line.sends(DESCRIBE, 3)) != b""
    line = Line(state)
    assert line.reads_reply(line.sends(ListGroupsRequest(), 2), ListGroupsRequest(), 2).groups[0].group_id == "g"
    line = Line(state)
    request = joining()
    assert line.reads_reply(line.sends(request, 3), request, 3).error_code == 77


@pytest.mark.parametrize("most", [40, 1000])
def test_rebalance_without_metadata_is_confirmed(most: int) -> None:
    """If the copy had no room for the metadata that a verdict needs, the broker describes the group first."""
    state = crowded(most, policies={"group_max_size": {"limit": 2}})
    lines = stable_group(state, "m1", "m2")
    lines[1].sends(joining(member_id="m2"), 3)
    newcomer = Line(state)
    request = to_upstream(newcomer.sends(joining(), 3))
    assert request[4:6] == (b"" if most > 40 else ApiKey.DESCRIBE_GROUPS.to_bytes(2, "big"))


def described() -> DescribeGroupsResponse:
    """Returns the broker's description of the group that `stable_group` creates."""
    member = DescribedGroupMember(
        member_id="m1",
        client_id="m1",
        client_host="/10.1.1.1",
        member_metadata=b"subscription",
        member_assignment=b"for m1",
    )
    group = DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=(member,),
    )
    return DescribeGroupsResponse(groups=(group,))


@pytest.mark.parametrize("room", [False, True])
def test_description_is_kept_once_there_is_room(room: bool) -> None:
    """The copy keeps the metadata of a broker's description if there is room, and answers the next question."""
    state = crowded(0)
    stable_group(state, "m1")
    if room:
        state.copy.manager._cache.metadata.max_bytes = 1000
    line = Line(state)
    assert to_upstream(line.sends(DESCRIBE, 4)) != b""
    line.broker_replies(described(), 4)
    assert state.copy.manager.group_fallback_reason("g", NOW) is (None if room else FallbackReason.COLD)
    if room:
        description = line.reads_reply(line.sends(DESCRIBE, 4), DESCRIBE, 4).groups[0]
        assert (description.members[0].member_metadata, description.members[0].member_assignment) == (
            b"subscription",
            b"for m1",
        )


def test_metadata_bytes_match_kept_metadata() -> None:
    """The counted metadata bytes match the kept metadata after joins, leaves and removal of the group."""
    state = crowded(1000)
    lines = stable_group(state, "m1", "m2")
    each = len(b"subscription") + len(b"for m1")
    assert kept(state) >= 2 * each
    assert swept(state) == 2 * each
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m1")
    lines[0].exchange(beat, HeartbeatResponse(error_code=0), 3)
    lines[1].exchange(LeaveGroupRequest(group_id="g", member_id="m2"), LeaveGroupResponse(error_code=0), 1)
    assert swept(state) == each
    lines[0].exchange(LeaveGroupRequest(group_id="g", member_id="m1"), LeaveGroupResponse(error_code=0), 1)
    assert swept(state) == 0
    state.copy.manager.forget_group_state("g", NOW)
    stable_group(state, "m1")
    state.copy.manager.forget_group_state("g", NOW)
    assert kept(state) == 0


def test_large_metadata_stays_within_bound() -> None:
    """Joins with 16 MiB of metadata each do not grow the copy beyond TABLE_BYTES."""
    manager = GroupMetadataManager(exclusive=True, max_groups=100)
    manager.set_existing_groups(())
    metadata = bytes(1 << 24)
    for number in range(20):
        join = JoiningMember(
            token=str(number),
            member_id="",
            instance_id=None,
            client_id="c",
            client_host="/10.0.0.1",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("range", metadata),),
            will_park=True,
        )
        manager.apply([JoinSent(group_id=f"g{number}", sent_at=1, joining=join)], 1)
    joins = [sent.joining for group in manager.group_metadata_cache.values() for sent in group.joins.values()]
    assert len(joins) == 20
    assert sum(len(content) for join in joins for _, content in join.protocols) <= TABLE_BYTES


def test_metadata_of_waiting_joins_is_counted() -> None:
    """The metadata of joins in flight stays counted after the copy drops the state of their group."""
    state = complete_state()
    Line(state).sends(joining(), 3)
    before = kept(state)
    assert before > 0
    state.copy.manager.forget_group_state("g", NOW)
    assert kept(state) == before
    assert swept(state) == before
