"""What a question needs to be answered from the copy.

Owns: which groups a question is about, and what of them must be known to answer it in its version. Must not know: why a
copy lacks something (`doubts`), how a reply is built (`answers`), who may ask.
"""

from collections.abc import Iterable

from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.answers import groups_asked
from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.views import GroupKind, GroupState, Lacking
from group_sidecar.coordinator.wire_offsets import KAFKA_SINCE, MANY_GROUPS_SINCE

IGNORES_CASE_SINCE = 5
"""The ListGroups version whose brokers all ignore the case of states; 2.8 does not, 3.8 does."""
_STATES = frozenset(map(str, GroupState))
_STATES_LOW = frozenset(state.lower() for state in _STATES)


def groups_of(request: Struct, version: int) -> tuple[str, ...]:
    """The groups that a question is about; none for one about all of them."""
    if isinstance(request, DescribeGroupsRequest):
        return request.groups
    if isinstance(request, ConsumerGroupDescribeRequest):
        return request.group_ids
    return groups_asked(request, version) if isinstance(request, OffsetFetchRequest) else ()


def lacking(
    request: Struct, version: int, manager: GroupMetadataManager, at: float, *, added: bool = False
) -> Lacking | None:
    """Why a question may not be answered; None where it may.

    `added`: the broker has not got this version. So it is not asked what the client may do with a group, and where
    brokers differ in such a version the newest is followed.
    """
    if isinstance(request, ListGroupsRequest):
        return manager.listing_lacking(at, version) if added or _filters_alike(request, version) else Lacking.VERSION
    groups = groups_of(request, version)
    if not added and len(set(groups)) < len(groups):
        return Lacking.VERSION  # Brokers before 2 answer once for a group that is named twice.
    if isinstance(request, OffsetFetchRequest):
        return _of_offsets(request, version, manager, at)
    if isinstance(request, ConsumerGroupDescribeRequest):
        reasons: Iterable[Lacking | None] = (manager.consumer_lacking(group, at) for group in groups)
    else:
        reasons = (manager.group_lacking(group, at) for group in groups)
    first = next((reason for reason in reasons if reason), None)
    # What the client may do with a group, only the broker can say.
    return Lacking.VERSION if not added and getattr(request, "include_authorized_operations", False) else first


def _filters_alike(request: ListGroupsRequest, version: int) -> bool:
    """Whether every broker that has the version takes the filters alike: before v5 the case of states may count."""
    odd = (state for state in request.states_filter if state not in _STATES and state.strip().lower() in _STATES_LOW)
    return version >= IGNORES_CASE_SINCE or not any(odd)


def _of_offsets(request: OffsetFetchRequest, version: int, manager: GroupMetadataManager, at: float) -> Lacking | None:
    if version < KAFKA_SINCE:
        return Lacking.VERSION  # v0 asks ZooKeeper.
    if request.require_stable and not manager.log.partitions.matter:
        return Lacking.UNSTABLE  # A transaction may have begun before the wire was looked at.
    for group in groups_asked(request, version):
        if reason := manager.offsets_lacking(group, at):
            return reason
    if version >= MANY_GROUPS_SINCE and not all(_fits(each, manager) for each in request.groups):
        return Lacking.VERSION
    return None


def _fits(asked: OffsetFetchRequestGroup, manager: GroupMetadataManager) -> bool:
    """Whether the broker takes who asks for who it says it is (KIP-848). Errors are the broker's to give."""
    group = manager.group_metadata_cache.get(asked.group_id)
    if group is None or group.kind is GroupKind.CLASSIC:
        return True
    if asked.member_id is None and asked.member_epoch < 0:
        return group.kind is GroupKind.CONSUMER
    members = group.consumer.members if group.consumer else ()
    return any((member.member_id, member.epoch) == (asked.member_id, asked.member_epoch) for member in members)
