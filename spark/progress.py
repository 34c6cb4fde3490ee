"""Keeps the health of the stream and logs one line per batch.

Spark calls a listener in a thread of its own, some time after a batch has ended.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)


@dataclass(frozen=True, kw_only=True)
class StreamHealth:
    """The known state of a streaming query.

    Attributes:
        name: the query's name; None if the query has no name.
        query: the query's id, which stays the same over restarts.
        batch: number of the last batch; -1 before the first.
        batches: how many batches were done since the start.
        input_rows: lines in the last batch.
        total_rows: lines in all batches since the start.
        rows_per_second: rate of the last batch.
        seconds: the duration of the last batch as a whole (`triggerExecution`) and of each of its parts.
        source_backlog: the backlog of the source after the last batch, by Spark's names, such as
            `maxOffsetsBehindLatest`.
        last_progress: when the query last did a batch or found nothing to do, in seconds since the epoch.
        failure: why the query ended, in one line; None if it has not ended, or if it was stopped on request.
    """

    name: str | None = None
    query: str = ""
    batch: int = -1
    batches: int = 0
    input_rows: int = 0
    total_rows: int = 0
    rows_per_second: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    source_backlog: Mapping[str, float] = field(default_factory=dict)
    last_progress: float | None = None
    failure: str | None = None

    @property
    def batch_seconds(self) -> float:
        """The duration of the last batch, in seconds."""
        return self.seconds.get("triggerExecution", 0.0)

    def __str__(self) -> str:
        rate = f" ({self.rows_per_second:.0f}/s)" if self.rows_per_second else ""
        source_backlog = "".join(f", {name} {value:g}" for name, value in sorted(self.source_backlog.items()))
        return f"batch {self.batch}: {self.input_rows} lines{rate} in {self.batch_seconds:.1f} s{source_backlog}"


class Progress(StreamingQueryListener):
    """Keeps the health of one query.

    Args:
        log: called with a line for each batch, and with a line for a failure.
        clock: the time, in seconds since the epoch.
    """

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self.health = StreamHealth()
        self.ended = threading.Event()
        """Set when the query has terminated."""
        self._log = log
        self._clock = clock

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self.health = StreamHealth(name=event.name, query=str(event.id), last_progress=self._clock())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        if progress.batchId == self.health.batch and not progress.numInputRows:
            self.health = replace(self.health, last_progress=self._clock())
            return
        rate = progress.processedRowsPerSecond
        self.health = replace(
            self.health,
            batch=progress.batchId,
            batches=self.health.batches + 1,
            input_rows=progress.numInputRows,
            total_rows=self.health.total_rows + progress.numInputRows,
            rows_per_second=rate if math.isfinite(rate) else 0.0,
            seconds={name: milliseconds / 1000 for name, milliseconds in progress.durationMs.items()},
            source_backlog=_source_backlog(progress),
            last_progress=self._clock(),
        )
        self._log(str(self.health))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        self.health = replace(self.health, last_progress=self._clock())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if event.exception is not None:
            self.health = replace(self.health, failure=event.exception.strip().splitlines()[0])
            self._log(f"the stream ended: {self.health.failure}")
        self.ended.set()


def _source_backlog(progress: StreamingQueryProgress) -> dict[str, float]:
    offsets: dict[str, float] = {}
    for source in progress.sources:
        for name, value in source.metrics.items():
            try:
                number = float(value)
            except ValueError:
                continue
            if math.isfinite(number):
                offsets[name] = number
    return offsets
