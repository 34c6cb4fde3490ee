"""Rows that come in batches and are kept by the hour, until somebody asks for an hour.

Owns: that a batch which is written again replaces exactly what it wrote before, and that many small batches become
one. Must not know: what the rows say.

    <name>/day=2025-01-31/hour=9/batch=12.00000007-ab12/...  what batch 12 brought for that hour, in that attempt
    <name>/day=2025-01-31/hour=9/batch=compacted-ab12/...    what several batches brought

Each attempt at a batch has folders of its own, and removes those of earlier attempts only when its own are in place. So
a process that goes on after it has lost the right to write can at worst put rows there twice.

A row may be there several times, under one name. So compaction needs no moment at which it counts: while the old
folders and the new one are both there, or the new one only half, rows are there twice.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from group_sidecar.spark.folders import FolderError, Folders, hour_folder, hour_of_folder

_BATCH = "batch="
Batch = int | str
"""What a batch is called: its number in a stream; another name for what did not come by the stream."""


class Pile:
    """Rows by hour and batch, in Parquet.

    Args:
        name: its folder below the store.
        schema: the columns of the rows.
        unique: gives each row once, of rows that may be there several times.
        fence: is called before each step that others would see; raises if this process may not write.
    """

    def __init__(
        self,
        spark: SparkSession,
        folders: Folders,
        name: str,
        schema: StructType,
        unique: Callable[[DataFrame], DataFrame],
        fence: Callable[[], None],
    ) -> None:
        self._spark = spark
        self._folders = folders
        self.name = name
        self._schema = schema
        self._unique = unique
        self._fence = fence
        self._added: int | None = None

    def add(self, batch: Batch, attempt: str, staged: str) -> set[datetime]:
        """Takes an attempt at a batch, beside what earlier attempts left.

        Args:
            batch: its number or name.
            attempt: the name of the attempt.
            staged: the folder in which it lies by day and hour; it is moved from there.

        Returns:
            The hours that have something of it.

        Raises:
            FolderError: not all of it arrived.
        """
        brought = self._folders.hours(staged)
        for hour in brought:
            self._fence()
            folder = hour_folder(hour)
            self._folders.move(f"{staged}/{folder}", to=f"{self.name}/{folder}/{_BATCH}{batch}.{attempt}")
        if (count := self._folders.size(staged)) != (0, 0):
            raise FolderError(f"{count[0]} files of batch {batch} are in no hour, in {self._folders.url(staged)}")
        return set(brought)

    def earlier(self, batch: Batch, attempt: str) -> dict[str, list[str]]:
        """The folders that other attempts at a batch left, by the name of the attempt."""
        # A process that has added the batch before knows that this one is new, and need not look through all hours.
        new = isinstance(batch, int) and self._added is not None and batch > self._added
        self._added = batch if isinstance(batch, int) else self._added
        found: dict[str, list[str]] = {}
        for folder in () if new else self._folders.matching(f"{self.name}/day=*/hour=*/{_BATCH}{batch}*"):
            label, _, other = folder.rsplit(_BATCH, 1)[1].partition(".")
            if label == str(batch) and other != attempt:
                found.setdefault(other, []).append(folder)
        return found

    def remove(self, folders: Collection[str]) -> set[datetime]:
        """Removes folders that `earlier` found; returns the hours in which they were."""
        for folder in folders:
            self._fence()
            self._folders.remove(folder)
        hours = {folder.rsplit("/", 1)[0] for folder in folders}
        return {hour_of_folder(hour) for hour in hours}

    def read(self, hours: Iterable[datetime]) -> DataFrame:
        """All rows of these hours, as they lie there: some may be there several times."""
        folders = [f"{self.name}/{hour_folder(hour)}" for hour in hours]
        paths = [self._folders.url(folder) for folder in folders if self._folders.below(folder)]
        return self._read(paths) if paths else empty(self._spark, self._schema)

    def read_once(self, hours: Iterable[datetime]) -> DataFrame:
        """All rows of these hours, each once."""
        return self._unique(self.read(hours))

    def compact(self, before: datetime, batch: int) -> int:
        """Makes one folder of several, in each hour before `before` that has several. Returns how many it removed.

        What `batch` or a later one wrote stays as it is: it may have to be written again.
        """
        removed = 0
        for hour in self._folders.hours(self.name, until=before):
            folder = f"{self.name}/{hour_folder(hour)}"
            done = [name for name in self._folders.below(folder) if _is_before(name, batch)]
            if len(done) > 1:
                paths = [self._folders.url(f"{folder}/{name}") for name in done]
                merged = self._unique(self._read(paths)).hint("rebalance")
                merged.write.parquet(self._folders.url(f"{folder}/{_BATCH}compacted-{uuid4().hex}"))
                for name in done:
                    self._fence()
                    self._folders.remove(f"{folder}/{name}")
                removed += len(done)
        return removed

    def _read(self, paths: list[str]) -> DataFrame:
        return self._spark.read.schema(self._schema).option("recursiveFileLookup", "true").parquet(*paths)


def empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, with these columns."""
    # createDataFrame would have Python send none, which takes a second.
    return spark.range(0).select(F.from_json(F.lit("{}"), schema).alias("row")).select("row.*")


def _is_before(name: str, batch: int) -> bool:
    label = name.removeprefix(_BATCH).partition(".")[0]
    return not label.isdigit() or int(label) < batch


def day_and_hour(moment: Column) -> tuple[Column, Column]:
    """The columns by which Spark writes rows into the folder of their hour."""
    return F.to_date(moment).alias("day"), F.hour(moment).alias("hour")
