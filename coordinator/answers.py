"""Views, to replies.

Owns: how DescribeGroups and OffsetFetch are answered in each version; ListGroups has `listing`. Must not know:
whether they may be answered, which the caller decides by what the views lack. The reference is
Kafka's GroupCoordinator: an answer made here equals the broker's, field by field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from uuid import UUID

from group_sidecar.codecs.errors import NONE, ErrorCode
from group_sidecar.codecs.instances import maker
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.coordinator.views import (
    CommittedOffset,
    ConsumerMemberView,
    GroupKind,
    GroupState,
    GroupView,
    MemberView,
)
from group_sidecar.coordinator.wire_offsets import LEADER_EPOCH_SINCE, MANY_GROUPS_SINCE

NAMES_THE_MISSING_SINCE = 6
"""The DescribeGroups version from which an unknown group is GROUP_ID_NOT_FOUND, and not merely Dead (KIP-1043)."""
TOP_LEVEL_ERROR_SINCE = 2
"""The OffsetFetch version from which a group's error has a place of its own (KIP-88)."""
TOPIC_IDS_SINCE = 10
"""The OffsetFetch version from which topics have ids in place of names (KIP-848)."""
OPERATIONS_UNTOLD = -2147483648
"""As authorized operations: not asked for, or not known."""
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""Those on a group, as a broker before 4.0 without authorizer tells them: READ, DELETE, DESCRIBE (AclOperation)."""
NO_OFFSET = CommittedOffset(-1)
_member, _told = maker(DescribedGroupMember), maker(OffsetFetchResponsePartition)


def describe_groups(
    request: DescribeGroupsRequest,
    version: int,
    groups: Mapping[str, GroupView],
    *,
    true_hosts: bool = True,
    operations: int = OPERATIONS_UNTOLD,
    empty: bool = True,
) -> DescribeGroupsResponse:
    """Describes the groups asked for, in the order asked.

    `true_hosts`: whether members are where their requests come from; else they are where the broker says they are.
    `operations`: what the client may do with each group. `empty`: whether to tell of Empty groups; else they are Dead.
    """
    asked = (groups[group_id] for group_id in request.groups)
    if not empty:
        asked = (_without_members_dead(group) for group in asked)
    told = (permitted(_described(group, version, true_hosts), operations) for group in asked)
    return DescribeGroupsResponse(groups=tuple(told))


def _without_members_dead(group: GroupView) -> GroupView:
    return group if group.state is not GroupState.EMPTY else replace(group, state=GroupState.DEAD, protocol_type="")


def permitted(group: DescribedGroup, operations: int) -> DescribedGroup:
    """The same with what the client may do with it, which is not told beside an error."""
    untold = group.error_code or operations == OPERATIONS_UNTOLD
    return group if untold else replace(group, authorized_operations=operations)


def not_found(group_id: str) -> DescribedGroup:
    """A group that is not there, as it is told since `NAMES_THE_MISSING_SINCE`."""
    return unfit(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", GroupState.DEAD)


def _described(group: GroupView, version: int, true_hosts: bool) -> DescribedGroup:
    if group.error_code:
        return unfit(group.group_id, group.error_code)
    if group.kind is not GroupKind.CLASSIC:
        told = version >= NAMES_THE_MISSING_SINCE
        error = ErrorCode.GROUP_ID_NOT_FOUND if told else ErrorCode.NONE
        message = f"Group {group.group_id} is not a classic group." if told else None
        return unfit(group.group_id, error, message, GroupState.DEAD)
    if group.state is GroupState.DEAD and version >= NAMES_THE_MISSING_SINCE:
        return not_found(group.group_id)
    # Outside Stable no protocol is chosen, and what members sent for it is not told.
    settled = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol if settled else "",
        members=tuple(
            _member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=host_told(member, true_hosts),
                member_metadata=member.metadata if settled else b"",
                member_assignment=member.assignment if settled else b"",
            )
            for member in group.members
        ),
    )


def host_told(member: MemberView | ConsumerMemberView, true_hosts: bool) -> str:
    """A member's host, as of `describe_groups`. In place of a broker that never says, what is known has to do."""
    return member.client_host if true_hosts else member.broker_host or member.client_host


