"""Builds the replies to DescribeGroups and OffsetFetch from views.

`list_groups` builds the replies to ListGroups. The caller decides beforehand whether a request may be answered. The
reference is Kafka's GroupCoordinator: a reply made here equals the broker's reply in every field, except that it may
contain the true hosts of members.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from uuid import UUID

from group_sidecar.codecs.errors import NONE, ErrorCode
from group_sidecar.codecs.fast_instances import fast_constructor
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
from group_sidecar.coordinator.model.views import (
    CommittedOffset,
    ConsumerMemberView,
    GroupKind,
    GroupState,
    GroupView,
    MemberView,
)
from group_sidecar.coordinator.wire.offset_apis import LEADER_EPOCH_SINCE, MANY_GROUPS_SINCE

GROUP_ID_NOT_FOUND_SINCE = 6
"""The DescribeGroups version from which an unknown group has the error GROUP_ID_NOT_FOUND (KIP-1043). In older versions
an unknown group only has the state Dead."""
TOP_LEVEL_ERROR_SINCE = 2
"""The OffsetFetch version from which a reply has a field for the group's error (KIP-88)."""
TOPIC_IDS_SINCE = 10
"""The OffsetFetch version from which a request names topics by id instead of by name (KIP-848)."""
OPERATIONS_UNKNOWN = -2147483648
"""The value of the authorized operations if they were not requested or are not known."""
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""The operations on a group that a broker before 4.0 reports if it has no authorizer: READ, DELETE and DESCRIBE
(Kafka's AclOperation)."""
NO_OFFSET = CommittedOffset(-1)
_response_member, _response_partition = (
    fast_constructor(DescribedGroupMember),
    fast_constructor(OffsetFetchResponsePartition),
)


def describe_groups(
    request: DescribeGroupsRequest,
    version: int,
    groups: Mapping[str, GroupView],
    *,
    true_hosts: bool = True,
    operations: int = OPERATIONS_UNKNOWN,
    empty: bool = True,
) -> DescribeGroupsResponse:
    """Describes the requested groups, in the order of the request.

    Args:
        request: the request.
        version: the version of the request.
        groups: the view of each requested group.
        true_hosts: whether a member's host is the address from which its requests arrive. Otherwise the member has the
            host that the broker reports.
        operations: the operations that the client may perform on each group.
        empty: whether Empty groups are described as Empty. Otherwise they are described as Dead.
    """
    asked = (groups[group_id] for group_id in request.groups)
    if not empty:
        asked = (_empty_as_dead(group) for group in asked)
    described = (with_authorized_operations(_described(group, version, true_hosts), operations) for group in asked)
    return DescribeGroupsResponse(groups=tuple(described))


def _empty_as_dead(group: GroupView) -> GroupView:
    return group if group.state is not GroupState.EMPTY else replace(group, state=GroupState.DEAD, protocol_type="")


def with_authorized_operations(group: DescribedGroup, operations: int) -> DescribedGroup:
    """Returns a description with the operations that the client may perform. A description with an error has none."""
    omits_operations = group.error_code or operations == OPERATIONS_UNKNOWN
    return group if omits_operations else replace(group, authorized_operations=operations)


def group_not_found(group_id: str) -> DescribedGroup:
    """Returns the description of a group that does not exist, for `GROUP_ID_NOT_FOUND_SINCE` and later."""
    return error_group(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", GroupState.DEAD)


def _described(group: GroupView, version: int, true_hosts: bool) -> DescribedGroup:
    if group.error_code:
        return error_group(group.group_id, group.error_code)
    if group.kind is not GroupKind.CLASSIC:
        sends_error = version >= GROUP_ID_NOT_FOUND_SINCE
        error = ErrorCode.GROUP_ID_NOT_FOUND if sends_error else ErrorCode.NONE
        message = f"Group {group.group_id} is not a classic group." if sends_error else None
        return error_group(group.group_id, error, message, GroupState.DEAD)
    if group.state is GroupState.DEAD and version >= GROUP_ID_NOT_FOUND_SINCE:
        return group_not_found(group.group_id)
    # The broker returns the protocol, the metadata and the assignments of a group only if the group is Stable.
    settled = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol if settled else "",
        members=tuple(
            _response_member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=reported_host(member, true_hosts),
                member_metadata=member.metadata if settled else b"",
                member_assignment=member.assignment if settled else b"",
            )
            for member in group.members
        ),
    )


