"""Metrics built afresh from views at each scrape, so that what vanished vanishes.

Owns: what the views and numbers of this moment say in metrics, the limit on series, the exposition
formats. Must not know: how a view came about, and HTTP.

Prometheus' own gauges remember every label set they ever had (client_python #1047); these do not.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple, Protocol

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from group_sidecar.codecs.registry import APIS, ApiKey, api_name
from group_sidecar.coordinator.partitions import PartitionState
from group_sidecar.coordinator.views import GroupKind, GroupState, GroupView, Lacking, Snapshot, TopicPartition
from group_sidecar.metrics import families as f
from group_sidecar.metrics.details import DETAILS, Scene
from group_sidecar.metrics.families import Detail, Row
from group_sidecar.metrics.instruments import Instruments, error_name
from group_sidecar.metrics.log_reading import LOAD_SECONDS, LogReading
from group_sidecar.metrics.traffic import Histogram, Traffic, Verification

ANSWERABLE = (ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH, ApiKey.CONSUMER_GROUP_DESCRIBE)
"""APIs that the copy of the coordinator can answer; their series stand at 0 from the start."""

_REBALANCING = (GroupState.ASSIGNING, GroupState.RECONCILING)
STATES: Mapping[GroupKind, tuple[GroupState, ...]] = {
    GroupKind.CLASSIC: (
        GroupState.EMPTY,
        GroupState.PREPARING_REBALANCE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
        GroupState.DEAD,
    ),
    GroupKind.CONSUMER: (GroupState.EMPTY, *_REBALANCING, GroupState.STABLE, GroupState.DEAD),
    GroupKind.SHARE: (GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD),
    GroupKind.STREAMS: (GroupState.EMPTY, *_REBALANCING, GroupState.STABLE, GroupState.DEAD),
}
"""States that each protocol has (Kafka classes ClassicGroupState, ConsumerGroupState, ...)."""

NEAR_PERCENT = 90
"""From which share of its limit on a group is near it: one in ten is about what a deployment restarts at a time, and
a rolling update that starts the new before it stops the old needs as many places more."""


class JournalHealth(Protocol):
    """What the journal of records says about itself. `last_flush`: seconds since the epoch, 0 before the first."""

    @property
    def records_written(self) -> int: ...
    @property
    def records_dropped(self) -> Mapping[str, int]: ...
    @property
    def last_flush(self) -> float: ...


class LastReload(NamedTuple):
    """How the last reading of the settings went. `succeeded_at`: when one last succeeded, seconds since the epoch."""

    successful: bool
    succeeded_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the collector looks at each scrape, and how much of it it shows.

    Attributes:
        snapshots: the copies of the coordinators, one per broker.
        mirror_ready: whether these copies are ready to answer.
        held_bytes: bytes held in unfinished frames.
        recorded_bytes: bytes of the flight recorder.
        logs: the readings of the brokers' logs; none where they are not read.
        journal: None where no records are written.
        most_members: the most members that a group may have; None without limit.
        last_reload: how the last reading of the settings went; None where they are not read again.
        max_series: most series shown of all families with a level of detail together.
    """

    snapshots: Callable[[], Iterable[Snapshot]]
    traffic: Traffic
    instruments: Instruments
    mirror_ready: Callable[[], bool]
    held_bytes: Callable[[], int]
    recorded_bytes: Callable[[], int] = int
    logs: Callable[[], Collection[LogReading]] = list
    journal: JournalHealth | None = None
    most_members: Callable[[GroupView], int | None] = lambda _: None
    last_reload: Callable[[], LastReload] | None = None
    detail: Detail = Detail.NONE
    max_series: int = 10_000