def unfit(group_id: str, error_code: int, message: str | None = None, state: str = "") -> DescribedGroup:
    """A group of which nothing is told but an error."""
    return DescribedGroup(
        error_code=error_code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
    )


def groups_asked(request: OffsetFetchRequest, version: int) -> tuple[str, ...]:
    """The groups whose offsets are asked for."""
    return tuple(g.group_id for g in request.groups) if version >= MANY_GROUPS_SINCE else (request.group_id,)


def is_plain(request: OffsetFetchRequest, version: int) -> bool:
    """Whether every broker answers it alike: before 4.0 they leave out topics without partitions, and merge twins."""
    many = [group.topics for group in request.groups] if version >= MANY_GROUPS_SINCE else [request.topics]
    for topics in many:
        asked = [(topic.name, topic.topic_id) for topic in topics or ()]
        twins = len(set(asked)) < len(asked)
        partitions = (topic.partition_indexes for topic in topics or ())
        if twins or any(not each or len(set(each)) < len(each) for each in partitions):
            return False
    return True


def offset_fetch(
    request: OffsetFetchRequest, version: int, groups: Mapping[str, GroupView], names: Mapping[UUID, str]
) -> OffsetFetchResponse | None:
    """Tells committed offsets; -1 where there is none, and nothing of a group that has none (KIP-88).

    `names` are topic names by id: v10 asks by id only. None where it would need something that is not known: a
    topic's name or id, or from v5 on a leader epoch.
    """
    if version < MANY_GROUPS_SINCE:
        group = groups[request.group_id]
        if group.error_code:
            return _unfetched(request, version, group.error_code)
        topics = _topics(request.topics, version, group, names)
        return None if topics is None else OffsetFetchResponse(topics=topics)
    told = []
    for asked in request.groups:
        group = groups[asked.group_id]
        topics = () if group.error_code else _topics(asked.topics, version, group, names)
        if topics is None:
            return None
        told.append(OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=group.error_code))
    return OffsetFetchResponse(groups=tuple(told))


def _unfetched(request: OffsetFetchRequest, version: int, error_code: int) -> OffsetFetchResponse:
    """A group's error: at the top, or on each partition where there is no other place (v1)."""
    if version >= TOP_LEVEL_ERROR_SINCE:
        return OffsetFetchResponse(topics=(), error_code=error_code)
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    replace(_partition(p, NO_OFFSET), error_code=error_code) for p in topic.partition_indexes
                ),
            )
            for topic in request.topics or ()
        )
    )


def _topics(
    topics: tuple[OffsetFetchRequestTopic, ...] | None, version: int, group: GroupView, names: Mapping[UUID, str]
) -> tuple[OffsetFetchResponseTopic, ...] | None:
    """The topics asked for, or all that the group has offsets of; None where something is not known of them."""
    by_id = version >= TOPIC_IDS_SINCE
    asked: list[tuple[str | None, UUID | None, Sequence[int]]]
    if topics is None:
        ids = {name: topic_id for topic_id, name in names.items()} if by_id else {}
        told = groupby(sorted(group.offsets), key=itemgetter(0))
        asked = [(name, ids.get(name) if by_id else ZERO_UUID, [p for _, p in those]) for name, those in told]
    else:
        asked = [(names.get(t.topic_id) if by_id else t.name, t.topic_id, t.partition_indexes) for t in topics]
    answered = []
    for name, topic_id, partitions in asked:
        if name is None or topic_id is None:
            return None
        offsets = [group.offsets.get((name, p), NO_OFFSET) for p in partitions]
        if version >= LEADER_EPOCH_SINCE and not all(offset.epoch_known for offset in offsets):
            return None
        told_partitions = tuple(map(_partition, partitions, offsets))
        answered.append(OffsetFetchResponseTopic(name=name, topic_id=topic_id, partitions=told_partitions))
    return tuple(answered)


def _partition(index: int, offset: CommittedOffset) -> OffsetFetchResponsePartition:
    return _told(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=NONE,
    )
