"""Decides which part of the copy must be complete before a request can be answered.

`fallback_reason` finds the groups that a request names, and what a reply in the request's version needs from the copy.
`confidence` decides why a group's copy is incomplete.
"""

from collections.abc import Iterable

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answers.group_replies import groups_asked, topics_by_group
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.views import FallbackReason, GroupKind, GroupState, TopicPartition
from group_sidecar.coordinator.wire.offset_apis import KAFKA_STORAGE_SINCE, MANY_GROUPS_SINCE

IGNORES_CASE_SINCE = 5
"""The ListGroups version from which every broker ignores the case of states. Kafka 3.8 ignores the case; 2.8 does
not."""
_STATES = frozenset(map(str, GroupState))
_STATES_LOW = frozenset(state.lower() for state in _STATES)


def groups_of(request: Struct, version: int) -> tuple[str, ...]:
    """Returns the groups that a request names. The result is empty for a request about all groups."""
    if isinstance(request, DescribeGroupsRequest):
        return request.groups
    if isinstance(request, ConsumerGroupDescribeRequest):
        return request.group_ids
    return groups_asked(request, version) if isinstance(request, OffsetFetchRequest) else ()


def fallback_reason(
    request: Struct, version: int, manager: GroupMetadataManager, at: float, *, added: bool = False
) -> FallbackReason | None:
    """Returns why a request may not be answered from the copy; None if it may be answered.

    `added` is whether the sidecar has added this version of the API, because the broker does not support it. For an
    added version, the sidecar itself determines the operations that the client may perform on a group. If brokers
    answer such a version differently, the newest broker is the reference.
    """
    if isinstance(request, ListGroupsRequest):
        return (
            manager.listing_fallback_reason(at, version)
            if added or _filters_are_portable(request, version)
            else FallbackReason.VERSION
        )
    groups = groups_of(request, version)
    if not added and len(set(groups)) < len(groups):
        return FallbackReason.VERSION  # If a request names a group twice, brokers before 2.0 answer once.
    if isinstance(request, OffsetFetchRequest):
        return _of_offsets(request, version, manager, at)
    if isinstance(request, ConsumerGroupDescribeRequest):
        reasons: Iterable[FallbackReason | None] = (manager.consumer_fallback_reason(group, at) for group in groups)
    else:
        reasons = (manager.group_fallback_reason(group, at) for group in groups)
    first = next((reason for reason in reasons if reason), None)
    # Only the broker knows which operations the client may perform on a group.
    return FallbackReason.VERSION if not added and getattr(request, "include_authorized_operations", False) else first


def _filters_are_portable(request: ListGroupsRequest, version: int) -> bool:
    """Whether all brokers with this version interpret the filters alike. Before v5, the case of states may matter."""
    odd = (state for state in request.states_filter if state not in _STATES and state.strip().lower() in _STATES_LOW)
    return version >= IGNORES_CASE_SINCE or not any(odd)


def _of_offsets(
    request: OffsetFetchRequest, version: int, manager: GroupMetadataManager, at: float
) -> FallbackReason | None:
    if version < KAFKA_STORAGE_SINCE:
        return FallbackReason.VERSION  # In v0 the offsets are in ZooKeeper.
    if request.require_stable and not manager.log.partitions.in_use:
        return FallbackReason.UNSTABLE  # A transaction may have begun before the sidecar started.
    for group in groups_asked(request, version):
        if reason := manager.offsets_fallback_reason(group, at):
            return reason
    if manager.log.partitions.trimmed and not _offsets_are_known(request, version, manager):
        return FallbackReason.COLD
    if version >= MANY_GROUPS_SINCE and not all(_member_epoch_matches(each, manager, at) for each in request.groups):
        return FallbackReason.VERSION
    return None


def _offsets_are_known(request: OffsetFetchRequest, version: int, manager: GroupMetadataManager) -> bool:
    """Whether the copy has all requested offsets that the broker may have, although the broker has deleted records."""
    return all(
        manager.offsets_are_known(group_id, _named_partitions(topics))
        for group_id, topics in topics_by_group(request, version)
    )


def _named_partitions(topics: Iterable[OffsetFetchRequestTopic] | None) -> list[TopicPartition] | None:
    """Returns the partitions that a request names; None for all partitions. A topic's id is not resolved to a name."""
    if topics is None:
        return None
    return [(topic.name, number) for topic in topics for number in topic.partition_indexes]


def _member_epoch_matches(asked: OffsetFetchRequestGroup, manager: GroupMetadataManager, at: float) -> bool:
    """Whether the broker certainly accepts the member id and epoch that a request names for a group (KIP-848).

    Otherwise the request goes to the broker, which knows the state and the right error.
    """
    group = manager.group_metadata_cache.get(asked.group_id)
    if group is None or group.kind is GroupKind.CLASSIC:
        return True
    if asked.member_id is None and asked.member_epoch < 0:
        return group.kind is GroupKind.CONSUMER
    if group.fallback_reason(at) is not None:
        return False  # The member may have left.
    members = group.consumer.members if group.consumer else ()
    return any((member.member_id, member.epoch) == (asked.member_id, asked.member_epoch) for member in members)
