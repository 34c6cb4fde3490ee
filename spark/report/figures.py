"""What the chapters of a report are made of, and what all of them need to know.

Owns: the bounds of what is shown. Must not know: any one chapter; HTML.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.bar_chart import BarChart
from group_sidecar.spark.report.curve_chart import CurveChart
from group_sidecar.spark.report.heat_map import HeatMap
from group_sidecar.spark.report.rows import Rows, all_rows, first_rows, largest
from group_sidecar.spark.report.scales import Span, divided, window_of
from group_sidecar.spark.report.stack_chart import StackChart
from group_sidecar.spark.report.strip_chart import StripChart
from group_sidecar.spark.report.table import Table, tabled
from group_sidecar.spark.summaries import SUMMARIES

MOST_ROWS = 200
"""Rows of a table."""
MOST_STEPS = 168
"""Steps of a chart over time: a week in hours."""

Read = Callable[[str], DataFrame]
"""Gives the rows of a table by its name, of the time that the report is about."""


class Kind(StrEnum):
    """Which chart a figure is."""

    BARS = "bars"
    CURVES = "curves"
    HEAT = "heat"
    STACKS = "stacks"
    STRIPS = "strips"


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart and the tables below it.

    Attributes:
        name: unique in a report, of letters and hyphens.
        title: what it shows.
        told: the same at more length, for those who do not see it.
        kind: which chart it is; None if there is only a table.
        chart: None if there is nothing to draw.
        tables: what stands below it.
        empty: what is said in place of a chart that has nothing to draw.
        left_out: what the chart does not show, in a sentence; empty if nothing.
    """

    name: str
    title: str
    told: str
    kind: Kind | None
    chart: BarChart | CurveChart | HeatMap | StackChart | StripChart | None
    tables: Sequence[Table]
    empty: str
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Figures on one subject."""

    name: str
    heading: str
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class Fact:
    """One of the figures at the head of a report. `bad`: whether somebody should look."""

    name: str
    value: str
    note: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """The time that a report is about.

    Attributes:
        since: its beginning, in seconds since the epoch.
        until: its end.
        newest: the beginning of the newest window of which anything is known.
        window: the windows' width in seconds, as far as it can be told.
    """

    since: float
    until: float
    newest: float
    window: int

    def steps(self, least: int = 0, most: int = MOST_STEPS) -> Span:
        """This time in steps of at least so many seconds, and at most so many of them."""
        return divided(self.since, self.until, self.window, most, least)


def known(read: Read, since: datetime | None, until: datetime | None) -> Known | None:
    """The time that the tables tell of, or that was asked for; None if they are empty. Every record has a sidecar."""
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
    return Known(first, max(last, first + 1), row["newest"], width)


def summary_rows(read: Read, name: str, most: int = MOST_ROWS) -> Rows:
    """The first rows of a summary, in its own order."""
    summary = SUMMARIES[name]
    return first_rows(summary.ask(read), most, *largest(summary.largest, summary.then))


def summary_table(read: Read, name: str, caption: str, most: int = MOST_ROWS) -> Table:
    """The same as a table."""
    return tabled(caption, summary_rows(read, name, most))
