"""Metrics built afresh at each scrape, so that what vanished vanishes.

Owns: a scrape: what the groups and numbers of this moment say in metrics. Must not know: how a view came about, how
lines are written, and HTTP.

Prometheus' own gauges remember every label set they ever had (client_python #1047); these do not. A scrape is a
generator: between its steps, each of less than a millisecond, the sidecar forwards.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple, Protocol

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import Metric

from group_sidecar.codecs.registry import APIS, ApiKey, api_name
from group_sidecar.coordinator.bounded import Table
from group_sidecar.coordinator.partitions import PartitionState
from group_sidecar.coordinator.views import GroupKind, GroupState, GroupView, Lacking
from group_sidecar.metrics import families as f
from group_sidecar.metrics.details import OF_LOG_ENDS, OF_LOG_STARTS, ROWS_AT_ONCE, Scene, Sheet
from group_sidecar.metrics.exposition import Format, text_of
from group_sidecar.metrics.family import Detail, Row
from group_sidecar.metrics.instruments import Instruments, error_name
from group_sidecar.metrics.log_reading import LOAD_SECONDS, LogReading
from group_sidecar.metrics.survey import (
    NAMES_AT_ONCE,
    Copy,
    GroupFigures,
    LogEnds,
    MostMembers,
    batches,
    each_newest,
    walk,
)
from group_sidecar.metrics.traffic import REQUEST_SECONDS, Histogram, Traffic, Verification

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


class OutletHealth(Protocol):
    """What an outlet of the journal says about itself. `last_flush`: seconds since the epoch, 0 before the first."""

    @property
    def records_written(self) -> int: ...
    @property
    def records_dropped(self) -> Mapping[str, int]: ...
    @property
    def failures(self) -> int: ...
    @property
    def last_flush(self) -> float: ...


class LastReload(NamedTuple):
    """How the last reading of the settings went. `succeeded_at`: when one last succeeded, seconds since the epoch."""

    successful: bool
    succeeded_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where a scrape looks, and how much of it is shown.

    Attributes:
        copies: the copies of the coordinators, one per broker.
        mirror_ready: whether these copies are ready to answer.
        refusing_brokers: how many brokers are reached and refuse the sidecar's own connection.
        held_bytes: bytes held in unfinished frames.
        recorded_bytes: bytes of the flight recorder.
        tables: the tables of all copies that grow with what clients send.
        logs: the readings of the brokers' logs; none where they are not read.
        log_starts: where the logs of topics begin, as far as each copy was told.
        outlets: of the journal, by name; none where no records are written.
        most_members: the most members that a group may have; None without limit.
        last_reload: how the last reading of the settings went; None where they are not read again.
        task_failures: unexpected failures of each background task.
        shows: whether there are series of a group, by its id. In totals all groups are counted.
        drift: seconds to add to the clock of the views, for the time that is shown.
        max_series: most series shown of all families with a level of detail together.
    """

    copies: Callable[[], Sequence[Copy]]
    traffic: Traffic
    instruments: Instruments
    mirror_ready: Callable[[], bool]
    held_bytes: Callable[[], int]
    refusing_brokers: Callable[[], int] = int
    recorded_bytes: Callable[[], int] = int
    tables: Callable[[], Iterable[Table]] = list
    logs: Callable[[], Collection[LogReading]] = list
    log_starts: Callable[[], Sequence[LogEnds]] = list
    outlets: Mapping[str, OutletHealth] = field(default_factory=dict)
    most_members: MostMembers = lambda _: None
    last_reload: Callable[[], LastReload] | None = None
    task_failures: Callable[[], Mapping[str, int]] = dict
    detail: Detail = Detail.NONE
    shows: Callable[[str], bool] = lambda _: True
    max_series: int = 10_000
    drift: Callable[[], float] = float


class Scraped(NamedTuple):
    """What a scrape has found, written down.

    Attributes:
        lines: whole families, but for the end of the format.
        suppressed: how many series are not in it, because of the limit.
    """

    lines: list[bytes]
    suppressed: int


class Tally:
    """What is told of all groups together."""

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
            self._near += limit * NEAR_PERCENT <= size * 100 <= limit * 100
            self._over += size > limit

    def families(self) -> Iterator[Metric]:
        """The same as families."""
        yield f.GROUPS.fill(self._states.items())
        yield f.GROUPS_NEAR_LIMIT.single(self._near)
        yield f.GROUPS_OVER_LIMIT.single(self._over)


def scrape(sources: Sources, chosen: Format, now: float) -> Generator[None, None, Scraped]:
    """Takes all there is to tell, in steps. `now`: seconds since the epoch, on the clock of the views."""
    started = perf_counter()
    yield from _forget_gone(sources)
    tally, sheet = Tally(), Sheet(sources.detail, sources.max_series, openmetrics=chosen.openmetrics)
    yield from _paced(_each_group(sources, now, tally, sheet))
    log_ends = each_newest([copy.log_ends for copy in sources.copies()], sources.drift())
    yield from _paced(sheet.partitions(OF_LOG_ENDS, log_ends))
    yield from _paced(sheet.partitions(OF_LOG_STARTS, each_newest(sources.log_starts())))
    lines, suppressed = sheet.lines()
    for family in totals(sources, tally):
        yield
        lines.append(text_of(family, openmetrics=chosen.openmetrics))
    for family in (f.SERIES_SUPPRESSED.single(suppressed), f.COLLECT_DURATION.single(perf_counter() - started)):
        lines.append(text_of(family, openmetrics=chosen.openmetrics))
    return Scraped(lines, suppressed)


