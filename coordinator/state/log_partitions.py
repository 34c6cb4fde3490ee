"""The partitions of `__consumer_offsets`: which partition stores a group, and which partitions this broker leads.

A group id is mapped to a partition as in Kafka's GroupMetadataManager.partitionFor. Each partition that the broker
leads has a state, a leader epoch, and the time up to which its log was read.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from operator import mul
from sys import byteorder

from group_sidecar.coordinator.model.events import FOREVER, NEVER
from group_sidecar.coordinator.state.awaited_tombstones import DELETION_BYTES, MAX_DELETIONS
from group_sidecar.coordinator.state.bounded_table import BoundedTable, TableSize, name_bytes
from group_sidecar.coordinator.state.partition_log import PartitionLog

DEFAULT_PARTITIONS = 50
"""The default of the broker's `offsets.topic.num.partitions`."""
FRESH_SECONDS = 3.0
"""The log is fresh for this many seconds after the sidecar has sent the last Fetch that reached the end of the log.
Several long polls fit into this time."""


class PartitionState(StrEnum):
    """The state of a partition. Kafka's CoordinatorRuntime calls these states LOADING, ACTIVE and FAILED."""

    LOADING = "loading"
    OWNED = "owned"
    FAILED = "failed"


class StaleEpoch(Exception):
    """A leader epoch is older than the last known epoch."""


class MisplacedGroup(Exception):
    """A partition has records of a group that another partition stores.

    The broker's coordinator then uses, or has used, another number of partitions than the topic has.

    Attributes:
        group_id: the group.
    """

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.group_id = group_id


@dataclass(slots=True, eq=False)
class LeaderTerm:
    """A broker's term as the leader of a partition, and so as the coordinator of the groups in it.

    Attributes:
        leader_epoch: the number of the term; -1 from brokers that do not report leader epochs.
        moved: whether the broker took the partition over from another broker; None if unknown, because the broker may
            have become the leader before the first observation.
        began_at: when the broker was first seen to serve the groups; FOREVER until then.
    """

    leader_epoch: int = 0
    moved: bool | None = False
    began_at: float = FOREVER


ALWAYS_LED = LeaderTerm(began_at=NEVER)
"""The leader term of groups that were not loaded with a partition."""


@dataclass(slots=True)
class Partition:
    """A partition that this broker leads.

    Attributes:
        leader_term: since when the broker leads the partition, and with which leader epoch.
        log: the records that were read and that no newer record has replaced.
        fresh_at: the time up to which the log was read, in seconds since the epoch. Everything that the broker had
            written by then is in `log`.
        read_at: when the log was last read up to its end.
        reason: why the partition failed.
        coordinator_loaded: whether the broker's own coordinator has loaded the partition, as far as is known.
        ahead_of_log: the groups for which the wire has, or may have, shown newer state than the log.
        deleted: groups whose deletion the wire has shown and the log has not, each with the time of the deletion.
        loaded_at: when the load of the partition began, or when the connection to the broker was lost, whichever was
            later.
        evicted_until: until when evicted deletions matter. The log may lack their tombstones until it has been read
            past this time.
        known_before: the groups that the copy knew when the load of the partition began. The broker may have loaded the
            partition earlier. It keeps a group whose offsets were deleted since then, although the log has no offset of
            that group.
    """

    leader_term: LeaderTerm
    log: PartitionLog
    state: PartitionState = PartitionState.LOADING
    fresh_at: float = NEVER
    read_at: float = NEVER
    reason: str = ""
    coordinator_loaded: bool = True
    ahead_of_log: set[str] = field(default_factory=set)
    deleted: BoundedTable[float] = field(default_factory=lambda: BoundedTable(MAX_DELETIONS, max_bytes=DELETION_BYTES))
    loaded_at: float = NEVER
    evicted_until: float = NEVER
    known_before: list[str] = field(default_factory=list)

    @property
    def lost_deletions(self) -> bool:
        """Whether the copy has evicted a deletion whose tombstone the log may still lack.

        If so, any group may have been deleted.
        """
        return self.fresh_at < self.evicted_until


