"""The listener's metrics of a real query, and of unusual progress reports."""

import threading
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from group_sidecar.spark.progress import Progress, StreamHealth


def query(spark: SparkSession, folder: Path, fails: str = "") -> StreamingQuery:
    """Starts a query with one batch of two lines. With `fails`, the batch raises this error."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "lines.txt").write_text("1\n2\n")

    def take(lines: DataFrame, _: int) -> None:
        if fails:
            raise ValueError(fails)
        lines.collect()

    writer = spark.readStream.text(str(folder / "in")).writeStream.queryName("tiny").foreachBatch(take)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def test_query_progress_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    """The listener reports a query's batches, rows and durations until it ends."""
    lines: list[str] = []
    progress = Progress(lines.append, clock=lambda: 7.0)
    spark.streams.addListener(progress)
    try:
        done = query(spark, tmp_path)
        assert done.awaitTermination(100)
        assert progress.ended.wait(100)
    finally:
        spark.streams.removeListener(progress)
    health = progress.health
    assert (health.name, health.query) == ("tiny", str(done.id))
    assert (health.batch, health.batches, health.input_rows, health.total_rows) == (0, 1, 2, 2)
    assert health.rows_per_second > 0
    assert health.batch_seconds == health.seconds["triggerExecution"] > 0
    assert (health.last_progress, health.failure) == (7.0, None)
    assert len(lines) == 1
    assert lines[0].startswith("batch 0: 2 lines (")


def test_failure_is_reported_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    """A failed query is reported in one line."""
    lines: list[str] = []
    progress = Progress(lines.append)
    spark.streams.addListener(progress)
    try:
        with pytest.raises(StreamingQueryException, match="the disk is full"):
            query(spark, tmp_path, fails="the disk is full").awaitTermination()
        assert progress.ended.wait(100)
    finally:
        spark.streams.removeListener(progress)
    assert progress.health.failure
    assert lines[-1] == f"the stream ended: {progress.health.failure}"
    assert "\n" not in lines[-1]


def test_source_backlog_is_reported() -> None:
    """The health text contains the backlog of the source."""
    health = StreamHealth(
        batch=3, input_rows=10, seconds={"triggerExecution": 2.0}, source_backlog={"maxOffsetsBehindLatest": 40.0}
    )
    assert str(health) == "batch 3: 10 lines in 2.0 s, maxOffsetsBehindLatest 40"


def test_no_progress_before_query_starts() -> None:
    """Before a query starts, the health is empty and the end event is not set."""
    progress = Progress(lambda _: None)
    assert progress.health == StreamHealth()
    assert isinstance(progress.ended, threading.Event)
    assert not progress.ended.is_set()
