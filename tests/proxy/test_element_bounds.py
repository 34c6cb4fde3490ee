"""What would hold up all clients is left to the broker, and what it changed is learnt again."""

import pytest

from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.events import DescribedMember, GroupDescribed
from group_sidecar.coordinator.views import GroupState, Lacking
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.commands import ToUpstream
from group_sidecar.proxy.element_bounds import GROUP_COST, JUDGED_COMMIT_TIMES, JUDGED_TIMES, MEMBER_COST, ElementBounds
from tests.proxy.playbook import Line, certain_copy, settled, to_upstream

MOST = 100
LIMITS = {"inspected_elements": MOST}
FEW, MANY = 10, MOST // MEMBER_COST + 1
"""Members of a group that is described here, and of one that is not."""


def members(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


def is_forwarded(line: Line, request: Struct, version: int) -> bool:
    """Whether a question goes to the broker as it came; else it is answered."""
    frame = line.frame(request, version)
    return line.client(frame) == [ToUpstream(frame)]


def test_the_bounds_of_apis_follow_from_one_setting() -> None:
    small, large = ElementBounds(MOST), ElementBounds(10 * MOST)
    for key in (ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP, ApiKey.JOIN_GROUP, ApiKey.DESCRIBE_GROUPS):
        assert large.request(key) == 10 * small.request(key)
        assert large.reply(key) == 10 * small.reply(key)
        assert 1 <= small.reply(key) <= MOST
    assert small.request(ApiKey.OFFSET_COMMIT) == MOST
    assert small.request(ApiKey.OFFSET_COMMIT, judged=True) == JUDGED_COMMIT_TIMES * MOST
    assert small.request(ApiKey.JOIN_GROUP, judged=True) == JUDGED_TIMES * MOST
    assert small.request(ApiKey.LEAVE_GROUP) < MOST


def leave(copy: BrokerCopy, line: Line, gone: list[str]) -> None:
    """Members leave together."""
    identities = tuple(MemberIdentity(member_id=each) for each in gone)
    left = tuple(MemberResponse(member_id=each, group_instance_id=None, error_code=0) for each in gone)
    line.exchange(
        LeaveGroupRequest(group_id="g", members=identities), LeaveGroupResponse(error_code=0, members=left), 3
    )


def test_a_leave_of_many_passes_unread_and_the_group_is_known_again_once_it_was_described() -> None:
    copy = certain_copy(limits=LIMITS)
    line, *_ = settled(copy, *members(20))
    leave(copy, line, members(20)[:15])
    manager, at = copy.manager, copy.epoch(line.now)
    assert len(manager.view("g", at).members) == 20
    assert manager.view("g", at).lacking is Lacking.UNDECODABLE
    assert ["g"] in list(manager.unsettled())
    later = at + 20
    left = tuple(
        DescribedMember(
            member_id=each, instance_id=None, client_id=each, client_host="/10.0.0.1", metadata=b"", assignment=b""
        )
        for each in members(20)[15:]
    )
    described = GroupDescribed(
        group_id="g",
        sent_at=later,
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol="range",
        members=left,
        as_of=manager.changes_of("g")[0],
    )
    manager.apply([described], later)
    assert len(manager.view("g", later).members) == 5
    assert manager.view("g", later).lacking is None


def test_a_leave_of_few_is_followed() -> None:
    copy = certain_copy(limits=LIMITS)
    line, *_ = settled(copy, *members(20))
    leave(copy, line, members(20)[:5])
    assert len(copy.manager.view("g", copy.epoch(line.now)).members) == 15


@pytest.mark.parametrize(("count", "forwarded"), [(FEW, False), (MANY, True)])
def test_a_description_of_many_members_is_the_brokers(count: int, forwarded: bool) -> None:
    copy = certain_copy(limits=LIMITS)
    settled(copy, *members(count))
    assert is_forwarded(Line(copy), DescribeGroupsRequest(groups=("g",)), 3) is forwarded
    assert copy.traffic.fallbacks.get((ApiKey.DESCRIBE_GROUPS, Lacking.LARGE), 0) == forwarded


def test_in_a_version_that_only_the_sidecar_has_a_large_answer_is_made_here() -> None:
    copy = certain_copy(limits=LIMITS)
    copy.learn_versions({int(ApiKey.DESCRIBE_GROUPS): (0, 0), int(ApiKey.FETCH): (0, 11)})
    settled(copy, *members(MANY))
    assert copy.adds(ApiKey.DESCRIBE_GROUPS, 3)
    line = Line(copy)
    assert to_upstream(line.says(DescribeGroupsRequest(groups=("g",)), 3)) == b""


@pytest.mark.parametrize(("count", "forwarded"), [(MOST // GROUP_COST, False), (MOST // GROUP_COST + 1, True)])
def test_offsets_of_many_groups_are_the_brokers_to_tell(count: int, forwarded: bool) -> None:
    copy = certain_copy(limits=LIMITS)
    groups = tuple(OffsetFetchRequestGroup(group_id=f"g{number}", topics=None) for number in range(count))
    assert is_forwarded(Line(copy), OffsetFetchRequest(groups=groups), 8) is forwarded
    assert copy.traffic.fallbacks.get((ApiKey.OFFSET_FETCH, Lacking.LARGE), 0) == forwarded


@pytest.mark.parametrize(("count", "forwarded"), [(5, False), (10, True)])
def test_offsets_of_many_topics_are_the_brokers_to_tell(count: int, forwarded: bool) -> None:
    copy = certain_copy(limits=LIMITS)
    topics = tuple(OffsetFetchRequestTopic(name=f"t{number}", partition_indexes=(0,)) for number in range(count))
    for request, version in (
        (OffsetFetchRequest(group_id="g", topics=topics), 7),
        (OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),)), 8),
    ):
        assert is_forwarded(Line(copy), request, version) is forwarded
