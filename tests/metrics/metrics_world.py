"""The metrics of a sidecar without a sidecar: a test sets the state, and reads the result of a scrape."""

from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from group_sidecar.coordinator.manager import GroupMetadataManager
from group_sidecar.coordinator.model.facts import RebalanceCause, RebalanceCompleted, RebalanceReason
from group_sidecar.coordinator.model.views import CommittedOffset, GroupState, GroupView, MemberView, TopicPartition
from group_sidecar.metrics.collector import LastReload, ScrapeSources, scrape
from group_sidecar.metrics.exposition import choose_format
from group_sidecar.metrics.fact_counters import FactCounters
from group_sidecar.metrics.group_snapshot import GroupSnapshot, GroupWithOffsets, MaxMembers, group_snapshot, walk
from group_sidecar.metrics.listener_counters import TlsSide
from group_sidecar.metrics.log_read_counters import LogReadCounters
from group_sidecar.metrics.metric_family import Detail
from group_sidecar.metrics.traffic_counters import TrafficCounters

T = TypeVar("T")

PREFIX = "group_sidecar_"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


@dataclass
class Outlet:
    """The figures that an outlet of the journal reports."""

    records_written: int = 0
    records_dropped: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    last_flush: float = 0.0


@dataclass
class CoordinatorCopy:
    """The copy of one broker's coordinator: groups, and log ends as (offset, seen at)."""

    groups: tuple[GroupView, ...] = ()
    log_ends: Mapping[TopicPartition, tuple[int, float]] = field(default_factory=dict)

    @property
    def group_metadata_cache(self) -> Collection[str]:
        return [group.group_id for group in self.groups]

    def existing(self, group_id: str, now: float) -> GroupView | None:
        return next((group for group in self.groups if group.group_id == group_id), None)


def result(steps: Generator[None, None, T]) -> T:
    """Runs a generator to its end. Returns its result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value


def survey_of(copy: CoordinatorCopy, max_members: MaxMembers = lambda _: None) -> GroupSnapshot:
    """Returns the snapshot of all groups of a copy."""
    return result(group_snapshot([copy], 100.0, max_members))


def visits_of(copy: CoordinatorCopy, max_members: MaxMembers = lambda _: None) -> list[GroupWithOffsets]:
    """Returns all groups of a copy with their offsets."""
    return [visit for visit in walk([copy], 100.0, max_members) if visit is not None]


class MetricsWorld:
    """The sources of a scrape. A test may change `copies` between scrapes. `options` are passed to `ScrapeSources`."""

    def __init__(self, *copies: CoordinatorCopy, max_groups: int = 1000, **options: Any) -> None:
        self.copies = list(copies)
        self.logs: list[LogReadCounters] = []
        self.traffic = TrafficCounters()
        self.counters = self.traffic.add_listener("clients")
        self.fact_counters = FactCounters(CollectorRegistry(), max_groups=max_groups)
        tables = GroupMetadataManager(exclusive=False).tables
        always = {"copies_ready": lambda: True, "held_bytes": lambda: 0, "tables": tables}
        self.sources = ScrapeSources(
            managers=lambda: self.copies,
            traffic=self.traffic,
            fact_counters=self.fact_counters,
            logs=lambda: self.logs,
            task_failures=lambda: {"probe": 0},
            **(always | options),
        )

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Returns a scrape and its content type."""
        chosen = choose_format(accept)
        scraped = result(scrape(self.sources, chosen, now=100.0))
        return b"".join((*scraped.lines, chosen.end)), chosen.content_type

    def text(self) -> str:
        """Returns a scrape in the text format."""
        return self.scrape()[0].decode()

    def text_of(self, prefix: str) -> list[str]:
        """Returns the lines of a scrape that begin with this prefix."""
        return [line for line in self.text().splitlines() if line.startswith(PREFIX + prefix)]

    def group_snapshot(self) -> GroupSnapshot:
        """Returns the snapshot of all groups."""
        return result(group_snapshot(self.copies, 100.0, self.sources.max_members))

    def families(self) -> list[Metric]:
        """Returns the families of a scrape, parsed from the text format."""
        return list(parse_text(self.text()))

    def openmetrics_families(self) -> list[Metric]:
        """Returns the families of a scrape, parsed from OpenMetrics."""
        body = self.scrape(OPENMETRICS)[0].decode()
        return list(parse_openmetrics(body))  # type: ignore[no-untyped-call]

    def samples(self, name: str) -> Iterator[Sample]:
        """Yields the samples with one name, which is given without the prefix."""
        return (sample for family in self.families() for sample in family.samples if sample.name == PREFIX + name)

    def series(self, name: str) -> dict[tuple[str, ...], float]:
        """Returns the values of the series by label values, which are in the order of the label names."""
        return {
            tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value
            for sample in self.samples(name)
        }

    def value(self, name: str, **labels: str) -> float | None:
        """Returns the value of one series, or None if the series does not exist."""
        return next((sample.value for sample in self.samples(name) if sample.labels == labels), None)


