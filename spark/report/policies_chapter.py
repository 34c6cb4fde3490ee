"""The chapter on policies: the requests that they refused or, in audit mode, would have refused.

The chapter reads the tables `refusals` and `audits`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.bar_chart import Amount, BarChart, BarRow, bars
from group_sidecar.spark.report.collected_rows import Row, all_rows, first_rows, sort_order
from group_sidecar.spark.report.content import Chapter, ChartKind, Figure, summary_table
from group_sidecar.spark.report.formatting import count, number
from group_sidecar.spark.tables import TableReader

MAX_GROUPS = 20


@dataclass(frozen=True, slots=True)
class _PolicyOutcome:
    """An outcome of a policy, with its texts. `table`: the name of its table, and of that table's column of counts."""

    table: str
    title: str
    description: str
    empty: str


_POLICY_OUTCOMES = (
    _PolicyOutcome(
        "refusals",
        "Refusals by group and policy",
        "How often policies refused clients of each group.",
        "No policy refused a request.",
    ),
    _PolicyOutcome(
        "audits",
        "Refusals in audit mode, by group and policy",
        "How many requests passed that policies would have refused if they were enforced.",
        "No policy in audit mode would have refused a request.",
    ),
)


def policies_chapter(read: TableReader) -> Chapter:
    """Returns the chapter on policies."""
    return Chapter("refusals", "Refusals", [_figure(read, outcome) for outcome in _POLICY_OUTCOMES])


def _figure(read: TableReader, outcome: _PolicyOutcome) -> Figure:
    rows = read(outcome.table)
    sums = rows.groupBy("group").agg(F.sum(outcome.table).alias("times"))
    groups = first_rows(sums, MAX_GROUPS, *sort_order("times", ("group",)))
    names = [row["group"] for row in groups.rows]
    by_policy = rows.where(F.col("group").isin(*names)).groupBy("group", "policy").agg(F.sum(outcome.table).alias("n"))
    return Figure(
        outcome.table,
        outcome.title,
        outcome.description,
        ChartKind.BARS,
        _bars(names, all_rows(by_policy)) if names else None,
        [summary_table(read, outcome.table, outcome.title)],
        outcome.empty,
        f"{count(groups.left_out, 'more group')} had fewer." if groups.left_out else "",
    )


def _bars(names: Sequence[str], rows: Sequence[Row]) -> BarChart:
    by_group: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        by_group[row["group"]][row["policy"]] = row["n"]
    policies = sorted({row["policy"] for row in rows})
    return bars([_bar(name, by_group[name], policies) for name in names], policies)


def _bar(name: str, times: dict[str, int], policies: Sequence[str]) -> BarRow:
    amounts = [
        Amount(index, times[policy], f"{name}: {policy} {number(times[policy])}")
        for index, policy in enumerate(policies)
        if policy in times
    ]
    return BarRow(name, amounts, number(sum(times.values())))
