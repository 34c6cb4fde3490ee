"""Builds all metrics at each scrape, so that removed groups have no series.

The gauges of Prometheus' client library keep every label set that they ever had (client_python #1047). Here, each
scrape builds new families. A scrape is a generator. Each of its steps takes less than a millisecond, and the sidecar
forwards between the steps.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple, Protocol

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import Metric

from group_sidecar.codecs.api_registry import APIS, ApiKey, api_name
from group_sidecar.coordinator.model.views import FallbackReason, GroupKind, GroupState, GroupView
from group_sidecar.coordinator.state.bounded_table import TableSize
from group_sidecar.coordinator.state.log_partitions import PartitionState
from group_sidecar.metrics import families as f
from group_sidecar.metrics.admin_counters import AdminCounters
from group_sidecar.metrics.detail_rows import LOG_END_FAMILIES, LOG_START_FAMILIES, ROWS_PER_STEP, GroupDetails
from group_sidecar.metrics.exposition import Format, encode_family
from group_sidecar.metrics.fact_counters import FactCounters, error_name
from group_sidecar.metrics.group_snapshot import (
    GROUP_IDS_PER_STEP,
    GroupFigures,
    GroupManager,
    LogEnds,
    MaxMembers,
    batches,
    newest_log_bounds,
    walk,
)
from group_sidecar.metrics.listener_counters import ListenerCounters
from group_sidecar.metrics.log_read_counters import LOAD_SECONDS, LogReadCounters
from group_sidecar.metrics.metric_family import Detail, Family, Row
from group_sidecar.metrics.series_limit import DetailLines
from group_sidecar.metrics.traffic_counters import REQUEST_SECONDS, Histogram, TrafficCounters, Verification

LOCALLY_ANSWERED_APIS = (
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.OFFSET_FETCH,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
)
"""APIs that the copy of the coordinator can answer. The series of these APIs are 0 from the start."""

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
"""The states of each protocol (Kafka classes ClassicGroupState, ConsumerGroupState, ...)."""

NEAR_LIMIT_PERCENT = 90
"""A group with at least this share of its limit is near the limit. A rolling update restarts about one member in ten at
a time. An update that starts new members before it stops old members needs room for one tenth more."""


class JournalWriterHealth(Protocol):
    """The counters of a journal writer. `last_flush`: seconds since the epoch, 0 before the first flush."""

    @property
    def records_written(self) -> int: ...
    @property
    def records_dropped(self) -> Mapping[str, int]: ...
    @property
    def failures(self) -> int: ...
    @property
    def last_flush(self) -> float: ...


class LastReload(NamedTuple):
    """The result of the last reload. `succeeded_at`: the time of the last success, in seconds since the epoch."""

    successful: bool
    succeeded_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeSources:
    """The sources of a scrape, and the level of detail that it shows.

    Attributes:
        managers: returns the group manager of each broker's copy.
        traffic: the counters of the data path.
        fact_counters: the counters of facts.
        detail: the finest level of series.
        copies_ready: whether the copies of all brokers are ready to answer.
        refusing_brokers: how many reachable brokers refuse the sidecar's own connection.
        held_bytes: bytes held for connections.
        recorded_bytes: bytes of the flight recorder.
        tables: the tables of all copies whose size depends on clients' requests.
        logs: the counters of each broker's log; empty if no log is read.
        log_starts: the known log start offsets of each copy.
        outlets: the writers of the journal, by name; empty if no records are written.
        max_members: the maximum number of members of a group; None without a limit.
        last_reload: the result of the last reload; None if the settings are never reloaded.
        task_failures: unexpected failures of each background task.
        is_shown: whether a group has series, by its id. Totals count all groups.
        admin_counters: counters of the admin port.
        certificates_expire_at: when certificates expire, in seconds since the epoch, by the values of the labels
            `listener` and `side`. `listener` is empty for certificates that belong to no listener.
        drift: returns the seconds to add to the copies' times, so that they match the system's clock.
        max_series: the maximum number of series in total, over all families that have a level of detail.
    """

    managers: Callable[[], Sequence[GroupManager]]
    traffic: TrafficCounters
    fact_counters: FactCounters
    copies_ready: Callable[[], bool]
    held_bytes: Callable[[], int]
    refusing_brokers: Callable[[], int] = int
    recorded_bytes: Callable[[], int] = int
    tables: Callable[[], Iterable[TableSize]] = list
    logs: Callable[[], Collection[LogReadCounters]] = list
    log_starts: Callable[[], Sequence[LogEnds]] = list
    outlets: Mapping[str, JournalWriterHealth] = field(default_factory=dict)
    max_members: MaxMembers = lambda _: None
    last_reload: Callable[[], LastReload] | None = None
    task_failures: Callable[[], Mapping[str, int]] = dict
    detail: Detail = Detail.NONE
    is_shown: Callable[[str], bool] = lambda _: True
    max_series: int = 10_000
    drift: Callable[[], float] = float
    admin_counters: AdminCounters = field(default_factory=AdminCounters)
    certificates_expire_at: Callable[[], Mapping[tuple[str, str], float]] = dict


class ScrapeResult(NamedTuple):
    """The result of a scrape.

    Attributes:
        lines: the encoded families, without the end marker of the format.
        suppressed: how many series the limit suppressed.
    """

    lines: list[bytes]
    suppressed: int


class GroupTotals:
    """The metrics of all groups together."""

    def __init__(self) -> None:
        self._states = {(kind.value, state.value): 0 for kind, states in STATES.items() for state in states}
        self._near = self._over = 0

    def add(self, figures: GroupFigures) -> None:
        """Counts a group."""
        group, limit = figures.view, figures.limit
        place = (group.kind.value, group.state.value)
        self._states[place] = self._states.get(place, 0) + 1
        if limit is not None and group.roster_known:
            size = len(group.members)
            self._near += limit * NEAR_LIMIT_PERCENT <= size * 100 <= limit * 100
            self._over += size > limit

    def families(self) -> Iterator[Metric]:
        """Yields the totals as metric families."""
        yield f.GROUPS.fill(self._states.items())
        yield f.GROUPS_NEAR_LIMIT.single(self._near)
        yield f.GROUPS_OVER_LIMIT.single(self._over)


def scrape(sources: ScrapeSources, chosen: Format, now: float) -> Generator[None, None, ScrapeResult]:
    """Collects and encodes all metrics, in steps. `now`: seconds since the epoch, on the clock of the copies."""
    started = perf_counter()
    yield from _forget_removed_groups(sources)
    group_totals = GroupTotals()
    detail_lines = DetailLines(sources.detail, sources.max_series, openmetrics=chosen.openmetrics)
    yield from _pace_by_rows(_write_groups(sources, now, group_totals, detail_lines))
    log_ends = newest_log_bounds([manager.log_ends for manager in sources.managers()], sources.drift())
    yield from _pace_by_rows(detail_lines.partitions(LOG_END_FAMILIES, log_ends))
    yield from _pace_by_rows(detail_lines.partitions(LOG_START_FAMILIES, newest_log_bounds(sources.log_starts())))
    lines, suppressed = detail_lines.lines()
    for family in sidecar_families(sources, group_totals):
        yield
        lines.append(encode_family(family, openmetrics=chosen.openmetrics))
    for family in (f.SERIES_SUPPRESSED.single(suppressed), f.COLLECT_DURATION.single(perf_counter() - started)):
        lines.append(encode_family(family, openmetrics=chosen.openmetrics))
    return ScrapeResult(lines, suppressed)


def count_groups(sources: ScrapeSources, now: float) -> Generator[None, None, GroupTotals]:
    """Counts all groups, in steps. `now`: seconds since the epoch, on the clock of the copies."""
    group_totals = GroupTotals()
    for visit in walk(sources.managers(), now, sources.max_members):
        if visit is None:
            yield
        else:
            group_totals.add(visit.figures)
    return group_totals


def sidecar_families(sources: ScrapeSources, group_totals: GroupTotals) -> Iterator[Metric]:
    """Yields the families of the whole sidecar."""
    yield from sources.fact_counters.collect()
    yield from group_totals.families()
    if (max_size := sources.max_members(GroupView(group_id=""))) is not None:
        yield f.GROUP_MAX_SIZE.single(max_size)
    yield from _traffic(sources.traffic)
    yield f.CERTIFICATE_NOT_AFTER.fill(sources.certificates_expire_at().items())
    yield from _policies(sources.traffic)
    yield from _logs(sources.logs())
    yield f.MIRROR_READY.single(sources.copies_ready())
    yield f.REFUSING_BROKERS.single(sources.refusing_brokers())
    yield f.HELD_BYTES.single(sources.held_bytes())
    yield f.RECORDED_BYTES.single(sources.recorded_bytes())
    yield f.TASK_FAILURES.fill(((task,), n) for task, n in sources.task_failures().items())
    yield f.ADMIN_TOKEN_REFUSALS.fill(((reason,), n) for reason, n in sources.admin_counters.token_refusals.items())
    yield from _tables(sources.tables())
    if sources.outlets:
        yield from _outlets(sources.outlets)
    if sources.last_reload is not None:
        last = sources.last_reload()
        yield f.CONFIG_LAST_RELOAD_SUCCESSFUL.single(last.successful)
        yield f.CONFIG_LAST_RELOAD_SUCCESS.single(last.succeeded_at)


def process_registry() -> CollectorRegistry:
    """Returns the metrics of the process and of the Python platform.

    The registry only reads /proc and uses no data of the sidecar, so any thread may collect it.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def _forget_removed_groups(sources: ScrapeSources) -> Generator[None, None, None]:
    """Drops the counts of groups that are no longer in any copy."""
    fact_counters = sources.fact_counters
    gone: set[str] = set()
    for batch in batches(list(fact_counters.by_group), GROUP_IDS_PER_STEP):
        here = [manager.group_metadata_cache for manager in sources.managers()]
        gone.update(group_id for group_id in batch if not any(group_id in groups for groups in here))
        yield
    fact_counters.retain(fact_counters.by_group.keys() - gone)


