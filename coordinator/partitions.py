"""The partitions of `__consumer_offsets`: which one holds a group, and which of them this broker leads.

Owns: the mapping from group id to partition (Kafka's GroupMetadataManager.partitionFor), and of each partition its
state, its leader epoch and how fresh its log is. Must not know: groups, what the log says, who reads it.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from operator import mul
from sys import byteorder

from group_sidecar.coordinator.bounded import BoundedTable
from group_sidecar.coordinator.events import FOREVER, NEVER
from group_sidecar.coordinator.log import PartitionLog
from group_sidecar.coordinator.tombstones import DELETION_BYTES, MOST_DELETIONS

DEFAULT_PARTITIONS = 50
"""`offsets.topic.num.partitions`."""
FRESH_SECONDS = 3.0
"""For so long after a Fetch was sent its reply tells enough. Several long polls fit in."""


class PartitionState(StrEnum):
    """As Kafka's CoordinatorRuntime has them: LOADING, ACTIVE, FAILED."""

    LOADING = "loading"
    OWNED = "owned"
    FAILED = "failed"


class StaleEpoch(Exception):
    """A leader epoch that is older than one that is known."""


@dataclass(slots=True, eq=False)
class Tenure:
    """A broker's time as the leader of a partition, and so as the coordinator of the groups in it.

    Attributes:
        leader_epoch: its number; -1 from brokers that do not tell it.
        moved: whether the broker has taken the partition over; None where that may have been before anybody looked.
        began_at: when it was found to serve the groups; FOREVER until then.
    """

    leader_epoch: int = 0
    moved: bool | None = False
    began_at: float = FOREVER


UNMOVED = Tenure(began_at=NEVER)
"""That of groups that no partition brought along."""


@dataclass(slots=True)
class Partition:
    """A partition that this broker leads.

    Attributes:
        tenure: since when, and by which leader epoch.
        log: what it says, as far as it was read.
        fresh_at: everything that the broker had then is in the log read; in seconds since the epoch.
        read_at: when that was read.
        reason: why it failed.
        serves: whether the broker's own coordinator has loaded it, as far as is known.
        ahead: the groups of which the wire has told more than the log, or may have.
        deleted: groups that were deleted on the wire, and when, until the log says so too.
        evicted_until: deletions were evicted. Until the log was read past this time, it may lack their tombstones.
    """

    tenure: Tenure
    log: PartitionLog
    state: PartitionState = PartitionState.LOADING
    fresh_at: float = NEVER
    read_at: float = NEVER
    reason: str = ""
    serves: bool = True
    ahead: set[str] = field(default_factory=set)
    deleted: BoundedTable[float] = field(
        default_factory=lambda: BoundedTable(MOST_DELETIONS, most_bytes=DELETION_BYTES)
    )
    evicted_until: float = NEVER

    @property
    def lost_deletions(self) -> bool:
        """Whether a deletion was evicted whose tombstone the log may still lack: no group is certain then."""
        return self.fresh_at < self.evicted_until


