"""Runs the subcommands in an existing Spark session. `cli` parses the arguments."""

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark import line_sources
from group_sidecar.spark.doctor import DoctorOptions, examine
from group_sidecar.spark.doctor_output import show_examination, show_examination_json
from group_sidecar.spark.filesystem import Folders
from group_sidecar.spark.ingest import IngestResult, replay
from group_sidecar.spark.job_outcome import JobOutcome
from group_sidecar.spark.lease import hold_lease
from group_sidecar.spark.line_parsing import Fault
from group_sidecar.spark.line_sources import KafkaTopic
from group_sidecar.spark.missed_segments import missed_segments
from group_sidecar.spark.output import show_json, show_table
from group_sidecar.spark.progress import Progress
from group_sidecar.spark.recompute import compute_tables
from group_sidecar.spark.requeue import CURABLE, requeue
from group_sidecar.spark.store import PARQUET, Store
from group_sidecar.spark.store_settings import read_settings
from group_sidecar.spark.stream import stream
from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.textfile import Textfile

Source = str | KafkaTopic
"""A folder with segments, or a topic."""
_CHECK_SECONDS = 600.0
"""Seconds between two checks for segments that the stream has missed. Each check lists all segments."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of ``run``.

    Attributes:
        source: where lines are read from.
        output: folder of the store; None for a temporary one.
        trigger: the interval between batches in Spark's notation; None to read the available lines and end.
        window: the width of windows in Spark's notation.
        retention: the maximum age of days; None to keep all days.
        format: the format of the tables.
        textfile: the file to which metrics for Prometheus are written.
        show: the summary that is printed at the end; None to print no summary.
        json: whether the summary is printed as JSON lines.
        limit: the maximum number of printed rows of the summary if it is not printed as JSON.
    """

    source: Source
    output: str | None = None
    trigger: str | None = None
    window: str = "5 minutes"
    retention: timedelta | None = None
    format: str = PARQUET
    textfile: Path | None = None
    show: str | None = None
    json: bool = False
    limit: int = 100


def run(spark: SparkSession, options: RunOptions, outcome: JobOutcome | None = None) -> None:
    """Writes lines to the store, once or continuously, and then prints a summary.

    Args:
        spark: the session.
        options: the options.
        outcome: what the job has done is added to this object, also if the job fails.

    Raises:
        AnalysisException: the input does not exist, or Spark lacks its Kafka connector.
        StoreError: the store cannot be used with these options.
        LeaseTakenError: another process writes to the store.
        LeaseLostError: another process took over the lease, because this one did not renew it in time.
        StreamingQueryException, RowCountError, FolderError: a batch failed.
    """
    outcome = outcome or JobOutcome()
    with _folder(options.output) as output:
        # The lease writes a file, and a store that this version does not know must stay as it is.
        read_settings(Folders(spark, output))
        with hold_lease(Folders(spark, output)) as lease:
            store = Store(spark, output, options.format, options.window, retention=options.retention, lease=lease)
            _recover(store, outcome)
            _ingest(spark, store, options, outcome)
            if options.trigger is None:
                _log(str(outcome))
            if options.show:
                _show(store.read, options.show, options)


def run_replay(
    spark: SparkSession,
    source: Source,
    output: str,
    since: datetime,
    until: datetime,
    outcome: JobOutcome | None = None,
) -> None:
    """Computes the hours from `since` to `until` again, from the stored records and the source's lines.

    Args:
        spark: the session.
        source: where lines are read from.
        output: folder of the store.
        since: the beginning of the first hour.
        until: the end of the last hour.
        outcome: what the job has done is added to this object, also if the job fails.

    Raises:
        AnalysisException: the input does not exist, or Spark lacks its Kafka connector.
        StoreError: there is no store.
        LeaseTakenError: another process writes to the store.
        LeaseLostError: another process took over the lease, because this one did not renew it in time.
        RowCountError, FolderError: the store could not be written to.
    """
    outcome = outcome or JobOutcome()
    Store.opened(spark, output)
    with hold_lease(Folders(spark, output)) as lease:
        store = Store.opened(spark, output, lease)
        _recover(store, outcome)
        lines = (
            line_sources.kafka(spark, source) if isinstance(source, KafkaTopic) else line_sources.files(spark, source)
        )
        replayed = replay(store, lines, since, until)
        outcome.add(replayed)
    _log(f"{replayed.records} records, {len(replayed.hours)} hours computed again")


@dataclass(frozen=True, kw_only=True)
class RequeueOptions:
    """The options of ``requeue``.

    Attributes:
        output: folder of the store.
        faults: the faults of the lines that are judged again.
        since: lines that arrived in earlier hours are left out; None for no limit.
        until: lines that arrived in hours that begin at this time or later are left out; None for no limit.
        retention: the maximum age of records; None to accept records of any age.
    """

    output: str
    faults: Collection[Fault] = CURABLE
    since: datetime | None = None
    until: datetime | None = None
    retention: timedelta | None = None