def tallied(sources: Sources, now: float) -> Generator[None, None, Tally]:
    """Counts all groups, in steps. `now`: as for `scrape`."""
    tally = Tally()
    for visit in walk(sources.copies(), now, sources.most_members):
        if visit is None:
            yield
        else:
            tally.add(visit.figures)
    return tally


def totals(sources: Sources, tally: Tally) -> Iterator[Metric]:
    """What is told of the whole sidecar."""
    yield from sources.instruments.collect()
    yield from tally.families()
    if (most := sources.most_members(GroupView(group_id=""))) is not None:
        yield f.GROUP_MAX_SIZE.single(most)
    yield from _traffic(sources.traffic)
    yield from _policies(sources.traffic)
    yield from _logs(sources.logs())
    yield f.MIRROR_READY.single(sources.mirror_ready())
    yield f.REFUSING_BROKERS.single(sources.refusing_brokers())
    yield f.HELD_BYTES.single(sources.held_bytes())
    yield f.RECORDED_BYTES.single(sources.recorded_bytes())
    yield f.TASK_FAILURES.fill(((task,), n) for task, n in sources.task_failures().items())
    yield from _tables(sources.tables())
    if sources.outlets:
        yield from _outlets(sources.outlets)
    if sources.last_reload is not None:
        last = sources.last_reload()
        yield f.CONFIG_LAST_RELOAD_SUCCESSFUL.single(last.successful)
        yield f.CONFIG_LAST_RELOAD_SUCCESS.single(last.succeeded_at)


def process_registry() -> CollectorRegistry:
    """The process and the Python platform. It looks into /proc and knows nothing of ours: any thread may collect it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def _forget_gone(sources: Sources) -> Generator[None, None, None]:
    """Has the counts of groups forgotten that are in no copy any more."""
    instruments = sources.instruments
    gone: set[str] = set()
    for some in batches(list(instruments.by_group), NAMES_AT_ONCE):
        here = [copy.group_metadata_cache for copy in sources.copies()]
        gone.update(group_id for group_id in some if not any(group_id in groups for groups in here))
        yield
    instruments.retain(instruments.by_group.keys() - gone)


def _each_group(sources: Sources, now: float, tally: Tally, sheet: Sheet) -> Iterator[int]:
    """Counts the groups and writes them down. Gives the work of each step in rows."""
    counts = sources.instruments.by_group
    for visit in walk(sources.copies(), now, sources.most_members, sources.drift()):
        if visit is None:
            yield ROWS_AT_ONCE
            continue
        tally.add(visit.figures)
        group_id = visit.figures.view.group_id
        if sources.shows(group_id):
            yield from sheet.group(Scene(visit, counts.get(group_id)))


def _paced(steps: Iterable[int]) -> Iterator[None]:
    """Breathes whenever so much has been done."""
    done = 0
    for work in steps:
        done += work
        if done >= ROWS_AT_ONCE:
            yield
            done = 0


# Numbers that the data path keeps.


def _traffic(t: Traffic) -> Iterator[Metric]:
    yield f.CLIENT_CONNECTIONS.single(t.client_connections)
    yield f.CONNECTIONS_OPENED.single(t.connections_opened)
    yield f.CONNECTIONS_CLOSED.fill(((reason,), n) for reason, n in t.connections_closed.items())
    yield f.UPSTREAM_CONNECT_FAILURES.single(t.upstream_connect_failures)
    yield f.TLS_CONNECTIONS.single(t.tls_connections)
    yield f.RECEIVED_BYTES.single(t.received_bytes)
    yield f.SENT_BYTES.single(t.sent_bytes)
    seconds = {key: Histogram(REQUEST_SECONDS) for key in APIS} | t.durations
    requests = defaultdict(int, t.unanswered)
    for key, durations in seconds.items():
        requests[key] += sum(durations.counts)
    yield f.REQUESTS.fill(((api_name(key),), n) for key, n in requests.items())
    yield f.REQUEST_DURATION.fill_histograms(((api_name(key),), durations) for key, durations in seconds.items())
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
    different = {key: n for (key, result), n in verifications.items() if result is Verification.DIFFERENT}
    yield f.MIRROR_DIVERGENCES.fill(((api_name(key),), n) for key, n in different.items())
    yield f.MIRROR_DISTRUSTED.single(t.distrusted_groups)
    fallbacks = {(key, reason): 0 for key in ANSWERABLE for reason in Lacking} | t.fallbacks
    yield f.MIRROR_FALLBACKS.fill(((api_name(key), reason), n) for (key, reason), n in fallbacks.items())
    relays = dict.fromkeys(map(int, ANSWERABLE), 0) | t.relays
    yield f.MIRROR_RELAYS.fill(((api_name(key),), n) for key, n in relays.items())


def _tables(tables: Iterable[Table]) -> Iterator[Metric]:
    entries, sizes = Counter[str](), Counter[str]()
    for table in tables:
        entries[table.name] += table.entries
        sizes[table.name] += table.bytes
    yield f.TABLE_ENTRIES.fill(((name,), n) for name, n in entries.items())
    yield f.TABLE_BYTES.fill(((name,), n) for name, n in sizes.items())


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


def _outlets(outlets: Mapping[str, OutletHealth]) -> Iterator[Metric]:
    named = outlets.items()
    yield f.RECORDS_WRITTEN.fill(((name,), outlet.records_written) for name, outlet in named)
    yield f.RECORDS_DROPPED.fill(
        ((name, reason), n) for name, outlet in named for reason, n in outlet.records_dropped.items()
    )
    yield f.RECORDS_WRITE_FAILURES.fill(((name,), outlet.failures) for name, outlet in named)
    if flushed := [((name,), outlet.last_flush) for name, outlet in named if outlet.last_flush]:
        yield f.RECORDS_LAST_FLUSH.fill(flushed)
