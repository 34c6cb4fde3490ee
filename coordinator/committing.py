"""What each event does to the committed offsets of groups.

Owns: `Committing`: the rules by which events become changes of a `GroupOffsets`. Must
not know: members, who asks, what is lacking to answer.
"""

from collections.abc import Callable, Mapping
from typing import Any

from group_sidecar.coordinator.cache import GroupCache
from group_sidecar.coordinator.events import (
    LOST_SECONDS,
    Event,
    OffsetsDeleted,
    OffsetsDoubted,
    OffsetsLearned,
    OffsetsPending,
    OffsetsStored,
    TransactionEnded,
)
from group_sidecar.coordinator.facts import Fact, OffsetsCommitted
from group_sidecar.coordinator.following import LogFollower
from group_sidecar.coordinator.offsets import GroupOffsets
from group_sidecar.coordinator.states import DEAD
from group_sidecar.coordinator.views import GroupState, Lacking


class Committing:
    """Applies events about offsets to a cache of groups.

    Attributes:
        rules: what to do for each kind of event.
    """

    def __init__(self, cache: GroupCache, log: LogFollower) -> None:
        self._cache = cache
        self._log = log
        self.rules: Mapping[type[Any], Callable[[Any, float], list[Fact]]] = {
            OffsetsStored: self._offsets_stored,
            OffsetsPending: self._offsets_pending,
            OffsetsDeleted: self._offsets_deleted,
            OffsetsDoubted: self._offsets_doubted,
            OffsetsLearned: self._offsets_learned,
            TransactionEnded: self._transaction_ended,
        }

    def _offsets_of(self, event: Event, now: float) -> GroupOffsets | None:
        """The offsets an event is about, with its group: a commit makes an Empty group where there was none."""
        group = self._cache.get_or_maybe_create(event.group_id, event.sent_at)
        if group is None:
            return None
        if group.state is DEAD:
            group.become(GroupState.EMPTY)
            group.touch(now)
        elif self._cache.fades(group) and group.protocol_type:
            group.doubt(now)  # If it was cleared away before, the one that is there now never had a protocol.
        return self._cache.offsets_of(group, event.sent_at)

    def _offsets_stored(self, event: OffsetsStored, now: float) -> list[Fact]:
        accepted = len(event.offsets) + event.unnamed
        if accepted and (offsets := self._offsets_of(event, now)) is not None:
            kept = self._cache.within_bound(offsets, event.offsets, now)
            offsets.store(kept, event.sent_at)
            if self._log.overtook(event):
                offsets.compare(now)
            if event.unnamed:
                offsets.unsure = offsets.unsure or Lacking.COLD
                offsets.settled_at = max(offsets.settled_at, now)
            if not event.lasting:
                offsets.unfollowed = offsets.unfollowed or Lacking.STALE
            self._cache.account(event.group_id, now)
        return [OffsetsCommitted(group_id=event.group_id, at=now, accepted=accepted, refused=event.refused)]

    def _offsets_pending(self, event: OffsetsPending, now: float) -> list[Fact]:
        if (offsets := self._offsets_of(event, now)) is not None:
            kept = self._cache.within_bound(offsets, event.offsets, now, event.producer_id)
            offsets.hold(event.producer_id, kept, now)
            self._cache.account(event.group_id, now)
            if kept and not offsets.followed:
                self._cache.transactions.setdefault(event.producer_id, set()).add(event.group_id)
        return []

    def _transaction_ended(self, event: TransactionEnded, now: float) -> list[Fact]:
        for group_id in self._cache.transactions.pop(event.producer_id, ()):
            if (offsets := self._cache.group_offsets(group_id)) is not None:
                offsets.end(event.producer_id, committed=event.committed)
                self._cache.account(group_id, now)
        return []

    def _offsets_deleted(self, event: OffsetsDeleted, now: float) -> list[Fact]:
        self._log.deleted_offsets(event.group_id, event.partitions, now)
        if (offsets := self._cache.group_offsets(event.group_id)) is None:
            self._cache.note_removal(now)
        else:
            offsets.delete(event.partitions, event.sent_at, now)
            self._cache.account(event.group_id, now)
        return []

    def _offsets_doubted(self, event: OffsetsDoubted, now: float) -> list[Fact]:
        if not self._cache.exists(event.group_id):
            if event.creates:
                self._cache.pasts.note(event.group_id, now + LOST_SECONDS)
        elif (event.creates or event.group_id in self._cache.offsets) and (offsets := self._offsets_of(event, now)):
            offsets.doubt(event.partitions, now + LOST_SECONDS)
            self._cache.account(event.group_id, now)
        return []

    def _offsets_learned(self, event: OffsetsLearned, now: float) -> list[Fact]:
        """Of a group that is not known to exist nothing is learned, nor where the log tells more."""
        if not self._cache.exists(event.group_id) or event.as_of != self._cache.changes_of(event.group_id)[1]:
            return []
        if self._cache.partitions.holding(event.group_id) is not None:
            return []
        if now < self._cache.disturbed_until or event.sent_at < self._cache.unread.until_of(event.group_id):
            return []
        if (offsets := self._offsets_of(event, now)) is not None:
            kept = self._cache.within_bound(offsets, event.offsets, now)
            offsets.learn(kept, event.absent, whole=event.whole, sent_at=event.sent_at)
            self._cache.account(event.group_id, now)
        return []
