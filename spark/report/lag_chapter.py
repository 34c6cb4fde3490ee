"""The chapter on lag: the groups with the largest lag, and how their lag developed.

The chapter reads the tables `groups`, `group_lag` and `lag`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.bar_chart import Amount, BarChart, BarRow, bars
from group_sidecar.spark.report.collected_rows import Row, Rows, all_rows, first_rows, sort_order, step_of
from group_sidecar.spark.report.content import (
    MAX_ROWS,
    Chapter,
    ChartKind,
    Figure,
    ReportPeriod,
    summary_table,
)
from group_sidecar.spark.report.curve_chart import Curve, CurveChart, curves
from group_sidecar.spark.report.formatting import count, duration, number, short_number
from group_sidecar.spark.report.html_table import to_table
from group_sidecar.spark.report.scales import Span
from group_sidecar.spark.tables import TableReader

MAX_GROUPS, MAX_CURVES = 20, 10


def lag_chapter(read: TableReader, known: ReportPeriod, groups: DataFrame) -> Chapter:
    """Returns the chapter on lag. `groups` is the summary of that name."""
    behind = first_rows(groups.where(F.col("lag") > 0), MAX_GROUPS, *sort_order("lag", ("group",)))
    worst = [row["group"] for row in behind.rows[:MAX_CURVES]]
    span = known.steps()
    every = to_table("Groups, largest lag first", _all_groups(groups))
    partitions = summary_table(read, "lag", "Partitions, largest lag first")
    over_time = _over_time(read, span, worst) if worst else {}
    return Chapter(
        "lag",
        "Lag",
        [
            Figure(
                "lag-now",
                "Groups with the largest lag",
                "The lag of each group at its last report, in records and in time.",
                ChartKind.BARS,
                _top(behind.rows),
                [every],
                "No group is behind.",
                _left_out(behind),
            ),
            Figure(
                "lag-over-time",
                f"The {len(worst)} groups with the largest lag, over time"
                if len(worst) > 1
                else "The largest lag, over time",
                f"The largest lag of each group in each {duration(span.step)}, in records.",
                ChartKind.CURVES,
                _curves(span, behind.rows[:MAX_CURVES], over_time),
                [to_table("The largest lag of each group", _peaks(worst, over_time)), partitions],
                "No group is behind.",
            ),
        ],
    )


def _all_groups(groups: DataFrame) -> Rows:
    return first_rows(groups, MAX_ROWS, *sort_order("lag", ("group",)))


def _left_out(behind: Rows) -> str:
    if not behind.left_out:
        return ""
    return f"{count(behind.left_out, 'more group')} {'has' if behind.left_out == 1 else 'have'} a smaller lag."


def _top(rows: Sequence[Row]) -> BarChart | None:
    return bars([_bar(row) for row in rows]) if rows else None


def _bar(row: Row) -> BarRow:
    tooltip = f"{row['group']}: {number(row['lag'])} messages{_late(row)}"
    return BarRow(row["group"], [Amount(0, row["lag"], tooltip)], f"{number(row['lag'])}{_late(row)}")


def _late(row: Row) -> str:
    """Formats the lag in time, if it is known."""
    return "" if row["lag_seconds"] is None else f", {duration(row['lag_seconds'])}"


def _over_time(read: TableReader, span: Span, worst: Sequence[str]) -> Mapping[str, Sequence[Row]]:
    """Returns the largest lag of each group in each step, oldest first, with columns at, lag and lag_seconds."""
    found = read("group_lag").where(F.col("group").isin(*worst) & F.col("lag").isNotNull())
    largest = found.groupBy("group", step_of(span.step).alias("at")).agg(
        F.max("lag").alias("lag"), F.max("lag_seconds").alias("lag_seconds")
    )
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in sorted(all_rows(largest), key=lambda row: row["at"]):
        rows[row["group"]].append(row)
    return rows


def _curves(span: Span, behind: Sequence[Row], over_time: Mapping[str, Sequence[Row]]) -> CurveChart | None:
    return curves(span, [_curve(row, over_time[row["group"]]) for row in behind]) if behind else None


def _curve(row: Row, steps: Sequence[Row]) -> Curve:
    amounts = {step["at"]: step["lag"] for step in steps}
    words = {step["at"]: f"{number(step['lag'])} messages{_late(step)}" for step in steps}
    return Curve(row["group"], amounts, words, f"now {short_number(row['lag'])}{_late(row)}")


def _peaks(worst: Sequence[str], over_time: Mapping[str, Sequence[Row]]) -> Rows:
    """Returns when each group had its largest lag."""
    types = {"group": "string", "lag": "bigint", "lag_seconds": "double", "at": "timestamp", "first": "bigint"}
    rows = []
    for name in worst:
        peak = max(over_time[name], key=lambda row: row["lag"])
        rows.append({**peak, "first": over_time[name][0]["lag"]})
    return Rows(types, rows)