def _write_groups(
    sources: ScrapeSources, now: float, group_totals: GroupTotals, detail_lines: DetailLines
) -> Iterator[int]:
    """Counts the groups and encodes their rows. Yields the work of each step in rows."""
    counts = sources.fact_counters.by_group
    for visit in walk(sources.managers(), now, sources.max_members, sources.drift()):
        if visit is None:
            yield ROWS_PER_STEP
            continue
        group_totals.add(visit.figures)
        group_id = visit.figures.view.group_id
        if sources.is_shown(group_id):
            yield from detail_lines.group(GroupDetails(visit, counts.get(group_id)))


def _pace_by_rows(steps: Iterable[int]) -> Iterator[None]:
    """Yields whenever the steps since the last yield have done the work of at least `ROWS_PER_STEP` rows."""
    done = 0
    for work in steps:
        done += work
        if done >= ROWS_PER_STEP:
            yield
            done = 0


# Counters of the data path.


def _connections(listeners: Sequence[ListenerCounters]) -> Iterator[Metric]:
    def by_listener(family: Family, count: Callable[[ListenerCounters], float]) -> Metric:
        return family.fill(((each.name,), count(each)) for each in listeners)

    yield by_listener(f.CLIENT_CONNECTIONS, lambda each: each.open_connections)
    yield by_listener(f.CONNECTIONS_OPENED, lambda each: each.connections_opened)
    yield f.CONNECTIONS_CLOSED.fill(
        ((each.name, reason), n) for each in listeners for reason, n in each.connections_closed.items()
    )
    yield by_listener(f.ACCEPT_THROTTLED, lambda each: each.accept_throttled_seconds)
    yield f.READ_PAUSES.fill(((each.name, limit), n) for each in listeners for limit, n in each.read_pauses.items())
    yield by_listener(f.UPSTREAM_CONNECT_FAILURES, lambda each: each.upstream_connect_failures)
    yield by_listener(f.TLS_CONNECTIONS, lambda each: each.tls_passed)
    yield f.TLS_HANDSHAKES.fill(((each.name, side), n) for each in listeners for side, n in each.tls_handshakes.items())
    yield f.TLS_HANDSHAKE_FAILURES.fill(
        ((each.name, *labels), n) for each in listeners for labels, n in each.tls_failures.items()
    )
    yield by_listener(f.RECEIVED_BYTES, lambda each: each.received_bytes)
    yield by_listener(f.SENT_BYTES, lambda each: each.sent_bytes)


