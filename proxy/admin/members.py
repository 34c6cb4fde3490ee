"""The members of a group, of whichever protocol, and what each has.

Owns: how assignments are read. Must not know: JSON, HTML.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from group_sidecar.codecs.consumer_protocol import CONSUMER, decode_assignment
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.views import (
    ConsumerGroupView,
    ConsumerMemberView,
    GroupView,
    MemberView,
    Partitions,
    TopicPartition,
)

AnyMember = MemberView | ConsumerMemberView

PARTITION_BYTES = 4
"""Of a partition's number in an assignment of KIP-848."""


class Assigned(NamedTuple):
    """A member, and its partitions by topic; None where they cannot be read. `size`: the assignment's, in bytes."""

    member: AnyMember
    partitions: dict[str, list[int]] | None
    size: int


def newer(view: GroupView) -> ConsumerGroupView | None:
    """What tells of the members of a group of KIP-848; None where the view itself does."""
    return view.consumer if view.consumer is not None and view.consumer.told else None


def member_count(view: GroupView) -> int:
    """How many members are known."""
    consumer = newer(view)
    return len(view.members if consumer is None else consumer.members)


def each_member(view: GroupView, names: Mapping[UUID, str]) -> Iterator[Assigned]:
    """The members, by client id, instance id and member id. `names`: topics by their ids, as far as they are known."""
    consumer = newer(view)
    if consumer is None:
        return (_classic(member, view.protocol_type) for member in sorted(view.members, key=_order))
    return (_newer(member, names) for member in sorted(consumer.members, key=_order))


def owners(found: Iterable[Assigned]) -> dict[TopicPartition, AnyMember]:
    """Who has each partition."""
    return {
        (topic, partition): assigned.member
        for assigned in found
        for topic, partitions in (assigned.partitions or {}).items()
        for partition in partitions
    }


def _order(member: AnyMember) -> tuple[str, str, str]:
    return member.client_id, member.instance_id or "", member.member_id


def _classic(member: MemberView, protocol_type: str) -> Assigned:
    return Assigned(member, _read(member.assignment) if protocol_type == CONSUMER else None, len(member.assignment))


def _read(assignment: bytes) -> dict[str, list[int]] | None:
    if not assignment:
        return {}
    try:
        topics = decode_assignment(assignment).assigned_partitions
    except DecodeError:
        return None
    found = defaultdict[str, list[int]](list)
    for of in topics:
        found[of.topic] += of.partitions
    return {topic: sorted(found[topic]) for topic in sorted(found)}


def _newer(member: ConsumerMemberView, names: Mapping[UUID, str]) -> Assigned:
    return Assigned(
        member, _named(member.assignment, names), PARTITION_BYTES * sum(map(len, member.assignment.values()))
    )


def _named(assignment: Partitions, names: Mapping[UUID, str]) -> dict[str, list[int]] | None:
    """None where the name of a topic is not known: a part of an assignment looks like another one."""
    if any(topic_id not in names for topic_id in assignment):
        return None
    return {name: list(of) for name, of in sorted((names[topic_id], of) for topic_id, of in assignment.items())}
