"""The chapter on policies: whom they refused, and whom they would have refused.

Owns: what is asked of `refusals` and `audits`. Must not know: geometry, HTML.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.bar_chart import Amount, BarChart, Named, bars
from group_sidecar.spark.report.figures import Chapter, Figure, Kind, Read, summary_table
from group_sidecar.spark.report.rows import Row, all_rows, first_rows, largest
from group_sidecar.spark.report.spelling import count, number

MOST_GROUPS = 20


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What came of what a policy said: the table, which is also its column's name, and words."""

    table: str
    title: str
    told: str
    empty: str


_VERDICTS = (
    _Verdict(
        "refusals",
        "Refusals by group and policy",
        "How often policies refused clients of each group.",
        "No client was refused anything.",
    ),
    _Verdict(
        "audits",
        "What would have been refused, by group and policy",
        "How often policies in audit mode let clients pass that they would have refused.",
        "No policy in audit mode would have refused anything.",
    ),
)


def verdicts_chapter(read: Read) -> Chapter:
    """The chapter."""
    return Chapter("refusals", "Refusals", [_figure(read, verdict) for verdict in _VERDICTS])


def _figure(read: Read, verdict: _Verdict) -> Figure:
    told = read(verdict.table)
    sums = told.groupBy("group").agg(F.sum(verdict.table).alias("times"))
    groups = first_rows(sums, MOST_GROUPS, *largest("times", ("group",)))
    names = [row["group"] for row in groups.rows]
    by_policy = told.where(F.col("group").isin(*names)).groupBy("group", "policy").agg(F.sum(verdict.table).alias("n"))
    return Figure(
        verdict.table,
        verdict.title,
        verdict.told,
        Kind.BARS,
        _bars(names, all_rows(by_policy)) if names else None,
        [summary_table(read, verdict.table, verdict.title)],
        verdict.empty,
        f"{count(groups.left_out, 'more group')} had fewer." if groups.left_out else "",
    )


def _bars(names: Sequence[str], rows: Sequence[Row]) -> BarChart:
    by_group: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        by_group[row["group"]][row["policy"]] = row["n"]
    policies = sorted({row["policy"] for row in rows})
    return bars([_bar(name, by_group[name], policies) for name in names], policies)


def _bar(name: str, times: dict[str, int], policies: Sequence[str]) -> Named:
    amounts = [
        Amount(index, times[policy], f"{name}: {policy} {number(times[policy])}")
        for index, policy in enumerate(policies)
        if policy in times
    ]
    return Named(name, amounts, number(sum(times.values())))
