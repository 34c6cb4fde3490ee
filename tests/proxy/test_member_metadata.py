"""Members whose metadata finds no room: their group is followed all the same, and the broker describes it."""

from typing import Any

import pytest

from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.coordinator.bounded import TABLE_BYTES
from group_sidecar.coordinator.events import Joining, JoinSent
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.views import GroupState, Lacking
from group_sidecar.proxy.broker_copy import BrokerCopy
from tests.proxy.playbook import EPOCH, Line, certain_copy, joining, settled, to_upstream

DESCRIBE = DescribeGroupsRequest(groups=("g",))
NOW = EPOCH + 100


def crowded(most_bytes: int, **settings: Any) -> BrokerCopy:
    """A copy with so much room."""
    copy = certain_copy(**settings)
    copy.manager._cache.metadata.most_bytes = most_bytes
    return copy


def kept(copy: BrokerCopy) -> int:
    """Bytes, as they were counted last."""
    return {table.name: table.bytes for table in copy.manager.tables()}["member_metadata"]


def swept(copy: BrokerCopy) -> int:
    for _ in copy.manager.sweep(NOW):
        pass
    return kept(copy)


@pytest.mark.parametrize("most", [30, 40, 60])
def test_a_group_without_room_is_followed_and_the_broker_describes_it(most: int) -> None:
    copy = crowded(most, policies={"group_max_size": {"limit": 2}})
    settled(copy, "m1", "m2")
    view = copy.manager.view("g", NOW)
    assert (view.state, [member.member_id for member in view.members]) == (GroupState.STABLE, ["m1", "m2"])
    assert copy.manager.group_lacking("g", NOW) is Lacking.COLD
    assert copy.manager.overflowed > 0
    assert kept(copy) <= most
    line = Line(copy)
    assert to_upstream(line.says(DESCRIBE, 3)) != b""
    line = Line(copy)
    assert line.reads(line.says(ListGroupsRequest(), 2), ListGroupsRequest(), 2).groups[0].group_id == "g"
    line = Line(copy)
    request = joining()
    assert line.reads(line.says(request, 3), request, 3).error_code == 77


@pytest.mark.parametrize("most", [40, 1000])
def test_where_only_metadata_says_whether_a_rebalance_began_the_broker_is_asked(most: int) -> None:
    copy = crowded(most, policies={"group_max_size": {"limit": 2}})
    lines = settled(copy, "m1", "m2")
    lines[1].says(joining(member_id="m2"), 3)
    newcomer = Line(copy)
    asked = to_upstream(newcomer.says(joining(), 3))
    assert asked[4:6] == (b"" if most > 40 else ApiKey.DESCRIBE_GROUPS.to_bytes(2, "big"))


def described() -> DescribeGroupsResponse:
    """What the broker says of the group that `settled` makes."""
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
def test_what_the_broker_says_of_a_group_is_kept_once_there_is_room(room: bool) -> None:
    copy = crowded(0)
    settled(copy, "m1")
    if room:
        copy.manager._cache.metadata.most_bytes = 1000
    line = Line(copy)
    assert to_upstream(line.says(DESCRIBE, 3)) != b""
    line.broker_says(described(), 3)
    assert copy.manager.group_lacking("g", NOW) is (None if room else Lacking.COLD)
    if room:
        told = line.reads(line.says(DESCRIBE, 3), DESCRIBE, 3).groups[0]
        assert (told.members[0].member_metadata, told.members[0].member_assignment) == (b"subscription", b"for m1")


def test_what_is_counted_is_what_is_kept() -> None:
    copy = crowded(1000)
    lines = settled(copy, "m1", "m2")
    each = len(b"subscription") + len(b"for m1")
    assert kept(copy) >= 2 * each
    assert swept(copy) == 2 * each
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m1")
    lines[0].exchange(beat, HeartbeatResponse(error_code=0), 3)
    lines[1].exchange(LeaveGroupRequest(group_id="g", member_id="m2"), LeaveGroupResponse(error_code=0), 1)
    assert swept(copy) == each
    lines[0].exchange(LeaveGroupRequest(group_id="g", member_id="m1"), LeaveGroupResponse(error_code=0), 1)
    assert swept(copy) == 0
    copy.manager.relearn("g", NOW)
    settled(copy, "m1")
    copy.manager.relearn("g", NOW)
    assert kept(copy) == 0


def test_members_with_16_mib_of_metadata_do_not_grow_the_copy_beyond_its_bound() -> None:
    """The broker keeps the metadata of each member. The copy kept all of it too, 16 MiB for each join."""
    manager = GroupMetadataManager(exclusive=True, most_groups=100)
    manager.inherit(())
    metadata = bytes(1 << 24)
    for number in range(20):
        join = Joining(
            token=str(number),
            member_id="",
            instance_id=None,
            client_id="c",
            client_host="/10.0.0.1",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("range", metadata),),
            parks=True,
        )
        manager.apply([JoinSent(group_id=f"g{number}", sent_at=1, joining=join)], 1)
    joins = [sent.joining for group in manager.group_metadata_cache.values() for sent in group.joins.values()]
    assert len(joins) == 20
    assert sum(len(content) for join in joins for _, content in join.protocols) <= TABLE_BYTES


def test_metadata_of_joins_that_outlast_what_is_known_of_their_group_is_counted() -> None:
    """The partition of the group was lost, for instance. Its joins still wait at the broker."""
    copy = certain_copy()
    Line(copy).says(joining(), 3)
    before = kept(copy)
    assert before > 0
    copy.manager.relearn("g", NOW)
    assert kept(copy) == before
    assert swept(copy) == before
