"""Applies events about whole groups: the broker has listed, deleted or handed over groups.

Owns: `Existence`: the rules by which groups are deleted, listed, or go to another broker, and what remains of their
past. It does not know members, offsets, or what is lacking to answer.
"""

from collections.abc import Callable, Mapping
from typing import Any

from group_sidecar.coordinator.cache import GroupCache
from group_sidecar.coordinator.events import NEVER, CoordinatorMoved, GroupDeleted, GroupDescribed, GroupsListed
from group_sidecar.coordinator.facts import Fact
from group_sidecar.coordinator.following import LogFollower
from group_sidecar.coordinator.telling import coordinator_moved


class Existence:
    """Applies events about whole groups to a cache of groups.

    Attributes:
        rules: what to do for each kind of event.
    """

    def __init__(self, cache: GroupCache, log: LogFollower) -> None:
        self._cache = cache
        self._log = log
        self.rules: Mapping[type[Any], Callable[[Any, float], list[Fact]]] = {
            GroupsListed: self._groups_listed,
            GroupDeleted: self._group_deleted,
            CoordinatorMoved: self._coordinator_moved,
        }

    def missed(self, event: GroupDescribed, now: float) -> None:
        """The broker has no such group. Its past is over, unless something lost may yet make it."""
        cache, group_id = self._cache, event.group_id
        cache.pasts.missed(group_id, now)
        if event.as_of == cache.changes_of(group_id)[0] and event.sent_at >= cache.settled_at(group_id):
            cache.pasts.end(group_id)
            cache.past_ended(now)

    def _groups_listed(self, event: GroupsListed, now: float) -> list[Fact]:
        """A group that the broker does not list does not exist, unless a lost request may still create it."""
        if event.sent_at >= self._cache.unread.until:
            self._cache.pasts.listed(event.groups, event.sent_at, event.as_of)
            self._cache.past_ended(now)
        return []

    def _group_deleted(self, event: GroupDeleted, now: float) -> list[Fact]:
        cache = self._cache
        group, offsets = cache.group(event.group_id), cache.group_offsets(event.group_id)
        changed_at = max((each.changed_at for each in (group, offsets) if each), default=NEVER)
        if group and (group.joins or changed_at > event.sent_at):  # It may have been made anew since.
            group.doubt(now)
            cache.pasts.note(event.group_id, now)
            if offsets:
                offsets.doubt(None, now)
                cache.account(event.group_id, now)
            return []
        cache.remove(event.group_id, now)
        self._log.deleted(event.group_id, now, existed=event.existed)
        lost_until = max(group.doubted_until if group else NEVER, offsets.settled_at if offsets else NEVER)
        if event.sent_at < lost_until:
            cache.pasts.note(event.group_id, lost_until)  # What was lost may make it anew.
        elif event.sent_at >= cache.pasts.settled_at(event.group_id):
            cache.pasts.end(event.group_id)
        return []

    def _coordinator_moved(self, event: CoordinatorMoved, now: float) -> list[Fact]:
        if event.sent_at < self._cache.partitions.began_at(event.group_id):
            return []  # It was not the coordinator yet.
        known = self._log.left_behind.pop(event.group_id) is not None or self._cache.exists(event.group_id)
        self._cache.remove(event.group_id, now)
        partitions = self._cache.partitions
        if partitions.count is None or partitions.holding(event.group_id) is not None:
            self._cache.pasts.note(event.group_id, now, elsewhere=True)  # Else it comes back with its log.
        return coordinator_moved(event.group_id, now) if known else []  # All of its clients hear it.
