"""Records which segments a store has read, with their size and date.

    ledger/<batch>.json    the segments of that batch, one JSON object per line
    ledger/merged-ab12/    the segments of several batches

Spark remembers segments by name and reads each name only once. The ledger also has the sizes and dates. So the
ledger detects a segment that was incomplete when it was read and was completed later under the same name.
"""

from collections.abc import Callable
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.batch_store import Batch
from group_sidecar.spark.filesystem import Folders
from group_sidecar.spark.line_sources import FILE

_FOLDER = "ledger"
_MERGE_AT = 100
"""The ledger is merged into one file when it has this many files."""


class SegmentLedger:
    """The ledger of a store.

    Args:
        spark: the session.
        folders: the folders of the store.
        fence: called before each step that other processes would see; raises if this process may not write.
    """

    def __init__(self, spark: SparkSession, folders: Folders, fence: Callable[[], None]) -> None:
        self._spark = spark
        self._folders = folders
        self._fence = fence

    def add(self, batch: Batch, files: str) -> None:
        """Adds the segments of a batch, in place of the segments that the ledger had for that batch.

        Args:
            batch: the batch's number or name.
            files: the segments as `line_sources.FILE`, one JSON object per line.
        """
        self._fence()
        name = f"{_FOLDER}/{batch}.json"
        if self._folders.read(name) != files:
            self._folders.remove(name)
            self._folders.write_new_file(name, files)

    def compared(self, files: DataFrame) -> DataFrame:
        """Compares files with the ledger.

        Args:
            files: the current files, as `line_sources.FILE`.

        Returns:
            The files with the column `unchanged` BOOLEAN: whether the file was read in its current state; null if no
            line of the file was ever read.
        """
        pieces = self._folders.children(_FOLDER)
        if not pieces:
            return files.withColumn("unchanged", F.lit(None).cast("boolean"))
        taken, now = self._read(pieces).alias("taken"), files.alias("now")
        same = F.expr("taken.size = now.size AND taken.modified = now.modified")
        joined = now.join(taken, F.expr("taken.path = now.path"), "left")
        return joined.groupBy("now.path", "now.size", "now.modified").agg(F.bool_or(same).alias("unchanged"))

    def merge(self) -> None:
        """Merges the files of the ledger if there are many."""
        pieces = self._folders.children(_FOLDER)
        if len(pieces) < _MERGE_AT:
            return
        merged = f"{_FOLDER}/merged-{uuid4().hex}"
        rows = self._read(pieces).distinct().coalesce(1)
        rows.write.json(self._folders.url(merged), compression="gzip")
        for piece in pieces:
            self._fence()
            self._folders.remove(f"{_FOLDER}/{piece}")

    def _read(self, pieces: list[str]) -> DataFrame:
        return self._spark.read.schema(FILE).json([self._folders.url(f"{_FOLDER}/{piece}") for piece in pieces])
