"""Messages whose decoding would delay all clients pass undecoded. The copy learns their effects later."""

from collections.abc import Mapping
from typing import Any

import pytest

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
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
from group_sidecar.codecs.offsets_topic import KeyType, MemberKey, encode_key, encode_value
from group_sidecar.codecs.offsets_topic_values import ConsumerGroupMemberMetadataValue
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.events import DescribedMember, GroupDescribed
from group_sidecar.coordinator.model.views import FallbackReason, GroupState
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.dataplane.commands import ToUpstream
from group_sidecar.proxy.handlers.decode_limits import (
    GROUP_COST,
    JUDGED_COMMIT_TIMES,
    JUDGED_TIMES,
    MEMBER_COST,
    DecodeLimits,
)
from tests.coordinator.log.test_follower import Reader
from tests.coordinator.model_log import Entry
from tests.proxy.dataplane.playbook import Line, complete_state, stable_group, to_upstream

MOST = 100
LIMITS = {"inspected_elements": MOST}
FEW, MANY = 10, MOST // MEMBER_COST + 1
"""Numbers of members: of a group that the sidecar describes itself, and of a group that it does not."""


def members(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


def is_forwarded(line: Line, request: Struct, version: int) -> bool:
    """Whether a question goes to the broker unchanged. Otherwise the sidecar answers it."""
    frame = line.frame(request, version)
    return line.client(frame) == [ToUpstream(frame)]


def test_api_limits_scale_with_setting() -> None:
    """The element limits of all APIs scale with the one configured limit."""
    small, large = DecodeLimits(MOST), DecodeLimits(10 * MOST)
    for key in (ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP, ApiKey.JOIN_GROUP, ApiKey.DESCRIBE_GROUPS):
        assert large.request(key) == 10 * small.request(key)
        assert large.reply(key) == 10 * small.reply(key)
        assert 1 <= small.reply(key) <= MOST
    assert small.request(ApiKey.OFFSET_COMMIT) == MOST
    assert small.request(ApiKey.OFFSET_COMMIT, judged=True) == JUDGED_COMMIT_TIMES * MOST
    assert small.request(ApiKey.JOIN_GROUP, judged=True) == JUDGED_TIMES * MOST
    assert small.request(ApiKey.LEAVE_GROUP) < MOST


def leave(state: BrokerState, line: Line, gone: list[str]) -> None:
    """Exchanges a LeaveGroup of these members."""
    identities = tuple(MemberIdentity(member_id=each) for each in gone)
    left = tuple(MemberResponse(member_id=each, group_instance_id=None, error_code=0) for each in gone)
    line.exchange(
        LeaveGroupRequest(group_id="g", members=identities), LeaveGroupResponse(error_code=0, members=left), 3
    )


def test_large_leave_is_unread_until_described() -> None:
    """A leave of too many members passes undecoded and marks its group, and a description by the broker makes the group
    certain again.
    """
    state = complete_state(limits=LIMITS)
    line, *_ = stable_group(state, *members(20))
    leave(state, line, members(20)[:15])
    manager, at = state.copy.manager, state.copy.epoch(line.now)
    assert len(manager.view("g", at).members) == 20
    assert manager.view("g", at).fallback_reason is FallbackReason.UNDECODABLE
    assert ["g"] in list(manager.groups_to_describe())
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
    assert manager.view("g", later).fallback_reason is None


def test_small_leave_is_applied() -> None:
    """A leave of few members removes these members from the copy."""
    state = complete_state(limits=LIMITS)
    line, *_ = stable_group(state, *members(20))
    leave(state, line, members(20)[:5])
    assert len(state.copy.manager.view("g", state.copy.epoch(line.now)).members) == 15


@pytest.mark.parametrize(("count", "forwarded"), [(FEW, False), (MANY, True)])
def test_large_description_is_forwarded(count: int, forwarded: bool) -> None:
    """A description of more members than the limit goes to the broker and counts as a LARGE fallback."""
    state = complete_state(limits=LIMITS)
    stable_group(state, *members(count))
    assert is_forwarded(Line(state), DescribeGroupsRequest(groups=("g",)), 3) is forwarded
    assert state.traffic.fallbacks.get((ApiKey.DESCRIBE_GROUPS, FallbackReason.LARGE), 0) == forwarded


def member_record(group: str, **fields: Any) -> Entry:
    """Returns the record of the only member of a KIP-848 group."""
    values = {"client_id": "c", "client_host": "/h", "subscribed_topic_names": (), "subscribed_topic_regex": None}
    others = {"instance_id": None, "rack_id": None, "server_assignor": None}
    value = ConsumerGroupMemberMetadataValue(**{**values, **others, **fields})
    key = MemberKey(group_id=group, member_id="m")
    return encode_key(KeyType.CONSUMER_GROUP_MEMBER_METADATA, key), encode_value(value, 0)


@pytest.mark.parametrize(
    ("fields", "groups", "allowed"),
    [
        ({"subscribed_topic_names": ("t",) * 300}, 1, True),
        ({"subscribed_topic_names": ("t",) * 300}, 30, False),
        ({"subscribed_topic_names": ("t" * 249,) * 100}, 1, True),
        ({"subscribed_topic_names": ("t" * 249,) * 100}, 50, False),
        ({"subscribed_topic_regex": "t" * 32_000}, 1, True),
        ({"subscribed_topic_regex": "t" * 32_000}, 100, False),
        ({"rack_id": "r" * 32_000}, 100, False),
        ({"client_id": "c" * 32_000}, 100, False),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, dict) else str(each),
)
def test_long_values_of_consumer_members_count(fields: Mapping[str, Any], groups: int, allowed: bool) -> None:
    """A description of KIP-848 groups is not answered locally if its members have too many or too long values."""
    names = tuple(f"g{number}" for number in range(groups))
    reader = Reader(load=[member_record(name, **fields) for name in names])
    request = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=False)
    assert DecodeLimits(10 * MOST).allows_answer(request, 0, reader.manager, 1) is allowed


