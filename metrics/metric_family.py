"""The class of metric families, which turns rows of values into `prometheus_client` families."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from group_sidecar.metrics.traffic_counters import Histogram

PREFIX = "group_sidecar_"
UNITS = ("seconds", "bytes")

Row = tuple[tuple[str, ...], float]
"""Label values in the order of the family's labels, and the value."""


class MetricType(StrEnum):
    """Metric types with their names in OpenMetrics 1.0."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Detail(StrEnum):
    """The level of detail of metrics. Each level includes the previous levels."""

    NONE = "none"
    GROUP = "group"
    TOPIC = "topic"
    PARTITION = "partition"

    def includes(self, other: "Detail") -> bool:
        """Whether families of level `other` are shown at this level."""
        levels = list(Detail)
        return levels.index(other) <= levels.index(self)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family. `name`: without the prefix. `detail`: the first level at which the family is shown."""

    name: str
    kind: MetricType
    help: str
    labels: tuple[str, ...] = ()
    detail: Detail = Detail.NONE

    @property
    def full_name(self) -> str:
        """The name in PromQL."""
        return PREFIX + self.name

    def fill(self, rows: Iterable[Row]) -> Metric:
        """Returns a new counter, gauge or info family with these rows."""
        if self.kind is MetricType.INFO:
            info = InfoMetricFamily(self.full_name.removesuffix("_info"), self.help, labels=self.labels)
            for values, _ in rows:
                info.add_metric(values, {})
            return info
        make = CounterMetricFamily if self.kind is MetricType.COUNTER else GaugeMetricFamily
        family = make(self.full_name, self.help, labels=self.labels, unit=self.unit)
        for values, value in rows:
            family.add_metric(values, value)
        return family

    def single(self, value: float) -> Metric:
        """Returns a new family with one value and no labels."""
        return self.fill([((), value)])

    def fill_histograms(self, rows: Iterable[tuple[tuple[str, ...], Histogram]]) -> Metric:
        """Returns a new histogram family with these rows."""
        family = HistogramMetricFamily(self.full_name, self.help, labels=self.labels, unit=self.unit)
        for values, histogram in rows:
            family.add_metric(values, histogram.cumulative(), histogram.sum)
        return family

    @property
    def unit(self) -> str:
        """The unit at the end of the name; empty if there is none."""
        base = self.name.removesuffix("_total")
        return next((unit for unit in UNITS if base.endswith("_" + unit)), "")
