"""Writes the report on a period of the fleet as one HTML file, from the fleet's tables.

The module decides which chapters the report has, and their order. Spark does all aggregation. The rows that reach the
driver are bounded: a few dozen or one per step for each chart, and at most a few hundred for each table.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.collected_rows import all_rows
from group_sidecar.spark.report.content import Chapter, HeadlineFigure, ReportPeriod, known
from group_sidecar.spark.report.formatting import moment
from group_sidecar.spark.report.headline import headline, quarantine_fact
from group_sidecar.spark.report.html_page import page, replace_file
from group_sidecar.spark.report.lag_chapter import lag_chapter
from group_sidecar.spark.report.other_chapters import churn_chapter, metrics_chapter, quarantine_chapter
from group_sidecar.spark.report.policies_chapter import policies_chapter
from group_sidecar.spark.report.rebalances_chapter import rebalances_chapter
from group_sidecar.spark.report.sidecars_chapter import sidecars_chapter
from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.tables import TableReader


def write_report(
    read: TableReader,
    file: Path,
    *,
    title: str = "Fleet report",
    since: datetime | None = None,
    until: datetime | None = None,
) -> None:
    """Writes the report on a period. An existing file is replaced when the new one is complete.

    Args:
        read: reads the rows of a table by its name, for that period only.
        file: the path of the report, in an existing folder.
        title: the heading.
        since: the beginning of the period, with a time zone; None for the beginning of the data.
        until: the end of the period; None for the end of the data.

    Raises:
        OSError: the file cannot be written.
    """
    period = known(read, since, until)
    with _cached(SUMMARIES["quarantine"].compute(read)) as quarantine:
        (lines,) = all_rows(quarantine.agg(F.sum("lines").alias("lines")))
        quarantined = lines["lines"] or 0
        last = quarantine_chapter(read, quarantine)
        facts, chapters = _content(read, period, quarantined) if period else ([quarantine_fact(quarantined)], [])
    text = page(
        title=title,
        range=None if period is None else f"{moment(period.since)} to {moment(period.until)}",
        facts=facts,
        chapters=[*chapters, last],
        written_at=datetime.now(UTC).timestamp(),
    )
    replace_file(file, text)


def _content(
    read: TableReader, period: ReportPeriod, quarantined: int
) -> tuple[Sequence[HeadlineFigure], Sequence[Chapter]]:
    """Returns the headline figures and the chapters. The period must have at least one record."""
    with _cached(SUMMARIES["groups"].compute(read)) as groups, _cached(SUMMARIES["sidecars"].compute(read)) as sidecars:
        facts = headline(read, period, groups, sidecars, quarantined)
        return facts, [
            lag_chapter(read, period, groups),
            rebalances_chapter(read, period),
            policies_chapter(read),
            sidecars_chapter(read, period, sidecars),
            churn_chapter(read, period),
            metrics_chapter(read),
        ]


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Caches a frame, so that Spark computes it once for several queries."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()
