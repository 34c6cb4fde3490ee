"""Committed offsets of one group.

Owns: what is committed, and what is pending in transactions. Must not know: the group's members.
"""

from collections.abc import Iterable, Mapping

from group_sidecar.coordinator.views import CommittedOffset, TopicPartition


class GroupOffsets:
    """The offsets of a group, as far as they are known.

    Attributes:
        committed: by partition.
        whole: whether these are all that the group has.
        transactional: whether the group ever had offsets in a transaction. When such a transaction's marker
            reaches the broker cannot be seen on the wire, so from then on only the broker is sure.
        changes: grows with each change.
    """

    def __init__(self, *, whole: bool) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self.whole = whole
        self.transactional = False
        self.changes = 0
        self._pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}

    def store(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commits offsets."""
        self.changes += 1
        self.committed.update(offsets)

    def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets offsets."""
        self.changes += 1
        for partition in partitions:
            self.committed.pop(partition, None)

    def hold(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Keeps offsets of a transaction until it ends."""
        self.changes += 1
        self.transactional = True
        self._pending.setdefault(producer_id, {}).update(offsets)

    def end(self, producer_id: int, *, committed: bool) -> None:
        """A producer's transaction ended: its offsets count, or are dropped."""
        held = self._pending.pop(producer_id, None)
        if held and committed:
            self.store(held)

    def learn(
        self, offsets: Mapping[TopicPartition, CommittedOffset], absent: Iterable[TopicPartition], *, whole: bool
    ) -> None:
        """Takes what the broker told. Commit times already known of unchanged offsets are kept."""
        told = {
            partition: known if (known := self.committed.get(partition)) and known.offset == offset.offset else offset
            for partition, offset in offsets.items()
        }
        if whole:
            self.committed = told
            self.whole = True
        else:
            self.committed.update(told)
            for partition in absent:
                self.committed.pop(partition, None)
        self.changes += 1
