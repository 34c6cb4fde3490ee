"""Builds the view of a group of the newer protocols from its records in ``__consumer_offsets``.

The reference is Kafka's classes ``ConsumerGroup``, ``ShareGroup`` and ``StreamsGroup``. The records of a consumer group
(KIP-848) contain everything that ConsumerGroupDescribe returns. The records of a share group show its kind and whether
it has members. The records of a streams group show only its kind.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from group_sidecar.codecs.offsets_topic import Key, KeyType, MemberKey, decode_as, decode_key
from group_sidecar.codecs.offsets_topic_values import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
    classic_metadata,
)
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.views import (
    ConsumerGroupView,
    ConsumerMemberView,
    GroupKind,
    GroupState,
    GroupView,
    Partitions,
)
from group_sidecar.coordinator.state.logged_state import DecodedMember

T = TypeVar("T", bound=Struct)

_STABLE = 0
"""The number of STABLE in Kafka's enum ``MemberState``: the member owns exactly the target assignment of its epoch."""


def consumer_group_of(view: GroupView) -> ConsumerGroupView | None:
    """Returns the view of a group for ConsumerGroupDescribe, or None if no such group exists.

    If the copy has read no records of a newer protocol for this group, the result has only the group's kind and state.
    """
    if view.consumer is None and view.state is not GroupState.DEAD:
        return ConsumerGroupView(group_id=view.group_id, kind=view.kind, state=view.state)
    return view.consumer


def consumer_group_from_records(
    group_id: str, records: Mapping[bytes, bytes], decoded: dict[str, DecodedMember] | None = None
) -> ConsumerGroupView:
    """Builds the view of a group from its records.

    Args:
        group_id: the group's id.
        records: the current raw value of each raw key. The keys are of type 3 or higher.
        decoded: the members that earlier calls for this group decoded. This function updates `decoded`, and decodes
            only members whose records have changed: one member may subscribe to thousands of topics.

    Raises:
        UnknownKeyType: a key has an unknown type.
        DecodeError: a key or a value is damaged, or a value has an unknown version.
        ValueError: `records` is empty, so there is no such group.
    """
    if not records:
        raise ValueError(f"group {group_id} has no records of the new protocols")
    found = [(*decode_key(key), value) for key, value in records.items()]
    kinds = {kind for kind, _, _ in found}
    if kinds & _CONSUMER:
        return _consumer_group(group_id, found, {} if decoded is None else decoded)
    if kinds & _SHARE:
        # A share group has no rebalance phase: it is Stable or Empty.
        state = GroupState.STABLE if KeyType.SHARE_GROUP_MEMBER_METADATA in kinds else GroupState.EMPTY
        return ConsumerGroupView(group_id=group_id, kind=GroupKind.SHARE, state=state)
    return ConsumerGroupView(group_id=group_id, kind=GroupKind.STREAMS)


_CONSUMER = {kind for kind in KeyType if kind.name.startswith("CONSUMER_GROUP_")}
_SHARE = {kind for kind in KeyType if kind.name.startswith("SHARE_GROUP_")}

_Found = list[tuple[KeyType, Key, bytes]]


def _consumer_group(group_id: str, found: _Found, decoded: dict[str, DecodedMember]) -> ConsumerGroupView:
    of_group = _only(found, KeyType.CONSUMER_GROUP_METADATA, ConsumerGroupMetadataValue)
    of_target = _only(
        found, KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, ConsumerGroupTargetAssignmentMetadataValue
    )
    epoch = of_group.epoch if of_group else 0
    assignment_epoch = of_target.assignment_epoch if of_target else 0
    members = tuple(_members(found, decoded))
    return ConsumerGroupView(
        group_id=group_id,
        kind=GroupKind.CONSUMER,
        state=_state(epoch, assignment_epoch, members),
        epoch=epoch,
        assignment_epoch=assignment_epoch,
        assignors=_preferred(members),
        members=members,
    )


def _state(epoch: int, assignment_epoch: int, members: tuple[ConsumerMemberView, ...]) -> GroupState:
    """Returns the group's state, by the rule of Kafka's ``ConsumerGroup.maybeUpdateGroupState``."""
    if not members:
        return GroupState.EMPTY
    if epoch > assignment_epoch:
        return GroupState.ASSIGNING
    if all(member.reconciled and member.epoch == assignment_epoch for member in members):
        return GroupState.STABLE
    return GroupState.RECONCILING


def _preferred(members: Iterable[ConsumerMemberView]) -> tuple[str, ...]:
    votes = Counter(member.server_assignor for member in members if member.server_assignor is not None)
    most_votes = max(votes.values(), default=0)
    return tuple(sorted(assignor for assignor, count in votes.items() if count == most_votes))


def _members(found: _Found, decoded: dict[str, DecodedMember]) -> Iterable[ConsumerMemberView]:
    known = _by_member(found, KeyType.CONSUMER_GROUP_MEMBER_METADATA)
    current = _by_member(found, KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT)
    target = _by_member(found, KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER)
    for member_id in decoded.keys() - known.keys():
        del decoded[member_id]
    for member_id in sorted(known):
        values = known[member_id], current.get(member_id), target.get(member_id)
        if (before := decoded.get(member_id)) is None or before.values != values:
            decoded[member_id] = DecodedMember(values, _member(member_id, *values))
        yield decoded[member_id].view


def _member(
    member_id: str, raw_known: bytes, raw_current: bytes | None, raw_target: bytes | None
) -> ConsumerMemberView:
    known = decode_as(ConsumerGroupMemberMetadataValue, raw_known)
    current = None if raw_current is None else decode_as(ConsumerGroupCurrentMemberAssignmentValue, raw_current)
    target = None if raw_target is None else decode_as(ConsumerGroupTargetAssignmentMemberValue, raw_target)
    return ConsumerMemberView(
        member_id=member_id,
        instance_id=known.instance_id,
        rack_id=known.rack_id,
        epoch=current.member_epoch if current else 0,
        client_id=known.client_id,
        client_host=known.client_host,
        broker_host=known.client_host,
        subscribed_topic_names=known.subscribed_topic_names,
        subscribed_topic_regex=known.subscribed_topic_regex,
        server_assignor=known.server_assignor,
        assignment=_partitions(current.assigned_partitions if current else ()),
        revoking=_partitions(current.partitions_pending_revocation if current else ()),
        target_assignment=_partitions(target.topic_partitions if target else ()),
        classic=classic_metadata(known) is not None,
        reconciled=current is None or current.state == _STABLE,
    )


def _partitions(topics: Iterable[TopicPartition | TopicPartitions]) -> Partitions:
    return {topic.topic_id: tuple(sorted(topic.partitions)) for topic in topics}


def _only(found: _Found, kind: KeyType, cls: type[T]) -> T | None:
    return next((decode_as(cls, value) for its_kind, _, value in found if its_kind is kind), None)


def _by_member(found: _Found, kind: KeyType) -> dict[str, bytes]:
    """Returns the raw values of one kind by member id."""
    return {key.member_id: value for its_kind, key, value in found if its_kind is kind and isinstance(key, MemberKey)}
