"""The stream: batches of lines into the store, until there are none or somebody ends it.

Owns: the query, its checkpoint and its end. Must not know: what becomes of a batch in the store.

`foreachBatch` does a batch at least once and gives it the same number when it is done again; `refresh` makes of that
exactly once. How far the stream is, Spark writes down when a batch is done, never before.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from group_sidecar.spark.attempts import CountError
from group_sidecar.spark.folders import FolderError
from group_sidecar.spark.lease import LeaseLostError
from group_sidecar.spark.progress import Progress
from group_sidecar.spark.refresh import Refreshed, refresh
from group_sidecar.spark.store import Store

NAME = "fleet"
_POLL_SECONDS = 0.5
_LAST_WORDS_SECONDS = 10.0
"""How long the listener may take to hear of the end."""


def stream(
    store: Store,
    lines: DataFrame,
    progress: Progress,
    *,
    trigger: str | None,
    told: Callable[[Refreshed], None],
    tick: Callable[[], None] = lambda: None,
    stopping: threading.Event | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Takes lines into the store, going on where the store's checkpoint says.

    Args:
        store: where to.
        lines: a streaming frame, `value` STRING and `arrived_at` TIMESTAMP.
        progress: hears of the query.
        trigger: how often it looks for new lines, as Spark writes an interval; None to take what is there, and end.
        told: hears what each batch brought.
        tick: is called twice a second.
        stopping: ends the stream; a batch that is under way will be done again.
        clock: the time.

    Raises:
        StreamingQueryException: a batch failed. It will be done again by the next run.
        CountError, FolderError, LeaseLostError: the same, because of the store.
    """
    failures: list[Exception] = []

    def take(batch_of_lines: DataFrame, batch: int) -> None:
        try:
            told(refresh(store, batch_of_lines, batch, clock()))
        except (CountError, FolderError, LeaseLostError) as error:
            # Spark would only say that some function failed.
            failures.append(error)
            raise

    spark = lines.sparkSession
    spark.streams.addListener(progress)
    try:
        writer = lines.writeStream.queryName(NAME).option("checkpointLocation", store.checkpoint).foreachBatch(take)
        writer = writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)
        query = writer.start()
        try:
            while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]
                tick()
                if stopping is not None and stopping.is_set():
                    break
        except StreamingQueryException:
            if failures:
                raise failures[0] from None
            raise
        finally:
            query.stop()
            progress.ended.wait(_LAST_WORDS_SECONDS)
    finally:
        spark.streams.removeListener(progress)
