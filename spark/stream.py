"""Runs the stream: writes batches of lines to the store until there are no more lines or the stream is stopped.

Spark calls the function of `foreachBatch` at least once for each batch. A repeated batch has the same number, so that
`ingest` can make the repetition idempotent. Spark marks a batch as done only after the function has returned.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from group_sidecar.spark.filesystem import FolderError
from group_sidecar.spark.ingest import IngestResult, ingest
from group_sidecar.spark.lease import LeaseLostError
from group_sidecar.spark.progress import Progress
from group_sidecar.spark.store import Store
from group_sidecar.spark.write_attempts import RowCountError

NAME = "fleet"
_POLL_SECONDS = 0.5
_LAST_WORDS_SECONDS = 10.0
"""Seconds that the listener may take to learn that the query has ended."""


def stream(
    store: Store,
    lines: DataFrame,
    progress: Progress,
    *,
    trigger: str | None,
    on_batch: Callable[[IngestResult], None],
    tick: Callable[[], None] = lambda: None,
    stopping: threading.Event | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Writes lines to the store, beginning where the store's checkpoint ends.

    Args:
        store: the store.
        lines: a streaming frame, `value` STRING and `arrived_at` TIMESTAMP.
        progress: the listener of the query.
        trigger: the interval between batches in Spark's notation; None to read the available lines and end.
        on_batch: called with the result of each batch.
        tick: called twice a second.
        stopping: ends the stream when it is set. The next run repeats a batch that was interrupted.
        clock: returns the current time.

    Raises:
        StreamingQueryException: a batch failed. The next run repeats it.
        RowCountError, FolderError, LeaseLostError: a batch failed because of the store. The next run repeats it.
    """
    failures: list[Exception] = []

    def take(batch_of_lines: DataFrame, batch: int) -> None:
        try:
            on_batch(ingest(store, batch_of_lines, batch, clock()))
        except Exception as error:
            # Spark would only report that some function failed.
            if (cause := _cause(store, error)) is not None:
                failures.append(cause)
            raise

    spark = lines.sparkSession
    spark.streams.addListener(progress)
    try:
        writer = lines.writeStream.queryName(NAME).option("checkpointLocation", store.checkpoint).foreachBatch(take)
        writer = writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)
        _run_to_end(writer.start(), progress, tick, stopping)
    except StreamingQueryException:
        if failures:
            raise failures[0] from None
        raise
    finally:
        spark.streams.removeListener(progress)


def _run_to_end(
    query: StreamingQuery, progress: Progress, tick: Callable[[], None], stopping: threading.Event | None
) -> None:
    """Waits until the query has ended or `stopping` is set, stops the query, and lets the listener learn of the end."""
    try:
        _wait_for_end(query, tick, stopping)
    finally:
        query.stop()
        progress.ended.wait(_LAST_WORDS_SECONDS)


def _wait_for_end(query: StreamingQuery, tick: Callable[[], None], stopping: threading.Event | None) -> None:
    """Waits until the query has ended or `stopping` is set."""
    while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]
        tick()
        if stopping is not None and stopping.is_set():
            break


def _cause(store: Store, error: Exception) -> Exception | None:
    """Returns the error to report for a failed batch, or None for an error that Spark reports itself.

    A process that takes over the lease removes the folders of this process's batch. A step of Spark may therefore fail
    before this process notices that it has lost the lease.
    """
    try:
        with suppress(FolderError):
            store.check_lease()
    except LeaseLostError as lost:
        return lost
    return error if isinstance(error, RowCountError | FolderError) else None