class PartitionTable:
    """The partitions that this broker leads, and the groups in them.

    Attributes:
        count: the number of all partitions; None if it is unknown, or the log cannot be read.
        expected: whether the log will be read as soon as possible. In that case the wire alone is not enough to answer.
        leader_partitions: the partitions that this broker leads, by their numbers.
        not_coordinated: by partition number and group id, the time at which the broker replied NOT_COORDINATOR although
            the group's log is read. The copy has dropped the log's state of these groups.
        trimmed: the numbers of the partitions from whose start the broker has deleted records. Compaction deletes no
            records in this sense: the start of the log stays 0. The broker may still have the state that the deleted
            records contained, so absence from such a log proves nothing.
    """

    def __init__(self) -> None:
        self.count: int | None = None
        self.expected = False
        self.leader_partitions: dict[int, Partition] = {}
        self.not_coordinated: dict[int, dict[str, float]] = {}
        self.trimmed: set[int] = set()
        self._epochs: dict[int, int] = {}
        self._leader_terms: dict[int, LeaderTerm] = {}
        self._watched: dict[int, int] = {}
        self._groups: dict[int, set[str]] = {}

    def __iter__(self) -> Iterator[tuple[int, Partition]]:
        return iter(self.leader_partitions.items())

    @property
    def states(self) -> dict[int, PartitionState]:
        """The state of each partition that this broker leads."""
        return {number: partition.state for number, partition in self.leader_partitions.items()}

    # Groups.

    def recount(self, count: int | None, groups: Iterable[str]) -> None:
        """Forgets all partitions, and sets their new number. `groups` are the groups that the copy keeps."""
        self.count, self.leader_partitions, self._epochs, self._groups = count, {}, {}, {}
        self._leader_terms, self._watched, self.not_coordinated = {}, {}, {}
        self.trimmed.clear()
        for group_id in groups:
            self.add_group(group_id)

    def add_group(self, group_id: str) -> None:
        """Assigns a group that the copy keeps to its partition."""
        if self.count:
            self._groups.setdefault(partition_for(group_id, self.count), set()).add(group_id)

    def remove_group(self, group_id: str) -> None:
        """Removes a group that the copy does not keep any more."""
        if self.count:
            self._groups.get(partition_for(group_id, self.count), set()).discard(group_id)

    def groups_of(self, number: int) -> list[str]:
        """Returns the groups of a partition that the copy keeps."""
        return list(self._groups.get(number, ()))

    @property
    def not_coordinated_table(self) -> TableSize:
        """The size of `not_coordinated`."""
        names = [group_id for each in self.not_coordinated.values() for group_id in each]
        return TableSize("not_coordinated_groups", len(names), sum(map(name_bytes, names)))

    def note_not_coordinated(self, group_id: str, at: float) -> None:
        """Adds a group to `not_coordinated`. The caller has checked that the group's log is read."""
        if self.count:
            self.not_coordinated.setdefault(partition_for(group_id, self.count), {})[group_id] = at

    def not_coordinated_since(self, group_id: str) -> float | None:
        """Returns the time at which a group entered `not_coordinated`; None if the group is not in it."""
        groups = self.not_coordinated.get(partition_for(group_id, self.count)) if self.count else None
        return groups.get(group_id) if groups else None

    def end_not_coordinated(self, group_id: str) -> None:
        """Removes a group from `not_coordinated`, because the group's records are merged again."""
        if self.not_coordinated and self.count:
            number = partition_for(group_id, self.count)
            groups = self.not_coordinated.get(number, {})
            groups.pop(group_id, None)
            if not groups:
                self.not_coordinated.pop(number, None)

    def forget_not_coordinated(self, number: int) -> None:
        """Removes the groups of a partition from `not_coordinated`, because the partition's records were forgotten."""
        self.not_coordinated.pop(number, None)

    def partition_of(self, group_id: str) -> Partition | None:
        """Returns the partition of a group; None if this broker does not lead it, or the log is not read."""
        return (
            self.leader_partitions.get(partition_for(group_id, self.count))
            if self.count and self.leader_partitions
            else None
        )

    def may_lack_records(self, group_id: str) -> bool:
        """Whether the broker has deleted records from the start of the log that stores a group."""
        return self.count is not None and partition_for(group_id, self.count) in self.trimmed

    def began_at(self, group_id: str) -> float:
        """Returns when the broker began to lead the partition of a group; NEVER if the partition is not followed."""
        partition = self.partition_of(group_id)
        return NEVER if partition is None else partition.leader_term.began_at

    def awaits_load(self, group_id: str) -> bool:
        """Whether the log of a group may not have been read to its end yet.

        This includes partitions that this broker is not known to lead, because the broker may just have become their
        leader.
        """
        partition = self.partition_of(group_id)
        return self.in_use and (partition is None or partition.state is PartitionState.LOADING)

    def is_current(self, group_id: str, now: float) -> bool:
        """Whether the log of a group is read and fresh."""
        partition = self.partition_of(group_id)
        if partition is None or partition.state is not PartitionState.OWNED:
            return False
        return now - partition.fresh_at <= FRESH_SECONDS

    def all_current(self, now: float) -> bool:
        """Whether the logs of all groups that this broker coordinates are read and fresh."""
        owned = (
            p.state is PartitionState.OWNED and now - p.fresh_at <= FRESH_SECONDS
            for p in self.leader_partitions.values()
        )
        return bool(self.leader_partitions) and all(owned)

    @property
    def in_use(self) -> bool:
        """Whether the log is read, or will be."""
        return self.expected or self.count is not None

    @property
    def unserved(self) -> list[int]:
        """The partitions that were read to their end, but that the broker's own coordinator may still be loading."""
        return [
            number
            for number, each in self.leader_partitions.items()
            if each.fresh_at != NEVER and not each.coordinator_loaded
        ]

    # Leadership.

    def begin(self, number: int, leader_epoch: int, start_offset: int) -> Partition:
        """Returns the state of a partition that the caller will read from `start_offset`. Nothing was read yet."""
        leader_term = self._leader_terms[number] = self._leader_term(number, leader_epoch)
        partition = self.leader_partitions[number] = Partition(leader_term, PartitionLog(start_offset))
        self.trimmed.discard(number)
        if start_offset > 0:
            self.trimmed.add(number)
        return partition

    def watch(self, epochs: Mapping[int, int]) -> None:
        """Notes the first leader epoch that was seen of each partition, by the partition's number."""
        self._watched = {**epochs, **self._watched}

    def _leader_term(self, number: int, leader_epoch: int) -> LeaderTerm:
        """Returns the leader term for an epoch.

        An epoch has only one leader. If the epoch differs from the last known epoch, this broker has taken over the
        partition.
        """
        last = self._leader_terms.get(number)
        before = last.leader_epoch if last is not None else self._watched.get(number)
        if last is not None and before == leader_epoch >= 0:
            return last  # The partition is only read again.
        if leader_epoch == 0:
            return LeaderTerm(leader_epoch, moved=False)  # The partition had no leader before.
        same = before == leader_epoch and (leader_epoch >= 0 or number in self.leader_partitions)
        return LeaderTerm(leader_epoch, moved=None if before is None or same else True)

    def end(self, number: int) -> None:
        """Removes a partition that another broker leads now."""
        self.leader_partitions.pop(number, None)
        self.trimmed.discard(number)

    def advance(self, number: int, leader_epoch: int) -> bool:
        """Notes the leader epoch of a partition. Returns whether an epoch was known before.

        Raises:
            StaleEpoch: a later epoch is known.
        """
        self.check_epoch(number, leader_epoch)
        known = number in self._epochs
        self._epochs[number] = leader_epoch
        return known

    def check_epoch(self, number: int, leader_epoch: int) -> None:
        """Checks that no later leader epoch of the partition is known.

        Raises:
            StaleEpoch: a later epoch is known.
        """
        known = self._epochs.get(number)
        if known is not None and leader_epoch < known:
            raise StaleEpoch(f"partition {number}: leader epoch {leader_epoch} is older than the known epoch {known}")


