"""Counts facts, in total and per group.

The counters are plain numbers without locks and creation times. Each scrape turns the numbers into families.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.coordinator.model.facts import (
    ClientBypassed,
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    OffsetsCommitted,
    RebalanceCompleted,
    RebalanceReason,
    RebalanceStarted,
)
from group_sidecar.metrics import families as f
from group_sidecar.metrics.installed_version import installed_version
from group_sidecar.metrics.traffic_counters import Histogram

COMMIT, MEMBER = "commit", "member"
"""Label values for a commit and for a member that bypassed the sidecar."""
OTHER = "other"
"""Label value for an error code that `ErrorCode` does not contain."""

REBALANCE_SECONDS = (0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Bucket bounds in seconds. The last bounds are the default max.poll.interval.ms (5 minutes) and its double."""

COMMIT_ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
)
"""Error codes in OffsetCommit replies (Kafka class OffsetCommitResponse), whose series are 0 from the start."""


def error_name(code: int) -> str:
    """Returns Kafka's name of an error code as a label value, or ``other`` if `ErrorCode` does not contain it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return OTHER


@dataclass(slots=True)
class GroupCounts:
    """Counters of one group since it was first seen."""

    rebalances: Counter[RebalanceReason] = field(default_factory=Counter)
    offset_commits: int = 0


class FactCounters:
    """Counts facts, and registers itself as a collector.

    Args:
        registry: collects the totals. `collector.scrape` collects the counts per group.
        max_groups: the maximum number of groups with their own counts. Facts of other groups count only in the totals.
    """

    def __init__(self, registry: CollectorRegistry, *, max_groups: int = 10_000) -> None:
        self.max_groups = max_groups
        self.by_group: dict[str, GroupCounts] = {}
        self._rebalances = dict.fromkeys(RebalanceReason, 0)
        self._rebalances_started = dict.fromkeys(RebalanceReason, 0)
        self._rebalance_seconds = Histogram(REBALANCE_SECONDS)
        self._members_joined = 0
        self._members_removed = dict.fromkeys(Departure, 0)
        self._bypassing_records = {COMMIT: 0, MEMBER: 0}
        self._offset_commits = 0
        self._commit_failures = dict.fromkeys([*map(error_name, COMMIT_ERRORS), OTHER], 0)
        self._handlers: dict[type[Fact], Callable[[Any], None]] = {
            RebalanceStarted: self._rebalance_started,
            RebalanceCompleted: self._rebalance_completed,
            MemberJoined: self._member_joined,
            MemberGone: self._member_gone,
            OffsetsCommitted: self._offsets_committed,
            ClientBypassed: self._client_bypassed,
        }
        registry.register(self)

    def observe(self, fact: Fact) -> None:
        """Counts one fact. Refusals are counted in `TrafficCounters` instead."""
        if (handler := self._handlers.get(type(fact))) is not None:
            handler(fact)

    def retain(self, group_ids: Collection[str]) -> None:
        """Drops the counts of all groups that are not in `group_ids`."""
        for group_id in self.by_group.keys() - group_ids:
            del self.by_group[group_id]

    def collect(self) -> Iterable[Metric]:
        """Yields the totals. `prometheus_client` calls this method."""
        yield f.BUILD_INFO.fill([((installed_version(),), 1)])
        yield f.REBALANCES.fill(((reason,), n) for reason, n in self._rebalances.items())
        yield f.REBALANCES_STARTED.fill(((reason,), n) for reason, n in self._rebalances_started.items())
        yield f.REBALANCE_DURATION.fill_histograms([((), self._rebalance_seconds)])
        yield f.MEMBERS_JOINED.single(self._members_joined)
        yield f.MEMBERS_REMOVED.fill(((how,), n) for how, n in self._members_removed.items())
        yield f.BYPASSING_RECORDS.fill(((kind,), n) for kind, n in self._bypassing_records.items())
        yield f.OFFSET_COMMITS.single(self._offset_commits)
        yield f.OFFSET_COMMIT_FAILURES.fill(((error,), n) for error, n in self._commit_failures.items())

    def _rebalance_started(self, fact: RebalanceStarted) -> None:
        self._rebalances_started[fact.reason] += 1

    def _member_joined(self, fact: MemberJoined) -> None:
        self._members_joined += 1

    def _member_gone(self, fact: MemberGone) -> None:
        self._members_removed[fact.how] += 1

    def _rebalance_completed(self, fact: RebalanceCompleted) -> None:
        self._rebalances[fact.reason] += 1
        self._rebalance_seconds.observe(fact.duration_seconds)
        if counts := self._counts_of(fact.group_id):
            counts.rebalances[fact.reason] += 1

    def _client_bypassed(self, fact: ClientBypassed) -> None:
        self._bypassing_records[MEMBER if fact.member else COMMIT] += 1

    def _offsets_committed(self, fact: OffsetsCommitted) -> None:
        self._offset_commits += fact.accepted
        for code, count in fact.refused:
            error = error_name(code)
            self._commit_failures[error] = self._commit_failures.get(error, 0) + count
        if counts := self._counts_of(fact.group_id):
            counts.offset_commits += fact.accepted

    def _counts_of(self, group_id: str) -> GroupCounts | None:
        counts = self.by_group.get(group_id)
        if counts is None and len(self.by_group) < self.max_groups:
            counts = self.by_group[group_id] = GroupCounts()
        return counts
