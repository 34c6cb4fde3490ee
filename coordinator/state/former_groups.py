"""What the copy knew of groups whose state it has forgotten.

The copy forgets the state of a group when the broker's coordinator does: the broker has stopped, or does not lead the
group's partition any more. If the broker loads the group again, the log shows the last generation. The log does not
show whether that generation is new, nor what was already reported about its members.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from group_sidecar.coordinator.state.bounded_table import TABLE_BYTES, BoundedTable, TableSize, name_bytes
from group_sidecar.coordinator.state.lifecycle import UNKNOWN_GENERATION


class FormerGroup(NamedTuple):
    """What the copy knew of a classic group before it forgot the group's state.

    Attributes:
        generation: the last known generation.
        reported_gone: when each member was reported as gone, by member id. Members without such a report are left out.
    """

    generation: int = UNKNOWN_GENERATION
    reported_gone: Mapping[str, float] = MappingProxyType({})

    @property
    def bytes(self) -> int:
        """The estimated memory of the member ids, in bytes."""
        return sum(map(name_bytes, self.reported_gone))


NOTHING_KNOWN = FormerGroup()
"""Stands for a group whose state was never forgotten."""


class FormerGroups:
    """The former groups that may come back. Beyond the bounds, the oldest groups are evicted.

    Args:
        max_groups: how many groups are kept.
        max_member_bytes: how many bytes all member ids may take, as `FormerGroup.bytes` counts them.
    """

    def __init__(self, max_groups: int, max_member_bytes: int = TABLE_BYTES) -> None:
        self._groups: BoundedTable[FormerGroup] = BoundedTable(max_groups, self._evicted)
        self._member_bytes, self._max_member_bytes = 0, max_member_bytes

    @property
    def table(self) -> TableSize:
        """The size of this object."""
        return TableSize("former_groups", len(self._groups), self._groups.bytes + self._member_bytes)

    def put(self, group_id: str, former: FormerGroup) -> None:
        """Keeps what was known of a group."""
        self.take(group_id)
        if former == NOTHING_KNOWN:
            return
        self._member_bytes += former.bytes
        self._groups.put(group_id, former)
        while self._member_bytes > self._max_member_bytes and (oldest := self._groups.first()) is not None:
            self.take(oldest[0])

    def take(self, group_id: str) -> FormerGroup:
        """Returns what was known of a group, and forgets it."""
        former = self._groups.pop(group_id)
        if former is None:
            return NOTHING_KNOWN
        self._member_bytes -= former.bytes
        return former

    def _evicted(self, _: str, former: FormerGroup) -> None:
        self._member_bytes -= former.bytes
