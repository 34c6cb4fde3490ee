"""The chapter on rebalances: which groups, when, and why.

Owns: what is asked of `rebalances`. Must not know: geometry, HTML.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.figures import Chapter, Figure, Kind, Known, Read, summary_table
from group_sidecar.spark.report.heat_map import Heat, heat_map
from group_sidecar.spark.report.rows import Rows, all_rows, first_rows, largest, step_of
from group_sidecar.spark.report.scales import HOUR, Span
from group_sidecar.spark.report.spelling import count, duration, number
from group_sidecar.spark.report.stack_chart import StackChart, stacks
from group_sidecar.spark.report.table import tabled

MOST_GROUPS = 25
MOST_CAUSES = 50
"""There are a dozen; a sidecar that makes them up must not fill the report."""
NONE = "No group rebalanced."


def rebalances_chapter(read: Read, known: Known) -> Chapter:
    """The chapter."""
    told = read("rebalances")
    span = known.steps(least=HOUR)
    return Chapter("rebalances", "Rebalances", [_heat(read, told, span), _causes(told, span)])


def causes(told: DataFrame, most: int = MOST_CAUSES) -> Rows:
    """Each cause with what came of it, those first that there were most of."""
    sums = told.groupBy("cause").agg(
        F.sum("rebalances").alias("rebalances"),
        F.sum("seconds").alias("seconds"),
        F.max("longest_seconds").alias("longest_seconds"),
        F.sum("lost_consumer_seconds").alias("lost_consumer_seconds"),
        F.count_distinct("group").alias("groups"),
    )
    return first_rows(sums, most, *largest("rebalances", ("cause",)))


def _heat(read: Read, told: DataFrame, span: Span) -> Figure:
    sums = told.groupBy("group").agg(F.sum("rebalances").alias("rebalances"))
    liveliest = first_rows(sums, MOST_GROUPS, *largest("rebalances", ("group",)))
    names = [row["group"] for row in liveliest.rows]
    rows = _heats(told, span, names) if names else {}
    return Figure(
        "rebalance-heat",
        "Rebalances by group and time",
        f"How often each group rebalanced in each {duration(span.step)}, the liveliest groups first.",
        Kind.HEAT,
        heat_map(span, {name: rows[name] for name in names}) if names else None,
        [summary_table(read, "rebalances", "Rebalances by group and cause")],
        NONE,
        f"{count(liveliest.left_out, 'more group')} rebalanced less often." if liveliest.left_out else "",
    )


def _heats(told: DataFrame, span: Span, names: Sequence[str]) -> Mapping[str, Mapping[int, Heat]]:
    """What happened in each step, of these groups."""
    counted: defaultdict[str, defaultdict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    found = told.where(F.col("group").isin(*names)).groupBy("group", "cause", step_of(span.step).alias("at"))
    for row in all_rows(found.agg(F.sum("rebalances").alias("rebalances"))):
        counted[row["group"]][row["at"]][row["cause"]] += row["rebalances"]
    return {name: {at: _heat_of(name, times) for at, times in by_step.items()} for name, by_step in counted.items()}


def _heat_of(name: str, times: Counter[str]) -> Heat:
    why = ", ".join(f"{spelled(cause)} {number(often)}" for cause, often in times.most_common(6))
    return Heat(times.total(), f"{name}, {count(times.total(), 'rebalance')}: {why}")


def spelled(cause: str) -> str:
    """A cause in words."""
    return cause.replace("_", " ")


def _causes(told: DataFrame, span: Span) -> Figure:
    found = causes(told)
    names = [row["cause"] for row in found.rows]
    return Figure(
        "rebalance-causes",
        "Causes over time",
        f"How many rebalances each cause began in each {duration(span.step)}, in the whole fleet.",
        Kind.STACKS,
        _stacked(told, span, names) if names else None,
        [tabled("Causes", found)],
        NONE,
    )


def _stacked(told: DataFrame, span: Span, names: Sequence[str]) -> StackChart:
    return stacks(span, by_step(told.where(F.col("cause").isin(*names)), span, "cause", "rebalances"))


def by_step(frame: DataFrame, span: Span, name: str, amount: str) -> Mapping[str, Mapping[int, float]]:
    """The sum of one column for each value of another, which are few, in each step."""
    sums: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for row in all_rows(frame.groupBy(name, step_of(span.step).alias("at")).agg(F.sum(amount).alias("amount"))):
        sums[spelled(row[name])][row["at"]] += row["amount"]
    return sums
