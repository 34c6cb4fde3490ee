"""The metrics of single groups, topics and partitions.

For each family of these metrics, a function yields the rows. `series_limit` encodes the rows up to the limit on series.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from group_sidecar.metrics import families as f
from group_sidecar.metrics.fact_counters import GroupCounts
from group_sidecar.metrics.group_snapshot import GroupFigures, GroupWithOffsets, Position, SeenLogEnd, batches
from group_sidecar.metrics.metric_family import Family, Row

ROWS_PER_STEP = 250
"""The number of rows in one step of a scrape. A step takes a third of a millisecond."""


@dataclass(slots=True)
class TopicSums:
    """A group's lag and last commit in one topic.

    Attributes:
        lag: the summed lag; None if no log end was seen.
        lag_seen_at: when the oldest log end in `lag` was seen, in seconds since the epoch; infinity if `lag` is None.
        committed_at: time of the group's last commit, in seconds since the epoch; 0 if unknown.
    """

    lag: int | None = None
    lag_seen_at: float = math.inf
    committed_at: float = 0.0

    def add(self, position: Position) -> None:
        """Adds a partition of the topic."""
        if position.lag is not None and position.log_end_at is not None:
            self.lag = (self.lag or 0) + position.lag
            self.lag_seen_at = min(self.lag_seen_at, position.log_end_at)
        self.committed_at = max(self.committed_at, position.committed_at)


@dataclass(slots=True)
class GroupDetails:
    """The data of one group for its rows. `counts`: the group's counters since it was first seen, or None."""

    visit: GroupWithOffsets
    counts: GroupCounts | None
    positions: list[Position] = field(default_factory=list)
    topics: dict[str, TopicSums] = field(default_factory=dict)

    @property
    def figures(self) -> GroupFigures:
        """The group's figures."""
        return self.visit.figures

    @property
    def group_id(self) -> str:
        """The group's id."""
        return self.visit.figures.view.group_id

    def read_positions(self) -> Iterator[int]:
        """Reads the group's position in each partition. Yields the number of partitions in each step."""
        for batch in batches(self.visit.each_position(), ROWS_PER_STEP):
            for position in batch:
                topic = self.topics.get(position.topic)
                if topic is None:
                    topic = self.topics[position.topic] = TopicSums()
                topic.add(position)
            self.positions += batch
            yield len(batch)


# Each of these functions yields the rows of one family.


def _info(details: GroupDetails) -> Iterator[Row]:
    g = details.figures.view
    yield (g.group_id, g.kind, g.state, g.protocol_type, g.protocol), 1


def _members(details: GroupDetails) -> Iterator[Row]:
    if details.figures.view.roster_known:
        yield (details.group_id,), len(details.figures.view.members)


def _members_limit(details: GroupDetails) -> Iterator[Row]:
    if details.figures.limit is not None:
        yield (details.group_id,), details.figures.limit


def _last_rebalance(details: GroupDetails) -> Iterator[Row]:
    if (at := details.figures.view.last_rebalance_at) is not None:
        yield (details.group_id,), at


def _rebalances(details: GroupDetails) -> Iterator[Row]:
    for reason, count in details.counts.rebalances.items() if details.counts else ():
        yield (details.group_id, reason), count


def _offset_commits(details: GroupDetails) -> Iterator[Row]:
    if details.counts:
        yield (details.group_id,), details.counts.offset_commits


def _group_lag(details: GroupDetails) -> Iterator[Row]:
    if details.figures.lag is not None:
        yield (details.group_id,), details.figures.lag


def _group_lag_seen(details: GroupDetails) -> Iterator[Row]:
    if details.figures.lag_seen_at is not None:
        yield (details.group_id,), details.figures.lag_seen_at


def _unknown_lags(details: GroupDetails) -> Iterator[Row]:
    if details.figures.committed:
        yield (details.group_id,), details.figures.unknown_lags


def _unassigned(details: GroupDetails) -> Iterator[Row]:
    if details.figures.assigned is not None:
        yield (details.group_id,), details.figures.assigned.count(frozenset())


