"""Writes the fleet's metrics for Prometheus to a file for node_exporter's textfile collector.

Names of groups become labels, so only the groups with the largest lag are included. The file contains no other names
from clients.

The fleet's metrics are those of the newest complete window, but sidecars and missing records are counted over a day. A
window is complete if it ended at least one window's width ago, so that its records have had time to arrive.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.ingest import IngestResult
from group_sidecar.spark.progress import StreamHealth
from group_sidecar.spark.store import Store
from group_sidecar.spark.summaries import SUMMARIES

PREFIX = "group_sidecar_fleet_"
MAX_LAG_GROUPS = 100
"""The maximum number of groups with a lag metric. The groups with the largest lag are chosen."""
LOOK_BACK = timedelta(days=1)
"""Sidecars that have been silent for longer than this are left out. Missing records are counted over this time."""

_GAUGES = {
    "groups": ("Groups, by state.", "state"),
    "members": ("Members of all groups.", None),
    "lag": ("Lag of all groups, in records.", None),
    "group_lag": (f"Lag of a group, in records; only of the {MAX_LAG_GROUPS} groups with the largest lag.", "group"),
    "rebalances": ("Rebalances in the window, by cause.", "cause"),
    "refusals": ("Requests refused in the window, by policy.", "policy"),
    "sidecars": ("Sidecars of the last day, by state: live, or silent for longer than a window.", "state"),
    "records_missing": ("Missing records of the last day: gaps in the sequence numbers of a boot.", None),
    "window_start_timestamp_seconds": (
        "Time at which the window of these metrics began, in seconds since the epoch.",
        None,
    ),
}
"""Metrics of the fleet: help text, and the label if there is one."""

_HEALTH = {
    "up": ("1 if the stream has not failed, else 0.", None),
    "last_progress_timestamp_seconds": (
        "Time at which the stream last completed a batch or found no new input, in seconds since the epoch.",
        None,
    ),
    "batch": ("Number of the last batch.", None),
    "batch_seconds": ("Duration of the last batch, in seconds.", None),
    "batch_lines": ("Lines in the last batch.", None),
    "source_behind": ("Backlog in the source, by Spark's name of the measure.", "measure"),
}
"""Metrics of the stream itself."""

_COUNTERS = {
    "records": "Records read since the job was started, including duplicates.",
    "quarantined_lines": "Lines that were put into quarantine since the job was started, by fault.",
}
NAMES = frozenset({*_GAUGES, *_HEALTH, *(f"{name}_total" for name in _COUNTERS)})
"""Names of all metrics, without the prefix."""


@dataclass(frozen=True, kw_only=True)
class FleetFigures:
    """The fleet's metrics in one window, by the names in `_GAUGES`. A metric without a label has the key ""."""

    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Textfile:
    """The file for node_exporter's textfile collector, and the metrics that it contains.

    Args:
        file: the path of the file, which is replaced as a whole.
        store: the store whose metrics are written.
        worst: the maximum number of groups with a lag metric.
        clock: returns the current time.
    """

    def __init__(
        self,
        file: Path,
        store: Store,
        *,
        worst: int = MAX_LAG_GROUPS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._file = file
        self._store = store
        self._worst = worst
        self._clock = clock
        self._records = 0
        self._quarantined: Counter[str] = Counter()
        self._figures = FleetFigures()
        self._written: tuple[StreamHealth, FleetFigures] | None = None

    def count(self, refreshed: IngestResult) -> None:
        """Counts the records of a batch, and computes the fleet's metrics again."""
        self._records += refreshed.records
        # The thread that writes the file reads these objects, so this thread replaces them and never changes them.
        self._quarantined = self._quarantined + Counter(refreshed.quarantined)
        self._figures = figures(self._store, self._clock(), self._worst)

    def write(self, health: StreamHealth) -> None:
        """Writes the file if the stream's health or the fleet's metrics have changed.

        Raises:
            OSError: the file cannot be written.
        """
        if self._written == (health, self._figures):
            return
        registry = CollectorRegistry()
        registry.register(_Families(partial(self._families, health)))
        write_to_textfile(str(self._file), registry)
        self._written = (health, self._figures)

    def _families(self, health: StreamHealth) -> Iterator[Metric]:
        values = {**self._figures.values, **_health(health)}
        for name, (text, label) in {**_GAUGES, **_HEALTH}.items():
            if name in values:
                yield _gauge(name, text, values[name], label)
        yield CounterMetricFamily(f"{PREFIX}records", _COUNTERS["records"], self._records)
        quarantined = CounterMetricFamily(
            f"{PREFIX}quarantined_lines", _COUNTERS["quarantined_lines"], labels=["fault"]
        )
        for fault, lines in sorted(self._quarantined.items()):
            quarantined.add_metric([fault], lines)
        yield quarantined


@dataclass(frozen=True)
class _Families(Collector):
    """A collector that calls a function at each collection."""

    collected: Callable[[], Iterator[Metric]]

    def collect(self) -> Iterator[Metric]:
        return self.collected()


def figures(store: Store, now: datetime, worst: int = MAX_LAG_GROUPS) -> FleetFigures:
    """Returns the fleet's metrics in the newest complete window; empty if there is no such window.

    Args:
        store: the store.
        now: the current time.
        worst: the maximum number of groups with a lag metric.
    """
    window = newest_window(store, now)
    if window is None:
        return FleetFigures()

    def read(table: str) -> DataFrame:
        return store.read(table, window, window + store.width)

    lags = read("group_lag").where("lag is not null")
    total = lags.agg(F.sum("lag").alias("lag")).first()
    furthest = lags.orderBy(F.desc("lag"), "group").select("group", "lag").take(worst)
    states = read("groups").groupBy("state").agg(F.count("*").alias("groups"), F.sum("members").alias("members"))
    by_state = {row["state"]: (row["groups"], row["members"]) for row in states.collect()}
    return FleetFigures(
        values={
            "groups": {state: float(groups) for state, (groups, _) in by_state.items()},
            "members": {"": float(sum(members for _, members in by_state.values()))},
            "lag": {"": float((total and total["lag"]) or 0)},
            "group_lag": {row["group"]: float(row["lag"]) for row in furthest},
            "rebalances": _sums(read("rebalances"), "cause", "rebalances"),
            "refusals": _sums(read("refusals"), "policy", "refusals"),
            **_sidecars(store, window),
            "window_start_timestamp_seconds": {"": window.timestamp()},
        }
    )


def newest_window(store: Store, now: datetime) -> datetime | None:
    """Returns the beginning of the newest complete window with records; None if there is no such window."""
    newest = store.newest_hour()
    if newest is None:
        return None
    # If the newest hour has no complete window yet, the hour before has one.
    windows = store.read("sidecars", newest - timedelta(hours=1)).where(F.col("window") <= F.lit(now - 2 * store.width))
    found = windows.agg(F.unix_seconds(F.max("window")).alias("seconds")).first()
    return None if found is None or found["seconds"] is None else datetime.fromtimestamp(found["seconds"], UTC)


def _sums(table: DataFrame, key: str, value: str) -> dict[str, float]:
    return {row[key]: float(row["value"]) for row in table.groupBy(key).agg(F.sum(value).alias("value")).collect()}


def _sidecars(store: Store, window: datetime) -> dict[str, dict[str, float]]:
    end = window + store.width
    sidecars = SUMMARIES["sidecars"].compute(lambda table: store.read(table, end - LOOK_BACK, end))
    rows = sidecars.select("missing", "silent_seconds").collect()
    silent = sum(row["silent_seconds"] > store.width.total_seconds() for row in rows)
    return {
        "sidecars": {"live": float(len(rows) - silent), "silent": float(silent)},
        "records_missing": {"": float(sum(row["missing"] for row in rows))},
    }


def _health(health: StreamHealth) -> dict[str, Mapping[str, float]]:
    values: dict[str, Mapping[str, float]] = {"up": {"": float(health.failure is None)}}
    if health.last_progress is not None:
        values["last_progress_timestamp_seconds"] = {"": health.last_progress}
    if health.batches:
        values["batch"] = {"": float(health.batch)}
        values["batch_seconds"] = {"": health.batch_seconds}
        values["batch_lines"] = {"": float(health.input_rows)}
    if health.source_backlog:
        values["source_behind"] = health.source_backlog
    return values


def _gauge(name: str, text: str, values: Mapping[str, float], label: str | None) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=None if label is None else [label])
    for key, value in values.items():
        family.add_metric([] if label is None else [key], value)
    return family
