"""The chapter on lag: the groups that are furthest behind, and how they came there.

Owns: what is asked of `groups`, `group_lag` and `lag`. Must not know: geometry, HTML.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.bar_chart import Amount, BarChart, Named, bars
from group_sidecar.spark.report.curve_chart import Curve, CurveChart, curves
from group_sidecar.spark.report.figures import MOST_ROWS, Chapter, Figure, Kind, Known, Read, summary_table
from group_sidecar.spark.report.rows import Row, Rows, all_rows, first_rows, largest, step_of
from group_sidecar.spark.report.scales import Span
from group_sidecar.spark.report.spelling import count, duration, number, rounded
from group_sidecar.spark.report.table import tabled

MOST_GROUPS, MOST_CURVES = 20, 10


def lag_chapter(read: Read, known: Known, groups: DataFrame) -> Chapter:
    """The chapter. `groups`: the summary of that name."""
    behind = first_rows(groups.where(F.col("lag") > 0), MOST_GROUPS, *largest("lag", ("group",)))
    worst = [row["group"] for row in behind.rows[:MOST_CURVES]]
    span = known.steps()
    every = tabled("Groups, those that are furthest behind first", _all_groups(groups))
    partitions = summary_table(read, "lag", "Partitions, those that are furthest behind first")
    over_time = _over_time(read, span, worst) if worst else {}
    return Chapter(
        "lag",
        "Lag",
        [
            Figure(
                "lag-now",
                "Groups that are furthest behind",
                "Messages that each group had not consumed when it was last told of, and how late it was.",
                Kind.BARS,
                _top(behind.rows),
                [every],
                "No group is behind.",
                _left_out(behind),
            ),
            Figure(
                "lag-over-time",
                f"The furthest {len(worst)} over time" if len(worst) > 1 else "The furthest over time",
                f"The most messages that each had not consumed in any window of {duration(span.step)}.",
                Kind.CURVES,
                _curves(span, behind.rows[:MOST_CURVES], over_time),
                [tabled("When each was furthest behind", _peaks(worst, over_time)), partitions],
                "No group is behind.",
            ),
        ],
    )


def _all_groups(groups: DataFrame) -> Rows:
    return first_rows(groups, MOST_ROWS, *largest("lag", ("group",)))


def _left_out(behind: Rows) -> str:
    return f"{count(behind.left_out, 'more group')} {_is(behind.left_out)} behind, by less." if behind.left_out else ""


def _is(things: int) -> str:
    return "is" if things == 1 else "are"


def _top(rows: Sequence[Row]) -> BarChart | None:
    return bars([_bar(row) for row in rows]) if rows else None


def _bar(row: Row) -> Named:
    told = f"{row['group']}: {number(row['lag'])} messages{_late(row)}"
    return Named(row["group"], [Amount(0, row["lag"], told)], f"{number(row['lag'])}{_late(row)}")


def _late(row: Row) -> str:
    """The lag in time, where it is known."""
    return "" if row["lag_seconds"] is None else f", {duration(row['lag_seconds'])}"


def _over_time(read: Read, span: Span, worst: Sequence[str]) -> Mapping[str, Sequence[Row]]:
    """The largest lag of each group in each step: at, lag, lag_seconds; oldest first."""
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
    return Curve(row["group"], amounts, words, f"now {rounded(row['lag'])}{_late(row)}")


def _peaks(worst: Sequence[str], over_time: Mapping[str, Sequence[Row]]) -> Rows:
    """When each was furthest behind."""
    types = {"group": "string", "lag": "bigint", "lag_seconds": "double", "at": "timestamp", "first": "bigint"}
    rows = []
    for name in worst:
        peak = max(over_time[name], key=lambda row: row["lag"])
        rows.append({**peak, "first": over_time[name][0]["lag"]})
    return Rows(types, rows)
