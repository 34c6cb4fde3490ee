"""What is told of single groups, topics and partitions.

Owns: the rows of every family that has a level of detail, and `Sheet`, which puts them on paper as far as the limit on
series goes. Must not know: which groups there are, how they are gone through.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from group_sidecar.metrics import families as f
from group_sidecar.metrics.exposition import Escaped, FamilyText
from group_sidecar.metrics.family import Detail, Family, Row
from group_sidecar.metrics.instruments import GroupCounts
from group_sidecar.metrics.survey import GROUP_COST, GroupFigures, LogEndSeen, Position, Visit, batches

ROWS_AT_ONCE = 250
"""Rows between two breaths: a third of a millisecond."""


@dataclass(slots=True)
class Topic:
    """What a group has in one topic.

    Attributes:
        lag: None where no log end was seen.
        lag_seen_at: when the oldest of them was seen.
        committed_at: when it last committed; 0 where that is not known.
    """

    lag: int | None = None
    lag_seen_at: float = math.inf
    committed_at: float = 0.0

    def add(self, position: Position) -> None:
        """A partition of it."""
        if position.lag is not None and position.log_end_at is not None:
            self.lag = (self.lag or 0) + position.lag
            self.lag_seen_at = min(self.lag_seen_at, position.log_end_at)
        self.committed_at = max(self.committed_at, position.committed_at)


@dataclass(slots=True)
class Scene:
    """One group, as far as details are told of it. `counts`: what it has done since it was first seen, if counted."""

    visit: Visit
    counts: GroupCounts | None
    positions: list[Position] = field(default_factory=list)
    topics: dict[str, Topic] = field(default_factory=dict)

    @property
    def figures(self) -> GroupFigures:
        """Its sums."""
        return self.visit.figures

    @property
    def group_id(self) -> str:
        """Its id."""
        return self.visit.figures.view.group_id

    def look(self) -> Iterator[int]:
        """Finds out where it stands in each partition. Gives, step by step, at how many it has looked."""
        for some in batches(self.visit.each_position(), ROWS_AT_ONCE):
            for position in some:
                topic = self.topics.get(position.topic)
                if topic is None:
                    topic = self.topics[position.topic] = Topic()
                topic.add(position)
            self.positions += some
            yield len(some)


# Rows of one family each.


def _info(scene: Scene) -> Iterator[Row]:
    g = scene.figures.view
    yield (g.group_id, g.kind, g.state, g.protocol_type, g.protocol), 1


def _members(scene: Scene) -> Iterator[Row]:
    if scene.figures.view.roster_known:
        yield (scene.group_id,), len(scene.figures.view.members)


def _members_limit(scene: Scene) -> Iterator[Row]:
    if scene.figures.limit is not None:
        yield (scene.group_id,), scene.figures.limit


def _last_rebalance(scene: Scene) -> Iterator[Row]:
    if (at := scene.figures.view.last_rebalance_at) is not None:
        yield (scene.group_id,), at


def _rebalances(scene: Scene) -> Iterator[Row]:
    for reason, count in scene.counts.rebalances.items() if scene.counts else ():
        yield (scene.group_id, reason), count


def _offset_commits(scene: Scene) -> Iterator[Row]:
    if scene.counts:
        yield (scene.group_id,), scene.counts.offset_commits


def _group_lag(scene: Scene) -> Iterator[Row]:
    if scene.figures.lag is not None:
        yield (scene.group_id,), scene.figures.lag


def _group_lag_seen(scene: Scene) -> Iterator[Row]:
    if scene.figures.lag_seen_at is not None:
        yield (scene.group_id,), scene.figures.lag_seen_at


def _unknown_lags(scene: Scene) -> Iterator[Row]:
    if scene.figures.committed:
        yield (scene.group_id,), scene.figures.unknown_lags


def _unassigned(scene: Scene) -> Iterator[Row]:
    if scene.figures.assigned is not None:
        yield (scene.group_id,), scene.figures.assigned.count(frozenset())


def _topic_lags(scene: Scene) -> Iterator[Row]:
    for name, topic in scene.topics.items():
        if topic.lag is not None:
            yield (scene.group_id, name), topic.lag


def _topic_lags_seen(scene: Scene) -> Iterator[Row]:
    for name, topic in scene.topics.items():
        if topic.lag is not None:
            yield (scene.group_id, name), topic.lag_seen_at


def _last_commits(scene: Scene) -> Iterator[Row]:
    for name, topic in scene.topics.items():
        if topic.committed_at:
            yield (scene.group_id, name), topic.committed_at


def _assigned_partitions(scene: Scene) -> Iterator[Row]:
    counts = Counter(topic for partitions in scene.figures.assigned or () for topic, _ in partitions)
    for topic in sorted(counts):
        yield (scene.group_id, topic), counts[topic]


def _uncommitted(scene: Scene) -> Iterator[Row]:
    assigned = scene.figures.assigned
    if not assigned or scene.figures.view.offsets_lacking is not None:
        return
    committed = {(position.topic, position.partition) for position in scene.positions}
    counts = Counter(where[0] for partitions in assigned for where in partitions if where not in committed)
    for topic in sorted({topic for partitions in assigned for topic, _ in partitions}):
        yield (scene.group_id, topic), counts[topic]


def _partition_lags(scene: Scene) -> Iterator[Row]:
    group_id = scene.group_id
    for position in scene.positions:
        if position.lag is not None:
            yield (group_id, position.topic, str(position.partition)), position.lag


def _committed(scene: Scene) -> Iterator[Row]:
    group_id = scene.group_id
    for position in scene.positions:
        yield (group_id, position.topic, str(position.partition)), position.offset


def _offset(seen: LogEndSeen) -> Row:
    (topic, partition), (offset, _) = seen
    return (topic, str(partition)), offset


def _seen_at(seen: LogEndSeen) -> Row:
    (topic, partition), (_, at) = seen
    return (topic, str(partition)), at


PartitionTable = tuple[tuple[Family, Callable[[LogEndSeen], Row]], ...]

OF_GROUPS: tuple[tuple[Family, Callable[[Scene], Iterator[Row]]], ...] = (
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
OF_LOG_ENDS: PartitionTable = ((f.LOG_END_OFFSET, _offset), (f.LOG_END_SEEN, _seen_at))
OF_LOG_STARTS: PartitionTable = ((f.LOG_START_OFFSET, _offset),)
FAMILIES: tuple[Family, ...] = tuple(family for family, _ in (*OF_GROUPS, *OF_LOG_ENDS, *OF_LOG_STARTS))
"""Families with a level of detail, coarse ones first, so that the finest go at the series limit."""


class Sheet:
    """All lines of details. What goes beyond the limit on series is counted only.

    Args:
        detail: the finest level that is shown.
        most: the most series, of all families together.
        openmetrics: the format.
    """

    def __init__(self, detail: Detail, most: int, *, openmetrics: bool) -> None:
        self._most = most
        self._looks = detail.includes(Detail.TOPIC)
        shown = [family for family in FAMILIES if detail.includes(family.detail)]
        escaped = Escaped()
        self._texts = {family: FamilyText(family, escaped, openmetrics=openmetrics) for family in shown}

    def group(self, scene: Scene) -> Iterator[int]:
        """Writes down a group. Gives, step by step, how many rows that were."""
        if not self._texts:
            return
        yield GROUP_COST
        if self._looks:
            yield from scene.look()
        before = 0
        for family, rows in OF_GROUPS:
            if (text := self._texts.get(family)) is not None:
                for some in batches(rows(scene), ROWS_AT_ONCE):
                    text.add(some, self._most - before - text.count)
                    yield len(some)
                before += text.count

    def partitions(self, families: PartitionTable, bounds: Iterable[LogEndSeen]) -> Iterator[int]:
        """Writes down log ends or starts, when all that is coarser has been. As `group`."""
        if not all(family in self._texts for family, _ in families):
            return
        coarser = sum(text.count for text in self._texts.values())
        for some in batches(bounds, ROWS_AT_ONCE):
            before = coarser
            for family, row in families:
                text = self._texts[family]
                text.add([row(each) for each in some], self._most - before - text.count)
                before += text.count
                yield len(some)

    def lines(self) -> tuple[list[bytes], int]:
        """All that is shown, and how many series are not."""
        lines: list[bytes] = []
        left = self._most
        for text in self._texts.values():
            shown = min(text.count, left)
            lines += text.first(shown)
            left -= shown
        return lines, sum(text.count for text in self._texts.values()) - (self._most - left)