def run_requeue(spark: SparkSession, options: RequeueOptions, outcome: JobOutcome | None = None) -> None:
    """Judges quarantined lines again, and stores the lines that are records now.

    Args:
        spark: the session.
        options: the options.
        outcome: what the job has done is added to this object, also if the job fails.

    Raises:
        StoreError: there is no store.
        LeaseTakenError: another process writes to the store.
        LeaseLostError: another process took over the lease, because this one did not renew it in time.
        RowCountError, FolderError: the store could not be written to.
    """
    outcome = outcome or JobOutcome()
    Store.opened(spark, options.output)
    with hold_lease(Folders(spark, options.output)) as lease:
        store = Store.opened(spark, options.output, lease, retention=options.retention)
        _recover(store, outcome)
        done = requeue(store, options.faults, options.since, options.until)
        outcome.records += done.records
        outcome.hours.update(done.hours)
    if done.unfinished:
        _warn(outcome, "lines of a batch that was interrupted are left out: the next run judges them again")
    stay = done.judged - done.taken
    _log(f"{done.judged} lines judged again: {done.taken} are records now, {stay} stay in quarantine")


def run_doctor(spark: SparkSession, options: DoctorOptions) -> bool:
    """Examines a store, and prints the result. Returns whether there is a finding.

    Raises:
        StoreError: there is no store.
        AnalysisException: the folder with the segments does not exist.
        FolderError: the file system does not respond.
    """
    found = examine(spark, options)
    if options.json:
        show_examination_json(found)
    else:
        show_examination(found)
    return bool(found.findings)


def _recover(store: Store, outcome: JobOutcome) -> None:
    def complete(hours: Collection[datetime]) -> None:
        _log(f"the records of an interrupted run are stored now, in {len(hours)} hours")
        compute_tables(store, sorted(hours))
        outcome.recovered = True
        outcome.hours.update(hours)

    store.recover(complete)


def _ingest(spark: SparkSession, store: Store, options: RunOptions, outcome: JobOutcome) -> None:
    if isinstance(options.source, KafkaTopic):
        lines = line_sources.kafka_stream(spark, options.source)
    else:
        lines = line_sources.files_stream(spark, options.source)
    progress = Progress(_log if options.trigger else lambda _: None)
    textfile = Textfile(options.textfile, store) if options.textfile else None

    def on_batch(result: IngestResult) -> None:
        outcome.add(result)
        for warning in result.warnings:
            _warn(outcome, warning)
        if textfile:
            textfile.count(result)

    folder = None if isinstance(options.source, KafkaTopic) else options.source
    checker = _MissedSegmentsChecker(spark, store, folder, on_batch, outcome)

    def tick() -> None:
        if textfile:
            textfile.write(progress.health)
        checker.tick()

    with _signals() as stopping:
        try:
            stream(store, lines, progress, trigger=options.trigger, on_batch=on_batch, tick=tick, stopping=stopping)
            if options.trigger is None:
                if stopping.is_set():
                    _warn(outcome, "a signal ended the run before it had read all lines")
                else:
                    checker.look()
        finally:
            if textfile:
                textfile.write(progress.health)


class _MissedSegmentsChecker:
    """Ingests segments that the stream has missed, and logs each warning once.

    Args:
        spark: the session.
        store: the store.
        folder: the folder with the segments; None if lines come from a topic.
        on_batch: called with the outcome of ingesting changed segments.
        outcome: the outcome of the job, to which warnings are added.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        folder: str | None,
        on_batch: Callable[[IngestResult], None],
        outcome: JobOutcome,
    ) -> None:
        self._spark = spark
        self._store = store
        self._folder = folder
        self._on_batch = on_batch
        self._outcome = outcome
        self._warned: set[str] = set()
        self._looked = time.monotonic()

    def tick(self) -> None:
        """Runs a check if it is due and no batch is being written."""
        if time.monotonic() - self._looked < _CHECK_SECONDS or not self._store.writing.acquire(blocking=False):
            return
        try:
            self.look()
        except PySparkException as error:
            # Only the check has failed. The stream itself reports its failures.
            _warn(self._outcome, f"the check for missed segments failed: {str(error).splitlines()[0]}")
        finally:
            self._store.writing.release()
            self._looked = time.monotonic()

    def look(self) -> None:
        """Runs a check now."""
        found = missed_segments(self._spark, self._store, self._folder)
        if found.taken:
            self._on_batch(found.taken)
        for warning in found.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                _warn(self._outcome, warning)


def _show(read: Callable[[str], DataFrame], name: str, options: RunOptions) -> None:
    summary = SUMMARIES[name]
    answer = summary.compute(read)
    if options.json:
        show_json(answer, summary)
    else:
        show_table(answer, summary, options.limit)


@contextmanager
def _folder(output: str | None) -> Iterator[str]:
    if output is not None:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="group-sidecar-fleet-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).as_uri()


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Yields an event that SIGTERM and SIGINT set until the block ends. Outside the main thread, no signal sets it."""
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    def stop(_: int, __: FrameType | None) -> None:
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _warn(outcome: JobOutcome, warning: str) -> None:
    outcome.warnings.append(warning)
    _log(f"warning: {warning}")


def _log(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
