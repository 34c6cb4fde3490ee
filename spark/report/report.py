"""The report: one HTML file on a time of the fleet, from its tables.

Owns: which chapters there are and their order. Must not know: where tables lie; geometry, HTML.

Everything is summed up in Spark. What comes to the driver is bounded: some dozen rows for each chart, or as many as it
has steps, and at most a few hundred for each table.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.figures import Chapter, Fact, Known, Read, known
from group_sidecar.spark.report.headline import headline, quarantine_fact
from group_sidecar.spark.report.lag import lag_chapter
from group_sidecar.spark.report.others import churn_chapter, metrics_chapter, quarantine_chapter
from group_sidecar.spark.report.rebalances import rebalances_chapter
from group_sidecar.spark.report.rendering import page, write_whole
from group_sidecar.spark.report.rows import all_rows
from group_sidecar.spark.report.sidecars import sidecars_chapter
from group_sidecar.spark.report.spelling import moment
from group_sidecar.spark.report.verdicts import verdicts_chapter
from group_sidecar.spark.summaries import SUMMARIES


def write_report(
    read: Read,
    file: Path,
    *,
    title: str = "Fleet report",
    since: datetime | None = None,
    until: datetime | None = None,
) -> None:
    """Writes the report on a time of the fleet; a file that is there is replaced when the new one is whole.

    Args:
        read: gives the rows of a table by its name, of that time only.
        file: where to; its folder is there.
        title: its heading.
        since: where the time begins, with a time zone; where what is known begins if None.
        until: where it ends; where what is known ends if None.

    Raises:
        OSError: the file cannot be written.
    """
    time = known(read, since, until)
    with _kept(SUMMARIES["quarantine"].ask(read)) as quarantine:
        (lines,) = all_rows(quarantine.agg(F.sum("lines").alias("lines")))
        quarantined = lines["lines"] or 0
        last = quarantine_chapter(read, quarantine)
        facts, chapters = _known(read, time, quarantined) if time else ([quarantine_fact(quarantined)], [])
    text = page(
        title=title,
        range=None if time is None else f"{moment(time.since)} to {moment(time.until)}",
        facts=facts,
        chapters=[*chapters, last],
        written_at=datetime.now(UTC).timestamp(),
    )
    write_whole(file, text)


def _known(read: Read, time: Known, quarantined: int) -> tuple[Sequence[Fact], Sequence[Chapter]]:
    """Head and chapters where there is any record."""
    with _kept(SUMMARIES["groups"].ask(read)) as groups, _kept(SUMMARIES["sidecars"].ask(read)) as sidecars:
        facts = headline(read, time, groups, sidecars, quarantined)
        return facts, [
            lag_chapter(read, time, groups),
            rebalances_chapter(read, time),
            verdicts_chapter(read),
            sidecars_chapter(read, time, sidecars),
            churn_chapter(read, time),
            metrics_chapter(read),
        ]


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """A frame that is made once, though several questions are asked of it."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()