def reported_host(member: MemberView | ConsumerMemberView, true_hosts: bool) -> str:
    """Returns the host of a member in a reply: the address from which the member's requests arrive.

    If `true_hosts` is False and the broker has reported a host for the member, the result is that host.
    """
    return member.client_host if true_hosts else member.broker_host or member.client_host


def error_group(group_id: str, error_code: int, message: str | None = None, state: str = "") -> DescribedGroup:
    """Returns the description of a group that consists only of an error and a state."""
    return DescribedGroup(
        error_code=error_code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
    )


def topics_by_group(
    request: OffsetFetchRequest, version: int
) -> Iterator[tuple[str, tuple[OffsetFetchRequestTopic, ...] | None]]:
    """Yields each group whose offsets a request asks for, with the requested topics; None for all topics."""
    if version >= MANY_GROUPS_SINCE:
        yield from ((group.group_id, group.topics) for group in request.groups)
    else:
        yield request.group_id, request.topics


def groups_asked(request: OffsetFetchRequest, version: int) -> tuple[str, ...]:
    """Returns the groups whose offsets a request asks for."""
    return tuple(group_id for group_id, _ in topics_by_group(request, version))


def is_plain(request: OffsetFetchRequest, version: int) -> bool:
    """Whether all broker versions answer a request alike.

    Brokers before 4.0 omit topics without partitions, and merge topics or partitions that are named twice.
    """
    for _, topics in topics_by_group(request, version):
        asked = [(topic.name, topic.topic_id) for topic in topics or ()]
        has_duplicates = len(set(asked)) < len(asked)
        partitions = (topic.partition_indexes for topic in topics or ())
        if has_duplicates or any(not each or len(set(each)) < len(each) for each in partitions):
            return False
    return True


def offset_fetch(
    request: OffsetFetchRequest, version: int, groups: Mapping[str, GroupView], names: Mapping[UUID, str]
) -> OffsetFetchResponse | None:
    """Builds the reply with the committed offsets of the requested groups.

    A requested partition without a committed offset has the offset -1. If a request asks for all topics, the reply
    contains only topics with committed offsets (KIP-88).

    Args:
        request: the request.
        version: the version of the request.
        groups: the view of each requested group.
        names: topic names by id. From v10 on, requests name topics by id only.

    Returns:
        The reply, or None if the reply needs a value that is not known. Such a value is a topic's name or id, a leader
        epoch from v5 on, or the offset of a topic whose name is not UTF-8.
    """
    if version < MANY_GROUPS_SINCE:
        group = groups[request.group_id]
        if group.error_code:
            return _error_reply(request, version, group.error_code)
        topics = _topics(request.topics, version, group, names)
        return None if topics is None else OffsetFetchResponse(topics=topics)
    answered = []
    for asked in request.groups:
        group = groups[asked.group_id]
        topics = () if group.error_code else _topics(asked.topics, version, group, names)
        if topics is None:
            return None
        answered.append(OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=group.error_code))
    return OffsetFetchResponse(groups=tuple(answered))


def _error_reply(request: OffsetFetchRequest, version: int, error_code: int) -> OffsetFetchResponse:
    """Returns a reply with a group's error. In v1 each partition has the error, because v1 has no top-level error."""
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
    """Returns the requested topics, or all topics with offsets if `topics` is None.

    The result is None if a needed value is not known.
    """
    by_id = version >= TOPIC_IDS_SINCE
    asked: list[tuple[str | None, UUID | None, Sequence[int]]]
    if topics is None:
        ids = {name: topic_id for topic_id, name in names.items()} if by_id else {}
        by_topic = groupby(sorted(group.offsets), key=itemgetter(0))
        asked = [(name, ids.get(name) if by_id else ZERO_UUID, [p for _, p in those]) for name, those in by_topic]
    else:
        asked = [(names.get(t.topic_id) if by_id else t.name, t.topic_id, t.partition_indexes) for t in topics]
    answered = []
    for name, topic_id, partitions in asked:
        if name is None or topic_id is None:
            return None
        offsets = [group.offsets.get((name, p), NO_OFFSET) for p in partitions]
        if topics is None and any(offset is NO_OFFSET for offset in offsets):
            return None  # The topic's name in the log is not UTF-8, so the decoded name does not find the offset.
        if version >= LEADER_EPOCH_SINCE and not all(offset.epoch_known for offset in offsets):
            return None
        response_partitions = tuple(map(_partition, partitions, offsets))
        answered.append(OffsetFetchResponseTopic(name=name, topic_id=topic_id, partitions=response_partitions))
    return tuple(answered)


def _partition(index: int, offset: CommittedOffset) -> OffsetFetchResponsePartition:
    return _response_partition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=NONE,
    )
