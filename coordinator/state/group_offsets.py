"""The committed and the pending offsets of one group, and why the copy of these offsets may be incomplete."""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from group_sidecar.coordinator.model.events import FOREVER, NEVER
from group_sidecar.coordinator.model.views import CommittedOffset, FallbackReason, TopicPartition
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets, metadata_chars
from group_sidecar.coordinator.state.logged_group import LoggedGroup

Offsets = Mapping[TopicPartition, CommittedOffset]
MAX_DOUBTFUL = 1_000
"""The maximum number of doubtful partitions that are kept by name. A client may name partitions that do not exist."""


class GroupOffsets:
    """The copy's offsets of one group.

    Attributes:
        committed: the committed offsets, by partition.
        pending: the offsets of open transactions, by producer id and partition; empty if the log is read.
        incomplete_reason: why offsets may be missing or wrong; None if they are complete. A reply of the broker with
            all offsets makes them complete.
        untracked_reason: why the copy cannot follow the offsets any more; None if it can.
        doubtful: partitions whose offset may be wrong, each with a time. A commit or reply whose request was sent after
            that time ends the doubt.
        settled_at: only a log that was read up to this time, or a complete reply to a later request, makes the offsets
            complete again. In seconds since the epoch.
        counted: the number of offsets from the wire, and the characters of their metadata, as last counted for the
            bounds.
        changes: the number of the last change.
        changed_at: when the offsets last changed.
        confirmed_at: the send time of the last request that stored or returned all of these offsets; else that of the
            first commit. Each offset was at the broker at this time, or was committed later. Without the log, the
            broker may have removed offsets since.
        epoch: the epoch of `UnreadWrites` whose writes were last applied to these offsets.
    """

    def __init__(self, incomplete_reason: FallbackReason | None, settled_at: float = NEVER, epoch: int = 0) -> None:
        self.committed = CommittedOffsets()
        self.pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        self.incomplete_reason = incomplete_reason
        self.untracked_reason: FallbackReason | None = None
        self.doubtful: dict[TopicPartition, float] = {}
        self._maybe_hidden: set[TopicPartition] = set()
        """Doubtful partitions that may have a commit of -1, which OffsetFetch reports like a missing commit."""
        self.counted = (0, 0)
        self._pending_count = self._pending_metadata_chars = 0
        self.changes, self.epoch = 0, epoch
        self.changed_at = self.confirmed_at = 0.0
        self._logged: LoggedGroup | None = None
        self._deleted_at, self.settled_at = NEVER, settled_at
        self._log_changed_at = NEVER

    @property
    def size(self) -> tuple[int, int]:
        """The number of offsets from the wire, pending ones included, and their characters of metadata."""
        return len(
            self.committed.wire_offsets
        ) + self._pending_count, self.committed.metadata_chars + self._pending_metadata_chars

    @property
    def fallback_reason(self) -> FallbackReason | None:
        """Why OffsetFetch may not be answered from these offsets; None if it may."""
        if self._logged is not None and self._logged.pending:
            return FallbackReason.UNSTABLE
        return self.untracked_reason or self.incomplete_reason or (FallbackReason.IN_DOUBT if self.doubtful else None)

    @property
    def has_unknown_changes(self) -> bool:
        """Whether requests of unknown effect may have changed offsets since the log was last read to its end."""
        return bool(self.untracked_reason or self.incomplete_reason or self.doubtful)

    @property
    def has_certain_offsets(self) -> bool:
        """Whether the broker certainly has at least one offset of the group."""
        if self.incomplete_reason not in (None, FallbackReason.COLD):
            return False
        if self.log_is_read:
            return any(partition not in self.doubtful for partition in self.committed)
        if self.untracked_reason is FallbackReason.STALE:
            return False
        return len(self.committed.wire_offsets) > len(self.doubtful)

    # The log.

    @property
    def log_is_read(self) -> bool:
        """Whether the log of the group is read. The log resolves every doubt sooner or later."""
        return self.committed.log_values is not None

    def attach_log(self, logged: LoggedGroup | None) -> None:
        """Connects the offsets to the log. `logged` has the group's records in the log; None if there are none."""
        self._logged = logged
        self.committed.log_values = {} if logged is None else logged.offsets

    def note_log_changed(self, now: float) -> None:
        """Notes that the group's records in the log changed at the time `now`.

        The reply to a request that was sent earlier may contain older offsets than the log.
        """
        self._log_changed_at = now

    def reconcile_with_log(
        self, asked_at: float, deleted: Iterable[TopicPartition] = (), unread_until: float = NEVER
    ) -> bool:
        """Drops the state that the log contains or refutes, after the log was read up to `asked_at`.

        Returns whether no state from the wire is left.

        Args:
            asked_at: the log contains everything that the broker acknowledged up to this time.
            deleted: partitions whose offset the broker has deleted, although the log still has it.
            unread_until: until when writes that could not be decoded may change the offsets.
        """
        self.committed.drop_acknowledged(asked_at)
        if max(self.settled_at, unread_until) <= asked_at:
            self.incomplete_reason = self.untracked_reason = None
            self.doubtful.clear()
            self._maybe_hidden.clear()
        self._doubt_until(deleted, asked_at)
        return not (self.committed.wire_offsets or self.incomplete_reason or self.untracked_reason or self.doubtful)

    def doubt_differences(self, now: float) -> None:
        """Makes each partition doubtful if its offsets in the log and from the wire differ.

        Until the log is read further, either offset may be newer.
        """
        if differing := self.committed.differing():
            self.doubt(differing, now)

    # The wire.

    def store(self, offsets: Offsets, sent_at: float) -> None:
        """Stores committed offsets. `sent_at` is when their request was sent to the broker.

        An offset is doubtful if another connection committed an offset of the same partition while this request was in
        flight, because the order of the two commits is unknown. The copy knows the commit of the other connection from
        its reply or from the log.
        """
        wire_offsets, doubtful, deleted_since = self.committed.wire_offsets, self.doubtful, self._deleted_at > sent_at
        for partition, offset in offsets.items():
            known = wire_offsets.get(partition)
            crossed = known is not None and known.at > sent_at and known.writer != offset.writer
            crossed = crossed or (self._log_changed_at > sent_at and self.committed.differs_from_log(partition, offset))
            if crossed or deleted_since:
                self._doubt_until((partition,), offset.at)
                self.settled_at = max(self.settled_at, offset.at)
                if offset.looks_absent or (known is not None and known.looks_absent):
                    self._maybe_hidden.add(partition)
            elif doubtful and doubtful.get(partition, FOREVER) <= sent_at:
                self._end_doubt(partition)
        self._confirm(offsets.keys(), sent_at)
        self.committed.put(offsets)

    def _confirm(self, partitions: AbstractSet[TopicPartition], at: float) -> None:
        """Sets `confirmed_at` to a time at which the broker had these offsets, if the copy has no others."""
        if self.committed.wire_offsets.keys() <= partitions:
            self.confirmed_at = at

    def delete(self, partitions: Iterable[TopicPartition], sent_at: float, now: float) -> None:
        """Deletes the offsets of partitions. `sent_at` is when the request was sent, and `now` when its reply came.

        A partition is doubtful if its offset was committed while the request was in flight.
        """
        self._deleted_at = now
        for partition in partitions:
            is_logged = self._log_changed_at > sent_at and self.committed.is_logged(partition)
            known = self.committed.remove(partition, now)
            if is_logged or (known is not None and known.at > sent_at):
                self._doubt_until((partition,), now)
                self.settled_at = max(self.settled_at, now)
                if known is not None and known.looks_absent:
                    self._maybe_hidden.add(partition)

    def _doubt_until(self, partitions: Iterable[TopicPartition], until: float) -> None:
        """Makes partitions doubtful until the time `until`, unless an earlier doubt lasts longer."""
        for partition in partitions:
            self.doubtful[partition] = max(until, self.doubtful.get(partition, NEVER))

    def _end_doubt(self, partition: TopicPartition) -> None:
        del self.doubtful[partition]
        self._maybe_hidden.discard(partition)

    def doubt(self, partitions: Collection[TopicPartition] | None, until: float) -> None:
        """Makes partitions doubtful, because the broker may store or delete their offsets before the time `until`.

        If `partitions` is None, any offset may change. In this case, or if there are too many partitions, all offsets
        of the group become incomplete instead.
        """
        self.settled_at = max(self.settled_at, until)
        if partitions is None or len(self.doubtful) + len(partitions) > MAX_DOUBTFUL:
            self.incomplete_reason = self.incomplete_reason or FallbackReason.IN_DOUBT
        else:
            self._doubt_until(partitions, until)

    def note_unnamed_commit(self, now: float) -> None:
        """Makes the offsets incomplete after a commit whose topics are unknown."""
        self.incomplete_reason = self.incomplete_reason or FallbackReason.COLD
        self.settled_at = max(self.settled_at, now)

    def note_undecoded_write(self, until: float) -> None:
        """Makes the offsets incomplete, because of a write that could not be decoded.

        The write may change the offsets before the time `until`.
        """
        self.incomplete_reason = FallbackReason.UNDECODABLE
        self.settled_at = max(self.settled_at, until)

    def topics_deleted(self) -> None:
        """Makes the offsets incomplete, because the broker removes the offsets of deleted topics."""
        self.incomplete_reason = self.incomplete_reason or FallbackReason.STALE

    def leave_to_broker(self, reason: FallbackReason, until: float = NEVER) -> None:
        """Stops following the offsets, until the log has been read up to the time `until`."""
        self.untracked_reason = self.untracked_reason or reason
        self.settled_at = max(self.settled_at, until)

    def add_pending(self, producer_id: int, offsets: Offsets, now: float) -> None:
        """Keeps offsets of a transaction until it ends.

        The wire does not show when the transaction's marker reaches the broker. From then on only the broker and the
        log have the correct offsets.
        """
        self.untracked_reason = FallbackReason.UNSTABLE
        self.settled_at = max(self.settled_at, now)
        if offsets and not self.log_is_read:
            held = self.pending.setdefault(producer_id, {})
            self._pending_metadata_chars += metadata_chars(offsets.values()) - metadata_chars(map(held.get, offsets))
            self._pending_count -= len(held)
            held.update(offsets)
            self._pending_count += len(held)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Ends the transaction of a producer. Its offsets become committed or are dropped."""
        held = self.pending.pop(producer_id, {})
        self._pending_count -= len(held)
        self._pending_metadata_chars -= metadata_chars(held.values())
        if committed:
            self.committed.put(held)

    def adopt(self, offsets: Offsets, absent: Iterable[TopicPartition], *, complete: bool, sent_at: float) -> None:
        """Adopts offsets from a reply of the broker. An unchanged offset keeps the time of its commit.

        Args:
            offsets: the offsets in the reply.
            absent: partitions for which the reply has no offset. A reply shows a commit of -1 in the same way
                (`CommittedOffset.looks_absent`), so a known commit of -1 is kept. If a partition may have such a
                commit, its doubt stays until a complete reply or a later commit.
            complete: whether the reply contains all offsets of the group.
            sent_at: when the request was sent.
        """
        reported = {partition: self._with_known_time(partition, offset) for partition, offset in offsets.items()}
        if complete:
            self.confirmed_at = sent_at
            self.committed.replace_all(reported)
            self.doubtful = {partition: until for partition, until in self.doubtful.items() if until > sent_at}
            self._maybe_hidden &= self.doubtful.keys()
            self.incomplete_reason = self.incomplete_reason if self.settled_at > sent_at else None
            return
        removed = [partition for partition in absent if not self.committed.looks_absent(partition)]
        self._confirm({*reported, *removed}, sent_at)
        self.committed.put(reported)
        self.committed.drop(removed)
        for partition in (*reported, *(each for each in removed if each not in self._maybe_hidden)):
            if self.doubtful.get(partition, FOREVER) <= sent_at:
                self._end_doubt(partition)

    def _with_known_time(self, partition: TopicPartition, reported: CommittedOffset) -> CommittedOffset:
        known = self.committed.get_wire_offset(partition)
        if known is None or (known.offset, known.metadata) != (reported.offset, reported.metadata):
            return reported
        if reported.epoch_known or self.incomplete_reason or partition in self.doubtful:
            return replace(reported, at=known.at)
        return known
