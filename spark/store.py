"""The fleet's tables on disk: records and quarantine as they came, and by the hour what was made of them.

Owns: where everything lies, how an hour of a table is replaced, compaction and retention. Must not know: what is asked
of records, where lines come from, nor how a batch gets to its place (`attempts`). One process at a time may write: it
needs the store's lease.

    store.json                          what it was made with
    records/day=.../hour=.../batch=...  accepted records (`piles`), whatever the format of the tables
    quarantine/day=.../hour=.../batch=...
    <table>/day=.../hour=...            the answers of that hour
    checkpoint/                         how far the stream is, if it has no other folder for that
    _lease/                             which process may write
    ledger/                             the segments that were taken
    _attempts/<batch>.<attempt>/        a batch that is not in its place yet
    _attempts/answers.<attempt>/        the answers of a table that are not in their place yet
"""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from threading import RLock
from zlib import crc32

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from group_sidecar.spark import intake
from group_sidecar.spark.attempts import Added, Attempts
from group_sidecar.spark.folders import HOUR, Folders, day_folder, hour_folder
from group_sidecar.spark.lease import Lease
from group_sidecar.spark.ledger import Ledger
from group_sidecar.spark.piles import Batch, Pile, day_and_hour, empty
from group_sidecar.spark.tables import RECORDS, TABLES

PARQUET = "parquet"
ICEBERG = "iceberg"
QUARANTINE = "quarantine"
CHECKPOINT = "checkpoint"
CLOSED_AFTER = timedelta(hours=2)
"""An hour that ended so long ago is compacted. What comes later is taken as well, and compacted the next time."""
_MADE_WITH = "store.json"
_LAYOUT = 1


class StoreError(Exception):
    """The store cannot be used as it was asked for; the text says why, in one line."""