class PartitionTable:
    """Which partitions this broker leads.

    Attributes:
        count: of all partitions; None while it is not known, or the log cannot be read.
        expected: whether the log will be read as soon as it can be. Then the wire alone is not enough to answer.
        led: those that this broker leads.
    """

    def __init__(self) -> None:
        self.count: int | None = None
        self.expected = False
        self.led: dict[int, Partition] = {}
        self._epochs: dict[int, int] = {}
        self._tenures: dict[int, Tenure] = {}
        self._watched: dict[int, int] = {}
        self._groups: dict[int, set[str]] = {}

    def __iter__(self) -> Iterator[tuple[int, Partition]]:
        return iter(self.led.items())

    @property
    def states(self) -> dict[int, PartitionState]:
        """The state of each partition that this broker leads."""
        return {number: partition.state for number, partition in self.led.items()}

    # Groups.

    def recount(self, count: int | None, groups: Iterable[str]) -> None:
        """The topic has so many partitions, and these groups are known."""
        self.count, self.led, self._epochs, self._groups = count, {}, {}, {}
        self._tenures, self._watched = {}, {}
        for group_id in groups:
            self.place(group_id)

    def place(self, group_id: str) -> None:
        """A group is known."""
        if self.count:
            self._groups.setdefault(partition_for(group_id, self.count), set()).add(group_id)

    def displace(self, group_id: str) -> None:
        """A group is not known any more."""
        if self.count:
            self._groups.get(partition_for(group_id, self.count), set()).discard(group_id)

    def groups_of(self, number: int) -> list[str]:
        """The groups known of a partition."""
        return list(self._groups.get(number, ()))

    def holding(self, group_id: str) -> Partition | None:
        """The partition of a group; None where this broker does not lead it, or the log is not read."""
        return self.led.get(partition_for(group_id, self.count)) if self.count and self.led else None

    def began_at(self, group_id: str) -> float:
        """When the broker began to coordinate a group, as its partition has it; NEVER without one."""
        partition = self.holding(group_id)
        return NEVER if partition is None else partition.tenure.began_at

    def follows(self, group_id: str, now: float) -> bool:
        """Whether the log tells of a group all that it can."""
        partition = self.holding(group_id)
        if partition is None or partition.state is not PartitionState.OWNED:
            return False
        return now - partition.fresh_at <= FRESH_SECONDS

    def follows_all(self, now: float) -> bool:
        """The same of all groups that this broker coordinates."""
        owned = (p.state is PartitionState.OWNED and now - p.fresh_at <= FRESH_SECONDS for p in self.led.values())
        return bool(self.led) and all(owned)

    @property
    def matter(self) -> bool:
        """Whether the log is read, or will be."""
        return self.expected or self.count is not None

    @property
    def unserved(self) -> list[int]:
        """The partitions that have been read to their end, and that the broker's own coordinator may be loading yet."""
        return [number for number, each in self.led.items() if each.fresh_at != NEVER and not each.serves]

    # Leadership.

    def begin(self, number: int, leader_epoch: int, start_offset: int) -> Partition:
        """A new reading of a partition."""
        tenure = self._tenures[number] = self._tenure(number, leader_epoch)
        partition = self.led[number] = Partition(tenure, PartitionLog(start_offset))
        return partition

    def watch(self, epochs: Mapping[int, int]) -> None:
        """These partitions' leaders had these epochs; those that this broker was found to lead have begun."""
        self._watched = {**epochs, **self._watched}

    def _tenure(self, number: int, leader_epoch: int) -> Tenure:
        """An epoch has one leader: who leads in another one than was seen first, or last, has taken over since."""
        last = self._tenures.get(number)
        before = last.leader_epoch if last is not None else self._watched.get(number)
        if last is not None and before == leader_epoch >= 0:
            return last  # Only the reading is new.
        if leader_epoch == 0:
            return Tenure(leader_epoch, moved=False)  # The first leader of all.
        same = before == leader_epoch and (leader_epoch >= 0 or number in self.led)
        return Tenure(leader_epoch, moved=None if before is None or same else True)

    def end(self, number: int) -> None:
        """The partition is led by another broker."""
        self.led.pop(number, None)

    def advance(self, number: int, leader_epoch: int) -> bool:
        """A leader has begun its time. Whether one was known before. Raises StaleEpoch where a later one is."""
        known = self._epochs.get(number)
        if known is not None and leader_epoch < known:
            raise StaleEpoch(f"partition {number}: leader epoch {leader_epoch}, where {known} is known")
        self._epochs[number] = leader_epoch
        return known is not None


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, wrapped to 32 bits, signed."""
    units = array("H", text.encode("utf-16-le"))
    if byteorder == "big":
        units.byteswap()
    units.reverse()
    value = 0
    for last in range((len(units) - 1) // len(_POWERS), -1, -1):  # One round, but for what Kafka could not send.
        part = units[last * len(_POWERS) : (last + 1) * len(_POWERS)]
        value = (value * _BEYOND + sum(map(mul, part, _POWERS))) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _powers(count: int) -> Iterator[int]:
    power = 1
    for _ in range(count):
        yield power
        power = power * 31 & 0xFFFFFFFF


_POWERS = tuple(_powers(32_768))
"""Powers of 31, by which the hash multiplies UTF-16 units, the last unit first. A name in Kafka has fewer units."""
_BEYOND = pow(31, len(_POWERS), 1 << 32)


def partition_for(group_id: str, partitions: int = DEFAULT_PARTITIONS) -> int:
    """The partition of a group. Kafka's Utils.abs makes 0 of the one hash that has no positive twin."""
    return (_often if len(group_id) <= LONGEST_OFTEN else _seldom)(group_id, partitions)


def _partition_for(group_id: str, partitions: int) -> int:
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partitions


LONGEST_OFTEN = 256
"""Characters of a name up to which many partitions are remembered: 65,536 of them take 40 MB at most."""
_often = lru_cache(maxsize=65_536)(_partition_for)
_seldom = lru_cache(maxsize=64)(_partition_for)