@pytest.mark.parametrize(("length", "forwarded"), [(1_000, False), (100_000, True)])
def test_long_metadata_is_forwarded(length: int, forwarded: bool) -> None:
    """A description of a classic group whose members have long assignments goes to the broker."""
    state = complete_state(limits=LIMITS)
    stable_group(state, *members(FEW))
    group = state.copy.manager.group_metadata_cache.get("g")
    assert group is not None
    for member in group.members.values():
        member.assign(bytes(length))
    assert is_forwarded(Line(state), DescribeGroupsRequest(groups=("g",)), 3) is forwarded


def test_large_answer_in_added_version_is_local() -> None:
    """A large description is answered locally in a version that the broker lacks."""
    state = complete_state(limits=LIMITS)
    state.versions.learn({int(ApiKey.DESCRIBE_GROUPS): (0, 0), int(ApiKey.FETCH): (0, 11)})
    stable_group(state, *members(MANY))
    assert state.versions.is_added_version(ApiKey.DESCRIBE_GROUPS, 3)
    line = Line(state)
    assert to_upstream(line.sends(DescribeGroupsRequest(groups=("g",)), 3)) == b""


@pytest.mark.parametrize(("count", "forwarded"), [(MOST // GROUP_COST, False), (MOST // GROUP_COST + 1, True)])
def test_offsets_of_many_groups_are_forwarded(count: int, forwarded: bool) -> None:
    """An OffsetFetch of more groups than the limit goes to the broker and counts as a LARGE fallback."""
    state = complete_state(limits=LIMITS)
    groups = tuple(OffsetFetchRequestGroup(group_id=f"g{number}", topics=None) for number in range(count))
    assert is_forwarded(Line(state), OffsetFetchRequest(groups=groups), 8) is forwarded
    assert state.traffic.fallbacks.get((ApiKey.OFFSET_FETCH, FallbackReason.LARGE), 0) == forwarded


@pytest.mark.parametrize(("count", "forwarded"), [(5, False), (10, True)])
def test_offsets_of_many_topics_are_forwarded(count: int, forwarded: bool) -> None:
    """An OffsetFetch of too many topics of one group goes to the broker, in the single-group and the multi-group
    layout.
    """
    state = complete_state(limits=LIMITS)
    topics = tuple(OffsetFetchRequestTopic(name=f"t{number}", partition_indexes=(0,)) for number in range(count))
    for request, version in (
        (OffsetFetchRequest(group_id="g", topics=topics), 7),
        (OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),)), 8),
    ):
        assert is_forwarded(Line(state), request, version) is forwarded
