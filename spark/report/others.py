"""The chapters on members' coming and going, on the fleet's metrics, and on what is in quarantine.

Owns: what is asked of `churn`, `metrics` and `quarantine`. Must not know: geometry, HTML.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.bar_chart import Amount, Named, bars
from group_sidecar.spark.report.figures import MOST_ROWS, Chapter, Figure, Kind, Known, Read, summary_table
from group_sidecar.spark.report.rebalances import by_step, spelled
from group_sidecar.spark.report.rows import first_rows, largest
from group_sidecar.spark.report.scales import HOUR
from group_sidecar.spark.report.spelling import count, duration, number
from group_sidecar.spark.report.stack_chart import stacks
from group_sidecar.spark.report.table import tabled

MOST_KINDS = 30
"""Kinds of change, or faults; there are fewer."""


def churn_chapter(read: Read, known: Known) -> Chapter:
    """How members came and went."""
    told = read("churn")
    span = known.steps(least=HOUR)
    sums = told.groupBy("change").agg(F.sum("members").alias("members"))
    names = [row["change"] for row in first_rows(sums, MOST_KINDS, *largest("members", ("change",))).rows]
    amounts = by_step(told.where(F.col("change").isin(*names)), span, "change", "members") if names else {}
    figure = Figure(
        "churn",
        "Members that came and went",
        f"How many members joined groups and left them in each {duration(span.step)}, by how they did.",
        Kind.STACKS,
        stacks(span, amounts) if names else None,
        [summary_table(read, "churn", "Members that came and went, by group")],
        "No member came or went.",
    )
    return Chapter("churn", "Members", [figure])


def metrics_chapter(read: Read) -> Chapter:
    """The fleet's metrics: a table."""
    table = summary_table(read, "metrics", "Metrics, summed over all sidecars", 2 * MOST_ROWS)
    figure = Figure("metrics", "Metrics of the fleet", "", None, None, [table], "No sidecar told its metrics.")
    return Chapter("metrics", "Metrics", [figure])


def quarantine_chapter(read: Read, quarantine: DataFrame) -> Chapter:
    """Lines that are no records, by what is wrong with them. `quarantine`: the summary of that name."""
    by_fault = quarantine.groupBy("fault").agg(
        F.sum("lines").alias("lines"), F.count_distinct("sidecar").alias("sidecars")
    )
    faults = first_rows(by_fault, MOST_KINDS, *largest("lines", ("fault",)))
    lines = first_rows(quarantine, MOST_ROWS, *largest("lines", ("fault", "sidecar")))
    shown = [
        Named(
            spelled(row["fault"]),
            [Amount(0, row["lines"], f"{spelled(row['fault'])}: {count(row['lines'], 'line')}")],
            number(row["lines"]) + (f", {count(row['sidecars'], 'sidecar')}" if row["sidecars"] else ""),
        )
        for row in faults.rows
    ]
    figure = Figure(
        "quarantine",
        "Lines in quarantine by fault",
        "How many lines could not be taken for records, by what is wrong with them.",
        Kind.BARS,
        bars(shown) if shown else None,
        [tabled("Faults, by the sidecar where it can be read", lines)],
        "Every line was a record.",
    )
    return Chapter("quarantine", "Quarantine", [figure])
