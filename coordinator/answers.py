"""Views, to replies.

Owns: how ListGroups, DescribeGroups and OffsetFetch are answered in each version. Must not know:
whether they may be answered, which the caller decides by what the views lack. The reference is
Kafka's GroupCoordinator: an answer made here equals the broker's, field by field.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from uuid import UUID

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_sidecar.codecs.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from group_sidecar.coordinator.views import CommittedOffset, GroupState, GroupView

NAMES_THE_MISSING_SINCE = 6
"""The DescribeGroups version from which an unknown group is GROUP_ID_NOT_FOUND, and not merely Dead (KIP-1043)."""
MANY_GROUPS_SINCE = 8
"""The OffsetFetch version from which a request names its groups in an array (KIP-709)."""
NO_OFFSET = CommittedOffset(-1)


def list_groups(request: ListGroupsRequest, groups: Iterable[GroupView]) -> ListGroupsResponse:
    """Lists groups. Filters ignore case; an unknown state or type matches nothing (KIP-518, KIP-848)."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.strip().lower() for kind in request.types_filter}
    listed = (
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.kind,
        )
        for group in groups
        if (not states or group.state.lower() in states) and (not types or group.kind in types)
    )
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=tuple(listed))


def describe_groups(
    request: DescribeGroupsRequest, version: int, groups: Mapping[str, GroupView]
) -> DescribeGroupsResponse:
    """Describes the groups asked for, in the order asked."""
    return DescribeGroupsResponse(groups=tuple(_described(groups[group_id], version) for group_id in request.groups))


def _described(group: GroupView, version: int) -> DescribedGroup:
    missing = group.state is GroupState.DEAD and version >= NAMES_THE_MISSING_SINCE
    # Outside Stable no protocol is chosen, and what members sent for it is not told.
    settled = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE,
        error_message=f"Group {group.group_id} not found." if missing else None,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol if settled else "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata if settled else b"",
                member_assignment=member.assignment if settled else b"",
            )
            for member in group.members
        ),
    )


def groups_asked(request: OffsetFetchRequest, version: int) -> tuple[str, ...]:
    """The groups whose offsets are asked for."""
    return tuple(g.group_id for g in request.groups) if version >= MANY_GROUPS_SINCE else (request.group_id,)


def offset_fetch(
    request: OffsetFetchRequest, version: int, groups: Mapping[str, GroupView], names: Mapping[UUID, str]
) -> OffsetFetchResponse | None:
    """Tells committed offsets; -1 where there is none, and nothing of a group that has none (KIP-88).

    `names` are topic names by id: v10 asks by id only. None where it would need one that is not there.
    """
    if version < MANY_GROUPS_SINCE:
        return OffsetFetchResponse(topics=_by_name(request.topics, groups[request.group_id]))
    answered = []
    for asked in request.groups:
        group = groups[asked.group_id]
        topics = _by_name(asked.topics, group) if version < 10 else _by_id(asked.topics, group, names)
        if topics is None:
            return None
        answered.append(OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics))
    return OffsetFetchResponse(groups=tuple(answered))


def _by_name(
    topics: tuple[OffsetFetchRequestTopic, ...] | None, group: GroupView
) -> tuple[OffsetFetchResponseTopic, ...]:
    if topics is None:
        return tuple(
            OffsetFetchResponseTopic(name=name, partitions=tuple(_partition(group, name, p) for _, p in partitions))
            for name, partitions in groupby(sorted(group.offsets), key=lambda partition: partition[0])
        )
    return tuple(
        OffsetFetchResponseTopic(
            name=topic.name, partitions=tuple(_partition(group, topic.name, p) for p in topic.partition_indexes)
        )
        for topic in topics
    )


def _by_id(
    topics: tuple[OffsetFetchRequestTopic, ...] | None, group: GroupView, names: Mapping[UUID, str]
) -> tuple[OffsetFetchResponseTopic, ...] | None:
    if topics is None:
        ids = {name: topic_id for topic_id, name in names.items()}
        named = _by_name(None, group)
        if any(topic.name not in ids for topic in named):
            return None
        return tuple(OffsetFetchResponseTopic(topic_id=ids[t.name], partitions=t.partitions) for t in named)
    if any(topic.topic_id not in names for topic in topics):
        return None
    return tuple(
        OffsetFetchResponseTopic(
            topic_id=topic.topic_id,
            partitions=tuple(_partition(group, names[topic.topic_id], p) for p in topic.partition_indexes),
        )
        for topic in topics
    )


def _partition(group: GroupView, topic: str, partition: int) -> OffsetFetchResponsePartition:
    offset = group.offsets.get((topic, partition), NO_OFFSET)
    return OffsetFetchResponsePartition(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=ErrorCode.NONE,
    )
