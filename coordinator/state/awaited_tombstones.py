"""Deletions that the broker has acknowledged and whose tombstones have not been read yet.

`AwaitedTombstones` holds these deletions for one partition of `__consumer_offsets`, up to a bound.

Before Kafka 4.0 a coordinator appends the tombstones of OffsetDelete and DeleteGroups with ``requiredAcks = 0`` and
replies at once (``GroupMetadataManager.cleanupGroupMetadata``). Consumers read only up to the high watermark. While a
follower lags, a Fetch that is sent after the reply may therefore end before the tombstone.
"""

from collections import OrderedDict
from collections.abc import Iterator

from group_sidecar.coordinator.state.bounded_table import ENTRY_BYTES

MAX_DELETIONS = 2_000
"""Maximum number of deletions per partition that are kept until their tombstones are read. All of them are checked
whenever the end of the partition is reached, which takes 2 us for each deletion."""
DELETION_BYTES = 1_000_000
"""Maximum estimated bytes of the kept deletions of one partition, with their names."""
AWAITED_SECONDS = 120.0
"""Seconds after which a tombstone is not awaited any more, because the broker must have written none. A follower that
lags leaves the in-sync replicas after ``replica.lag.time.max.ms``, 30 seconds by default. Then the high watermark moves
past the tombstone."""
WHOLE_GROUP = b""
"""The key suffix for the deletion of a whole group, in place of an offset's topic and partition."""


class AwaitedTombstones:
    """Counts awaited tombstones by the group's name in UTF-8 and by the key suffix.

    The key suffix is the part of an offset's key after the group name, or WHOLE_GROUP.

    Attributes:
        size: how many keys have awaited tombstones.
        bytes: the estimated memory of all these keys, in bytes.
    """

    def __init__(self) -> None:
        self._awaited: OrderedDict[bytes, dict[bytes, tuple[int, float]]] = OrderedDict()
        self.size = self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._awaited)

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(self._awaited))

    def expect(self, name: bytes, key_suffix: bytes, now: float) -> bool:
        """Awaits the tombstone of a deletion that the broker has acknowledged.

        Returns whether the bound was exceeded, so that the oldest groups' tombstones were evicted.
        """
        of_group = self._awaited.setdefault(name, {})
        if key_suffix not in of_group:
            self._count(1, name, key_suffix)
        count, _ = of_group.get(key_suffix, (0, now))
        of_group[key_suffix] = count + 1, now
        evicts = False
        while self.size > MAX_DELETIONS or self.bytes > DELETION_BYTES:
            oldest = next(iter(self._awaited))
            for each in list(self._awaited[oldest]):
                self.forget(oldest, each)
            evicts = True
        return evicts

    def _count(self, change: int, name: bytes, key_suffix: bytes) -> None:
        self.size += change
        self.bytes += change * (ENTRY_BYTES + len(name) + len(key_suffix))

    def tombstone_read(self, name: bytes, key_suffix: bytes) -> None:
        """Counts a tombstone that was read.

        If the tombstone of an offset is not awaited, the tombstone belongs to the deletion of the whole group.
        """
        of_group = self._awaited.get(name)
        if of_group is None:
            return
        key_suffix = key_suffix if key_suffix in of_group else WHOLE_GROUP
        count, at = of_group.get(key_suffix, (0, 0.0))
        if count > 1:
            of_group[key_suffix] = count - 1, at
        else:
            self.forget(name, key_suffix)

    def overdue(self, name: bytes, asked_at: float) -> dict[bytes, float]:
        """Returns the deletions up to `asked_at` whose tombstones were not read, with their times."""
        return {key_suffix: at for key_suffix, (_, at) in self._awaited.get(name, {}).items() if at <= asked_at}

    def awaits_group(self, name: bytes) -> bool:
        """Whether the tombstones of a whole group are awaited."""
        return WHOLE_GROUP in self._awaited.get(name, {})

    def forget(self, name: bytes, key_suffix: bytes) -> None:
        """Stops awaiting the tombstones of a key."""
        of_group = self._awaited.get(name, {})
        if of_group.pop(key_suffix, None) is not None:
            self._count(-1, name, key_suffix)
        if not of_group:
            self._awaited.pop(name, None)
