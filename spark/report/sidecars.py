"""The chapter on sidecars: which of them are heard, and what of theirs is missing.

Owns: what is asked of `sidecars`, and from when on silence counts. Must not know: geometry, HTML.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.report.figures import MOST_ROWS, Chapter, Figure, Kind, Known, Read
from group_sidecar.spark.report.rows import Row, all_rows, first_rows, step_of
from group_sidecar.spark.report.scales import Span
from group_sidecar.spark.report.spelling import count, duration
from group_sidecar.spark.report.strip_chart import Heard, Strip, StripChart, strips
from group_sidecar.spark.report.table import tabled

MOST_SIDECARS = 40
SILENT_SECONDS = 300
"""A sidecar of which nothing was heard for longer, while others were heard, is silent."""


def sidecars_chapter(read: Read, known: Known, sidecars: DataFrame) -> Chapter:
    """The chapter. `sidecars`: the summary of that name."""
    worst = first_rows(
        sidecars,
        MOST_ROWS,
        is_silent().desc(),
        F.col("missing").desc_nulls_last(),
        F.col("silent_seconds").desc_nulls_last(),
        F.col("sidecar"),
    )
    span = known.steps()
    shown = worst.rows[:MOST_SIDECARS]
    unseen = len(worst.rows) - len(shown) + worst.left_out
    figure = Figure(
        "sidecars",
        "When each sidecar was heard",
        f"In which {duration(span.step)} each sidecar sent heartbeats; silent ones first, then those that lost most.",
        Kind.STRIPS,
        _strips(span, shown, _heard(read, span, shown)) if shown else None,
        [tabled("Sidecars", worst)],
        "No sidecar was heard.",
        f"{count(unseen, 'more sidecar')} lost less." if unseen else "",
    )
    return Chapter("sidecars", "Sidecars", [figure])


def is_silent() -> Column:
    """Whether a row of the summary is of a silent sidecar."""
    return F.col("silent_seconds") > SILENT_SECONDS


def _heard(read: Read, span: Span, shown: Sequence[Row]) -> Mapping[str, Sequence[Row]]:
    """What was heard of each sidecar, step by step: at, heartbeats, boots, and boot, the last of them."""
    names = [row["sidecar"] for row in shown]
    steps = read("sidecars").where(F.col("sidecar").isin(*names)).groupBy("sidecar", step_of(span.step).alias("at"))
    found = steps.agg(
        F.sum("heartbeats").alias("heartbeats"),
        F.count_distinct("boot").alias("boots"),
        F.max_by("boot", F.struct("last_record", "boot")).alias("boot"),
    )
    heard: defaultdict[str, list[Row]] = defaultdict(list)
    for row in sorted(all_rows(found), key=lambda row: row["at"]):
        heard[row["sidecar"]].append(row)
    return heard


def _strips(span: Span, shown: Sequence[Row], heard: Mapping[str, Sequence[Row]]) -> StripChart:
    return strips(span, [_strip(row, heard.get(row["sidecar"], ())) for row in shown])


def _strip(row: Row, steps: Sequence[Row]) -> Strip:
    heard = {step["at"]: Heard.ALIVE if step["heartbeats"] else Heard.RECORDS_ONLY for step in steps}
    silent = (row["silent_seconds"] or 0) > SILENT_SECONDS
    return Strip(row["sidecar"], heard, restarts(steps), _note(row, silent), silent)


def restarts(steps: Sequence[Row]) -> Sequence[int]:
    """The steps in which a sidecar was started again: in which there are two boots, or another than before."""
    before = [None, *(step["boot"] for step in steps)]
    return [
        step["at"]
        for step, boot in zip(steps, before, strict=False)
        if step["boots"] > 1 or (boot is not None and boot != step["boot"])
    ]


def _note(row: Row, silent: bool) -> str:
    """What stands at the end of a strip: what is wrong, or that nothing is."""
    skew = row["clock_skew_seconds"]
    told = [
        f"silent for {duration(row['silent_seconds'])}" if silent else "",
        f"{row['missing']:,} missing" if row["missing"] else "",
        # One that is behind cannot be told from slow transport.
        f"clock {duration(-skew)} ahead" if skew is not None and skew <= -1 else "",
    ]
    return ", ".join(filter(None, told)) or "nothing missing"
