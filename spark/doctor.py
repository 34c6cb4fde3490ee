"""Examines a store, and the journals if they are given: what an operator must do.

The examination only reads. It takes no lease, so it can run while another process writes to the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark import doctor_checks as checks
from group_sidecar.spark.doctor_checks import CheckResult, Finding
from group_sidecar.spark.filesystem import Folders
from group_sidecar.spark.journal_files import file_problems
from group_sidecar.spark.lease import LeaseStatus, lease_status
from group_sidecar.spark.missed_segments import duplicate_sidecar_ids
from group_sidecar.spark.report.collected_rows import Rows
from group_sidecar.spark.store import Store
from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.tables import TableReader

LOOK_BACK = timedelta(days=1)
"""The length of the range that is examined, if its beginning is not given."""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The options of ``doctor``.

    Attributes:
        output: folder of the store.
        journals: the folder with the segments; None to examine only the store.
        since: the beginning of the range; None for `LOOK_BACK` before its end.
        until: the end of the range; None for the newest record.
        json: whether the result is printed as JSON lines.
        limit: the maximum number of sidecars, and of findings of each check.
    """

    output: str
    journals: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    json: bool = False
    limit: int = 100


@dataclass(frozen=True, kw_only=True)
class Examination:
    """The result of an examination.

    Attributes:
        now: the time of the examination.
        since: the beginning of the range; None if the range has no beginning because the store has no records.
        until: the end of the range; None for no end.
        newest: the time of the newest record of the whole store; None if the store has no records.
        last_batch: when the last batch of a run or stream was completed; None if that is not known.
        lease: the newest lease; None if no process has ever had a lease.
        attempts: the names of the unfinished write attempts.
        sidecars: the first rows of the summary `sidecars`, the worst first.
        results: the findings of each check.
    """

    now: datetime
    since: datetime | None
    until: datetime | None
    newest: datetime | None
    last_batch: datetime | None
    lease: LeaseStatus | None
    attempts: Sequence[str]
    sidecars: Rows
    results: Sequence[CheckResult]

    @property
    def findings(self) -> list[Finding]:
        """All findings, in the order of the checks."""
        return [finding for result in self.results for finding in result.findings]


def examine(spark: SparkSession, options: DoctorOptions, now: datetime | None = None) -> Examination:
    """Examines a store. Changes nothing.

    Args:
        spark: the session.
        options: the store, the range and the limits.
        now: the current time; the clock's time if None.

    Raises:
        StoreError: there is no store.
        AnalysisException: the folder with the segments does not exist.
        FolderError: the file system does not respond.
    """
    now = now or datetime.now(UTC)
    store, folders = Store.opened(spark, options.output), Folders(spark, options.output)
    # The attempts belong to no running process if the same lease is free before and after they are listed.
    before, attempts, lease = lease_status(folders, now), store.unfinished_attempts(), lease_status(folders, now)
    newest, last_batch = _newest_record(store), store.last_batch_at()
    end = options.until or newest
    since = options.since or (None if end is None else end - LOOK_BACK)
    sidecars, results = _sidecars(store, since, options)
    return Examination(
        now=now,
        since=since,
        until=options.until,
        newest=newest,
        last_batch=last_batch,
        lease=lease,
        attempts=attempts,
        sidecars=sidecars,
        results=[
            checks.stale_store(now, newest, last_batch, lease),
            *results,
            checks.quarantined_lines(SUMMARIES["quarantine"].compute(_reader(store, since, options.until))),
            *_journals(spark, store, options, now),
            checks.unfinished_writes(before, attempts, lease),
        ],
    )


def _newest_record(store: Store) -> datetime | None:
    """Returns the time of the newest record in the tables; None if the newest day of the tables has no records."""
    hour = store.newest_hour()
    if hour is None:
        return None
    newest = F.unix_micros(F.max("last_record")).alias("micros")
    (row,) = store.read("sidecars", hour - LOOK_BACK).agg(newest).collect()
    return None if row["micros"] is None else datetime.fromtimestamp(row["micros"] / 1e6, UTC)


def _sidecars(store: Store, since: datetime | None, options: DoctorOptions) -> tuple[Rows, Sequence[CheckResult]]:
    """Returns the first rows of the summary `sidecars`, and the findings about sidecars."""
    summary = SUMMARIES["sidecars"].compute(_reader(store, since, options.until))
    worst, results = checks.worst_sidecars(summary, options.limit)
    ids = [] if since is None else duplicate_sidecar_ids(store, since, options.until)
    return worst, [*results, checks.shared_ids(ids, options.limit)]


def _journals(spark: SparkSession, store: Store, options: DoctorOptions, now: datetime) -> Sequence[CheckResult]:
    if options.journals is None:
        return ()
    return checks.journal_files(file_problems(spark, store.ledger, options.journals), now, options.limit)


def _reader(store: Store, since: datetime | None, until: datetime | None) -> TableReader:
    def read(table: str) -> DataFrame:
        return store.read(table, since, until)

    return read