def java_hash(text: str) -> int:
    """Returns Java's String.hashCode, which is computed from UTF-16 units and wrapped to 32 bits, signed."""
    units = array("H", text.encode("utf-16-le"))
    if byteorder == "big":
        units.byteswap()
    units.reverse()
    value = 0
    for last in range((len(units) - 1) // len(_POWERS), -1, -1):  # A name that Kafka can send needs only one round.
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
    """Returns the partition of a group."""
    return (_cached_hash if len(group_id) <= MAX_CACHED_NAME_LENGTH else _long_name_hash)(group_id) % partitions


def _positive_hash(group_id: str) -> int:
    """Returns the absolute value of a name's hash. Kafka's Utils.abs maps the smallest integer to 0."""
    value = java_hash(group_id)
    return 0 if value == -(1 << 31) else abs(value)


MAX_CACHED_NAME_LENGTH = 256
"""Maximum characters of a name in the large cache. The cache has 65,536 entries, at most 40 MB."""
# A cached function has one string as its only argument. With two arguments, the keys of the cache are tuples. A new
# tuple makes Python's collector of cyclic garbage scan the whole cache again, which took 7 ms.
_cached_hash = lru_cache(maxsize=65_536)(_positive_hash)
_long_name_hash = lru_cache(maxsize=64)(_positive_hash)