class Store:
    """Records, quarantine and tables below one folder.

    Args:
        path: folder or URL; made where it is not there.
        format: of the tables: parquet, or another that this Spark can write and that replaces partitions.
        window: how wide windows are, as Spark writes an interval; it divides an hour.
        retention: days older than this are dropped; None keeps all.
        lease: the right to write to it; None where no other process knows the store, or where it is only read.

    Attributes:
        ledger: the segments that it has taken.
        writing: held by the thread that takes a batch.

    Raises:
        StoreError: the store was made with another window or format, or Spark does not have the format.
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
        self._fence: Callable[[], None] = lease.check if lease else lambda: None
        self._catalog = _catalog(spark, self._folders.root) if format == ICEBERG else None
        self._check_made_with()
        self.ledger = Ledger(spark, self._folders, self._fence)
        self.writing = RLock()
        self._schemas: dict[str, StructType] = {}
        self._records = Pile(spark, self._folders, RECORDS, _records_schema(), intake.deduplicated, self._fence)
        self._quarantine = Pile(spark, self._folders, QUARANTINE, _quarantine_schema(), _each_line_once, self._fence)
        token = lease.token if lease else 0
        self._attempts = Attempts(spark, self._folders, self._records, self._quarantine, token, self._fence)

    @classmethod
    def opened(cls, spark: SparkSession, path: str, lease: Lease | None = None) -> "Store":
        """The store that is there, as it was made.

        Args:
            spark: the session.
            path: folder or URL.
            lease: the right to write to it; None to read it.

        Raises:
            StoreError: there is none.
        """
        made = Folders(spark, path).read(_MADE_WITH)
        if made is None:
            raise StoreError(f"there are no tables in {path}")
        found = json.loads(made)
        return cls(spark, path, found["format"], found["window"], lease=lease)

    @property
    def checkpoint(self) -> str:
        """The URL of the folder in which a stream keeps how far it is."""
        return self._folders.url(CHECKPOINT)

    def add(self, batch: Batch, judged: DataFrame, now: datetime) -> Added:
        """Writes what a batch brought. Args and Raises as `Attempts.add`."""
        return self._attempts.add(batch, judged, now)

    def recover(self) -> set[datetime]:
        """Ends the attempts of processes that have died, as `Attempts.recover`. Returns the hours with new records."""
        return self._attempts.recover()

    def records(self, hours: Iterable[datetime]) -> DataFrame:
        """The records of these hours; one that came twice may be there twice."""
        return self._records.read(hours)

    def replace(self, table: str, answer: DataFrame, hours: Iterable[datetime]) -> None:
        """Puts an answer in the place of what the table has for these hours; it has no rows of others."""
        self._schemas[table] = answer.schema
        # AQE makes few files of a small answer, and several of an hour that is large.
        rows = answer.select("*", *day_and_hour(F.col("window"))).hint("rebalance", "day", "hour")
        if self._format != PARQUET:
            self._fence()
            self._hand_over(table, rows)
            return
        attempt = self._attempts.folder("answers")
        rows.write.partitionBy("day", "hour").parquet(self._folders.url(f"{attempt}/{table}"))
        for hour in hours:
            self._fence()
            folder = hour_folder(hour)
            by, aside = f"{attempt}/{table}/{folder}", f"{attempt}/replaced/{folder}"
            self._folders.replace(f"{table}/{folder}", by=by, aside=aside)
        self._folders.remove(attempt)

    def read(self, table: str, since: datetime | None = None, until: datetime | None = None) -> DataFrame:
        """The rows of a table whose windows begin from `since` on and before `until`; `quarantine` by whole hours.

        Raises:
            KeyError: there is no such table.
        """
        if table == QUARANTINE:
            lines = self._quarantine.read_once(self._folders.hours(QUARANTINE, since, until))
            return lines.drop("name")
        rows = self._rows(table, since, until)
        if since is not None:
            rows = rows.where(F.col("window") >= F.lit(since))
        if until is not None:
            rows = rows.where(F.col("window") < F.lit(until))
        return rows.select(*self._schema(table).names)

    def answers(self, table: str, hours: Iterable[datetime]) -> DataFrame:
        """The rows of a table of these hours."""
        if self._format != PARQUET:
            hour = F.date_trunc("hour", F.col("window"))
            return self.read(table).where(hour.isin(*hours))
        return self._parquet(table, hours)

    def hours(self, since: datetime | None = None, until: datetime | None = None) -> list[datetime]:
        """The hours that have records, oldest first."""
        return self._folders.hours(RECORDS, since, until)

    def newest_hour(self) -> datetime | None:
        """The newest hour that has records; None if there are none."""
        return self._folders.newest_hour(RECORDS)

    def oldest(self, now: datetime) -> datetime | None:
        """The beginning of the oldest day that is kept; None if all are."""
        return None if self.retention is None else _midnight(now - self.retention)

    def tidy(self, batch: int, now: datetime) -> int:
        """Compacts hours that are closed, and drops days that are too old; once an hour, as it looks through all hours.

        Returns:
            How many days it dropped.
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
        """Makes one folder of the several that batches before `batch` wrote for an hour before `before`.

        Returns:
            How many folders it removed.
        """
        return self._records.compact(before, batch) + self._quarantine.compact(before, batch)

    def drop_before(self, day: datetime) -> int:
        """Drops all days before that of `day`, of records, quarantine and tables. Returns how many days those were."""
        dropped: set[str] = set()
        own = self._format == PARQUET
        for name in (RECORDS, QUARANTINE, *(TABLES if own else ())):
            for folder in self._folders.days(name):
                if folder < day_folder(day):
                    self._fence()
                    self._folders.remove(f"{name}/{folder}")
                    dropped.add(folder)
        for table in () if own or not dropped else TABLES:
            if self._folders.below(table):
                self._spark.sql(f"DELETE FROM {self._sql_name(table)} WHERE day < DATE '{day:%Y-%m-%d}'")
        return len(dropped)

    def _sql_name(self, table: str) -> str:
        """Of a table that is not made of plain folders."""
        return f"{self._catalog}.{table}" if self._catalog else f"{self._format}.`{self._folders.url(table)}`"

    def _check_made_with(self) -> None:
        made = {"layout": _LAYOUT, "format": self._format, "window": self.window}
        found = self._folders.read(_MADE_WITH)
        if found is None:
            self._check_format()
            self._folders.write_whole(_MADE_WITH, json.dumps(made) + "\n")
            return
        for name, value in json.loads(found).items():
            if made[name] != value:
                raise StoreError(f"{self._folders.root} was made with {name} {value}, not {made[name]}")

    def _check_format(self) -> None:
        try:
            self._spark.read.format(self._format).load(self._folders.url("nothing"))
        except AnalysisException:
            pass  # The format is there, and only finds nothing to read.
        except Exception as error:
            raise StoreError(f"this Spark has no format {self._format}: its jars are not there") from error

    def _hand_over(self, table: str, rows: DataFrame) -> None:
        if self._catalog is not None:
            name = self._sql_name(table)
            there, made = self._spark.catalog.tableExists(name), rows.writeTo(name)
            made.overwritePartitions() if there else made.partitionedBy(F.col("day"), F.col("hour")).create()
            return
        writer = rows.write.format(self._format).mode("overwrite").partitionBy("day", "hour")
        writer.option("partitionOverwriteMode", "dynamic").save(self._folders.url(table))

    def _rows(self, table: str, since: datetime | None, until: datetime | None) -> DataFrame:
        if self._format != PARQUET:
            if self._folders.below(table):
                return self._spark.table(self._sql_name(table))
            return empty(self._spark, self._schema(table))
        return self._parquet(table, self._folders.hours(table, since, until))

    def _parquet(self, table: str, hours: Iterable[datetime]) -> DataFrame:
        folders = (f"{table}/{hour_folder(hour)}" for hour in hours)
        paths = [self._folders.url(folder) for folder in folders if self._folders.below(folder)]
        if not paths:
            return empty(self._spark, self._schema(table))
        return self._spark.read.schema(self._schema(table)).parquet(*paths)

    def _schema(self, table: str) -> StructType:
        if table not in self._schemas:
            nothing = empty(self._spark, _records_schema())
            self._schemas[table] = TABLES[table].asked_of(nothing, self.window).schema
        return self._schemas[table]


def _catalog(spark: SparkSession, root: str) -> str:
    """Iceberg makes no table without a catalog. This one is the store's own: its tables are the folders below it."""
    name = f"fleet_{crc32(root.encode()):08x}"
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".cache-enabled": "false"}
    for key, value in (settings | {".warehouse": root}).items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    return name


def _width(window: str) -> timedelta:
    number, _, unit = window.partition(" ")
    width = timedelta(**{unit if unit.endswith("s") else f"{unit}s": int(number)})
    if width <= timedelta(0) or HOUR % width:
        raise StoreError(f"a window of {window} does not divide an hour")
    return width


def _midnight(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _records_schema() -> StructType:
    return _schema(f"{intake.record_ddl()}, `arrived_at` TIMESTAMP")


def _quarantine_schema() -> StructType:
    return _schema("`fault` STRING, `sidecar` STRING, `line` STRING, `arrived_at` TIMESTAMP, `name` STRING")


def _schema(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def _each_line_once(lines: DataFrame) -> DataFrame:
    return lines.dropDuplicates(["name"])
