"""The bound on the bytes of metadata and assignments of all members.

A client may give a member 16 MiB of metadata, and Kafka keeps it. If there is no room for the metadata in an event, the
copy keeps the group without the metadata. The group's members, state and generation stay correct. The broker answers
DescribeGroups for such a group, until there is room again and the copy has adopted a new description of the group.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from group_sidecar.coordinator.model.events import Event, GroupDescribed, JoinAccepted, JoiningMember, JoinSent, Synced
from group_sidecar.coordinator.state.bounded_table import TABLE_BYTES, TableSize
from group_sidecar.coordinator.state.group import Group

MEAN_GROUP_METADATA_BYTES = 2_500
"""The bound for metadata and assignments of all members, in bytes per group that may be kept."""


class MetadataBudget:
    """The bound for all groups together.

    The bytes of each event are added at once. `recount_if_changed` later replaces the sum by an exact count.

    Args:
        max_groups: how many groups are kept. The bound in bytes follows from this number.

    Attributes:
        bytes: an upper bound for the bytes that are kept.
        max_bytes: how many bytes may be kept.
    """

    def __init__(self, max_groups: int) -> None:
        self.bytes = 0
        self.max_bytes = max(TABLE_BYTES, max_groups * MEAN_GROUP_METADATA_BYTES)
        self._groups = 0

    @property
    def table(self) -> TableSize:
        """The number of groups with metadata, and the bytes of the metadata."""
        return TableSize("member_metadata", self._groups, self.bytes)

    def within_bound(self, group: Group, event: Event) -> Event:
        """Counts the bytes of an event and returns the event; without metadata and assignments if there is no room."""
        size = _SIZES[type(event)](event) if type(event) in _SIZES else 0
        if not size:
            return event
        if self.bytes + size > self.max_bytes:
            return _WITHOUT[type(event)](event)
        self._count(group, group.metadata_bytes + size)
        return event

    def recount_if_changed(self, group: Group) -> None:
        """Recounts the bytes of a group if the group has changed since the last count."""
        if group.metadata_bytes and group.metadata_counted_at != group.changes:
            self.recount(group)

    def recount(self, group: Group) -> None:
        """Recounts the bytes of a group."""
        self._count(group, _metadata_bytes(group))
        group.metadata_counted_at = group.changes

    def forget(self, group: Group) -> None:
        """Subtracts the bytes of a group that is not kept any more."""
        self._count(group, 0)

    def _count(self, group: Group, size: int) -> None:
        self._groups += bool(size) - bool(group.metadata_bytes)
        self.bytes += size - group.metadata_bytes
        group.metadata_bytes = size


def _metadata_bytes(group: Group) -> int:
    members = (*group.members.values(), *group.overdue.values())
    kept = sum(len(member.assignment) + sum(map(len, member.protocols.values())) for member in members)
    return kept + sum(_join_metadata_bytes(sent.joining) for sent in group.joins.values())


def _join_metadata_bytes(joining: JoiningMember) -> int:
    return sum(len(metadata) for _, metadata in joining.protocols)


def _without_metadata(joining: JoiningMember) -> JoiningMember:
    return replace(joining, protocols=tuple((name, b"") for name, _ in joining.protocols))


_SIZES: Mapping[type[Event], Callable[[Any], int]] = {
    JoinSent: lambda event: _join_metadata_bytes(event.joining),
    JoinAccepted: lambda event: (
        _join_metadata_bytes(event.joining) + sum(len(metadata) for _, _, metadata in event.roster)
    ),
    Synced: lambda event: len(event.assignment) + sum(map(len, event.assignments.values())),
    GroupDescribed: lambda event: sum(len(each.metadata) + len(each.assignment) for each in event.members),
}
_WITHOUT: Mapping[type[Event], Callable[[Any], Event]] = {
    JoinSent: lambda event: replace(event, joining=_without_metadata(event.joining)),
    JoinAccepted: lambda event: replace(
        event,
        joining=_without_metadata(event.joining),
        roster=tuple((member_id, instance_id, b"") for member_id, instance_id, _ in event.roster),
    ),
    Synced: lambda event: replace(event, assignment=b"", assignments={}),
    GroupDescribed: lambda event: replace(
        event, members=tuple(replace(each, metadata=b"", assignment=b"") for each in event.members)
    ),
}
