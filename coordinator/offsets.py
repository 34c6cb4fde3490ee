"""Committed offsets of one group.

Owns: what is committed, what is pending in transactions, and how sure that is. Must not know: the
group's members, bounds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from group_sidecar.coordinator.committed import CommittedOffsets, text_of
from group_sidecar.coordinator.events import FOREVER, NEVER
from group_sidecar.coordinator.log import LoggedGroup
from group_sidecar.coordinator.views import CommittedOffset, Lacking, TopicPartition

Offsets = Mapping[TopicPartition, CommittedOffset]


class GroupOffsets:
    """The offsets of a group, as far as they are known.

    Attributes:
        committed: by partition.
        pending: by producer and partition, while its transaction has not ended; where the log is not read.
        unsure: why there may be others, or these may not be; until the broker has told all.
        unfollowed: why the broker alone will know from now on, whatever it tells.
        doubtful: partitions whose offset may be another, until a commit or an answer of the broker to what was sent
            after that time.
        settled_at: as `doubted_until` of a group.
        counted: how many are kept beside the log's, and characters of their metadata, as the bounds count them.
        changes, changed_at, epoch: as of a group too.
    """

    def __init__(self, unsure: Lacking | None, settled_at: float = NEVER, epoch: int = 0) -> None:
        self.committed = CommittedOffsets()
        self.pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        self.unsure = unsure
        self.unfollowed: Lacking | None = None
        self.doubtful: dict[TopicPartition, float] = {}
        self.counted = (0, 0)
        self._held = self._held_text = 0
        self.changes, self.epoch = 0, epoch
        self.changed_at = 0.0
        self._logged: LoggedGroup | None = None
        self._deleted_at, self.settled_at = NEVER, settled_at

    @property
    def size(self) -> tuple[int, int]:
        """How many offsets are kept beside the log's, committed or pending, and characters of their metadata."""
        return len(self.committed.seen) + self._held, self.committed.text + self._held_text

    @property
    def lacking(self) -> Lacking | None:
        """Why OffsetFetch may not be answered from these."""
        if self._logged is not None and self._logged.pending:
            return Lacking.UNSTABLE
        return self.unfollowed or self.unsure or (Lacking.IN_DOUBT if self.doubtful else None)

    @property
    def some(self) -> bool:
        """Whether the broker has any for sure."""
        if self.unsure not in (None, Lacking.COLD):
            return False
        if self.followed:
            return any(partition not in self.doubtful for partition in self.committed)
        if self.unfollowed is Lacking.STALE:
            return False
        return len(self.committed.seen) > len(self.doubtful)

    # The log.

    @property
    def followed(self) -> bool:
        """Whether the log is read: what it says will come, and settle what is in doubt."""
        return self.committed.logged is not None

    def follow(self, logged: LoggedGroup | None) -> None:
        """From now on the log is read; this is what it says of the group, if anything."""
        self._logged = logged
        self.committed.logged = {} if logged is None else logged.offsets

    def catch_up(self, asked_at: float, deleted: Iterable[TopicPartition] = (), unread_until: float = NEVER) -> bool:
        """The log has all that was acknowledged until `asked_at`. Returns whether it has all that the wire has, too.

        `deleted`: partitions whose offset the broker has deleted, though the log still has it.
        `unread_until`: until when writes that were not understood may change the offsets.
        """
        self.committed.catch_up(asked_at)
        if max(self.settled_at, unread_until) <= asked_at:
            self.unsure = self.unfollowed = None
            self.doubtful.clear()
        self.doubtful.update(dict.fromkeys(deleted, asked_at))
        return not (self.committed.seen or self.unsure or self.unfollowed or self.doubtful)

    def compare(self, now: float) -> None:
        """Where the log says something else than the wire, either may be the later one; until the log has caught up."""
        if differing := self.committed.differing():
            self.doubt(differing, now)

    # The wire.

    def store(self, offsets: Offsets, sent_at: float) -> None:
        """Commits offsets; `sent_at`: when their request went to the broker.

        Commits on different connections may have crossed on their way: which of two came last is then not known.
        """
        seen, doubtful, deleted_since = self.committed.seen, self.doubtful, self._deleted_at > sent_at
        for partition, offset in offsets.items():
            known = seen.get(partition)
            crossed = known is not None and known.at > sent_at and known.writer != offset.writer
            if crossed or deleted_since:
                doubtful[partition] = offset.at
                self.settled_at = max(self.settled_at, offset.at)
            elif doubtful and doubtful.get(partition, FOREVER) <= sent_at:
                del doubtful[partition]
        self.committed.put(offsets)

    def delete(self, partitions: Iterable[TopicPartition], sent_at: float, now: float) -> None:
        """Forgets offsets."""
        self._deleted_at = now
        for partition in partitions:
            known = self.committed.remove(partition, now)
            if known is not None and known.at > sent_at:
                self.doubtful[partition] = now
                self.settled_at = max(self.settled_at, now)

    def doubt(self, partitions: Iterable[TopicPartition] | None, until: float) -> None:
        """Notes that the broker has, or until then will have, stored or forgotten offsets; None: nobody knows which."""
        self.settled_at = max(self.settled_at, until)
        if partitions is None:
            self.unsure = self.unsure or Lacking.IN_DOUBT
        else:
            self.doubtful.update(dict.fromkeys(partitions, until))

    def hold(self, producer_id: int, offsets: Offsets, now: float) -> None:
        """Keeps offsets of a transaction until it ends.

        When its marker reaches the broker is not seen on the wire: from now on only the broker is sure, or the log.
        """
        self.unfollowed = Lacking.UNSTABLE
        self.settled_at = max(self.settled_at, now)
        if offsets and not self.followed:
            held = self.pending.setdefault(producer_id, {})
            self._held_text += text_of(offsets.values()) - text_of(map(held.get, offsets))
            self._held -= len(held)
            held.update(offsets)
            self._held += len(held)

    def end(self, producer_id: int, *, committed: bool) -> None:
        """A producer's transaction ended: its offsets count, or are dropped."""
        held = self.pending.pop(producer_id, {})
        self._held -= len(held)
        self._held_text -= text_of(held.values())
        if committed:
            self.committed.put(held)

    def learn(self, offsets: Offsets, absent: Iterable[TopicPartition], *, whole: bool, sent_at: float) -> None:
        """Takes what the broker told, where the log does not. The same offset keeps the time of its commit."""
        told = {partition: self._merged(partition, offset) for partition, offset in offsets.items()}
        if whole:
            self.committed.put_all(told)
            self.doubtful = {partition: until for partition, until in self.doubtful.items() if until > sent_at}
            self.unsure = self.unsure if self.settled_at > sent_at else None
            return
        self.committed.put(told)
        self.committed.drop(absent)
        for partition in (*told, *absent):
            if self.doubtful.get(partition, FOREVER) <= sent_at:
                del self.doubtful[partition]

    def _merged(self, partition: TopicPartition, told: CommittedOffset) -> CommittedOffset:
        known = self.committed.get_seen(partition)
        if known is None or (known.offset, known.metadata) != (told.offset, told.metadata):
            return told
        if told.epoch_known or self.unsure or partition in self.doubtful:
            return replace(told, at=known.at)
        return known
