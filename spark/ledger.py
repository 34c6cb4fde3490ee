"""The segments that a store has taken, as they were then.

Owns: the ledger's files, and which segments have changed. Must not know: what is done about them.

    ledger/<batch>.json    the segments of that batch, one JSON object a line
    ledger/merged-ab12/    those of several batches

Spark remembers segments by name: it never looks again at one that it has read. The ledger also has their sizes and
dates, so a segment that was cut short when it was taken, and became whole under its name, is noticed.
"""

from collections.abc import Callable
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.folders import Folders
from group_sidecar.spark.piles import Batch
from group_sidecar.spark.sources import FILE

_FOLDER = "ledger"
_MANY = 100
"""Files of the ledger that become one."""


class Ledger:
    """The ledger of a store.

    Args:
        spark: the session.
        folders: the store.
        fence: is called before each step that others would see; raises if this process may not write.
    """

    def __init__(self, spark: SparkSession, folders: Folders, fence: Callable[[], None]) -> None:
        self._spark = spark
        self._folders = folders
        self._fence = fence

    def add(self, batch: Batch, files: str) -> None:
        """Adds the segments of a batch, in place of what was there of it.

        Args:
            batch: its number or name.
            files: the segments as `sources.FILE`, a JSON object a line.
        """
        self._fence()
        name = f"{_FOLDER}/{batch}.json"
        if self._folders.read(name) != files:
            self._folders.remove(name)
            self._folders.write_whole(name, files)

    def changed(self, files: DataFrame) -> list[str]:
        """The URLs of those of the files that were taken, but never as they are now; sorted.

        Args:
            files: as `sources.FILE`.
        """
        pieces = self._folders.below(_FOLDER)
        if not pieces:
            return []
        taken, now = self._read(pieces).alias("taken"), files.where(F.col("size") > 0).alias("now")
        same = F.expr("taken.size = now.size AND taken.modified = now.modified")
        joined = (
            now.join(taken, F.expr("taken.path = now.path")).groupBy("now.path").agg(F.bool_or(same).alias("known"))
        )
        return sorted(row["path"] for row in joined.where(~F.col("known")).collect())

    def merge(self) -> None:
        """Makes one file of many."""
        pieces = self._folders.below(_FOLDER)
        if len(pieces) < _MANY:
            return
        merged = f"{_FOLDER}/merged-{uuid4().hex}"
        rows = self._read(pieces).distinct().coalesce(1)
        rows.write.json(self._folders.url(merged), compression="gzip")
        for piece in pieces:
            self._fence()
            self._folders.remove(f"{_FOLDER}/{piece}")

    def _read(self, pieces: list[str]) -> DataFrame:
        return self._spark.read.schema(FILE).json([self._folders.url(f"{_FOLDER}/{piece}") for piece in pieces])
