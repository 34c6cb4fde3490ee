"""Deletions that the broker has acknowledged, and whose tombstones were not read yet.

Owns: `AwaitedTombstones`: the tombstones of one partition of `__consumer_offsets` that are still to be read, and how
many of them are kept.

Before Kafka 4.0 a coordinator appends the tombstones of OffsetDelete and DeleteGroups with ``requiredAcks = 0`` and
replies at once (``GroupMetadataManager.cleanupGroupMetadata``). Consumers read up to the high watermark, so while a
follower lags, a Fetch that is sent after the reply still ends before the tombstone.
"""

from collections import OrderedDict
from collections.abc import Iterator

from group_sidecar.coordinator.bounded import ENTRY_BYTES

MOST_DELETIONS = 2_000
"""Deletions of one partition that are kept until the log has their tombstones. All of them are looked at whenever the
end of the partition is reached, which takes 2 us each."""
DELETION_BYTES = 1_000_000
"""Bytes of names that these deletions take at most."""
AWAITED_SECONDS = 120.0
"""Seconds after which a tombstone is not awaited any more: the broker has not written any. A follower that lags leaves
the in-sync replicas after ``replica.lag.time.max.ms``, 30 seconds by default, and then the high watermark moves."""
WHOLE_GROUP = b""
"""Stands in place of an offset's topic and partition where a whole group was deleted."""


class AwaitedTombstones:
    """Counts awaited tombstones by group name, in UTF-8, and by the rest of an offset's key.

    Attributes:
        size: how many keys are awaited.
        bytes: estimated bytes of all of them.
    """

    def __init__(self) -> None:
        self._awaited: OrderedDict[bytes, dict[bytes, tuple[int, float]]] = OrderedDict()
        self.size = self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._awaited)

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(self._awaited))

    def expect(self, name: bytes, suffix: bytes, now: float) -> bool:
        """The broker has acknowledged the deletion. Returns whether the tombstones of the groups that have waited
        longest had to be evicted.
        """
        of_group = self._awaited.setdefault(name, {})
        if suffix not in of_group:
            self._count(1, name, suffix)
        count, _ = of_group.get(suffix, (0, now))
        of_group[suffix] = count + 1, now
        evicts = False
        while self.size > MOST_DELETIONS or self.bytes > DELETION_BYTES:
            oldest = next(iter(self._awaited))
            for each in list(self._awaited[oldest]):
                self.forget(oldest, each)
            evicts = True
        return evicts

    def _count(self, change: int, name: bytes, suffix: bytes) -> None:
        self.size += change
        self.bytes += change * (ENTRY_BYTES + len(name) + len(suffix))

    def read(self, name: bytes, suffix: bytes) -> None:
        """The log has a tombstone. One of an offset that is not awaited belongs to the deletion of the group."""
        of_group = self._awaited.get(name)
        if of_group is None:
            return
        suffix = suffix if suffix in of_group else WHOLE_GROUP
        count, at = of_group.get(suffix, (0, 0.0))
        if count > 1:
            of_group[suffix] = count - 1, at
        else:
            self.forget(name, suffix)

    def overdue(self, name: bytes, asked_at: float) -> dict[bytes, float]:
        """Returns the deletions until `asked_at` whose tombstones were not read, with their times."""
        return {suffix: at for suffix, (_, at) in self._awaited.get(name, {}).items() if at <= asked_at}

    def awaits_group(self, name: bytes) -> bool:
        """Whether the tombstones of a whole group are awaited."""
        return WHOLE_GROUP in self._awaited.get(name, {})

    def forget(self, name: bytes, suffix: bytes) -> None:
        """No tombstone is awaited of this."""
        of_group = self._awaited.get(name, {})
        if of_group.pop(suffix, None) is not None:
            self._count(-1, name, suffix)
        if not of_group:
            self._awaited.pop(name, None)
