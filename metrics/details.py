"""What is told of single groups, topics and partitions.

Owns: the rows of every family that has a level of detail, as they follow from the views of one moment. Must not
know: which of them are shown, and how many.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple

from group_sidecar.codecs.consumer_protocol import CONSUMER, decode_assignment
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.views import (
    CommittedOffset,
    GroupKind,
    GroupState,
    GroupView,
    Snapshot,
    TopicPartition,
)
from group_sidecar.metrics import families as f
from group_sidecar.metrics.families import Family, Row
from group_sidecar.metrics.instruments import GroupCounts


class Position(NamedTuple):
    """Where a group stands in one partition; `lag` is None where the log end was not seen."""

    topic: str
    partition: int
    committed: CommittedOffset
    lag: int | None


class Scene:
    """What one scrape shows, with what several families need worked out once, and only where it is needed.

    Args:
        snapshot: groups in the order in which they are to be shown.
        counts: what each group has done.
        most_members: the most members that a group may have; None without limit.
    """

    def __init__(
        self, snapshot: Snapshot, counts: Mapping[str, GroupCounts], most_members: Callable[[GroupView], int | None]
    ) -> None:
        self.snapshot = snapshot
        self._counts = counts
        self._most_members = most_members

    @cached_property
    def counts(self) -> list[tuple[str, GroupCounts]]:
        """Group id and counts, in order."""
        return sorted(self._counts.items(), key=itemgetter(0))

    @cached_property
    def limits(self) -> list[tuple[GroupView, int]]:
        """Groups that have a limit, and the most members that each may have."""
        limits = ((group, self._most_members(group)) for group in self.snapshot.groups)
        return [(group, limit) for group, limit in limits if limit is not None]

    @cached_property
    def log_ends(self) -> list[tuple[TopicPartition, tuple[int, float]]]:
        """Partition and (log end, seen at), in order."""
        return sorted(self.snapshot.log_ends.items())

    @cached_property
    def positions(self) -> dict[str, list[Position]]:
        """Group id -> where it has committed."""
        return {group.group_id: _positions(group, self.snapshot.log_ends) for group in self.snapshot.groups}

    @cached_property
    def assigned(self) -> list[tuple[GroupView, list[frozenset[TopicPartition]]]]:
        """Groups whose assignment is known, and what each member has."""
        known = ((group, _assigned(group)) for group in self.snapshot.groups)
        return [(group, members) for group, members in known if members is not None]


def _positions(group: GroupView, log_ends: Mapping[TopicPartition, tuple[int, float]]) -> list[Position]:
    positions = []
    for (topic, partition), committed in sorted(group.offsets.items(), key=itemgetter(0)):
        if committed.offset < 0:
            continue
        end = log_ends.get((topic, partition))
        # The log end may have been seen before the commit: then there is no lag that can be told.
        lag = None if end is None else max(0, end[0] - committed.offset)
        positions.append(Position(topic, partition, committed, lag))
    return positions


def _assigned(group: GroupView) -> list[frozenset[TopicPartition]] | None:
    """What each member has; None while that is unsettled, or not known, or not said in the consumer's protocol."""
    settled = group.state is GroupState.STABLE and group.lacking is None
    if not settled or group.kind is not GroupKind.CLASSIC or group.protocol_type != CONSUMER:
        return None
    try:
        return [_partitions(member.assignment) for member in group.members]
    except DecodeError:
        return None


@lru_cache(maxsize=10_000)
def _partitions(assignment: bytes) -> frozenset[TopicPartition]:
    """Partitions that an assignment names; remembered, as most assignments stay from scrape to scrape."""
    if not assignment:
        return frozenset()
    topics = decode_assignment(assignment).assigned_partitions
    return frozenset((of.topic, partition) for of in topics for partition in of.partitions)


# Rows of one family each.


def _info(scene: Scene) -> Iterator[Row]:
    for g in scene.snapshot.groups:
        yield (g.group_id, g.kind, g.state, g.protocol_type, g.protocol), 1


def _members(scene: Scene) -> Iterator[Row]:
    for group in scene.snapshot.groups:
        if group.roster_known:
            yield (group.group_id,), len(group.members)


def _members_limits(scene: Scene) -> Iterator[Row]:
    for group, limit in scene.limits:
        yield (group.group_id,), limit


def _last_rebalances(scene: Scene) -> Iterator[Row]:
    for group in scene.snapshot.groups:
        if group.last_rebalance_at is not None:
            yield (group.group_id,), group.last_rebalance_at


