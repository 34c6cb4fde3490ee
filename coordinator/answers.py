"""Views, to replies.

Owns: how ListGroups, DescribeGroups and OffsetFetch are answered in each version. Must not know:
whether they may be answered, which the caller decides by what the views lack. The reference is
Kafka's GroupCoordinator: an answer made here equals the broker's, field by field.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
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
from group_sidecar.codecs.primitives import ZERO_UUID
from group_sidecar.coordinator.views import CommittedOffset, GroupState, GroupView
from group_sidecar.coordinator.wire_offsets import LEADER_EPOCH_SINCE, MANY_GROUPS_SINCE

NAMES_THE_MISSING_SINCE = 6
"""The DescribeGroups version from which an unknown group is GROUP_ID_NOT_FOUND, and not merely Dead (KIP-1043)."""
TOPIC_IDS_SINCE = 10
"""The OffsetFetch version from which topics have ids in place of names (KIP-848)."""
NO_OFFSET = CommittedOffset(-1)


def list_groups(request: ListGroupsRequest, groups: Iterable[GroupView]) -> ListGroupsResponse:
    """Lists groups. Filters ignore case, that of states blanks around too; an unknown one matches nothing (KIP-518)."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
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

    `names` are topic names by id: v10 asks by id only. None where it would need something that is not known: a
    topic's name or id, or from v5 on a leader epoch.
    """
    if version < MANY_GROUPS_SINCE:
        answered = [_topics(request.topics, version, groups[request.group_id], names)]
    else:
        answered = [_topics(asked.topics, version, groups[asked.group_id], names) for asked in request.groups]
    told = [topics for topics in answered if topics is not None]
    if len(told) < len(answered):
        return None
    if version < MANY_GROUPS_SINCE:
        return OffsetFetchResponse(topics=told[0])
    return OffsetFetchResponse(
        groups=tuple(
            OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)
            for asked, topics in zip(request.groups, told, strict=True)
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
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=ErrorCode.NONE,
    )
