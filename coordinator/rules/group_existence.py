"""The rules of whole groups: how lists, deletions and coordinator moves change the copy."""

from collections.abc import Callable, Mapping
from typing import Any

from group_sidecar.coordinator.model.events import (
    NEVER,
    GroupDeleted,
    GroupDescribed,
    GroupsListed,
    NotCoordinatorReplied,
)
from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.coordinator.rules.apply import apply
from group_sidecar.coordinator.rules.fact_builder import coordinator_moved
from group_sidecar.coordinator.rules.followed_log import FollowedLog
from group_sidecar.coordinator.rules.internal_events import RequestsCrossed
from group_sidecar.coordinator.state.group_cache import GroupCache


class GroupExistence:
    """Applies events about whole groups to a cache of groups.

    Attributes:
        rules: the rule of each kind of event.
    """

    def __init__(self, cache: GroupCache, log: FollowedLog) -> None:
        self._cache = cache
        self._log = log
        self.rules: Mapping[type[Any], Callable[[Any, float], list[Fact]]] = {
            GroupsListed: self._groups_listed,
            GroupDeleted: self._group_deleted,
            NotCoordinatorReplied: self._not_coordinator,
        }

    def note_missing(self, event: GroupDescribed, now: float) -> None:
        """Notes that the broker has no such group, unless a lost request may still create the group.

        DescribeGroups also returns a group of a newer protocol as Dead. Only the log or a list of the broker's groups
        shows whether there is such a group.
        """
        cache, group_id = self._cache, event.group_id
        cache.unseen_history.note_missing(group_id, now)
        partition = cache.partitions.partition_of(group_id)
        if partition is None:
            cache.unseen_history.await_listing(group_id)
            return
        asked_at = min(event.sent_at, partition.fresh_at)
        unchanged = event.as_of == cache.changes_of(group_id)[0] and group_id.encode() not in partition.log.groups
        if unchanged and asked_at >= cache.settled_at(group_id):
            cache.unseen_history.end(group_id)
            cache.history_ended(now)

    def _groups_listed(self, event: GroupsListed, now: float) -> list[Fact]:
        """Applies a list of all groups. An unlisted group does not exist, unless a lost request may still create it."""
        if event.sent_at >= self._cache.unread_writes.until:
            self._cache.unseen_history.apply_listing(event.groups, event.sent_at, event.as_of)
            self._cache.history_ended(now)
        return []

    def _group_deleted(self, event: GroupDeleted, now: float) -> list[Fact]:
        cache = self._cache
        group, offsets = cache.group(event.group_id), cache.group_offsets(event.group_id)
        changed_at = max((each.changed_at for each in (group, offsets) if each), default=NEVER)
        if group and (group.joins or changed_at > event.sent_at):  # A client may have created the group again.
            apply(group, RequestsCrossed(), now)
            cache.unseen_history.note(event.group_id, now)
            if offsets:
                offsets.doubt(None, now)
                cache.update_offset_counts(event.group_id, now)
            return []
        cache.remove(event.group_id, now)
        self._log.expect_group_tombstone(event.group_id, now, existed=event.existed)
        lost_until = max(group.doubted_until if group else NEVER, offsets.settled_at if offsets else NEVER)
        if event.sent_at < lost_until:
            cache.unseen_history.note(event.group_id, lost_until)  # A lost request may create the group again.
        elif event.sent_at >= cache.unseen_history.settled_at(event.group_id):
            cache.unseen_history.end(event.group_id)
        return []

    def _not_coordinator(self, event: NotCoordinatorReplied, now: float) -> list[Fact]:
        if event.sent_at < self._cache.partitions.began_at(event.group_id):
            return []  # The request was sent before the broker became the coordinator.
        known = self._log.moved_groups.take(event.group_id) or self._cache.exists(event.group_id)
        self._cache.remove_moved(event.group_id, now)
        self._log.note_not_coordinated(event.group_id, now)
        partitions = self._cache.partitions
        # If the log is read and another broker leads the group's partition, no note is needed. Once this broker leads
        # the partition, the log contains the group.
        if partitions.count is None or partitions.partition_of(event.group_id) is not None:
            self._cache.unseen_history.note(event.group_id, now, elsewhere=True)
        return coordinator_moved(event.group_id, now) if known else []  # Only the first of several errors is a fact.
