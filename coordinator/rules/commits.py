"""The rules of offsets: how each event changes the committed offsets of groups."""

from collections.abc import Callable, Mapping
from typing import Any

from group_sidecar.coordinator.model.events import (
    LOST_REQUEST_SECONDS,
    Event,
    OffsetsDeleted,
    OffsetsDoubted,
    OffsetsLearned,
    OffsetsPending,
    OffsetsStored,
    TransactionEnded,
)
from group_sidecar.coordinator.model.facts import Fact, OffsetsCommitted
from group_sidecar.coordinator.model.state_transitions import DEAD
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.coordinator.rules.apply import apply
from group_sidecar.coordinator.rules.followed_log import FollowedLog
from group_sidecar.coordinator.rules.internal_events import GroupFound, RequestsCrossed
from group_sidecar.coordinator.state.group_cache import GroupCache
from group_sidecar.coordinator.state.group_offsets import GroupOffsets


class OffsetRules:
    """Applies events about offsets to a cache of groups.

    Attributes:
        rules: the rule of each kind of event.
    """

    def __init__(self, cache: GroupCache, log: FollowedLog) -> None:
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
        """Returns the offsets of the event's group; None if there is no room. A commit creates an Empty group."""
        group = self._cache.get_or_maybe_create(event.group_id, event.sent_at)
        if group is None:
            self._cache.exclusivity.note_unknown_effect(event.group_id, now)
            self._cache.unseen_history.note(event.group_id, now)  # The log was read too early to contain the commit.
            return None
        if group.state is DEAD:
            apply(group, GroupFound(), now)
        elif self._cache.may_be_removed_soon(group) and group.protocol_type:
            # The broker may have removed the group before this commit. In that case, the commit has created a new group
            # with this name, which has no protocol type.
            apply(group, RequestsCrossed(), now)
        return self._cache.get_or_create_offsets(group, event.sent_at)

    def _offsets_stored(self, event: OffsetsStored, now: float) -> list[Fact]:
        accepted = len(event.offsets) + event.unresolved
        self._explain(event)
        if accepted and (offsets := self._offsets_of(event, now)) is not None:
            kept = self._cache.within_bound(offsets, event.offsets, now)
            offsets.store(kept, event.sent_at)
            if self._log.may_include(event):
                offsets.doubt_differences(now)
            if event.unresolved:
                offsets.note_unnamed_commit(now)
                self._cache.exclusivity.note_unknown_effect(event.group_id, now)
            if not event.broker_retention:
                offsets.leave_to_broker(FallbackReason.STALE)
            self._cache.update_offset_counts(event.group_id, now)
        refused, client = event.refused, event.refused_client
        return [OffsetsCommitted(group_id=event.group_id, at=now, accepted=accepted, refused=refused, by=client)]

    def _explain(self, event: OffsetsStored | OffsetsPending) -> None:
        """Notes that these commits passed through the sidecar, so that their records do not count as bypasses."""
        for partition in event.offsets:
            self._cache.exclusivity.explain(event.group_id, partition)

    def _offsets_pending(self, event: OffsetsPending, now: float) -> list[Fact]:
        self._explain(event)
        if (offsets := self._offsets_of(event, now)) is not None:
            kept = self._cache.within_bound(offsets, event.offsets, now, event.producer_id)
            offsets.add_pending(event.producer_id, kept, now)
            self._cache.update_offset_counts(event.group_id, now)
            if kept and not offsets.log_is_read:
                self._cache.begin_transaction(event.producer_id, event.group_id)
        return []

    def _transaction_ended(self, event: TransactionEnded, now: float) -> list[Fact]:
        for group_id in self._cache.end_transaction(event.producer_id):
            if (offsets := self._cache.group_offsets(group_id)) is not None:
                offsets.end_transaction(event.producer_id, committed=event.committed)
                self._cache.update_offset_counts(group_id, now)
        return []

    def _offsets_deleted(self, event: OffsetsDeleted, now: float) -> list[Fact]:
        self._log.expect_offset_tombstones(event.group_id, event.partitions, now)
        if (offsets := self._cache.group_offsets(event.group_id)) is None:
            self._cache.note_removal(now)
        else:
            offsets.delete(event.partitions, event.sent_at, now)
            self._cache.update_offset_counts(event.group_id, now)
        return []

    def _offsets_doubted(self, event: OffsetsDoubted, now: float) -> list[Fact]:
        self._cache.exclusivity.note_unknown_effect(event.group_id, now)
        if not self._cache.exists(event.group_id):
            # A lost commit may create the group. A lost deletion may arrive after another client's first commit.
            self._cache.unseen_history.note(event.group_id, now + LOST_REQUEST_SECONDS)
        elif offsets := self._offsets_of(event, now):
            offsets.doubt(event.partitions, now + LOST_REQUEST_SECONDS)
            self._cache.update_offset_counts(event.group_id, now)
        return []

    def _offsets_learned(self, event: OffsetsLearned, now: float) -> list[Fact]:
        """Adopts offsets from a reply of the broker, for a known group whose log is not read."""
        is_logged = self._cache.partitions.partition_of(event.group_id) is not None
        has_changed = event.as_of != self._cache.changes_of(event.group_id)[1]
        if is_logged or has_changed or not self._cache.exists(event.group_id):
            self._doubt_outdated(event, now)
            return []
        if now < self._cache.topic_deletion_until or event.sent_at < self._cache.unread_writes.until_of(event.group_id):
            return []
        if (offsets := self._offsets_of(event, now)) is not None:
            kept = self._cache.within_bound(offsets, event.offsets, now)
            offsets.adopt(kept, event.absent, complete=event.complete, sent_at=event.sent_at)
            self._cache.update_offset_counts(event.group_id, now)
        return []

    def _doubt_outdated(self, event: OffsetsLearned, now: float) -> None:
        """Makes offsets doubtful if they differ from a reply of the broker that the copy cannot adopt.

        A commit or a deletion whose reply is in flight, and which the log does not contain yet, may cause the
        difference. A client that got the broker's reply must not get an older offset afterwards.
        """
        group = self._cache.group(event.group_id)
        if group is None or group.state is DEAD:
            if event.offsets:
                self._cache.unseen_history.note(event.group_id, now)
            return
        offsets = self._cache.group_offsets(event.group_id)
        if offsets is None and event.offsets:
            offsets = self._cache.get_or_create_offsets(group, event.sent_at)
        if offsets is None:
            return
        other = offsets.committed.differing_from(event.offsets, event.absent)
        was_deleted = event.complete and offsets.committed.has_others(event.offsets)
        if other or was_deleted:
            offsets.doubt(None if was_deleted else other, now)
            self._cache.update_offset_counts(event.group_id, now)
