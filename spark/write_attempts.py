"""Writes batches to a store, in attempts. Each attempt has a folder of its own until its rows are in their place.

`WriteAttempts` makes sure that every line of a batch is stored. `WriteAttempts` also replaces the rows of earlier
attempts at the batch, and completes or removes the attempts of a process that has died.

A batch may replace folders of the quarantine: `requeue` takes lines out of such folders. The file that marks the
attempt as complete names these folders. The process that completes the attempt also removes these folders.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.batch_store import Batch, BatchStore, day_and_hour
from group_sidecar.spark.filesystem import Folders, hour_folder, hour_of_folder

ComputeTables = Callable[[set[datetime]], None]
"""Computes the tables of hours again."""
_FOLDER = "_attempts"
"""Spark ignores names that begin with an underscore."""
_COMPLETE = "complete.json"
"""A file in the folder of an attempt, which exists once every line of the batch has been written there. The file has
the number of rows, the hours of the records, and the folders of the quarantine that the batch replaces."""
_STAGING = "taken"
"""The folder of an attempt that contains the rows until they are moved to their batch store. This name and that of
`_STORE_COLUMN` must not change, because a new version completes the attempts of an older version that has died."""
_STORE_COLUMN = "pile"
"""The column with the name of the batch store to which a row is moved."""


class RowCountError(Exception):
    """The number of written rows differs from the number of rows read. Nothing was deleted."""


@dataclass(frozen=True, kw_only=True)
class WriteResult:
    """The outcome of writing a batch.

    Attributes:
        records: number of records, including repeated records. A line may have many records.
        quarantined: number of lines that the batch put into quarantine, by fault.
        hours: the hours that have records of the batch, or had records of an earlier attempt at the batch.
        kept: number of rows of an earlier attempt, which are kept because this attempt read fewer rows; else 0.
    """

    records: int
    quarantined: Mapping[str, int]
    hours: Collection[datetime]
    kept: int = 0


class WriteAttempts:
    """The attempts to write to one store.

    Args:
        spark: the session.
        folders: the folders of the store.
        records: stores accepted records.
        quarantine: stores all other lines.
        token: the lease's token, which is part of an attempt's name.
        fence: called before each step that other processes would see; raises if this process may not write.
    """

    def __init__(
        self,
        spark: SparkSession,
        folders: Folders,
        records: BatchStore,
        quarantine: BatchStore,
        token: int,
        fence: Callable[[], None],
    ) -> None:
        self._spark = spark
        self._folders = folders
        self._records = records
        self._quarantine = quarantine
        self._token = token
        self._fence = fence

    def add(
        self,
        batch: Batch,
        judged: DataFrame,
        now: datetime,
        *,
        replaced: Collection[str] = (),
        compute_tables: ComputeTables = lambda _: None,
    ) -> WriteResult:
        """Writes the lines of a batch and replaces the rows of earlier attempts at the batch.

        All rows are written once, counted, and then moved to their place. After that, the rows of earlier attempts are
        removed. An earlier attempt with more rows is kept, because a segment was deleted after that attempt.

        Args:
            batch: the batch's number or name.
            judged: the batch's lines, as `line_parsing.judged` returns them. Lines from the quarantine also have their
                `name` and `quarantine_hour`, and keep both.
            now: determines the hour of a quarantined line whose arrival time is not known.
            replaced: folders of the quarantine whose lines are all in the batch, and which are removed.
            compute_tables: called with the hours once all lines are in their place. If the process dies before this
                call ends, `recover` calls it again. A batch that is repeated anyway does not need this argument.

        Raises:
            RowCountError: the number of written rows differs from the number of rows read.
            FolderError: a file system operation failed.
            LeaseLostError: another process has taken over the lease.
        """
        self._fence()
        attempt = self._name()
        folder = f"{_FOLDER}/{batch}.{attempt}"
        seen = Observation()
        rows = self._placed(batch, judged, now).observe(seen, F.count(F.lit(1)).alias("lines"))
        staging = self._folders.url(f"{folder}/{_STAGING}")
        rows.write.partitionBy(_STORE_COLUMN, "day", "hour").parquet(staging)
        lines = int(seen.get["lines"])
        records, quarantined = self._count(staging)
        if lines != records + sum(quarantined.values()):
            written = records + sum(quarantined.values())
            raise RowCountError(f"batch {batch} has {lines} rows, and {written} were written to {folder}")
        found = self._folders.hours(_staged(batch, attempt, self._records))
        complete = {"lines": lines, "hours": [*map(hour_folder, found)], "replaced": [*replaced]}
        self._folders.write_new_file(f"{folder}/{_COMPLETE}", json.dumps(complete) + "\n")
        hours = self._publish(batch, attempt, complete)
        dropped, kept = self._drop_earlier(batch, attempt, lines)
        compute_tables(hours | dropped)
        self._folders.remove(folder)
        return WriteResult(records=records, quarantined=quarantined, hours=hours | dropped, kept=kept)

    def recover(self, compute_tables: ComputeTables = lambda _: None) -> set[datetime]:
        """Completes the attempts that had written all their lines when their process died. Removes all other attempts.

        The stream repeats a batch whose attempt was not complete. A process calls this right after it has taken the
        lease, so no attempt is still in progress.

        Args:
            compute_tables: called with the hours that have new records, if there are any. If the process dies before
                this call ends, the next call of `recover` finds the same attempts.

        Returns:
            The hours that have new records.
        """
        hours: set[datetime] = set()
        names = self._folders.children(_FOLDER)
        for name in names:
            self._fence()
            if (complete := self._folders.read(f"{_FOLDER}/{name}/{_COMPLETE}")) is not None:
                batch, _, attempt = name.partition(".")
                hours |= self._publish(batch, attempt, json.loads(complete))
        if hours:
            compute_tables(hours)
        for name in names:
            self._fence()
            self._folders.remove(f"{_FOLDER}/{name}")
        return hours

    def unfinished(self) -> list[str]:
        """Returns the sorted names of the attempts that are in progress, or whose process has died."""
        return self._folders.children(_FOLDER)

    def folder(self, what: str) -> str:
        """Returns the folder of a new attempt."""
        return f"{_FOLDER}/{what}.{self._name()}"

    def _name(self) -> str:
        return f"{self._token:08}-{uuid4().hex[:8]}"

    def _placed(self, batch: Batch, judged: DataFrame, now: datetime) -> DataFrame:
        """Returns the lines of a batch with the columns that decide where each is stored."""
        accepted, requeued = F.col("fault").isNull(), "quarantine_hour" in judged.columns
        new_name = F.concat(F.lit(f"{batch}-"), F.monotonically_increasing_id())
        arrived = F.col("quarantine_hour") if requeued else F.coalesce("arrived_at", F.lit(now))
        day, hour = day_and_hour(F.when(accepted, F.col("emitted_at")).otherwise(arrived))
        store_name = F.when(accepted, F.lit(self._records.name)).otherwise(F.lit(self._quarantine.name))
        name = F.when(~accepted, F.col("name") if requeued else new_name)
        placed = {"name": name, _STORE_COLUMN: store_name, "day": day, "hour": hour}
        return judged.withColumns(placed).drop("quarantine_hour")

    def _publish(self, batch: Batch, attempt: str, complete: Mapping[str, Any]) -> set[datetime]:
        """Moves the lines of an attempt to their place. Returns the hours of the records.

        Args:
            batch: the batch's number or name.
            attempt: the name of the attempt.
            complete: the contents of the file that marks the attempt as complete. In stores of older versions, the
                file has only the number of rows.
        """
        self._quarantine.add(batch, attempt, _staged(batch, attempt, self._quarantine))
        hours = self._records.add(batch, attempt, _staged(batch, attempt, self._records))
        self._quarantine.remove(complete.get("replaced", ()))
        # A process that died may have moved some hours already.
        return hours | {hour_of_folder(folder) for folder in complete.get("hours", ())}

    def _drop_earlier(self, batch: Batch, attempt: str, lines: int) -> tuple[set[datetime], int]:
        """Removes the rows of earlier attempts at a batch. Returns the affected hours, and the number of kept rows.

        An earlier attempt with more than `lines` rows is kept.
        """
        hours: set[datetime] = set()
        kept = 0
        records, quarantined = self._records.earlier(batch, attempt), self._quarantine.earlier(batch, attempt)
        for other in {**records, **quarantined}:
            folders = (*records.get(other, ()), *quarantined.get(other, ()))
            found, faults = self._count(*map(self._folders.url, folders))
            if (before := found + sum(faults.values())) > lines:
                kept = max(kept, before)
                continue
            hours |= self._records.remove(records.get(other, ()))
            self._quarantine.remove(quarantined.get(other, ()))
        return hours, kept

    def _count(self, *paths: str) -> tuple[int, dict[str, int]]:
        """Returns the number of records in these folders, and the number of the other lines by fault."""
        files = self._spark.read.schema("fault STRING").option("recursiveFileLookup", "true")
        counted = files.parquet(*paths).groupBy("fault").count().collect()
        by_fault = {row["fault"]: row["count"] for row in counted}
        return by_fault.pop(None, 0), by_fault


def _staged(batch: Batch, attempt: str, store: BatchStore) -> str:
    """Returns the folder of an attempt with the rows that are moved to `store`."""
    return f"{_FOLDER}/{batch}.{attempt}/{_STAGING}/{_STORE_COLUMN}={store.name}"
