"""Measures how much data a stream keeps as hours pass: on disk, in its checkpoint, and in the JVM.

The module feeds segments hour by hour to one stream in one JVM.
"""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from benchmarks.fleet_cost import bytes_below
from benchmarks.fleet_records import write
from benchmarks.fleet_segments import LATE_SECONDS
from benchmarks.fleet_shape import Fleet
from benchmarks.fleet_truth import Truth
from group_sidecar.spark.line_sources import files_stream
from group_sidecar.spark.progress import Progress
from group_sidecar.spark.spark_session import session
from group_sidecar.spark.store import CHECKPOINT, Store
from group_sidecar.spark.stream import stream
from group_sidecar.spark.tables import RECORDS


class StreamFootprint(NamedTuple):
    """The size of the stream's state after some hours.

    Attributes:
        hours: the number of hours whose segments have arrived.
        lines: the number of lines in these segments.
        seconds: the duration of the last hour's batch.
        state_bytes: bytes of the state of the query's operators.
        checkpoint_bytes: bytes of the query's checkpoint.
        open_hours: the number of hours whose records are in several folders, because they are not compacted yet.
        heap_bytes: bytes that the JVM holds after a garbage collection.
    """

    hours: int
    lines: int
    seconds: float
    state_bytes: int
    checkpoint_bytes: int
    open_hours: int
    heap_bytes: int


def kept(folder: Path, fleet: Fleet) -> tuple[Truth, list[StreamFootprint]]:
    """Streams a fleet's records hour by hour, each hour when it is over, and late segments when they arrive.

    Returns:
        The truth of the records, and the footprint after each step.
    """
    truth = write(folder / "written", fleet)
    spark, arrived = session(), folder / "arrived"
    arrived.mkdir()
    store, checkpoint = Store(spark, str(folder / "tables")), folder / "tables" / CHECKPOINT
    found, records = [], 0
    for hours in range(1, fleet.hours + LATE_SECONDS // 3600 + 1):
        now = datetime.fromtimestamp(fleet.begin + hours * 3600, UTC)
        if not _feed(folder / "written", arrived, now):
            continue
        progress = Progress(lambda line: None)
        lines = files_stream(spark, str(arrived))
        stream(store, lines, progress, trigger=None, on_batch=lambda refreshed: None, clock=partial(_always, now))
        records += progress.health.total_rows
        found.append(
            StreamFootprint(
                hours=hours,
                lines=records,
                seconds=progress.health.batch_seconds,
                state_bytes=bytes_below(checkpoint / "state"),
                checkpoint_bytes=bytes_below(checkpoint),
                open_hours=_open_hours(folder / "tables" / RECORDS),
                heap_bytes=_heap(spark),
            )
        )
    spark.stop()
    return truth, found


def _always(now: datetime) -> datetime:
    return now


def _feed(written: Path, arrived: Path, now: datetime) -> int:
    """Moves the segments that are sealed by `now` to the stream's input. Returns their number."""
    fed = 0
    for path in sorted(written.rglob("segment-*.jsonl")):
        if path.stat().st_mtime <= now.timestamp():
            target = arrived / path.relative_to(written)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
            fed += 1
    return fed


def _open_hours(records: Path) -> int:
    return sum(len(list(hour.glob("batch=*"))) > 1 for hour in records.glob("day=*/hour=*"))


def _heap(spark: SparkSession) -> int:
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())
