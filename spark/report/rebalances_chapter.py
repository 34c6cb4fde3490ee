"""The chapter on rebalances: which groups rebalanced, when, and why.

The chapter reads the table `rebalances`.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.collected_rows import Rows, all_rows, first_rows, sort_order, step_of
from group_sidecar.spark.report.content import Chapter, ChartKind, Figure, ReportPeriod, summary_table
from group_sidecar.spark.report.formatting import count, duration, number
from group_sidecar.spark.report.heat_map import HeatCell, heat_map
from group_sidecar.spark.report.html_table import to_table
from group_sidecar.spark.report.scales import HOUR, Span
from group_sidecar.spark.report.stack_chart import StackChart, stacks
from group_sidecar.spark.tables import TableReader

MAX_GROUPS = 25
MAX_CAUSES = 50
"""The maximum number of causes. There are about 12, but a faulty sidecar could invent many."""
NONE = "No group rebalanced."


def rebalances_chapter(read: TableReader, known: ReportPeriod) -> Chapter:
    """Returns the chapter on rebalances."""
    frame = read("rebalances")
    span = known.steps(least=HOUR)
    return Chapter("rebalances", "Rebalances", [_heat(read, frame, span), _causes(frame, span)])


def causes(frame: DataFrame, at_most: int = MAX_CAUSES) -> Rows:
    """Returns each cause with the effects of its rebalances, the most frequent cause first."""
    sums = frame.groupBy("cause").agg(
        F.sum("rebalances").alias("rebalances"),
        F.sum("seconds").alias("seconds"),
        F.max("longest_seconds").alias("longest_seconds"),
        F.sum("lost_consumer_seconds").alias("lost_consumer_seconds"),
        F.count_distinct("group").alias("groups"),
    )
    return first_rows(sums, at_most, *sort_order("rebalances", ("cause",)))


def _heat(read: TableReader, frame: DataFrame, span: Span) -> Figure:
    sums = frame.groupBy("group").agg(F.sum("rebalances").alias("rebalances"))
    most_often = first_rows(sums, MAX_GROUPS, *sort_order("rebalances", ("group",)))
    names = [row["group"] for row in most_often.rows]
    rows = _heats(frame, span, names) if names else {}
    return Figure(
        "rebalance-heat",
        "Rebalances by group and time",
        f"How often each group rebalanced in each {duration(span.step)}, the groups with the most rebalances first.",
        ChartKind.HEAT,
        heat_map(span, {name: rows[name] for name in names}) if names else None,
        [summary_table(read, "rebalances", "Rebalances by group and cause")],
        NONE,
        f"{count(most_often.left_out, 'more group')} rebalanced less often." if most_often.left_out else "",
    )


def _heats(frame: DataFrame, span: Span, names: Sequence[str]) -> Mapping[str, Mapping[int, HeatCell]]:
    """Returns the heat map's cells for these groups, by step."""
    counted: defaultdict[str, defaultdict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    found = frame.where(F.col("group").isin(*names)).groupBy("group", "cause", step_of(span.step).alias("at"))
    for row in all_rows(found.agg(F.sum("rebalances").alias("rebalances"))):
        counted[row["group"]][row["at"]][row["cause"]] += row["rebalances"]
    return {name: {at: _heat_of(name, times) for at, times in by_step.items()} for name, by_step in counted.items()}


def _heat_of(name: str, times: Counter[str]) -> HeatCell:
    why = ", ".join(f"{cause_label(cause)} {number(often)}" for cause, often in times.most_common(6))
    return HeatCell(times.total(), f"{name}, {count(times.total(), 'rebalance')}: {why}")


def cause_label(cause: str) -> str:
    """Returns a cause, a fault or a kind of change in words."""
    return cause.replace("_", " ")


def _causes(frame: DataFrame, span: Span) -> Figure:
    found = causes(frame)
    names = [row["cause"] for row in found.rows]
    return Figure(
        "rebalance-causes",
        "Causes over time",
        f"How many rebalances each cause began in each {duration(span.step)}, in the whole fleet.",
        ChartKind.STACKS,
        _stacked(frame, span, names) if names else None,
        [to_table("Causes", found)],
        NONE,
    )


def _stacked(frame: DataFrame, span: Span, names: Sequence[str]) -> StackChart:
    return stacks(span, by_step(frame.where(F.col("cause").isin(*names)), span, "cause", "rebalances"))


def by_step(frame: DataFrame, span: Span, name: str, amount: str) -> Mapping[str, Mapping[int, float]]:
    """Returns the sums of column `amount` by value of column `name` and by step. `name` must have few values."""
    sums: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for row in all_rows(frame.groupBy(name, step_of(span.step).alias("at")).agg(F.sum(amount).alias("amount"))):
        sums[cause_label(row[name])][row["at"]] += row["amount"]
    return sums
