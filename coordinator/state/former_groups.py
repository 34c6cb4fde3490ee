"""What the copy knew of groups whose state it has forgotten.

The copy forgets the state of a group when the broker's coordinator does: the broker has stopped, or does not lead the
group's partition any more. If the broker loads the group again, the log shows the last generation. The log does not
show whether that generation is new, nor what was already reported about its members.

If the broker has deleted a group, the copy keeps only the group's expired clients.
"""

from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.state.bounded_table import TABLE_BYTES, BoundedTable, TableSize, name_bytes
from group_sidecar.coordinator.state.expired_clients import ExpiredClient
from group_sidecar.coordinator.state.lifecycle import UNKNOWN_GENERATION

FORMER_GENERATION_SECONDS = 600.0
"""A former generation counts for this many seconds after the group was last seen.

Later the broker may have deleted the group and created it again. The generations of the new group begin at 1.
"""


class FormerGroup(NamedTuple):
    """What the copy knew of a classic group before it forgot the group's state.

    Attributes:
        generation: the last known generation.
        seen_at: when the group was last seen in this generation.
        reported_gone: when each member was reported as gone, by member id. Members without such a report are left out.
        expired: the clients that may come back after their sessions. A session may end after the state was forgotten.
    """

    generation: int = UNKNOWN_GENERATION
    seen_at: float = NEVER
    reported_gone: Mapping[str, float] = MappingProxyType({})
    expired: tuple[ExpiredClient, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the group."""
        return self.generation != UNKNOWN_GENERATION or bool(self.reported_gone or self.expired)

    def may_continue(self, generation: int, now: float) -> bool:
        """Whether the group is most likely still in this generation if the broker shows the number now."""
        return generation == self.generation and now <= self.seen_at + FORMER_GENERATION_SECONDS


NOTHING_KNOWN = FormerGroup()
"""Stands for a group whose state was never forgotten."""


class FormerGroups:
    """The former groups that may come back.

    Beyond the number of groups, the oldest groups are evicted. If the bytes do not suffice, expired clients are
    evicted, those of the oldest groups first. If that does not suffice, reported members are evicted in the same order.
    Generations need few bytes, so they stay.

    Args:
        max_groups: how many groups are kept.
        max_member_bytes: how many bytes all member ids and clients may take.
    """

    def __init__(self, max_groups: int, max_member_bytes: int = TABLE_BYTES) -> None:
        self._groups: BoundedTable[FormerGroup] = BoundedTable(max_groups, self._evicted)
        self._member_bytes, self._max_member_bytes = 0, max_member_bytes
        # The clients and the reported members of groups, by group id, with their bytes. `_groups` has the rest.
        self._expired: OrderedDict[str, tuple[tuple[ExpiredClient, ...], int]] = OrderedDict()
        self._gone: OrderedDict[str, tuple[Mapping[str, float], int]] = OrderedDict()

    @property
    def table(self) -> TableSize:
        """The size of this object."""
        return TableSize("former_groups", len(self._groups), self._groups.bytes + self._member_bytes)

    def put(self, group_id: str, former: FormerGroup) -> None:
        """Keeps what was known of a group."""
        self.take(group_id)
        if not former.is_known:
            return
        if former.expired:
            self._expired[group_id] = former.expired, sum(client.bytes for client in former.expired)
            self._member_bytes += self._expired[group_id][1]
        if former.reported_gone:
            self._gone[group_id] = former.reported_gone, sum(map(name_bytes, former.reported_gone))
            self._member_bytes += self._gone[group_id][1]
        self._groups.put(group_id, FormerGroup(former.generation, former.seen_at))
        while self._member_bytes > self._max_member_bytes and (self._expired or self._gone):
            oldest, (_, size) = (self._expired or self._gone).popitem(last=False)
            self._member_bytes -= size
            self._drop_unless_known(oldest)

    def _drop_unless_known(self, group_id: str) -> None:
        """Drops a group of which nothing is known any more."""
        rest = self._groups.get(group_id)
        if rest is not None and not (rest.is_known or group_id in self._expired or group_id in self._gone):
            self._groups.pop(group_id)

    def take(self, group_id: str) -> FormerGroup:
        """Returns what was known of a group, and forgets it."""
        former = self._groups.pop(group_id)
        return NOTHING_KNOWN if former is None else self._with_members(group_id, former)

    def _evicted(self, group_id: str, former: FormerGroup) -> None:
        self._with_members(group_id, former)

    def _with_members(self, group_id: str, former: FormerGroup) -> FormerGroup:
        """Returns what was known of a group, with its members and clients, which are forgotten."""
        expired, expired_bytes = self._expired.pop(group_id, ((), 0))
        gone, gone_bytes = self._gone.pop(group_id, (NOTHING_KNOWN.reported_gone, 0))
        self._member_bytes -= expired_bytes + gone_bytes
        return former._replace(expired=expired, reported_gone=gone)