class SidecarCollector:
    """Turns what `sources` say into families."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        """All families of this moment, as `prometheus_client` asks for them."""
        started = perf_counter()
        sources = self._sources
        snapshot = merge(sources.snapshots())
        sources.instruments.retain({group.group_id for group in snapshot.groups})
        found = [_groups(snapshot.groups)]
        if (most := sources.most_members(GroupView(group_id=""))) is not None:
            found.append(f.GROUP_MAX_SIZE.single(most))
        budget = _Budget(sources.max_series)
        scene = Scene(snapshot, sources.instruments.by_group, sources.most_members)
        found += _limits(scene)
        found += _details(scene, sources.detail, budget)
        found += _traffic(sources.traffic)
        found += _policies(sources.traffic)
        found += _logs(sources.logs())
        found.append(f.MIRROR_READY.single(sources.mirror_ready()))
        found.append(f.HELD_BYTES.single(sources.held_bytes()))
        found.append(f.RECORDED_BYTES.single(sources.recorded_bytes()))
        if sources.journal is not None:
            found += _journal(sources.journal)
        if sources.last_reload is not None:
            last = sources.last_reload()
            found.append(f.CONFIG_LAST_RELOAD_SUCCESSFUL.single(last.successful))
            found.append(f.CONFIG_LAST_RELOAD_SUCCESS.single(last.succeeded_at))
        found.append(f.SERIES_SUPPRESSED.single(budget.suppressed))
        found.append(f.COLLECT_DURATION.single(perf_counter() - started))
        return found


def new_registry() -> CollectorRegistry:
    """A registry of our own, with the process and the Python platform in it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def exposition(accept: str, registry: Collector) -> tuple[bytes, str]:
    """All metrics in the format that an Accept header asks for, and that format's content type."""
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # A version parameter that is not numbers: as if there were none.
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Several copies as one, groups in the order of their ids.

    A group that moved between brokers may be in two copies for a while: the complete one wins, then the one
    with the later generation. Two series of the same name would spoil the whole scrape.
    """
    groups: dict[str, GroupView] = {}
    log_ends: dict[TopicPartition, tuple[int, float]] = {}
    for snapshot in snapshots:
        for group in snapshot.groups:
            other = groups.get(group.group_id)
            if other is None or _standing(group) > _standing(other):
                groups[group.group_id] = group
        for where, end in snapshot.log_ends.items():
            if where not in log_ends or end[1] > log_ends[where][1]:
                log_ends[where] = end
    return Snapshot(groups=tuple(groups[group_id] for group_id in sorted(groups)), log_ends=log_ends)


def _standing(group: GroupView) -> tuple[bool, int, float]:
    return group.lacking is None, group.generation, group.last_rebalance_at or 0.0


class _Budget:
    """How many more series may be shown, and how many could not be."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.suppressed = 0

    def admit(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            if self._left > 0:
                self._left -= 1
                yield row
            else:
                self.suppressed += 1


def _groups(groups: Collection[GroupView]) -> Metric:
    counts = {(kind.value, state.value): 0 for kind, states in STATES.items() for state in states}
    for group in groups:
        place = (group.kind.value, group.state.value)
        counts[place] = counts.get(place, 0) + 1
    return f.GROUPS.fill(counts.items())


def _limits(scene: Scene) -> Iterator[Metric]:
    sizes = [(len(group.members), limit) for group, limit in scene.limits if group.roster_known]
    near = sum(limit * NEAR_PERCENT <= size * 100 <= limit * 100 for size, limit in sizes)
    yield f.GROUPS_NEAR_LIMIT.single(near)
    yield f.GROUPS_OVER_LIMIT.single(sum(size > limit for size, limit in sizes))


def _details(scene: Scene, detail: Detail, budget: _Budget) -> Iterator[Metric]:
    for family, rows in DETAILS:
        if detail.includes(family.detail):
            yield family.fill(budget.admit(rows(scene)))


# Numbers that the data path keeps.


def _traffic(t: Traffic) -> Iterator[Metric]:
    yield f.CLIENT_CONNECTIONS.single(t.client_connections)
    yield f.CONNECTIONS_OPENED.single(t.connections_opened)
    yield f.CONNECTIONS_CLOSED.fill(((reason,), n) for reason, n in t.connections_closed.items())
    yield f.UPSTREAM_CONNECT_FAILURES.single(t.upstream_connect_failures)
    yield f.RECEIVED_BYTES.single(t.received_bytes)
    yield f.SENT_BYTES.single(t.sent_bytes)
    requests = defaultdict(int, t.unanswered)
    for key, durations in t.durations.items():
        requests[key] += sum(durations.counts)
    yield f.REQUESTS.fill(((api_name(key),), n) for key, n in requests.items())
    yield f.REQUEST_DURATION.fill_histograms(((api_name(key),), durations) for key, durations in t.durations.items())
    failures = dict.fromkeys(APIS, 0) | t.decode_failures
    yield f.DECODE_FAILURES.fill(((api_name(key),), n) for key, n in failures.items())
    answers = dict.fromkeys(map(int, ANSWERABLE), 0) | t.answers
    yield f.MIRROR_ANSWERS.fill(((api_name(key),), n) for key, n in answers.items())
    recalls = dict.fromkeys(map(int, ANSWERABLE), 0) | t.recalls
    yield f.MIRROR_ANSWERS_REMEMBERED.fill(((api_name(key),), n) for key, n in recalls.items())
    yield f.REMEMBERED_BYTES.single(t.remembered_bytes)
    yield f.REMEMBERED_RIGHTS.single(t.remembered_rights)
    verifications = {(key, result): 0 for key in ANSWERABLE for result in Verification} | t.verifications
    yield f.MIRROR_VERIFICATIONS.fill(((api_name(key), result), n) for (key, result), n in verifications.items())
    yield f.MIRROR_DISTRUSTED.single(t.distrusted_groups)
    fallbacks = {(key, reason): 0 for key in ANSWERABLE for reason in Lacking} | t.fallbacks
    yield f.MIRROR_FALLBACKS.fill(((api_name(key), reason), n) for (key, reason), n in fallbacks.items())


def _policies(t: Traffic) -> Iterator[Metric]:
    yield f.POLICY_EVALUATIONS.fill(((policy,), n) for policy, n in t.policy_evaluations.items())
    yield f.POLICY_REJECTIONS.fill(_by_error(t.policy_rejections))
    yield f.POLICY_AUDITED_REJECTIONS.fill(_by_error(t.policy_audits))
    yield f.POLICY_BROKER_REJECTIONS.fill(_by_error(t.broker_rejections))
    yield f.POLICY_CONFIRMATIONS.fill(((policy,), n) for policy, n in t.policy_confirmations.items())


def _by_error(counts: Mapping[tuple[str, int], int]) -> Iterable[Row]:
    """Errors by name; those without one are the same series, and are told together."""
    named: Counter[tuple[str, str]] = Counter()
    for (policy, code), n in counts.items():
        named[policy, error_name(code)] += n
    return named.items()


def _logs(logs: Collection[LogReading]) -> Iterator[Metric]:
    yield f.OFFSETS_LOG_PARTITIONS.fill(((state,), sum(log.states[state] for log in logs)) for state in PartitionState)
    loads = Histogram(LOAD_SECONDS)
    for log in logs:
        loads.add(log.loads)
    yield f.OFFSETS_LOG_LOAD_DURATION.fill_histograms([((), loads)])
    yield f.OFFSETS_LOG_LAG.single(max((log.lag for log in logs), default=0))
    yield f.OFFSETS_LOG_RECORDS.single(sum(log.records for log in logs))
    skipped = sum((log.skipped for log in logs), Counter[str]())
    yield f.OFFSETS_LOG_RECORDS_SKIPPED.fill(((key_type,), n) for key_type, n in skipped.items())
    yield f.OFFSETS_EXPIRED.single(sum(log.expired for log in logs))


def _journal(journal: JournalHealth) -> Iterator[Metric]:
    yield f.RECORDS_WRITTEN.single(journal.records_written)
    yield f.RECORDS_DROPPED.fill(((reason,), n) for reason, n in journal.records_dropped.items())
    if journal.last_flush:
        yield f.RECORDS_LAST_FLUSH.single(journal.last_flush)
