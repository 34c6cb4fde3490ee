"""Visits all groups with their state and committed offsets, group by group.

`walk` visits the groups in the order of their ids, merges several copies, and yields None so that the sidecar
can forward frames meanwhile.
`GroupSnapshot` keeps the figures of a whole walk.

A group that moved between brokers may be in two copies for a while. `walk` prefers a complete copy, then the copy with
the later generation, and then the copy with the later rebalance. Each group must appear once, because duplicate series
make a whole scrape invalid.

A group's state and offsets are from the same moment. Two groups may be from different moments, because the sidecar
forwards frames in between. A snapshot keeps two objects per group, however many partitions the group has. With one
object per partition, the garbage collector would stop everything for a tenth of a second.
"""

import math
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from heapq import merge
from itertools import groupby, islice
from typing import NamedTuple, Protocol, TypeVar

from group_sidecar.codecs.consumer_protocol import CONSUMER, partitions_in_assignment
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.model.views import GroupKind, GroupState, GroupView, TopicPartition
from group_sidecar.coordinator.state.committed_offsets import CommittedOffsets, RawOffsets

T = TypeVar("T")

PARTITIONS_PER_STEP = 500
"""The number of partitions per step, which takes 0.3 to 0.7 ms. A pause between two steps costs 15 us."""
GROUP_COST, MEMBERS_PER_COST = 20, 5
"""The fixed cost of a group, in partitions, and the number of members that cost as much as one partition."""
GROUP_IDS_PER_STEP = 2_000
"""Group ids that are sorted in one step."""

LogEnds = Mapping[TopicPartition, tuple[int, float]]
"""Log end by partition, and when it was seen, in seconds since the epoch."""
SeenLogEnd = tuple[TopicPartition, tuple[int, float]]
"""A partition, its log end, and when the log end was seen."""
LogEndLookup = Callable[[TopicPartition], tuple[int, float] | None]
"""Returns a partition's log end and when it was seen; None if no log end was seen."""
MaxMembers = Callable[[GroupView], int | None]
"""Returns the maximum number of members of a group, or None without a limit."""


class GroupManager(Protocol):
    """The part of `GroupMetadataManager` that this module uses."""

    @property
    def group_metadata_cache(self) -> Collection[str]: ...
    @property
    def log_ends(self) -> LogEnds: ...
    def existing(self, group_id: str, now: float) -> GroupView | None: ...


class Position(NamedTuple):
    """A group's committed offset and lag in one partition.

    Attributes:
        offset: the committed offset.
        committed_at: time of the commit, in seconds since the epoch.
        lag: distance from the committed offset to the log end; None if no log end was seen.
        log_end_at: when the log end was seen, in seconds since the epoch; None if no log end was seen.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    committed_at: float
    lag: int | None = None
    log_end_at: float | None = None


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """A group's figures at one moment.

    Attributes:
        view: the group. `view.offsets` is live and may be newer than the other figures.
        limit: the maximum number of members; None without a limit.
        assigned: the partitions of each member. None unless the group is a stable classic group of the consumer
            protocol, the copy of the group is complete, and all assignments can be decoded.
        lag: sum over the partitions whose log end was seen; None if there is no such partition.
        unknown_lags: number of partitions with a commit whose log end was not seen.
        committed: number of partitions with a commit.
        lag_seen_at: when the oldest log end in `lag` was seen, in seconds since the epoch.
    """

    view: GroupView
    limit: int | None = None
    assigned: list[frozenset[TopicPartition]] | None = None
    lag: int | None = None
    unknown_lags: int = 0
    committed: int = 0
    lag_seen_at: float | None = None


class GroupWithOffsets(NamedTuple):
    """A group's figures with its committed offsets at the same moment. A snapshot does not keep these offsets."""

    figures: GroupFigures
    offsets: RawOffsets
    log_end: LogEndLookup

    def each_position(self) -> Iterator[Position]:
        """Yields the group's committed partitions, unordered. Each position is decoded lazily, in 1 to 2 us."""
        log_end = self.log_end
        for row in self.offsets.rows():
            end = log_end(row[:2])
            yield Position(*row) if end is None else Position(*row, lag_behind(end[0], row[2]), end[1])


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """The figures of all groups in the order of their ids. `at`: start of the walk, in seconds since the epoch."""

    at: float
    groups: tuple[GroupFigures, ...] = ()


def group_snapshot(
    managers: Sequence[GroupManager], now: float, max_members: MaxMembers, drift: float = 0.0
) -> Generator[None, None, GroupSnapshot]:
    """Returns the figures of all groups, in steps of less than a millisecond. The arguments are those of `walk`."""
    groups = []
    for visit in walk(managers, now, max_members, drift):
        if visit is None:
            yield
        else:
            groups.append(visit.figures)
    return GroupSnapshot(now + drift, tuple(groups))


