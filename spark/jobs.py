"""What the subcommands do, in a Spark session that is there.

Owns: which parts work together for each. Must not know: how arguments are spelled on the command line.
"""

import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark import sources
from group_sidecar.spark.folders import Folders
from group_sidecar.spark.lease import held
from group_sidecar.spark.progress import Progress
from group_sidecar.spark.refresh import Refreshed, answer, replay
from group_sidecar.spark.showing import show_json, show_table
from group_sidecar.spark.sources import KafkaTopic
from group_sidecar.spark.store import PARQUET, Store
from group_sidecar.spark.stream import stream
from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.survey import survey
from group_sidecar.spark.textfile import Textfile

Source = str | KafkaTopic
"""A folder with segments, or a topic."""
_SURVEY_SECONDS = 600.0
"""How often a stream looks after what it passes over: it lists all segments."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """What ``run`` is asked for.

    Attributes:
        source: where lines come from.
        output: folder of the store; None to use one that is removed at the end.
        trigger: how often new lines are looked for, as Spark writes an interval; None to take what is there, and end.
        window: how wide windows are, as Spark writes an interval.
        retention: how old days may be; None keeps all.
        format: of the tables.
        textfile: where figures for Prometheus go.
        show: the summary that is printed at the end; None for none.
        json: whether it is printed as JSON lines.
        limit: how many rows of it are printed otherwise.
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


def run(spark: SparkSession, chosen: Running) -> None:
    """Takes lines into the store, once or from now on; then prints a summary.

    Raises:
        AnalysisException: there is no such input, or Spark lacks its Kafka connector.
        StoreError: the store cannot be used so.
        LeaseTakenError: another process writes to the store.
        LeaseLostError: another process has taken over, because this one gave no sign of life.
        StreamingQueryException, CountError, FolderError: a batch failed.
    """
    with _folder(chosen.output) as output, held(Folders(spark, output)) as lease:
        store = Store(spark, output, chosen.format, chosen.window, retention=chosen.retention, lease=lease)
        _recover(store)
        tally = _Tally()
        _take(spark, store, chosen, tally)
        if chosen.trigger is None:
            _log(str(tally))
        if chosen.show:
            _show(store.read, chosen.show, chosen)


def run_replay(spark: SparkSession, source: Source, output: str, since: datetime, until: datetime) -> None:
    """Answers the hours from `since` to `until` again, with what the source has of them.

    Raises:
        AnalysisException: there is no such input, or Spark lacks its Kafka connector.
        StoreError: there is no store.
        LeaseTakenError: another process writes to the store.
        LeaseLostError: another process has taken over, because this one gave no sign of life.
        CountError, FolderError: the store could not be written to.
    """
    Store.opened(spark, output)
    with held(Folders(spark, output)) as lease:
        store = Store.opened(spark, output, lease)
        _recover(store)
        lines = sources.kafka(spark, source) if isinstance(source, KafkaTopic) else sources.files(spark, source)
        replayed = replay(store, lines, since, until)
    _log(f"{replayed.records} records, {len(replayed.hours)} hours answered again")


def _recover(store: Store) -> None:
    hours = sorted(store.recover())
    if hours:
        _log(f"an earlier run ended before its records were in place: they are now, in {len(hours)} hours")
        answer(store, hours)


def _take(spark: SparkSession, store: Store, chosen: Running, tally: "_Tally") -> None:
    if isinstance(chosen.source, KafkaTopic):
        lines = sources.kafka_stream(spark, chosen.source)
    else:
        lines = sources.files_stream(spark, chosen.source)
    progress = Progress(_log if chosen.trigger else lambda _: None)
    textfile = Textfile(chosen.textfile, store) if chosen.textfile else None

    def told(refreshed: Refreshed) -> None:
        tally.add(refreshed)
        for warning in refreshed.warnings:
            _log(f"warning: {warning}")
        if textfile:
            textfile.count(refreshed)

    surveyor = _Surveyor(spark, store, None if isinstance(chosen.source, KafkaTopic) else chosen.source, told)

    def tick() -> None:
        if textfile:
            textfile.write(progress.health)
        surveyor.tick()

    with _signals() as stopping:
        try:
            stream(store, lines, progress, trigger=chosen.trigger, told=told, tick=tick, stopping=stopping)
            if chosen.trigger is None and not stopping.is_set():
                surveyor.look()
        finally:
            if textfile:
                textfile.write(progress.health)


class _Surveyor:
    """Takes what the stream passes over, and prints each warning once.

    Args:
        folder: with segments; None where lines come from a topic.
        told: hears what changed segments brought.
    """

    def __init__(
        self, spark: SparkSession, store: Store, folder: str | None, told: Callable[[Refreshed], None]
    ) -> None:
        self._spark = spark
        self._store = store
        self._folder = folder
        self._told = told
        self._warned: set[str] = set()
        self._looked = time.monotonic()

    def tick(self) -> None:
        """Looks, if it is time to and no batch is being taken."""
        if time.monotonic() - self._looked < _SURVEY_SECONDS or not self._store.writing.acquire(blocking=False):
            return
        try:
            self.look()
        except PySparkException as error:
            # The stream itself may do better; it says so if not.
            _log(f"warning: could not look after what is passed over: {str(error).splitlines()[0]}")
        finally:
            self._store.writing.release()
            self._looked = time.monotonic()

    def look(self) -> None:
        """Looks now."""
        found = survey(self._spark, self._store, self._folder)
        if found.taken:
            self._told(found.taken)
        for warning in found.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                _log(f"warning: {warning}")


def _show(read: Callable[[str], DataFrame], name: str, chosen: Running) -> None:
    shown = SUMMARIES[name]
    answer = shown.ask(read)
    if chosen.json:
        show_json(answer, shown)
    else:
        show_table(answer, shown, chosen.limit)


@dataclass
class _Tally:
    """What all batches brought."""

    records: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)

    def add(self, refreshed: Refreshed) -> None:
        self.records += refreshed.records
        self.quarantined.update(refreshed.quarantined)

    def __str__(self) -> str:
        faults = ", ".join(f"{fault} {count}" for fault, count in sorted(self.quarantined.items()))
        lines = f"{self.records} records, {self.quarantined.total()} lines in quarantine"
        return lines + (f" ({faults})" if faults else "")


@contextmanager
def _folder(output: str | None) -> Iterator[str]:
    if output is not None:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="group-sidecar-fleet-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).as_uri()


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """SIGTERM and SIGINT set the event, instead of what PySpark makes of them; in the main thread only."""
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


def _log(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