def _rebalances(scene: Scene) -> Iterator[Row]:
    for group_id, counts in scene.counts:
        for reason, count in counts.rebalances.items():
            yield (group_id, reason), count


def _offset_commits(scene: Scene) -> Iterator[Row]:
    for group_id, counts in scene.counts:
        yield (group_id,), counts.offset_commits


def _group_lags(scene: Scene) -> Iterator[Row]:
    for group_id, positions in scene.positions.items():
        known = [position.lag for position in positions if position.lag is not None]
        if known:
            yield (group_id,), sum(known)


def _unknown_lags(scene: Scene) -> Iterator[Row]:
    for group_id, positions in scene.positions.items():
        if positions:
            yield (group_id,), sum(position.lag is None for position in positions)


def _unassigned(scene: Scene) -> Iterator[Row]:
    for group, members in scene.assigned:
        yield (group.group_id,), members.count(frozenset())


def _topic_lags(scene: Scene) -> Iterator[Row]:
    for group_id, positions in scene.positions.items():
        lags: defaultdict[str, int] = defaultdict(int)
        for position in positions:
            if position.lag is not None:
                lags[position.topic] += position.lag
        for topic, lag in lags.items():
            yield (group_id, topic), lag


def _last_commits(scene: Scene) -> Iterator[Row]:
    for group_id, positions in scene.positions.items():
        latest: dict[str, float] = {}
        for topic, _, committed, _ in positions:
            latest[topic] = max(committed.at, latest.get(topic, 0.0))
        for topic, at in latest.items():
            if at:
                yield (group_id, topic), at


def _assigned_partitions(scene: Scene) -> Iterator[Row]:
    for group, members in scene.assigned:
        counts = Counter(topic for partitions in members for topic, _ in partitions)
        for topic in sorted(counts):
            yield (group.group_id, topic), counts[topic]


def _uncommitted(scene: Scene) -> Iterator[Row]:
    for group, members in scene.assigned:
        if group.offsets_lacking is not None:
            continue
        committed = {(position.topic, position.partition) for position in scene.positions[group.group_id]}
        counts = Counter(where[0] for partitions in members for where in sorted(partitions) if where not in committed)
        for topic in sorted({topic for partitions in members for topic, _ in partitions}):
            yield (group.group_id, topic), counts[topic]


def _partition_lags(scene: Scene) -> Iterator[Row]:
    for group_id, positions in scene.positions.items():
        for topic, partition, _, lag in positions:
            if lag is not None:
                yield (group_id, topic, str(partition)), lag


def _committed(scene: Scene) -> Iterator[Row]:
    for group_id, positions in scene.positions.items():
        for topic, partition, committed, _ in positions:
            yield (group_id, topic, str(partition)), committed.offset


def _log_ends(scene: Scene) -> Iterator[Row]:
    for (topic, partition), (offset, _) in scene.log_ends:
        yield (topic, str(partition)), offset


def _log_ends_seen(scene: Scene) -> Iterator[Row]:
    for (topic, partition), (_, at) in scene.log_ends:
        yield (topic, str(partition)), at


DETAILS: tuple[tuple[Family, Callable[[Scene], Iterator[Row]]], ...] = (
    (f.GROUP_INFO, _info),
    (f.GROUP_MEMBERS, _members),
    (f.GROUP_MEMBERS_LIMIT, _members_limits),
    (f.GROUP_MEMBERS_UNASSIGNED, _unassigned),
    (f.GROUP_LAST_REBALANCE, _last_rebalances),
    (f.GROUP_REBALANCES, _rebalances),
    (f.GROUP_OFFSET_COMMITS, _offset_commits),
    (f.GROUP_LAG, _group_lags),
    (f.GROUP_LAG_UNKNOWN, _unknown_lags),
    (f.GROUP_TOPIC_LAG, _topic_lags),
    (f.LAST_COMMIT, _last_commits),
    (f.GROUP_ASSIGNED_PARTITIONS, _assigned_partitions),
    (f.UNCOMMITTED_PARTITIONS, _uncommitted),
    (f.GROUP_PARTITION_LAG, _partition_lags),
    (f.COMMITTED_OFFSET, _committed),
    (f.LOG_END_OFFSET, _log_ends),
    (f.LOG_END_SEEN, _log_ends_seen),
)
"""Families with a level of detail, and their rows; coarse ones first, so that the finest go at the series limit."""
