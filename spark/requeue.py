"""Judges lines in quarantine again, and stores those that are records now.

A line of a newer contract waits in quarantine until the job is upgraded. The lines of a folder of the quarantine become
a batch that replaces this folder: the records go to their hours, and the rest goes back to the quarantine. If the
process dies in between, the next run completes or drops the replacement (`write_attempts`). Until then, some lines may
be stored twice, and each of them is counted once.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark import line_parsing
from group_sidecar.spark.line_parsing import Fault
from group_sidecar.spark.recompute import compute_tables
from group_sidecar.spark.store import Store, each_line_once

CURABLE = (
    Fault.UNKNOWN_VERSION,
    Fault.UNKNOWN_KIND,
    Fault.WRONG_TYPE,
    Fault.MISSING_COLUMN,
    Fault.OUT_OF_RANGE,
)
"""The faults that a line may lose under another version of the contract. The other faults depend on the line's form or
on the time."""


@dataclass(frozen=True, kw_only=True)
class RequeueResult:
    """The outcome of judging lines again.

    Attributes:
        judged: number of lines that were judged again.
        taken: number of these lines that are valid now.
        records: number of records of these lines. A line may have many records.
        hours: the hours (UTC) whose tables were computed again, oldest first.
        unfinished: whether lines were left out because the next run repeats their batch and judges them anyway.
    """

    judged: int
    taken: int
    records: int = 0
    hours: tuple[datetime, ...] = ()
    unfinished: bool = False


def requeue(
    store: Store,
    faults: Collection[Fault] = CURABLE,
    since: datetime | None = None,
    until: datetime | None = None,
    now: datetime | None = None,
) -> RequeueResult:
    """Judges quarantined lines again by the present contract.

    A line that is a record now is stored like new input, and leaves the quarantine. A line that has another fault now
    stays under its new fault. No stream may write to the store at the same time.

    Args:
        store: the store, after `Store.recover`.
        faults: the faults of the lines that are judged again.
        since: lines that arrived in earlier hours are left out; None for no limit.
        until: lines that arrived in hours that begin at this time or later are left out; None for no limit.
        now: the current time, which decides which records are too old or lie in the future; the clock's time if None.
    """
    now = now or datetime.now(UTC)
    folders, repeated = store.quarantine_folders(since, until)
    unfinished = bool(repeated)
    if not folders:
        return RequeueResult(judged=0, taken=0, unfinished=unfinished)
    lines = store.quarantined(folders).where(F.col("fault").isin(*map(str, faults)))
    count = each_line_once(lines).count()
    replaced = _folders_of_changed(_judged_again(store, lines, faults, now)) if count else []
    if not replaced:
        return RequeueResult(judged=count, taken=0, unfinished=unfinished)
    # Lines are counted before they are judged, because a line may have many records.
    seen = Observation()
    again = each_line_once(store.quarantined(replaced)).observe(seen, F.count(F.lit(1)).alias("lines"))
    judged = _judged_again(store, again, faults, now)
    row = F.col("quarantined.name"), F.col("quarantined.folder_hour").alias("quarantine_hour")
    added = store.add(
        f"requeue-{now:%Y%m%d%H%M%S%f}",
        judged.select("*", *row).drop("quarantined"),
        now,
        replaced=replaced,
        compute_tables=lambda hours: compute_tables(store, hours),
    )
    hours = tuple(sorted(added.hours))
    taken = int(seen.get["lines"]) - sum(added.quarantined.values())
    return RequeueResult(judged=count, taken=taken, records=added.records, hours=hours, unfinished=unfinished)


def _judged_again(store: Store, lines: DataFrame, faults: Collection[Fault], now: datetime) -> DataFrame:
    """Returns the lines as `line_parsing.judged` does, with the row of the quarantine as `quarantined`.

    A line whose fault is not one of `faults` keeps its fault.
    """
    # Each record of an array line gets a copy of this row, so the row does not contain the line.
    row = F.struct("fault", "arrived_at", "name", "folder", "folder_hour").alias("quarantined")
    values = lines.select(F.col("line").alias("value"), "arrived_at", row)
    oldest = store.oldest(now)
    known_fault = F.when(~F.col("quarantined.fault").isin(*map(str, faults)), F.col("quarantined.fault"))
    judged = line_parsing.judged(
        values, F.lit(now), None if oldest is None else F.lit(oldest), ["quarantined"], known_fault
    )
    arrived_at = F.when(F.col("fault").isNotNull(), F.col("quarantined.arrived_at")).otherwise(F.col("arrived_at"))
    return judged.withColumn("arrived_at", arrived_at)


def _folders_of_changed(judged: DataFrame) -> list[str]:
    """Returns the sorted folders in which at least one line is a record now or has another fault."""
    changed = judged.where(~F.col("fault").eqNullSafe(F.col("quarantined.fault")))
    return sorted(row["folder"] for row in changed.select("quarantined.folder").distinct().collect())
