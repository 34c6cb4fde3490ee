"""Stores batches of rows, partitioned by hour.

If a batch is written again, its new rows replace its earlier rows, unless the earlier attempt had more rows
(`write_attempts`). Compaction merges many small batches into one folder.

    <name>/day=2025-01-31/hour=9/batch=12.00000007-ab12/...  rows of batch 12 for that hour, from that attempt
    <name>/day=2025-01-31/hour=9/batch=compacted-ab12/...    rows of several batches

Each attempt to write a batch has its own folders. The attempt removes the folders of earlier attempts only after its
own folders are complete. So a process that continues after it has lost its lease can at worst store rows a second time.

A row may be stored several times, and readers remove the duplicates. So compaction needs no atomic switch. While the
old folders and the new folder both exist, some rows are stored twice.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from group_sidecar.spark.filesystem import FolderError, Folders, hour_folder, hour_of_folder

_BATCH = "batch="
Batch = int | str
"""The name of a batch: its number in a stream, or another name for rows that do not come from a stream."""


class BatchStore:
    """Rows by hour and batch, in Parquet.

    Args:
        spark: the session.
        folders: the folders of the store.
        name: the folder of these rows in the store.
        schema: the columns of the rows.
        unique: removes duplicate rows.
        sort_by: the columns by which compaction sorts rows. Readers that select by these columns then skip most of a
            file, and equal values next to each other take less space.
        fence: called before each step that other processes would see; raises if this process may not write.
    """

    def __init__(
        self,
        spark: SparkSession,
        folders: Folders,
        name: str,
        schema: StructType,
        unique: Callable[[DataFrame], DataFrame],
        sort_by: Sequence[str],
        fence: Callable[[], None],
    ) -> None:
        self._spark = spark
        self._folders = folders
        self.name = name
        self._schema = schema
        self._unique = unique
        self._sort_by = sort_by
        self._fence = fence
        self._added: int | None = None

    def add(self, batch: Batch, attempt: str, staged: str) -> set[datetime]:
        """Moves the rows of an attempt into the store. The rows of earlier attempts stay where they are.

        Args:
            batch: the batch's number or name.
            attempt: the name of the attempt.
            staged: the folder that contains the rows by day and hour, and from which the rows are moved.

        Returns:
            The hours for which the attempt has rows.

        Raises:
            FolderError: some files are not in the folder of an hour.
        """
        hours = self._folders.hours(staged)
        for hour in hours:
            self._fence()
            folder = hour_folder(hour)
            self._folders.move(f"{staged}/{folder}", to=f"{self.name}/{folder}/{_BATCH}{batch}.{attempt}")
        if (count := self._folders.size(staged)) != (0, 0):
            raise FolderError(f"{count[0]} files of batch {batch} are in no hour, in {self._folders.url(staged)}")
        return set(hours)

    def earlier(self, batch: Batch, attempt: str) -> dict[str, list[str]]:
        """Returns the folders of other attempts to write a batch, by the name of the attempt."""
        # A batch with a higher number than the last one is new, so there is no need to search all hours.
        new = isinstance(batch, int) and self._added is not None and batch > self._added
        self._added = batch if isinstance(batch, int) else self._added
        found: dict[str, list[str]] = {}
        for folder in () if new else self._folders.matching(f"{self.name}/day=*/hour=*/{_BATCH}{batch}*"):
            label, _, other = folder.rsplit(_BATCH, 1)[1].partition(".")
            if label == str(batch) and other != attempt:
                found.setdefault(other, []).append(folder)
        return found

    def remove(self, folders: Collection[str]) -> set[datetime]:
        """Removes folders of this store. Returns the hours that they belonged to."""
        for folder in folders:
            self._fence()
            self._folders.remove(folder)
        hours = {folder.rsplit("/", 1)[0] for folder in folders}
        return {hour_of_folder(hour) for hour in hours}

    def folders_of(self, hours: Iterable[datetime], last: int) -> tuple[list[str], list[str]]:
        """Returns the folders of these hours in two lists: folders of batches that are never written again, and all
        others.

        Args:
            hours: the hours.
            last: the number of the last batch that the stream has completed; -1 if there is none.
        """
        hourly = (f"{self.name}/{hour_folder(hour)}" for hour in hours)
        found = [(folder, name) for folder in hourly for name in self._folders.children(folder)]
        done = [f"{folder}/{name}" for folder, name in found if _is_before(name, last + 1)]
        return done, [f"{folder}/{name}" for folder, name in found if not _is_before(name, last + 1)]

    def read_folders(self, folders: Sequence[str]) -> DataFrame:
        """Returns all rows of these folders, of which there is at least one. Some rows may occur several times.

        The result also has `folder`, the folder of a row as `folders_of` returns it, and `folder_hour` TIMESTAMP.
        """
        path = F.col("_metadata.file_path")
        folder = F.regexp_extract(path, rf"({self.name}/day=[^/]+/hour=[^/]+/{_BATCH}[^/]+)/[^/]*$", 1)
        day, number = (F.regexp_extract(path, rf"/day=([^/]+)/hour=([0-9]+)/{_BATCH}", part) for part in (1, 2))
        hour = F.timestamp_seconds(F.unix_seconds(day.cast("timestamp")) + 3600 * number.cast("bigint"))
        rows = self._read([*map(self._folders.url, folders)])
        return rows.select("*", folder.alias("folder"), hour.alias("folder_hour"))

    def read(self, hours: Iterable[datetime]) -> DataFrame:
        """Returns all stored rows of these hours. Some rows may occur several times."""
        folders = [f"{self.name}/{hour_folder(hour)}" for hour in hours]
        paths = [self._folders.url(folder) for folder in folders if self._folders.children(folder)]
        return self._read(paths) if paths else empty(self._spark, self._schema)

    def read_distinct(self, hours: Iterable[datetime]) -> DataFrame:
        """Returns all rows of these hours, without duplicates."""
        return self._unique(self.read(hours))

    def compact(self, before: datetime, batch: int) -> int:
        """Merges the folders of each hour before `before` that has several folders. Returns how many were removed.

        Folders of `batch` or later batches stay as they are, because those batches may have to be written again.
        """
        removed = 0
        for hour in self._folders.hours(self.name, until=before):
            folder = f"{self.name}/{hour_folder(hour)}"
            done = [name for name in self._folders.children(folder) if _is_before(name, batch)]
            if len(done) > 1:
                paths = [self._folders.url(f"{folder}/{name}") for name in done]
                merged = self._unique(self._read(paths)).hint("rebalance").sortWithinPartitions(*self._sort_by)
                merged.write.parquet(self._folders.url(f"{folder}/{_BATCH}compacted-{uuid4().hex}"))
                for name in done:
                    self._fence()
                    self._folders.remove(f"{folder}/{name}")
                removed += len(done)
        return removed

    def _read(self, paths: list[str]) -> DataFrame:
        return self._spark.read.schema(self._schema).option("recursiveFileLookup", "true").parquet(*paths)


def empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """Returns a frame with these columns and no rows."""
    # createDataFrame would start a Python worker only to send no rows, which takes a second.
    return spark.range(0).select(F.from_json(F.lit("{}"), schema).alias("row")).select("row.*")


def _is_before(name: str, batch: int) -> bool:
    label = name.removeprefix(_BATCH).partition(".")[0]
    return not label.isdigit() or int(label) < batch


def day_and_hour(moment: Column) -> tuple[Column, Column]:
    """Returns the columns by which Spark writes rows into the folder of their hour."""
    return F.to_date(moment).alias("day"), F.hour(moment).alias("hour")
