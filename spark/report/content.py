"""The parts of a report's chapters, the report's period, and the maximum numbers of rows and steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.bar_chart import BarChart
from group_sidecar.spark.report.collected_rows import Rows, all_rows, first_rows, sort_order
from group_sidecar.spark.report.curve_chart import CurveChart
from group_sidecar.spark.report.heat_map import HeatMap
from group_sidecar.spark.report.html_table import Table, to_table
from group_sidecar.spark.report.scales import Span, divided, window_of
from group_sidecar.spark.report.stack_chart import StackChart
from group_sidecar.spark.report.strip_chart import StripChart
from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.tables import TableReader

MAX_ROWS = 200
"""The maximum number of rows of a table."""
MAX_STEPS = 168
"""The maximum number of steps of a chart over time: one per hour for a week."""


class ChartKind(StrEnum):
    """The kind of a figure's chart."""

    BARS = "bars"
    CURVES = "curves"
    HEAT = "heat"
    STACKS = "stacks"
    STRIPS = "strips"


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart and the tables below it.

    Attributes:
        name: an id of letters and hyphens that is unique in the report.
        title: the heading.
        description: a longer text for readers who cannot see the chart.
        kind: the kind of the chart; None if there is only a table.
        chart: the chart; None if there is nothing to draw.
        tables: the tables below the chart.
        empty: the text that replaces a chart with nothing to draw.
        left_out: a sentence on what the chart omits; empty if it omits nothing.
    """

    name: str
    title: str
    description: str
    kind: ChartKind | None
    chart: BarChart | CurveChart | HeatMap | StackChart | StripChart | None
    tables: Sequence[Table]
    empty: str
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Chapter:
    """The figures on one subject."""

    name: str
    heading: str
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class HeadlineFigure:
    """One of the numbers at the head of a report. `bad`: whether the number needs the operator's attention."""

    name: str
    value: str
    note: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """The period that a report covers.

    Attributes:
        since: its beginning, in seconds since the epoch.
        until: its end, in seconds since the epoch.
        newest: the beginning of the newest window with data.
        window: the width of the windows in seconds as the data show it, which may be a multiple of the real width.
    """

    since: float
    until: float
    newest: float
    window: int

    def steps(self, least: int = 0, at_most: int = MAX_STEPS) -> Span:
        """Divides the period into steps of at least `least` seconds each, as `scales.divided` does."""
        return divided(self.since, self.until, self.window, at_most, least)


def known(read: TableReader, since: datetime | None, until: datetime | None) -> ReportPeriod | None:
    """Returns the requested period, or the period of the data; None without data.

    The table `sidecars` determines the period of the data, because every record names a sidecar.
    """
    window = F.unix_seconds("window")
    (row,) = all_rows(
        read("sidecars").agg(
            F.min(window).alias("oldest"), F.max(window).alias("newest"), F.collect_set(window % 3600).alias("offsets")
        )
    )
    if row["newest"] is None:
        return None
    width = window_of(row["offsets"])
    first = row["oldest"] if since is None else since.timestamp()
    last = row["newest"] + width if until is None else until.timestamp()
    return ReportPeriod(first, max(last, first + 1), row["newest"], width)


def summary_rows(read: TableReader, name: str, at_most: int = MAX_ROWS) -> Rows:
    """Collects the first rows of a summary, in the summary's order."""
    summary = SUMMARIES[name]
    return first_rows(summary.compute(read), at_most, *sort_order(summary.first_by, summary.then_by))


def summary_table(read: TableReader, name: str, caption: str, at_most: int = MAX_ROWS) -> Table:
    """Returns the first rows of a summary as a table."""
    return to_table(caption, summary_rows(read, name, at_most))
