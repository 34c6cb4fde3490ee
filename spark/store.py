"""The fleet's tables on disk: records and quarantined lines, and the tables that are computed from them, by hour.

The store defines its folders, replaces hours of tables, compacts closed hours and drops old days. `write_attempts`
moves a batch to its place. Only the process that holds the store's lease may write.

    store.json                          the format, window and layout of the store
    records/day=.../hour=.../batch=...  accepted records (`batch_store`), in Parquet for every format of the tables
    quarantine/day=.../hour=.../batch=...
    <table>/day=.../hour=...            the rows of a table for that hour
    checkpoint/                         the position of the stream
    _lease/                             the process that may write
    ledger/                             the segments that were read
    _attempts/<batch>.<attempt>/        a batch that is not in its place yet
    _attempts/tables.<attempt>/         the rows of a table that are not in their place yet
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from threading import RLock
from zlib import crc32

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from group_sidecar.spark import line_parsing
from group_sidecar.spark.batch_store import Batch, BatchStore, day_and_hour, empty
from group_sidecar.spark.duplicates import deduplicated
from group_sidecar.spark.filesystem import HOUR, Folders, day_folder, hour_folder
from group_sidecar.spark.lease import Lease
from group_sidecar.spark.segment_ledger import SegmentLedger
from group_sidecar.spark.store_settings import StoreError, StoreSettings, read_settings, write_settings
from group_sidecar.spark.tables import RECORDS, TABLES
from group_sidecar.spark.write_attempts import ComputeTables, WriteAttempts, WriteResult

PARQUET = "parquet"
ICEBERG = "iceberg"
QUARANTINE = "quarantine"
CHECKPOINT = "checkpoint"
_COMMITS = f"{CHECKPOINT}/commits"
"""Spark's files of completed batches, each named by the number of its batch."""
CLOSED_AFTER = timedelta(hours=2)
"""An hour is compacted at the earliest this long after its end. The next compaction also merges records that arrive
later."""
_BY_KIND = ("kind", "sidecar", "boot", "seq")
"""The order of compacted records. A query reads records of only some kinds, so records of a kind are adjacent."""


