"""How many bytes of metadata and assignments the members of all groups have, and what is kept where that is too much.

Owns: `MemberMetadata`. Must not know: what events do to a group, who asks.

A client may give a member 16 MiB of metadata, and Kafka keeps it. Where there is no room for what an event brings, the
group goes on without: its members, state and generation stay right, and the broker describes it until it has been
described by the broker while there is room.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from group_sidecar.coordinator.bounded import TABLE_BYTES, Table
from group_sidecar.coordinator.events import Event, GroupDescribed, JoinAccepted, Joining, JoinSent, Synced
from group_sidecar.coordinator.groups import Group

ROOMY_GROUP = 2_500
"""Bytes that the metadata and assignments of a group's members may have on average before there is too much of it."""


class MemberMetadata:
    """The bound of all groups together. What an event brings is added at once, and counted anew by `weigh`.

    Args:
        most_groups: groups that are kept. The bound in bytes follows from that.

    Attributes:
        bytes: how many there are, at most.
        most_bytes: how many there may be.
    """

    def __init__(self, most_groups: int) -> None:
        self.bytes = 0
        self.most_bytes = max(TABLE_BYTES, most_groups * ROOMY_GROUP)
        self._groups = 0

    @property
    def table(self) -> Table:
        """How large it is."""
        return Table("member_metadata", self._groups, self.bytes)

    def within_bound(self, group: Group, event: Event) -> Event:
        """Returns the event; where there is no room for what it brings, without metadata and assignments."""
        size = _SIZES[type(event)](event) if type(event) in _SIZES else 0
        if not size:
            return event
        if self.bytes + size > self.most_bytes:
            return _WITHOUT[type(event)](event)
        self._count(group, group.metadata_bytes + size)
        return event

    def weigh(self, group: Group) -> None:
        """Counts anew what a group has, if it has changed since."""
        if group.metadata_bytes and group.weighed != group.changes:
            self.recount(group)

    def recount(self, group: Group) -> None:
        """Counts anew what a group has."""
        self._count(group, _weight(group))
        group.weighed = group.changes

    def forget(self, group: Group) -> None:
        """A group is not kept any more."""
        self._count(group, 0)

    def _count(self, group: Group, size: int) -> None:
        self._groups += bool(size) - bool(group.metadata_bytes)
        self.bytes += size - group.metadata_bytes
        group.metadata_bytes = size


def _weight(group: Group) -> int:
    members = (*group.members.values(), *group.overdue.values())
    kept = sum(len(member.assignment) + sum(map(len, member.protocols.values())) for member in members)
    return kept + sum(_of_join(sent.joining) for sent in group.joins.values())


def _of_join(joining: Joining) -> int:
    return sum(len(metadata) for _, metadata in joining.protocols)


def _bare(joining: Joining) -> Joining:
    return replace(joining, protocols=tuple((name, b"") for name, _ in joining.protocols))


_SIZES: Mapping[type[Event], Callable[[Any], int]] = {
    JoinSent: lambda event: _of_join(event.joining),
    JoinAccepted: lambda event: _of_join(event.joining) + sum(len(metadata) for _, _, metadata in event.roster),
    Synced: lambda event: len(event.assignment) + sum(map(len, event.assignments.values())),
    GroupDescribed: lambda event: sum(len(each.metadata) + len(each.assignment) for each in event.members),
}
_WITHOUT: Mapping[type[Event], Callable[[Any], Event]] = {
    JoinSent: lambda event: replace(event, joining=_bare(event.joining)),
    JoinAccepted: lambda event: replace(
        event,
        joining=_bare(event.joining),
        roster=tuple((member_id, instance_id, b"") for member_id, instance_id, _ in event.roster),
    ),
    Synced: lambda event: replace(event, assignment=b"", assignments={}),
    GroupDescribed: lambda event: replace(
        event, members=tuple(replace(each, metadata=b"", assignment=b"") for each in event.members)
    ),
}
