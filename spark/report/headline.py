"""The headline figures of a report: an operator on call reads them first and sees which of them need attention."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.collected_rows import Row, all_rows
from group_sidecar.spark.report.content import HeadlineFigure, ReportPeriod
from group_sidecar.spark.report.formatting import duration, moment, number
from group_sidecar.spark.report.sidecars_chapter import SILENT_SECONDS, is_silent
from group_sidecar.spark.tables import TableReader


def headline(
    read: TableReader, known: ReportPeriod, groups: DataFrame, sidecars: DataFrame, quarantined: int
) -> Sequence[HeadlineFigure]:
    """Returns the headline figures.

    `groups` and `sidecars` are the results of `summary_queries.groups` and `summary_queries.sidecars`. `quarantined` is
    the number of lines in quarantine.
    """
    sums = _one(
        sidecars.agg(
            F.count("*").alias("sidecars"), F.count_if(is_silent()).alias("silent"), F.sum("missing").alias("missing")
        )
    )
    rebalanced = _one(
        read("rebalances").agg(F.sum("rebalances").alias("times"), F.sum("lost_consumer_seconds").alias("lost"))
    )
    refused = _one(read("refusals").agg(F.sum("refusals").alias("times")))
    audited = _one(read("audits").agg(F.sum("audits").alias("times")))
    return [
        *_groups(groups),
        HeadlineFigure("Rebalances", number(rebalanced["times"] or 0)),
        HeadlineFigure(
            "Lost consumer time", duration(rebalanced["lost"] or 0), "at most: members times the length of rebalances"
        ),
        HeadlineFigure("Refusals", number(refused["times"] or 0), _audited(audited["times"] or 0)),
        HeadlineFigure(
            "Silent sidecars",
            number(sums["silent"]),
            f"of {number(sums['sidecars'])}, for more than {duration(SILENT_SECONDS)}",
            sums["silent"] > 0,
        ),
        HeadlineFigure("Missing records", number(sums["missing"] or 0), bad=bool(sums["missing"])),
        quarantine_fact(quarantined),
        HeadlineFigure("Newest window", moment(known.newest)),
    ]


def quarantine_fact(quarantined: int) -> HeadlineFigure:
    """Returns the headline figure for the lines in quarantine."""
    return HeadlineFigure("Lines in quarantine", number(quarantined), bad=quarantined > 0)


def _groups(groups: DataFrame) -> Sequence[HeadlineFigure]:
    gone = F.col("gone").eqNullSafe(True)
    states = all_rows(
        groups.groupBy(F.when(~gone, F.coalesce("state", F.lit("unknown"))).alias("state")).agg(
            F.count("*").alias("groups"), F.sum("lag").alias("lag"), F.max("lag_seconds").alias("lag_seconds")
        )
    )
    present = sorted((row for row in states if row["state"] is not None), key=lambda row: -row["groups"])
    left = sum(row["groups"] for row in states if row["state"] is None)
    parts = [f"{number(row['groups'])} {row['state']}" for row in present] + ([f"{number(left)} gone"] if left else [])
    latest = max((row["lag_seconds"] for row in present if row["lag_seconds"] is not None), default=None)
    return [
        HeadlineFigure("Groups", number(sum(row["groups"] for row in present)), ", ".join(parts)),
        HeadlineFigure(
            "Total lag",
            number(sum(row["lag"] or 0 for row in present)),
            "" if latest is None else f"at most {duration(latest)}",
        ),
    ]


def _audited(times: int) -> str:
    return f"and {number(times)} more in audit mode" if times else ""


def _one(frame: DataFrame) -> Row:
    (row,) = all_rows(frame)
    return row
