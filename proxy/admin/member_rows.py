"""Reads the members of a group of any protocol, and their assignments."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from group_sidecar.codecs.consumer_protocol import CONSUMER, decode_assignment
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.model.views import (
    ConsumerGroupView,
    ConsumerMemberView,
    GroupView,
    MemberView,
    Partitions,
    TopicPartition,
)

AnyMember = MemberView | ConsumerMemberView

PARTITION_BYTES = 4
"""Size of a partition index in an assignment of KIP-848."""


class MemberAssignment(NamedTuple):
    """A member and its assignment.

    Attributes:
        partitions: the assigned partitions by topic, or None if the assignment is unreadable.
        size: the size of the assignment in bytes. For a member of a KIP-848 group, only its partition indices count.
    """

    member: AnyMember
    partitions: dict[str, list[int]] | None
    size: int


def consumer_view(view: GroupView) -> ConsumerGroupView | None:
    """Returns the view of a KIP-848 group. Returns None for any other group: its members are in `view.members`."""
    return view.consumer if view.consumer is not None and view.consumer.is_describable else None


def member_count(view: GroupView) -> int:
    """Returns how many members of a group are known."""
    consumer = consumer_view(view)
    return len(view.members if consumer is None else consumer.members)


def each_member(view: GroupView, names: Mapping[UUID, str]) -> Iterator[MemberAssignment]:
    """Yields the members with their assignments, sorted by client id, instance id and member id.

    `names`: the known topic names by topic id.
    """
    consumer = consumer_view(view)
    if consumer is None:
        return (_classic_member(member, view.protocol_type) for member in sorted(view.members, key=_order))
    return (_consumer_member(member, names) for member in sorted(consumer.members, key=_order))


def partition_owners(found: Iterable[MemberAssignment]) -> dict[TopicPartition, AnyMember]:
    """Returns the owner of each partition."""
    return {
        (topic, partition): assigned.member
        for assigned in found
        for topic, partitions in (assigned.partitions or {}).items()
        for partition in partitions
    }


def _order(member: AnyMember) -> tuple[str, str, str]:
    return member.client_id, member.instance_id or "", member.member_id


def _classic_member(member: MemberView, protocol_type: str) -> MemberAssignment:
    return MemberAssignment(
        member, _read(member.assignment) if protocol_type == CONSUMER else None, len(member.assignment)
    )


def _read(assignment: bytes) -> dict[str, list[int]] | None:
    if not assignment:
        return {}
    try:
        topics = decode_assignment(assignment).assigned_partitions
    except DecodeError:
        return None
    found = defaultdict[str, list[int]](list)
    for assigned in topics:
        found[assigned.topic] += assigned.partitions
    return {topic: sorted(found[topic]) for topic in sorted(found)}


def _consumer_member(member: ConsumerMemberView, names: Mapping[UUID, str]) -> MemberAssignment:
    return MemberAssignment(
        member, _named(member.assignment, names), PARTITION_BYTES * sum(map(len, member.assignment.values()))
    )


def _named(assignment: Partitions, names: Mapping[UUID, str]) -> dict[str, list[int]] | None:
    """Returns partitions by topic name, or None if a name is unknown: a partial assignment would be misleading."""
    if any(topic_id not in names for topic_id in assignment):
        return None
    by_name = sorted((names[topic_id], partitions) for topic_id, partitions in assignment.items())
    return {name: list(partitions) for name, partitions in by_name}