def _traffic(t: TrafficCounters) -> Iterator[Metric]:
    yield from _connections(t.listeners)
    seconds = {key: Histogram(REQUEST_SECONDS) for key in APIS} | t.durations
    requests = defaultdict(int, t.unanswered)
    for key, durations in seconds.items():
        requests[key] += sum(durations.counts)
    yield f.REQUESTS.fill(((api_name(key),), n) for key, n in requests.items())
    yield f.REQUEST_DURATION.fill_histograms(((api_name(key),), durations) for key, durations in seconds.items())
    failures = dict.fromkeys(APIS, 0) | t.decode_failures
    yield f.DECODE_FAILURES.fill(((api_name(key),), n) for key, n in failures.items())
    answers = dict.fromkeys(map(int, LOCALLY_ANSWERED_APIS), 0) | t.answers
    yield f.MIRROR_ANSWERS.fill(((api_name(key),), n) for key, n in answers.items())
    cached_answers = dict.fromkeys(map(int, LOCALLY_ANSWERED_APIS), 0) | t.cached_answers
    yield f.MIRROR_ANSWERS_REMEMBERED.fill(((api_name(key),), n) for key, n in cached_answers.items())
    yield f.REMEMBERED_BYTES.single(t.reply_cache_bytes)
    yield f.REMEMBERED_RIGHTS.single(t.cached_authorizations)
    verifications = {(key, result): 0 for key in LOCALLY_ANSWERED_APIS for result in Verification} | t.verifications
    yield f.MIRROR_VERIFICATIONS.fill(((api_name(key), result), n) for (key, result), n in verifications.items())
    different = {key: n for (key, result), n in verifications.items() if result is Verification.DIFFERENT}
    yield f.MIRROR_DIVERGENCES.fill(((api_name(key),), n) for key, n in different.items())
    yield f.MIRROR_DISTRUSTED.single(t.distrusted_groups)
    fallbacks = {(key, reason): 0 for key in LOCALLY_ANSWERED_APIS for reason in FallbackReason} | t.fallbacks
    yield f.MIRROR_FALLBACKS.fill(((api_name(key), reason), n) for (key, reason), n in fallbacks.items())
    relays = dict.fromkeys(map(int, LOCALLY_ANSWERED_APIS), 0) | t.relays
    yield f.MIRROR_RELAYS.fill(((api_name(key),), n) for key, n in relays.items())