def _topic_lags(details: GroupDetails) -> Iterator[Row]:
    for name, topic in details.topics.items():
        if topic.lag is not None:
            yield (details.group_id, name), topic.lag


def _topic_lags_seen(details: GroupDetails) -> Iterator[Row]:
    for name, topic in details.topics.items():
        if topic.lag is not None:
            yield (details.group_id, name), topic.lag_seen_at


def _last_commits(details: GroupDetails) -> Iterator[Row]:
    for name, topic in details.topics.items():
        if topic.committed_at:
            yield (details.group_id, name), topic.committed_at


def _assigned_partitions(details: GroupDetails) -> Iterator[Row]:
    counts = Counter(topic for partitions in details.figures.assigned or () for topic, _ in partitions)
    for topic in sorted(counts):
        yield (details.group_id, topic), counts[topic]


def _uncommitted(details: GroupDetails) -> Iterator[Row]:
    assigned = details.figures.assigned
    if not assigned or details.figures.view.offsets_fallback_reason is not None:
        return
    committed = {(position.topic, position.partition) for position in details.positions}
    counts = Counter(
        assigned_to[0] for partitions in assigned for assigned_to in partitions if assigned_to not in committed
    )
    for topic in sorted({topic for partitions in assigned for topic, _ in partitions}):
        yield (details.group_id, topic), counts[topic]


def _partition_lags(details: GroupDetails) -> Iterator[Row]:
    group_id = details.group_id
    for position in details.positions:
        if position.lag is not None:
            yield (group_id, position.topic, str(position.partition)), position.lag


def _committed(details: GroupDetails) -> Iterator[Row]:
    group_id = details.group_id
    for position in details.positions:
        yield (group_id, position.topic, str(position.partition)), position.offset


def _offset(seen: SeenLogEnd) -> Row:
    (topic, partition), (offset, _) = seen
    return (topic, str(partition)), offset


def _seen_at(seen: SeenLogEnd) -> Row:
    (topic, partition), (_, at) = seen
    return (topic, str(partition)), at


PartitionFamilies = tuple[tuple[Family, Callable[[SeenLogEnd], Row]], ...]

GROUP_FAMILIES: tuple[tuple[Family, Callable[[GroupDetails], Iterator[Row]]], ...] = (
    (f.GROUP_INFO, _info),
    (f.GROUP_MEMBERS, _members),
    (f.GROUP_MEMBERS_LIMIT, _members_limit),
    (f.GROUP_MEMBERS_UNASSIGNED, _unassigned),
    (f.GROUP_LAST_REBALANCE, _last_rebalance),
    (f.GROUP_REBALANCES, _rebalances),
    (f.GROUP_OFFSET_COMMITS, _offset_commits),
    (f.GROUP_LAG, _group_lag),
    (f.GROUP_LAG_SEEN, _group_lag_seen),
    (f.GROUP_LAG_UNKNOWN, _unknown_lags),
    (f.GROUP_TOPIC_LAG, _topic_lags),
    (f.GROUP_TOPIC_LAG_SEEN, _topic_lags_seen),
    (f.LAST_COMMIT, _last_commits),
    (f.GROUP_ASSIGNED_PARTITIONS, _assigned_partitions),
    (f.UNCOMMITTED_PARTITIONS, _uncommitted),
    (f.GROUP_PARTITION_LAG, _partition_lags),
    (f.COMMITTED_OFFSET, _committed),
)
LOG_END_FAMILIES: PartitionFamilies = ((f.LOG_END_OFFSET, _offset), (f.LOG_END_SEEN, _seen_at))
LOG_START_FAMILIES: PartitionFamilies = ((f.LOG_START_OFFSET, _offset),)
FAMILIES: tuple[Family, ...] = tuple(family for family, _ in (*GROUP_FAMILIES, *LOG_END_FAMILIES, *LOG_START_FAMILIES))
"""Families with a level of detail, coarse ones first. At the series limit the finest families are left out."""
