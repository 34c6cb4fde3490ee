"""What all groups are and where they stand, taken group by group.

Owns: `walk`, which visits the groups in the order of their ids, several copies as one, and breathes in between;
`Survey`, all of a walk kept. Must not know: what is told of a group, tasks, clocks.

A group that moved between brokers may be in two copies for a while: the complete one wins, then the one with the later
generation. Two series of the same name would spoil a whole scrape.

Each group is of one moment, the next one may be of another: between two the sidecar forwards. What is kept of a group
are two objects, however many partitions it has: the garbage collector looks at each object that is kept, and with one
for each partition it would stop everything for a tenth of a second.
"""

import math
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from heapq import merge
from itertools import groupby, islice
from typing import NamedTuple, Protocol, TypeVar

from group_sidecar.codecs.consumer_protocol import CONSUMER, assigned_to
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.committed import CommittedOffsets, OffsetsRead
from group_sidecar.coordinator.views import GroupKind, GroupState, GroupView, TopicPartition

T = TypeVar("T")

AT_ONCE = 500
"""Partitions looked at between two breaths: a third to two thirds of a millisecond. A breath costs 15 us."""
GROUP_COST, MEMBERS_AS_ONE = 20, 5
"""What a group costs before any of its partitions, in partitions, and how many members cost as much as one."""
NAMES_AT_ONCE = 2_000
"""Group ids sorted between two breaths."""

LogEnds = Mapping[TopicPartition, tuple[int, float]]
"""Log ends, and when each was seen, in seconds since the epoch."""
LogEndSeen = tuple[TopicPartition, tuple[int, float]]
"""One of them."""
LogEnd = Callable[[TopicPartition], tuple[int, float] | None]
"""The same of a partition that is asked for; None where it was not seen."""
MostMembers = Callable[[GroupView], int | None]
"""The most members that a group may have; None without limit."""


class Copy(Protocol):
    """The copy of one broker's coordinator, as `GroupMetadataManager` has it."""

    @property
    def group_metadata_cache(self) -> Collection[str]: ...
    @property
    def log_ends(self) -> LogEnds: ...
    def existing(self, group_id: str, now: float) -> GroupView | None: ...


