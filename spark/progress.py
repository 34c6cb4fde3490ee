"""How the stream itself is doing.

Owns: what Spark tells of the query, and the line that is logged of each batch. Must not know: what the records say.

Spark calls a listener from a thread of its own, some time after a batch has ended.
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
class Health:
    """What is known of the query.

    Attributes:
        name: its name, null if it has none.
        query: its id, which it keeps over restarts.
        batch: number of the last batch; -1 before the first.
        batches: how many batches it has done since it was started.
        input_rows: lines in the last batch.
        total_rows: lines in all batches since it was started.
        rows_per_second: of the last batch.
        seconds: how long the last batch took, in all (`triggerExecution`) and each part of it.
        behind: what waits in the source after the last batch: `maxOffsetsBehindLatest` and the like, as it calls them.
        last_progress: when it last did a batch or found that there is nothing to do, in seconds since the epoch.
        failure: why it ended, in one line; null if it did not, or was told to.
    """

    name: str | None = None
    query: str = ""
    batch: int = -1
    batches: int = 0
    input_rows: int = 0
    total_rows: int = 0
    rows_per_second: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    behind: Mapping[str, float] = field(default_factory=dict)
    last_progress: float | None = None
    failure: str | None = None

    @property
    def batch_seconds(self) -> float:
        """How long the last batch took."""
        return self.seconds.get("triggerExecution", 0.0)

    def __str__(self) -> str:
        rate = f" ({self.rows_per_second:.0f}/s)" if self.rows_per_second else ""
        behind = "".join(f", {name} {value:g}" for name, value in sorted(self.behind.items()))
        return f"batch {self.batch}: {self.input_rows} lines{rate} in {self.batch_seconds:.1f} s{behind}"


class Progress(StreamingQueryListener):
    """Keeps the health of one query.

    Args:
        log: is given the line on each batch, and on a failure.
        clock: the time, in seconds since the epoch.
    """

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self.health = Health()
        self.ended = threading.Event()
        """Set when Spark has told all it will."""
        self._log = log
        self._clock = clock

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self.health = Health(name=event.name, query=str(event.id), last_progress=self._clock())

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
            behind=_behind(progress),
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


def _behind(progress: StreamingQueryProgress) -> dict[str, float]:
    told: dict[str, float] = {}
    for source in progress.sources:
        for name, value in source.metrics.items():
            try:
                number = float(value)
            except ValueError:
                continue
            if math.isfinite(number):
                told[name] = number
    return told
