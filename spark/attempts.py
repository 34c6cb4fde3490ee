"""Attempts at writing to a store: each lies in a folder of its own until it is complete.

Owns: `Attempts`: that every line of a batch arrives in its pile, what an earlier attempt at the batch left, and what
becomes of the attempts of a process that has died. Must not know: what lines say, how tables are answered.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.folders import Folders
from group_sidecar.spark.piles import Batch, Pile, day_and_hour

_FOLDER = "_attempts"
"""Spark passes over names that begin so."""
_COMPLETE = "complete.json"
"""In the folder of an attempt at a batch: every line of the batch is written there."""


class CountError(Exception):
    """A batch has not as many lines in the store as were read; nothing was deleted."""


@dataclass(frozen=True, kw_only=True)
class Added:
    """What a batch brought.

    Attributes:
        records: lines that are records, repeated ones included.
        quarantined: number of the other lines, by fault.
        hours: those that have records of it, or had some of an earlier attempt at it.
        kept: lines that an earlier attempt at it left and that are kept, because this attempt read fewer; else 0.
    """

    records: int
    quarantined: Mapping[str, int]
    hours: Collection[datetime]
    kept: int = 0


class Attempts:
    """The attempts at writing to one store.

    Args:
        spark: the session.
        folders: the store.
        records: where accepted records go.
        quarantine: where all other lines go.
        token: the lease's; it names attempts.
        fence: is called before each step that others would see; raises if this process may not write.
    """

    def __init__(
        self,
        spark: SparkSession,
        folders: Folders,
        records: Pile,
        quarantine: Pile,
        token: int,
        fence: Callable[[], None],
    ) -> None:
        self._spark = spark
        self._folders = folders
        self._records = records
        self._quarantine = quarantine
        self._token = token
        self._fence = fence

    def add(self, batch: Batch, judged: DataFrame, now: datetime) -> Added:
        """Writes what a batch brought, in place of what an earlier attempt at the batch may have left.

        All lines are read and written once, counted, and then moved to where they belong. What an earlier attempt left
        is removed after that; it is kept where it has more lines, for then a segment has gone since.

        Args:
            batch: its number or name.
            judged: its lines, as `intake.judged` gives them.
            now: the hour of a quarantined line whose arrival is not known.

        Raises:
            CountError: not as many lines were written as were read.
            FolderError: the file system did not do what it was asked to do.
            LeaseLostError: another process may write to the store, and this one may not any more.
        """
        self._fence()
        attempt = self._name()
        folder = f"{_FOLDER}/{batch}.{attempt}"
        accepted = F.col("fault").isNull()
        moment = F.when(accepted, F.col("emitted_at")).otherwise(F.coalesce("arrived_at", F.lit(now)))
        name = F.when(~accepted, F.concat(F.lit(f"{batch}-"), F.monotonically_increasing_id()))
        pile = F.when(accepted, F.lit(self._records.name)).otherwise(F.lit(self._quarantine.name))
        rows = judged.select("*", name.alias("name"), pile.alias("pile"), *day_and_hour(moment))
        seen = Observation()
        rows = rows.observe(seen, F.count(F.lit(1)).alias("lines"))
        rows.write.partitionBy("pile", "day", "hour").parquet(self._folders.url(f"{folder}/taken"))
        lines = int(seen.get["lines"])
        records, quarantined = self._count(self._folders.url(f"{folder}/taken"))
        if lines != records + sum(quarantined.values()):
            written = records + sum(quarantined.values())
            raise CountError(f"batch {batch} has {lines} lines, and {written} were written to {folder}")
        self._folders.write_whole(f"{folder}/{_COMPLETE}", json.dumps({"lines": lines}) + "\n")
        hours = self._place(batch, attempt)
        dropped, kept = self._drop_earlier(batch, attempt, lines)
        self._folders.remove(folder)
        return Added(records=records, quarantined=quarantined, hours=hours | dropped, kept=kept)

    def recover(self) -> set[datetime]:
        """Puts in place what attempts left that were complete when their process died; removes the others.

        The stream does a batch again whose attempt was not complete. To be called by a process that has just taken the
        lease: every attempt that is there is over.

        Returns:
            The hours that have new records.
        """
        hours: set[datetime] = set()
        for name in self._folders.below(_FOLDER):
            self._fence()
            if self._folders.exists(f"{_FOLDER}/{name}/{_COMPLETE}"):
                batch, _, attempt = name.partition(".")
                hours |= self._place(batch, attempt)
            self._folders.remove(f"{_FOLDER}/{name}")
        return hours

    def folder(self, what: str) -> str:
        """The folder of a new attempt."""
        return f"{_FOLDER}/{what}.{self._name()}"

    def _name(self) -> str:
        return f"{self._token:08}-{uuid4().hex[:8]}"

    def _place(self, batch: Batch, attempt: str) -> set[datetime]:
        """Moves the lines of an attempt to where they belong; returns the hours of the records."""
        taken = f"{_FOLDER}/{batch}.{attempt}/taken"
        self._quarantine.add(batch, attempt, f"{taken}/pile={self._quarantine.name}")
        return self._records.add(batch, attempt, f"{taken}/pile={self._records.name}")

    def _drop_earlier(self, batch: Batch, attempt: str, lines: int) -> tuple[set[datetime], int]:
        """Removes what earlier attempts left of a batch. Returns the hours of that, and the lines that it keeps."""
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
        """The number of records in these folders, and of the other lines by fault."""
        files = self._spark.read.schema("fault STRING").option("recursiveFileLookup", "true")
        counted = files.parquet(*paths).groupBy("fault").count().collect()
        by_fault = {row["fault"]: row["count"] for row in counted}
        return by_fault.pop(None, 0), by_fault
