"""The chapter on sidecars: which of them are alive, and how many of their records are missing.

The chapter reads the table `sidecars`. The module defines after how many seconds a sidecar counts as silent.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.collected_rows import Row, all_rows, first_rows, step_of
from group_sidecar.spark.report.content import MAX_ROWS, Chapter, ChartKind, Figure, ReportPeriod
from group_sidecar.spark.report.formatting import count, duration
from group_sidecar.spark.report.html_table import to_table
from group_sidecar.spark.report.scales import Span
from group_sidecar.spark.report.strip_chart import Presence, Strip, StripChart, strips
from group_sidecar.spark.tables import TableReader

MAX_SIDECARS = 40
SILENT_SECONDS = 300
"""Seconds without a record after which a sidecar counts as silent, if other sidecars sent records meanwhile."""


def sidecars_chapter(read: TableReader, known: ReportPeriod, sidecars: DataFrame) -> Chapter:
    """Returns the chapter on sidecars. `sidecars` is the summary of that name."""
    worst = first_rows(
        sidecars,
        MAX_ROWS,
        is_silent().desc(),
        F.col("missing").desc_nulls_last(),
        F.col("silent_seconds").desc_nulls_last(),
        F.col("sidecar"),
    )
    span = known.steps()
    shown = worst.rows[:MAX_SIDECARS]
    unseen = len(worst.rows) - len(shown) + worst.left_out
    figure = Figure(
        "sidecars",
        "When each sidecar sent heartbeats",
        f"Each {duration(span.step)} with heartbeats of a sidecar. Silent sidecars come first.",
        ChartKind.STRIPS,
        _strip_chart(span, shown, _steps_by_sidecar(read, span, shown)) if shown else None,
        [to_table("Sidecars", worst)],
        "No sidecar sent a heartbeat.",
        f"{count(unseen, 'more sidecar')} lost less." if unseen else "",
    )
    return Chapter("sidecars", "Sidecars", [figure])


def is_silent() -> Column:
    """Returns a column that is true if a row of the summary belongs to a silent sidecar."""
    return F.col("silent_seconds") > SILENT_SECONDS


def _steps_by_sidecar(read: TableReader, span: Span, shown: Sequence[Row]) -> Mapping[str, Sequence[Row]]:
    """Returns each sidecar's numbers of heartbeats and boots, and its last boot, by step."""
    names = [row["sidecar"] for row in shown]
    steps = read("sidecars").where(F.col("sidecar").isin(*names)).groupBy("sidecar", step_of(span.step).alias("at"))
    found = steps.agg(
        F.sum("heartbeats").alias("heartbeats"),
        F.count_distinct("boot").alias("boots"),
        F.max_by("boot", F.struct("last_record", "boot")).alias("boot"),
    )
    steps_by_sidecar: defaultdict[str, list[Row]] = defaultdict(list)
    for row in sorted(all_rows(found), key=lambda row: row["at"]):
        steps_by_sidecar[row["sidecar"]].append(row)
    return steps_by_sidecar


def _strip_chart(span: Span, shown: Sequence[Row], steps_by_sidecar: Mapping[str, Sequence[Row]]) -> StripChart:
    return strips(span, [_strip(row, steps_by_sidecar.get(row["sidecar"], ())) for row in shown])


def _strip(row: Row, steps: Sequence[Row]) -> Strip:
    presence_by_step = {step["at"]: Presence.ALIVE if step["heartbeats"] else Presence.RECORDS_ONLY for step in steps}
    silent = (row["silent_seconds"] or 0) > SILENT_SECONDS
    return Strip(row["sidecar"], presence_by_step, restarts(steps), _note(row, silent), silent)


def restarts(steps: Sequence[Row]) -> Sequence[int]:
    """Returns the steps in which a sidecar was restarted: two boots, or another boot than in the step before."""
    before = [None, *(step["boot"] for step in steps)]
    return [
        step["at"]
        for step, boot in zip(steps, before, strict=False)
        if step["boots"] > 1 or (boot is not None and boot != step["boot"])
    ]


def _note(row: Row, silent: bool) -> str:
    """Returns the note at the end of a strip, which names the sidecar's problems or "nothing missing"."""
    skew = row["clock_skew_seconds"]
    warnings = [
        f"silent for {duration(row['silent_seconds'])}" if silent else "",
        f"{row['missing']:,} missing" if row["missing"] else "",
        # A clock that is behind cannot be distinguished from slow transport.
        f"clock {duration(-skew)} ahead" if skew is not None and skew <= -1 else "",
    ]
    return ", ".join(filter(None, warnings)) or "nothing missing"