def _tables(tables: Iterable[TableSize]) -> Iterator[Metric]:
    entries, sizes = Counter[str](), Counter[str]()
    for table in tables:
        entries[table.name] += table.entries
        sizes[table.name] += table.bytes
    yield f.TABLE_ENTRIES.fill(((name,), n) for name, n in entries.items())
    yield f.TABLE_BYTES.fill(((name,), n) for name, n in sizes.items())


def _policies(t: TrafficCounters) -> Iterator[Metric]:
    yield f.POLICY_EVALUATIONS.fill(((policy,), n) for policy, n in t.policy_evaluations.items())
    yield f.POLICY_REJECTIONS.fill(_by_error(t.policy_rejections))
    yield f.POLICY_AUDITED_REJECTIONS.fill(_by_error(t.policy_audits))
    yield f.POLICY_BROKER_REJECTIONS.fill(_by_error(t.broker_rejections))
    yield f.POLICY_CONFIRMATIONS.fill(((policy,), n) for policy, n in t.policy_confirmations.items())


def _by_error(counts: Mapping[tuple[str, int], int]) -> Iterable[Row]:
    """Returns the counts by the error's name. Errors without a name share one series."""
    named: Counter[tuple[str, str]] = Counter()
    for (policy, code), n in counts.items():
        named[policy, error_name(code)] += n
    return named.items()


def _logs(logs: Collection[LogReadCounters]) -> Iterator[Metric]:
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


def _outlets(outlets: Mapping[str, JournalWriterHealth]) -> Iterator[Metric]:
    named = outlets.items()
    yield f.RECORDS_WRITTEN.fill(((name,), outlet.records_written) for name, outlet in named)
    yield f.RECORDS_DROPPED.fill(
        ((name, reason), n) for name, outlet in named for reason, n in outlet.records_dropped.items()
    )
    yield f.RECORDS_WRITE_FAILURES.fill(((name,), outlet.failures) for name, outlet in named)
    if flushed := [((name,), outlet.last_flush) for name, outlet in named if outlet.last_flush]:
        yield f.RECORDS_LAST_FLUSH.fill(flushed)