class Store:
    """Records, quarantine and tables below one folder.

    Args:
        spark: the session.
        path: a folder or URL, which is created if it does not exist.
        format: the format of the tables: parquet, or another format that this Spark can write and in which it can
            replace partitions.
        window: the width of windows in Spark's notation. The width divides an hour.
        retention: days older than this are dropped; None to keep all days.
        lease: the right to write; None if no other process uses the store, or to read only.

    Attributes:
        ledger: the segments that were read.
        writing: a lock that is held by the thread that writes a batch.
        check_lease: raises LeaseLostError if this process may no longer write.

    Raises:
        StoreError: the store was created with another window or format, or by a newer version of the job; its settings
            are damaged; the window does not divide an hour; or Spark lacks the format.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        format: str = PARQUET,
        window: str = "5 minutes",
        *,
        retention: timedelta | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.window = window
        self.width = _width(window)
        self.retention = retention
        self._tidied: datetime | None = None
        self._spark = spark
        self._format = format
        self._folders = Folders(spark, path)
        self.check_lease: Callable[[], None] = lease.check if lease else lambda: None
        self._catalog = _catalog(spark, self._folders.root) if format == ICEBERG else None
        self._check_made_with()
        self.ledger = SegmentLedger(spark, self._folders, self.check_lease)
        self.writing = RLock()
        self._schemas: dict[str, StructType] = {}
        self._records = BatchStore(
            spark, self._folders, RECORDS, _records_schema(), deduplicated, _BY_KIND, self.check_lease
        )
        self._quarantine = BatchStore(
            spark, self._folders, QUARANTINE, _quarantine_schema(), each_line_once, ("fault",), self.check_lease
        )
        token = lease.token if lease else 0
        self._attempts = WriteAttempts(spark, self._folders, self._records, self._quarantine, token, self.check_lease)

    @classmethod
    def opened(
        cls, spark: SparkSession, path: str, lease: Lease | None = None, *, retention: timedelta | None = None
    ) -> "Store":
        """Opens an existing store with the format and window that it was created with.

        Args:
            spark: the session.
            path: a folder or URL.
            lease: the right to write; None to read only.
            retention: the maximum age of days; None to keep all days.

        Raises:
            StoreError: there is no store, or this version of the job cannot read it.
        """
        made = read_settings(Folders(spark, path))
        if made is None:
            raise StoreError(f"there are no tables in {path}")
        return cls(spark, path, made.format, made.window, retention=retention, lease=lease)

    @property
    def checkpoint(self) -> str:
        """The URL of the folder in which a stream records its position."""
        return self._folders.url(CHECKPOINT)

    def add(
        self,
        batch: Batch,
        judged: DataFrame,
        now: datetime,
        *,
        replaced: Collection[str] = (),
        compute_tables: ComputeTables = lambda _: None,
    ) -> WriteResult:
        """Writes the lines of a batch. Arguments and exceptions are those of `WriteAttempts.add`."""
        return self._attempts.add(batch, judged, now, replaced=replaced, compute_tables=compute_tables)

    def recover(self, compute_tables: ComputeTables = lambda _: None) -> set[datetime]:
        """Completes the attempts of processes that have died. Returns the hours with new records.

        `compute_tables`: called with these hours, if there are any.
        """
        return self._attempts.recover(compute_tables)

    def unfinished_attempts(self) -> list[str]:
        """Returns the sorted names of the write attempts that are in progress, or whose process has died."""
        return self._attempts.unfinished()

    def last_batch_at(self) -> datetime | None:
        """Returns when the last batch of a run or stream was completed; None if there is none or it is not known."""
        number = self._last_batch()
        at = None if number < 0 else self._folders.modified_at(f"{_COMMITS}/{number}")
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def quarantine_folders(
        self, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[list[str], list[str]]:
        """Returns the folders with quarantined lines that arrived in the hours of a range of time.

        Returns:
            The folders of batches that are done, and those of the batch that the next run repeats.
        """
        return self._quarantine.folders_of(self._folders.hours(QUARANTINE, since, until), self._last_batch())

    def quarantined(self, folders: Sequence[str]) -> DataFrame:
        """Returns the lines of folders of the quarantine, each with its `folder` and its `folder_hour`."""
        return self._quarantine.read_folders(folders)

    def records(self, hours: Iterable[datetime]) -> DataFrame:
        """Returns the records of these hours. A record that arrived twice may occur twice."""
        return self._records.read(hours)

    def replace(self, table: str, rows: DataFrame, hours: Iterable[datetime]) -> None:
        """Replaces the rows of a table for these hours. `rows` contains only rows of these hours."""
        self._schemas[table] = rows.schema
        # With this hint, Spark writes few files for a small table, and several files for a large hour.
        placed = rows.select("*", *day_and_hour(F.col("window"))).hint("rebalance", "day", "hour")
        if self._format != PARQUET:
            self.check_lease()
            self._hand_over(table, placed)
            return
        attempt = self._attempts.folder("tables")
        placed.write.partitionBy("day", "hour").parquet(self._folders.url(f"{attempt}/{table}"))
        for hour in hours:
            self.check_lease()
            folder = hour_folder(hour)
            by, aside = f"{attempt}/{table}/{folder}", f"{attempt}/replaced/{folder}"
            self._folders.replace(f"{table}/{folder}", by=by, aside=aside)
        self._folders.remove(attempt)

    def read(self, table: str, since: datetime | None = None, until: datetime | None = None) -> DataFrame:
        """Returns the rows of a table whose windows begin at `since` or later, and before `until`.

        Lines in `quarantine` are selected by whole hours.

        Raises:
            KeyError: there is no such table.
        """
        if table == QUARANTINE:
            lines = self._quarantine.read_distinct(self._folders.hours(QUARANTINE, since, until))
            return lines.drop("name")
        rows = self._rows(table, since, until)
        if since is not None:
            rows = rows.where(F.col("window") >= F.lit(since))
        if until is not None:
            rows = rows.where(F.col("window") < F.lit(until))
        return rows.select(*self._schema(table).names)

    def read_hours(self, table: str, hours: Iterable[datetime]) -> DataFrame:
        """Returns the rows of a table for these hours."""
        if self._format != PARQUET:
            hour = F.date_trunc("hour", F.col("window"))
            return self.read(table).where(hour.isin(*hours))
        return self._parquet(table, hours)

    def hours(self, since: datetime | None = None, until: datetime | None = None) -> list[datetime]:
        """Returns the hours that have records, oldest first."""
        return self._folders.hours(RECORDS, since, until)

    def newest_hour(self) -> datetime | None:
        """Returns the newest hour that has records; None if no hour has records."""
        return self._folders.newest_hour(RECORDS)

    def oldest(self, now: datetime) -> datetime | None:
        """Returns the beginning of the oldest day that is kept; None if all days are kept."""
        return None if self.retention is None else _midnight(now - self.retention)

    def tidy(self, batch: int, now: datetime) -> int:
        """Compacts closed hours and drops days that are too old. Only the first call in an hour has an effect.

        Returns:
            The number of dropped days.
        """
        hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        if hour == self._tidied:
            return 0
        self.compact(hour - CLOSED_AFTER, batch)
        oldest = self.oldest(now)
        dropped = 0 if oldest is None else self.drop_before(oldest)
        self._tidied = hour
        return dropped

    def compact(self, before: datetime, batch: int) -> int:
        """Merges the folders of each hour before `before` into one, except those of `batch` and later batches.

        Returns:
            The number of folders that it removed.
        """
        return self._records.compact(before, batch) + self._quarantine.compact(before, batch)

    def drop_before(self, day: datetime) -> int:
        """Drops records, quarantine and tables of all days before `day`. Returns the number of dropped days."""
        dropped: set[str] = set()
        own = self._format == PARQUET
        for name in (RECORDS, QUARANTINE, *(TABLES if own else ())):
            for folder in self._folders.days(name):
                if folder < day_folder(day):
                    self.check_lease()
                    self._folders.remove(f"{name}/{folder}")
                    dropped.add(folder)
        for table in () if own or not dropped else TABLES:
            if self._folders.children(table):
                self._spark.sql(f"DELETE FROM {self._sql_name(table)} WHERE day < DATE '{day:%Y-%m-%d}'")
        return len(dropped)

    def _last_batch(self) -> int:
        """Returns the number of the last batch that a run or stream has completed; -1 if there is none."""
        return max((int(name) for name in self._folders.children(_COMMITS) if name.isdigit()), default=-1)

    def _sql_name(self, table: str) -> str:
        """Returns the SQL name of a table in another format than Parquet."""
        return f"{self._catalog}.{table}" if self._catalog else f"{self._format}.`{self._folders.url(table)}`"

    def _check_made_with(self) -> None:
        found = read_settings(self._folders)
        if found is None or self._format != PARQUET:
            self._check_format()
        if found is None:
            write_settings(self._folders, StoreSettings(format=self._format, window=self.window))
            return
        for name, old, new in (("format", found.format, self._format), ("window", found.window, self.window)):
            if old != new:
                raise StoreError(f"{self._folders.root} was made with {name} {old}, not {new}")

    def _check_format(self) -> None:
        try:
            self._spark.read.format(self._format).load(self._folders.url("nothing"))
        except AnalysisException:
            pass  # Spark has the format, and only the folder does not exist.
        except Exception as error:
            raise StoreError(f"Spark lacks the format {self._format}: name its jars with --jars") from error

    def _hand_over(self, table: str, rows: DataFrame) -> None:
        if self._catalog is not None:
            name = self._sql_name(table)
            exists, writer_v2 = self._spark.catalog.tableExists(name), rows.writeTo(name)
            writer_v2.overwritePartitions() if exists else writer_v2.partitionedBy(F.col("day"), F.col("hour")).create()
            return
        writer = rows.write.format(self._format).mode("overwrite").partitionBy("day", "hour")
        writer.option("partitionOverwriteMode", "dynamic").save(self._folders.url(table))

    def _rows(self, table: str, since: datetime | None, until: datetime | None) -> DataFrame:
        if self._format != PARQUET:
            if self._folders.children(table):
                return self._spark.table(self._sql_name(table))
            return empty(self._spark, self._schema(table))
        return self._parquet(table, self._folders.hours(table, since, until))

    def _parquet(self, table: str, hours: Iterable[datetime]) -> DataFrame:
        folders = (f"{table}/{hour_folder(hour)}" for hour in hours)
        paths = [self._folders.url(folder) for folder in folders if self._folders.children(folder)]
        if not paths:
            return empty(self._spark, self._schema(table))
        return self._spark.read.schema(self._schema(table)).parquet(*paths)

    def _schema(self, table: str) -> StructType:
        if table not in self._schemas:
            nothing = empty(self._spark, _records_schema())
            self._schemas[table] = TABLES[table].compute(nothing, self.window).schema
        return self._schemas[table]


def _catalog(spark: SparkSession, root: str) -> str:
    """Configures the store's own Iceberg catalog, whose tables are the folders of the store. Returns its name.

    Iceberg cannot create a table without a catalog.
    """
    name = f"fleet_{crc32(root.encode()):08x}"
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".cache-enabled": "false"}
    for key, value in (settings | {".warehouse": root}).items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    return name


def _width(window: str) -> timedelta:
    number, _, unit = window.partition(" ")
    try:
        width = timedelta(**{unit if unit.endswith("s") else f"{unit}s": int(number)})
    except (TypeError, ValueError, OverflowError):
        raise StoreError(f"a window of {window} is no time like 5 minutes") from None
    if width <= timedelta(0) or HOUR % width:
        raise StoreError(f"a window of {window} does not divide an hour")
    return width


def _midnight(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _records_schema() -> StructType:
    return _schema(f"{line_parsing.record_ddl()}, `arrived_at` TIMESTAMP")


def _quarantine_schema() -> StructType:
    return _schema("`fault` STRING, `sidecar` STRING, `line` STRING, `arrived_at` TIMESTAMP, `name` STRING")


def _schema(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def each_line_once(lines: DataFrame) -> DataFrame:
    """Returns quarantined lines without the copies that an interrupted compaction or requeue has left."""
    # Two attempts at a batch give one name to different lines if a segment was deleted between them.
    return lines.dropDuplicates(["name", "line"])
