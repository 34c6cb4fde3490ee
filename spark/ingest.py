"""Writes one batch of lines to the store and computes the tables of the affected hours again.

Nothing is kept between batches except the store's contents. So the same function fills a store from a year's journals,
and keeps the store up to date every minute. A batch that was interrupted is repeated from its beginning.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark import line_parsing, line_sources
from group_sidecar.spark.batch_store import Batch
from group_sidecar.spark.line_sources import file_list
from group_sidecar.spark.recompute import compute_tables
from group_sidecar.spark.store import Store

_FEWER_LINES_WARNING = (
    "has fewer lines than when it was first written, because segments were deleted: "
    "the {} lines of the first attempt are kept"
)


@dataclass(frozen=True, kw_only=True)
class IngestResult:
    """The outcome of one batch.

    Attributes:
        records: number of records, including repeated records. A line may have many records.
        quarantined: number of lines that the batch put into quarantine, by fault.
        hours: the hours (UTC) whose tables were computed again, oldest first.
        days_dropped: number of days that were dropped because of their age.
        warnings: problems for the operator, each in one line.
    """

    records: int
    quarantined: Mapping[str, int]
    hours: tuple[datetime, ...]
    days_dropped: int = 0
    warnings: tuple[str, ...] = ()


def ingest(store: Store, lines: DataFrame, batch: Batch, now: datetime | None = None) -> IngestResult:
    """Writes a batch of lines to the store.

    Writing the same batch again has the same effect as writing it once, even if the first attempt was interrupted.

    Args:
        store: the store.
        lines: `value` STRING and `arrived_at` TIMESTAMP. If there is also a column `file`, as in `line_sources`, the
            segments are added to the ledger.
        batch: the batch's number in the stream, larger than those of earlier batches; or the name of a batch that does
            not belong to a stream.
        now: the current time, which decides which records are too old or lie in the future; the clock's time if None.

    Raises:
        RowCountError, FolderError, LeaseLostError: the batch could not be written; see `WriteAttempts.add`.
    """
    now = now or datetime.now(UTC)
    files = Observation() if "file" in lines.columns else None
    if files is not None:
        large = F.col("file.size") > line_sources.MAX_READ_BYTES
        read = F.sum(F.when(large, F.octet_length("value") + 1)).alias("read")
        lines = lines.observe(files, F.to_json(F.collect_set("file")).alias("files"), read)
    with store.writing:
        days_dropped = store.tidy(batch, now) if isinstance(batch, int) else 0
        written = _write(store, _judged(store, lines, now), batch, now)
        warnings = written.warnings
        compute_tables(store, written.hours)
        if files is not None:
            segments = json.loads(files.get["files"])
            if segments:
                store.ledger.add(batch, "".join(f"{json.dumps(each)}\n" for each in segments))
            warnings += _skipped_lines(segments, files.get["read"] or 0)
    return replace(written, days_dropped=days_dropped, warnings=warnings)


def _skipped_lines(segments: Sequence[Mapping[str, Any]], read: int) -> tuple[str, ...]:
    """Returns a warning if lines of the large segments were skipped because of their length.

    Args:
        segments: the segments of the batch, as `line_sources.FILE`.
        read: bytes of all lines that were read of the segments larger than `line_sources.MAX_READ_BYTES`.
    """
    limit = line_sources.MAX_READ_BYTES
    large = {each["path"]: each["size"] for each in segments if each["size"] > limit}
    # A skipped line is longer than the limit. Line ends make only small differences.
    if sum(large.values()) - read <= limit:
        return ()
    return (f"lines of more than {limit} bytes were skipped in {file_list(sorted(large))}",)


def replay(
    store: Store, lines: DataFrame, since: datetime, until: datetime, now: datetime | None = None
) -> IngestResult:
    """Stores the records in `lines` that were emitted in some hours, and computes the tables of these hours again.

    No stream may write to the store at the same time. Lines that are not records are ignored, because the stream counts
    them.

    Args:
        store: the store.
        lines: `value` STRING and `arrived_at` TIMESTAMP.
        since: the beginning of the first hour.
        until: the end of the last hour.
        now: the current time; the clock's time if None.
    """
    now = now or datetime.now(UTC)
    emitted_at = F.col("emitted_at")
    judged = _judged(store, lines, now)
    chosen = judged.where(F.col("fault").isNull() & (emitted_at >= F.lit(since)) & (emitted_at < F.lit(until)))
    written = _write(store, chosen, f"replay-{now:%Y%m%d%H%M%S%f}", now)
    hours = tuple(sorted({*written.hours, *store.hours(since, until)}))
    compute_tables(store, hours)
    return replace(written, hours=hours)


def _judged(store: Store, lines: DataFrame, now: datetime) -> DataFrame:
    oldest = store.oldest(now)
    return line_parsing.judged(lines, F.lit(now), None if oldest is None else F.lit(oldest))


def _write(store: Store, judged: DataFrame, batch: Batch, now: datetime) -> IngestResult:
    added = store.add(batch, judged, now)
    warnings = () if not added.kept else (f"batch {batch} {_FEWER_LINES_WARNING.format(added.kept)}",)
    hours = tuple(sorted(added.hours))
    return IngestResult(records=added.records, quarantined=added.quarantined, hours=hours, warnings=warnings)