class Position(NamedTuple):
    """Where a group stands in one partition.

    Attributes:
        offset: what it has committed.
        committed_at: when, in seconds since the epoch.
        lag: how far that is behind the log end; None where this was not seen.
        log_end_at: when it was seen.
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
    """A group in figures, of one moment.

    Attributes:
        view: the group. Its `offsets` are a window, and so of later.
        limit: the most members that it may have; None without limit.
        assigned: what each member has; None while that is unsettled, or not known, or not said in the consumer's
            protocol.
        lag: summed over the partitions whose log end was seen; None where there is none.
        unknown_lags: partitions with a commit whose log end was not seen.
        committed: partitions with a commit.
        lag_seen_at: when the oldest log end was seen that `lag` tells of; seconds since the epoch.
    """

    view: GroupView
    limit: int | None = None
    assigned: list[frozenset[TopicPartition]] | None = None
    lag: int | None = None
    unknown_lags: int = 0
    committed: int = 0
    lag_seen_at: float | None = None


class Visit(NamedTuple):
    """A group, with what is too much to be kept of all groups: its committed offsets, at the same moment."""

    figures: GroupFigures
    offsets: OffsetsRead
    log_end: LogEnd

    def each_position(self) -> Iterator[Position]:
        """Where it has committed, in no order; each is decoded when its turn comes, in 1 or 2 us."""
        log_end = self.log_end
        for row in self.offsets.rows():
            end = log_end(row[:2])
            yield Position(*row) if end is None else Position(*row, lag_behind(end[0], row[2]), end[1])


@dataclass(frozen=True, slots=True)
class Survey:
    """All groups in the order of their ids; `at`: when it was begun, in seconds since the epoch."""

    at: float
    groups: tuple[GroupFigures, ...] = ()


def survey(
    copies: Sequence[Copy], now: float, most_members: MostMembers, drift: float = 0.0
) -> Generator[None, None, Survey]:
    """Takes all groups, in steps of less than a millisecond. `now`, `drift`: as for `walk`."""
    groups = []
    for visit in walk(copies, now, most_members, drift):
        if visit is None:
            yield
        else:
            groups.append(visit.figures)
    return Survey(now + drift, tuple(groups))


def walk(
    copies: Sequence[Copy], now: float, most_members: MostMembers, drift: float = 0.0
) -> Generator[Visit | None, None, None]:
    """All groups that exist, in the order of their ids; None where it is time to breathe.

    Args:
        copies: the copies of the coordinators, one per broker.
        now: seconds since the epoch, on the clock of the copies.
        most_members: the limits.
        drift: seconds to add to what the copies say of when something was seen.
    """
    log_end = newest([copy.log_ends for copy in copies])
    if drift:
        log_end = partial(_log_end_later, log_end, drift)
    spent = 0
    for group_id in (yield from _ids(copies)):
        view = best(copies, group_id, now)
        if view is None:
            continue
        view = later(view, drift)
        offsets, sums = offsets_of(view), Sums(log_end)
        offsets.drift = drift
        spent += GROUP_COST + len(view.members) // MEMBERS_AS_ONE
        if spent >= AT_ONCE:
            yield None
            spent = 0
        for some in batches(offsets.numbers(), AT_ONCE):
            sums.add(some)
            spent += len(some)
            if spent >= AT_ONCE:
                yield None
                spent = 0
        figures = GroupFigures(view, most_members(view), _assigned(view), *sums.result())
        yield Visit(figures, offsets, log_end)


def newest(log_ends: Sequence[LogEnds]) -> LogEnd:
    """Looks for the log end of a partition that was seen last."""
    if len(log_ends) == 1:
        return log_ends[0].get

    def log_end(partition: TopicPartition) -> tuple[int, float] | None:
        ends = [end for each in log_ends if (end := each.get(partition)) is not None]
        return max(ends, key=_seen_at, default=None)

    return log_end


def _log_end_later(log_end: LogEnd, drift: float, partition: TopicPartition) -> tuple[int, float] | None:
    found = log_end(partition)
    return None if found is None else (found[0], found[1] + drift)


def later(view: GroupView, drift: float) -> GroupView:
    """The view with `drift` seconds added to when something was seen."""
    if not drift:
        return view
    members = tuple(replace(member, since=member.since + drift) for member in view.members)
    last = view.last_rebalance_at
    return replace(view, members=members, last_rebalance_at=None if last is None else last + drift)


def each_newest(log_ends: Sequence[LogEnds], drift: float = 0.0) -> Iterator[LogEndSeen]:
    """Each partition once, with the log end, or start, that was seen last. They may change meanwhile."""
    log_end = newest(log_ends)
    for number, each in enumerate(log_ends):
        for partition in list(each):
            if not any(partition in other for other in log_ends[:number]):
                end = log_end(partition)
                if end is not None:  # It may have gone.
                    yield partition, (end[0], end[1] + drift) if drift else end


def lag_behind(log_end: int, offset: int) -> int:
    """How far an offset is behind the log end. That may have been seen before the commit: then by nothing."""
    return max(0, log_end - offset)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items, so many at a time."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


class Sums:
    """What comes together of a group's partitions."""

    __slots__ = ("_committed", "_lag", "_log_end", "_seen_at", "_unknown")

    def __init__(self, log_end: LogEnd) -> None:
        self._log_end = log_end
        self._lag = self._unknown = self._committed = 0
        self._seen_at = math.inf

    def result(self) -> tuple[int | None, int, int, float | None]:
        """The last four of `GroupFigures`."""
        known = self._committed > self._unknown
        return self._lag if known else None, self._unknown, self._committed, self._seen_at if known else None

    def add(self, offsets: Collection[tuple[TopicPartition, int]]) -> None:
        """Some more of the group's committed offsets."""
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


def _ids(copies: Iterable[Copy]) -> Generator[None, None, Iterator[str]]:
    """All ids in order, each once. They are sorted some at a time, and put together as they are asked for."""
    slices = []
    for copy in copies:
        for some in batches(list(copy.group_metadata_cache), NAMES_AT_ONCE):
            slices.append(sorted(some))
            yield
    return (group_id for group_id, _ in groupby(merge(*slices)))


def best(copies: Iterable[Copy], group_id: str, now: float) -> GroupView | None:
    """A group, of several copies the one that counts; None where there is none. `now`: seconds since the epoch."""
    views = [view for copy in copies if (view := copy.existing(group_id, now)) is not None]
    return max(views, key=_standing, default=None)


def _seen_at(end: tuple[int, float]) -> float:
    return end[1]


def _standing(group: GroupView) -> tuple[bool, int, float]:
    return group.lacking is None, group.generation, group.last_rebalance_at or 0.0


def offsets_of(view: GroupView) -> OffsetsRead:
    """What a group has committed at this moment, to be decoded later, in whichever thread."""
    offsets = view.offsets
    return offsets.read() if isinstance(offsets, CommittedOffsets) else OffsetsRead(seen=tuple(offsets.items()))


def _assigned(group: GroupView) -> list[frozenset[TopicPartition]] | None:
    settled = group.state is GroupState.STABLE and group.lacking is None
    if not settled or group.kind is not GroupKind.CLASSIC or group.protocol_type != CONSUMER:
        return None
    try:
        return [_assigned_to(member.assignment) for member in group.members]
    except DecodeError:
        return None


_assigned_to = lru_cache(maxsize=10_000)(assigned_to)
"""Remembered, as most assignments stay as they are."""
