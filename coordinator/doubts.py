"""Why the copy of a group may not be used to answer.

Owns: `Doubts`: that judgement, from where the copy comes and what has happened to it. Must not know: what is asked,
who may ask, what the state is made of.

Offsets, and groups of the new protocols, are in the log with all that is told of them. What a classic group is doing
between two generations is not: of that only the wire tells, and only if it tells of everything.
"""

from collections.abc import Iterator

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.cache import GroupCache
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.offsets import GroupOffsets
from group_sidecar.coordinator.partitions import FRESH_SECONDS, PartitionState
from group_sidecar.coordinator.views import GroupKind, Lacking

LOOKED_AT_ONCE = 500
"""Groups that are looked at between two breaths: less than a millisecond."""
_ERRORS = {
    PartitionState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    PartitionState.OWNED: ErrorCode.COORDINATOR_NOT_AVAILABLE,  # It is not fresh.
    PartitionState.FAILED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class Doubts:
    """What is lacking in the groups of a cache."""

    def __init__(self, cache: GroupCache) -> None:
        self._cache = cache

    def of_description(self, group_id: str, group: Group | None, now: float) -> Lacking | None:
        """Why DescribeGroups may not be answered; None where it may.

        A host that the broker has not told could only be guessed: which of its addresses the sidecar has there.
        """
        if group is not None and group.bare:
            return Lacking.COLD
        told = self._cache.true_hosts or group is None or all(each.broker_host for each in group.members.values())
        return self.of_group(group_id, group, now) or (None if told else Lacking.IN_DOUBT)

    def of_group(self, group_id: str, group: Group | None, now: float) -> Lacking | None:
        """Why a group's state and members may not be told; None where they may."""
        cache = self._cache
        if group_id in cache.distrusted:
            return Lacking.IN_DOUBT
        behind = self._behind(group_id, now)
        if group is not None and group.kind is not GroupKind.CLASSIC:
            return group.lacking(now) or behind
        if not cache.exclusive:
            return Lacking.COLD
        if behind is not None and cache.partitions.matter:
            return behind
        if group is None:
            return None if cache.known_from_birth(group_id) else Lacking.COLD
        return group.lacking(now) or (Lacking.IN_DOUBT if cache.fades(group) else None)

    def of_offsets(
        self, group_id: str, group: Group | None, offsets: GroupOffsets | None, now: float
    ) -> Lacking | None:
        """Why OffsetFetch may not be answered; None where it may."""
        cache = self._cache
        if group_id in cache.distrusted:
            return Lacking.IN_DOUBT
        if cache.partitions.matter:
            return self._behind(group_id, now) or self._of_logged_offsets(group_id, offsets, now)
        if not cache.exclusive:
            return Lacking.COLD
        if group is not None and group.kind is not GroupKind.CLASSIC:
            return Lacking.VERSION
        if offsets is not None:
            return offsets.lacking
        return None if cache.known_from_birth(group_id) and cache.keeps_empty_groups else Lacking.COLD

    def _of_logged_offsets(self, group_id: str, offsets: GroupOffsets | None, now: float) -> Lacking | None:
        cache = self._cache
        partition = cache.partitions.holding(group_id)
        assert partition is not None
        if now < cache.disturbed_until:
            return Lacking.STALE
        if partition.fresh_at < cache.unread.until:
            return Lacking.UNDECODABLE
        if offsets is not None:
            return offsets.lacking
        return Lacking.IN_DOUBT if cache.settled_at(group_id) > partition.fresh_at else None

    def of_consumer(self, group_id: str, group: Group | None, now: float) -> Lacking | None:
        """Why ConsumerGroupDescribe may not be answered; None where it may. Without the log nothing is known of it."""
        if group_id in self._cache.distrusted:
            return Lacking.IN_DOUBT
        if self._cache.partitions.count is None:
            return Lacking.VERSION
        if now < self._cache.disturbed_until:
            return Lacking.STALE  # The broker leaves out topics that are gone.
        if group is None:
            # A classic group is not in the log before its first generation, and the broker says which of both it is.
            return self.of_group(group_id, group, now)
        if group.kind is GroupKind.CLASSIC:
            offsets = self._cache.group_offsets(group_id)  # Of one that is going they may be kept a little longer.
            logged = group.logged is not None or (offsets is not None and bool(offsets.committed.logged))
            return self._behind(group_id, now) or (None if logged else Lacking.IN_DOUBT)
        return group.lacking(now) or self._behind(group_id, now)

    def error_of(self, group_id: str, now: float) -> ErrorCode:
        """What a coordinator with this log would say instead of an answer (Kafka's GroupMetadataManager)."""
        partitions = self._cache.partitions
        if partitions.count is None or partitions.follows(group_id, now):
            return ErrorCode.NONE
        partition = partitions.holding(group_id)
        return _ERRORS[partition.state] if partition else ErrorCode.NOT_COORDINATOR

    def of_listing(self, now: float) -> Lacking | None:
        """Why ListGroups may not be answered, whatever the groups; None where it may."""
        cache = self._cache
        if not (cache.exclusive and cache.pasts.all_known):
            return Lacking.COLD
        if cache.partitions.matter and not cache.partitions.follows_all(now):
            return Lacking.COLD
        unsure = not cache.distrusted <= cache.groups.keys() or any(each.lost_deletions for _, each in cache.partitions)
        return Lacking.IN_DOUBT if unsure else None

    def unsettled(self) -> Iterator[list[str]]:
        """Groups of which the broker must be asked. Its word is of no use while the wire does not tell everything.

        Some groups at a time, and possibly none of them in doubt: between two steps others may have their turn.
        """
        cache = self._cache
        if not cache.exclusive:
            return
        names = [*cache.pasts.noted(), *cache.groups]
        for first in range(0, len(names), LOOKED_AT_ONCE):
            yield [group_id for group_id in names[first : first + LOOKED_AT_ONCE] if self._unsettled(group_id)]

    def _unsettled(self, group_id: str) -> bool:
        group = self._cache.group(group_id)
        return self._cache.pasts.may_be_there(group_id) if group is None else group.unsettled

    def _behind(self, group_id: str, now: float) -> Lacking | None:
        """Why the log does not tell of a group; None where it does."""
        partition = self._cache.partitions.holding(group_id)
        if partition is None or partition.state is not PartitionState.OWNED:
            return Lacking.COLD
        if now - partition.fresh_at > FRESH_SECONDS:
            return Lacking.STALE
        # A group that was deleted and is still in the log may have been made again around the sidecar.
        deleted_at = partition.deleted.get(group_id)
        held_back = deleted_at is not None and deleted_at <= partition.fresh_at
        return Lacking.IN_DOUBT if held_back or partition.lost_deletions else None
