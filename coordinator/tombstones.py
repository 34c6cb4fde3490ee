"""Deletions that the broker has acknowledged, and whose tombstones were not read yet.

Owns: `AwaitedTombstones`: the tombstones of one partition of `__consumer_offsets` that are still to be read.

Before Kafka 4.0 a coordinator appends the tombstones of OffsetDelete and DeleteGroups with ``requiredAcks = 0`` and
replies at once (``GroupMetadataManager.cleanupGroupMetadata``). Consumers read up to the high watermark, so while a
follower lags, a Fetch that is sent after the reply still ends before the tombstone.
"""

from collections.abc import Iterator

AWAITED_SECONDS = 120.0
"""Seconds after which a tombstone is not awaited any more: the broker has not written any. A follower that lags leaves
the in-sync replicas after ``replica.lag.time.max.ms``, 30 seconds by default, and then the high watermark moves."""
WHOLE_GROUP = b""
"""Stands in place of an offset's topic and partition where a whole group was deleted."""


class AwaitedTombstones:
    """Counts awaited tombstones by group name, in UTF-8, and by the rest of an offset's key."""

    def __init__(self) -> None:
        self._awaited: dict[bytes, dict[bytes, tuple[int, float]]] = {}

    def __bool__(self) -> bool:
        return bool(self._awaited)

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(self._awaited))

    def expect(self, name: bytes, suffix: bytes, now: float) -> None:
        """The broker has acknowledged the deletion."""
        of_group = self._awaited.setdefault(name, {})
        count, _ = of_group.get(suffix, (0, now))
        of_group[suffix] = count + 1, now

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
        of_group.pop(suffix, None)
        if not of_group:
            self._awaited.pop(name, None)