def walk(
    managers: Sequence[GroupManager], now: float, max_members: MaxMembers, drift: float = 0.0
) -> Generator[GroupWithOffsets | None, None, None]:
    """Yields all existing groups in the order of their ids, and None at the end of each step.

    Args:
        managers: the group manager of each broker's copy.
        now: seconds since the epoch, on the clock of the copies.
        max_members: returns the maximum number of members of a group.
        drift: seconds to add to the times in the copies.
    """
    log_end = newest_log_end_lookup([manager.log_ends for manager in managers])
    if drift:
        log_end = partial(_log_end_later, log_end, drift)
    spent = 0
    for group_id in (yield from _sorted_ids(managers)):
        view = most_complete_view(managers, group_id, now)
        if view is None:
            continue
        view = with_drift(view, drift)
        offsets, sums = offsets_of(view), LagSums(log_end)
        offsets.clock_difference = drift
        spent += GROUP_COST + len(view.members) // MEMBERS_PER_COST
        if spent >= PARTITIONS_PER_STEP:
            yield None
            spent = 0
        for batch in batches(offsets.partition_offsets(), PARTITIONS_PER_STEP):
            sums.add(batch)
            spent += len(batch)
            if spent >= PARTITIONS_PER_STEP:
                yield None
                spent = 0
        figures = GroupFigures(view, max_members(view), _assigned(view), *sums.result())
        yield GroupWithOffsets(figures, offsets, log_end)


def newest_log_end_lookup(log_ends: Sequence[LogEnds]) -> LogEndLookup:
    """Returns a function that looks up a partition's most recently seen log end in all of `log_ends`."""
    if len(log_ends) == 1:
        return log_ends[0].get

    def log_end(partition: TopicPartition) -> tuple[int, float] | None:
        ends = [end for each in log_ends if (end := each.get(partition)) is not None]
        return max(ends, key=_seen_at, default=None)

    return log_end


def _log_end_later(log_end: LogEndLookup, drift: float, partition: TopicPartition) -> tuple[int, float] | None:
    found = log_end(partition)
    return None if found is None else (found[0], found[1] + drift)


def with_drift(view: GroupView, drift: float) -> GroupView:
    """Returns the view with `drift` seconds added to its times."""
    if not drift:
        return view
    members = tuple(replace(member, since=member.since + drift) for member in view.members)
    last = view.last_rebalance_at
    return replace(view, members=members, last_rebalance_at=None if last is None else last + drift)


def newest_log_bounds(bounds: Sequence[LogEnds], drift: float = 0.0) -> Iterator[SeenLogEnd]:
    """Yields each partition once, with its most recently seen bound. `bounds` may change meanwhile.

    `bounds`: the log ends of all copies, or the log starts of all copies.
    """
    newest = newest_log_end_lookup(bounds)
    for number, each in enumerate(bounds):
        for partition in list(each):
            if not any(partition in other for other in bounds[:number]):
                bound = newest(partition)
                if bound is not None:  # The partition may have been removed meanwhile.
                    yield partition, (bound[0], bound[1] + drift) if drift else bound


def lag_behind(log_end: int, offset: int) -> int:
    """Returns the distance from an offset to the log end; 0 if the log end was seen before the commit and is lower."""
    return max(0, log_end - offset)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields the items in lists of at most `size`."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


class LagSums:
    """Sums up the lag of a group's partitions."""

    __slots__ = ("_committed", "_lag", "_log_end", "_seen_at", "_unknown")

    def __init__(self, log_end: LogEndLookup) -> None:
        self._log_end = log_end
        self._lag = self._unknown = self._committed = 0
        self._seen_at = math.inf

    def result(self) -> tuple[int | None, int, int, float | None]:
        """Returns lag, unknown_lags, committed and lag_seen_at of `GroupFigures`."""
        known = self._committed > self._unknown
        return self._lag if known else None, self._unknown, self._committed, self._seen_at if known else None

    def add(self, offsets: Collection[tuple[TopicPartition, int]]) -> None:
        """Adds some of the group's committed offsets."""
        log_end = self._log_end
        self._committed += len(offsets)
        for partition, offset in offsets:
            found = log_end(partition)
            if found is None:
                self._unknown += 1
                continue
            end, at = found
            if end > offset:
                self._lag += end - offset
            if at < self._seen_at:
                self._seen_at = at


def _sorted_ids(managers: Iterable[GroupManager]) -> Generator[None, None, Iterator[str]]:
    """Returns all ids in order, each once. The ids are sorted in batches, which are merged lazily."""
    slices = []
    for manager in managers:
        for batch in batches(list(manager.group_metadata_cache), GROUP_IDS_PER_STEP):
            slices.append(sorted(batch))
            yield
    return (group_id for group_id, _ in groupby(merge(*slices)))


def most_complete_view(managers: Iterable[GroupManager], group_id: str, now: float) -> GroupView | None:
    """Returns a group's most complete view, or None if no copy has the group. `now`: seconds since the epoch."""
    views = [view for manager in managers if (view := manager.existing(group_id, now)) is not None]
    return max(views, key=_precedence, default=None)


def _seen_at(end: tuple[int, float]) -> float:
    return end[1]


def _precedence(group: GroupView) -> tuple[bool, int, float]:
    return group.fallback_reason is None, group.generation, group.last_rebalance_at or 0.0


def offsets_of(view: GroupView) -> RawOffsets:
    """Returns the group's committed offsets at this moment. The result may be decoded later and in any thread."""
    offsets = view.offsets
    return (
        offsets.snapshot() if isinstance(offsets, CommittedOffsets) else RawOffsets(wire_offsets=tuple(offsets.items()))
    )


def _assigned(group: GroupView) -> list[frozenset[TopicPartition]] | None:
    settled = group.state is GroupState.STABLE and group.fallback_reason is None
    if not settled or group.kind is not GroupKind.CLASSIC or group.protocol_type != CONSUMER:
        return None
    try:
        return [_cached_partitions(member.assignment) for member in group.members]
    except DecodeError:
        return None


_cached_partitions = lru_cache(maxsize=10_000)(partitions_in_assignment)
"""Returns the partitions in an encoded assignment. The results are cached, because most assignments stay the same."""