def assignment(topic: str, *partitions: int) -> bytes:
    """Returns a ConsumerProtocolAssignment v0 of one topic, without user data."""
    name = topic.encode()
    numbers = b"".join(partition.to_bytes(4, "big") for partition in partitions)
    counts = (1).to_bytes(4, "big"), len(name).to_bytes(2, "big"), len(partitions).to_bytes(4, "big")
    return bytes(2) + counts[0] + counts[1] + name + counts[2] + numbers + b"\xff" * 4


def member(number: int, assigned: bytes = b"") -> MemberView:
    """Returns a member whose names occur nowhere else."""
    return MemberView(
        assignment=assigned,
        member_id=f"memberid-{number}",
        instance_id=f"instanceid-{number}",
        client_id=f"clientid-{number}",
        client_host=f"/10.9.8.{number}",
    )


def group(group_id: str, *, members: int | tuple[MemberView, ...] = 0, **fields: Any) -> GroupView:
    """Returns a group: stable and classic, unless `fields` say otherwise."""
    usual: dict[str, Any] = {
        "state": GroupState.STABLE,
        "protocol_type": "consumer",
        "roster_known": True,
        "members": tuple(map(member, range(members))) if isinstance(members, int) else members,
    }
    return GroupView(group_id=group_id, **(usual | fields))


def commits(topic: str, *offsets: int, at: float = 1.0) -> dict[tuple[str, int], CommittedOffset]:
    """Returns committed offsets for a topic's partitions 0, 1 and so on."""
    return {(topic, partition): CommittedOffset(offset, at=at) for partition, offset in enumerate(offsets)}


def rebalanced(
    group_id: str, reason: RebalanceReason = RebalanceReason.JOIN, seconds: float = 0.2
) -> RebalanceCompleted:
    """Returns a completed rebalance of two members."""
    cause = next(cause for cause in RebalanceCause if cause.reason is reason)
    return RebalanceCompleted(
        group_id=group_id, at=1.0, cause=cause, generation=1, protocol="range", members=2, duration_seconds=seconds
    )


def full_world() -> MetricsWorld:
    """Returns a world in which every family has a series."""
    orders = group(
        "orders",
        members=(member(0, assignment("sales", 0, 1)), member(1)),
        offsets=commits("sales", 7),
        last_rebalance_at=3.0,
        protocol="range",
    )
    copy = CoordinatorCopy(groups=(orders,), log_ends={("sales", 0): (9, 2.0)})
    world = MetricsWorld(
        copy,
        detail=Detail.PARTITION,
        max_members=lambda _: 5,
        log_starts=lambda: [{("sales", 0): (1, 2.0)}],
        outlets={"folder": Outlet(records_written=1, records_dropped={"full": 1}, failures=2, last_flush=4.0)},
        last_reload=lambda: LastReload(successful=True, succeeded_at=5.0),
        certificates_expire_at=lambda: {("", "admin_access"): 7.0, ("clients", TlsSide.CLIENT): 6.0},
    )
    world.fact_counters.observe(rebalanced("orders"))
    reading = LogReadCounters(GroupMetadataManager(exclusive=False).log)
    reading.count_skipped({19: 1})
    world.logs.append(reading)
    world.traffic.request_done(11, 0.2)
    world.traffic.expect_policy("group_max_size", [77])
    world.traffic.expect_broker_rejections("group_max_size", 81)
    return world
