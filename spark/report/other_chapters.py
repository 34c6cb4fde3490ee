"""The chapters on members that joined and left, on the fleet's metrics, and on lines in quarantine.

These chapters read the tables `churn`, `metrics` and `quarantine`.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.bar_chart import Amount, BarRow, bars
from group_sidecar.spark.report.collected_rows import first_rows, sort_order
from group_sidecar.spark.report.content import (
    MAX_ROWS,
    Chapter,
    ChartKind,
    Figure,
    ReportPeriod,
    summary_table,
)
from group_sidecar.spark.report.formatting import count, duration, number
from group_sidecar.spark.report.html_table import to_table
from group_sidecar.spark.report.rebalances_chapter import by_step, cause_label
from group_sidecar.spark.report.scales import HOUR
from group_sidecar.spark.report.stack_chart import stacks
from group_sidecar.spark.tables import TableReader

MAX_KINDS = 30
"""The maximum number of kinds of change, or of faults. There are fewer in practice."""


def churn_chapter(read: TableReader, known: ReportPeriod) -> Chapter:
    """Returns the chapter on members that joined and left."""
    frame = read("churn")
    span = known.steps(least=HOUR)
    sums = frame.groupBy("change").agg(F.sum("members").alias("members"))
    names = [row["change"] for row in first_rows(sums, MAX_KINDS, *sort_order("members", ("change",))).rows]
    amounts = by_step(frame.where(F.col("change").isin(*names)), span, "change", "members") if names else {}
    figure = Figure(
        "churn",
        "Members that joined and left",
        f"How many members joined and left groups in each {duration(span.step)}, by the kind of change.",
        ChartKind.STACKS,
        stacks(span, amounts) if names else None,
        [summary_table(read, "churn", "Members that joined and left, by group")],
        "No member joined or left.",
    )
    return Chapter("churn", "Members", [figure])


def metrics_chapter(read: TableReader) -> Chapter:
    """Returns the chapter on the fleet's metrics, which is a table."""
    table = summary_table(read, "metrics", "Metrics, summed over all sidecars", 2 * MAX_ROWS)
    figure = Figure("metrics", "Metrics of the fleet", "", None, None, [table], "No sidecar reported its metrics.")
    return Chapter("metrics", "Metrics", [figure])


def quarantine_chapter(read: TableReader, quarantine: DataFrame) -> Chapter:
    """Returns the chapter on lines in quarantine, by fault. `quarantine` is the summary of that name."""
    by_fault = quarantine.groupBy("fault").agg(
        F.sum("lines").alias("lines"), F.count_distinct("sidecar").alias("sidecars")
    )
    faults = first_rows(by_fault, MAX_KINDS, *sort_order("lines", ("fault",)))
    lines = first_rows(quarantine, MAX_ROWS, *sort_order("lines", ("fault", "sidecar")))
    shown = [
        BarRow(
            cause_label(row["fault"]),
            [Amount(0, row["lines"], f"{cause_label(row['fault'])}: {count(row['lines'], 'line')}")],
            number(row["lines"]) + (f", {count(row['sidecars'], 'sidecar')}" if row["sidecars"] else ""),
        )
        for row in faults.rows
    ]
    figure = Figure(
        "quarantine",
        "Lines in quarantine by fault",
        "How many lines are not valid records, by their fault.",
        ChartKind.BARS,
        bars(shown) if shown else None,
        [to_table("Faults, by the sidecar where it can be read", lines)],
        "Every line was a record.",
    )
    return Chapter("quarantine", "Quarantine", [figure])
