"""What a metric family is.

Owns: `Family`: its name, type, labels, HELP and level of detail, and how rows of values become a `prometheus_client`
family. Must not know: which families there are.
"""

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

from group_sidecar.metrics.traffic import Histogram

PREFIX = "group_sidecar_"
UNITS = ("seconds", "bytes")

Row = tuple[tuple[str, ...], float]
"""Label values in the order of the family's labels, and the value."""


class Kind(StrEnum):
    """Metric types, as OpenMetrics 1.0 calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Detail(StrEnum):
    """How far metrics go down; each level includes those above it."""

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
    """One metric family. `name` without the prefix; `detail`: the first level at which it is shown."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    detail: Detail = Detail.NONE

    @property
    def full_name(self) -> str:
        """The name as PromQL spells it."""
        return PREFIX + self.name

    def fill(self, rows: Iterable[Row]) -> Metric:
        """A fresh family with these rows; counter, gauge or info."""
        if self.kind is Kind.INFO:
            info = InfoMetricFamily(self.full_name.removesuffix("_info"), self.help, labels=self.labels)
            for values, _ in rows:
                info.add_metric(values, {})
            return info
        make = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
        family = make(self.full_name, self.help, labels=self.labels, unit=self.unit)
        for values, value in rows:
            family.add_metric(values, value)
        return family

    def single(self, value: float) -> Metric:
        """A fresh family without labels."""
        return self.fill([((), value)])

    def fill_histograms(self, rows: Iterable[tuple[tuple[str, ...], Histogram]]) -> Metric:
        """A fresh histogram family with these rows."""
        family = HistogramMetricFamily(self.full_name, self.help, labels=self.labels, unit=self.unit)
        for values, histogram in rows:
            family.add_metric(values, histogram.cumulative(), histogram.sum)
        return family

    @property
    def unit(self) -> str:
        """The unit at the end of its name; empty without."""
        base = self.name.removesuffix("_total")
        return next((unit for unit in UNITS if base.endswith("_" + unit)), "")
