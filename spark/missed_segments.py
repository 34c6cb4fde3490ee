"""Ingests segments that a stream has missed, and finds sidecars that use the same id.

`journal_files` finds the segments.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark import line_sources
from group_sidecar.spark.ingest import IngestResult, ingest
from group_sidecar.spark.journal_files import FileProblem, file_problems
from group_sidecar.spark.line_sources import file_list, list_names
from group_sidecar.spark.store import Store

_LOOK_BACK = timedelta(days=1)
"""How far before the newest hour the search for sidecars with the same id begins."""


@dataclass(frozen=True, kw_only=True)
class MissedSegments:
    """The result of a check for missed segments.

    Attributes:
        warnings: problems for the operator, each in one line.
        taken: the outcome of ingesting changed segments; None if there were none.
    """

    warnings: tuple[str, ...]
    taken: IngestResult | None = None


def missed_segments(
    spark: SparkSession, store: Store, folder: str | None, now: datetime | None = None
) -> MissedSegments:
    """Ingests segments that have changed since they were read.

    The result has warnings of these segments, of files that are never read, of large segments without a line that was
    read, and of sidecars that use the same id.

    No other thread may write a batch at the same time.

    Args:
        spark: the session.
        store: the store.
        folder: the folder with the segments; None if lines come from a topic.
        now: the current time; the clock's time if None.
    """
    warnings: list[str] = []
    taken = None
    if folder is not None:
        found = _paths_by_problem(spark, store, folder)
        if others := found[FileProblem.NOT_SEGMENT]:
            warnings.append(f"files are not read, because only *.jsonl files are: {file_list(others)}")
        if unread := found[FileProblem.LARGE_UNREAD]:
            limit = f"lines of more than {line_sources.MAX_READ_BYTES} bytes are skipped"
            warnings.append(f"no line was read so far, and {limit}: {file_list(unread)}")
        if changed := found[FileProblem.CHANGED]:
            warnings.append(f"segments are read again, because they changed after they were read: {file_list(changed)}")
            lines = line_sources.files(spark, folder).where(F.col("file.path").isin(changed))
            now = now or datetime.now(UTC)
            taken = ingest(store, lines, f"changed-{now:%Y%m%d%H%M%S%f}", now)
        store.ledger.merge()
    newest = store.newest_hour()
    if newest is not None and (ids := duplicate_sidecar_ids(store, newest - _LOOK_BACK)):
        warnings.append(f"several sidecars run with one id, so their records are mixed up: {list_names(ids)}")
    return MissedSegments(warnings=tuple(warnings), taken=taken)


def duplicate_sidecar_ids(store: Store, since: datetime, until: datetime | None = None) -> list[str]:
    """Returns the sorted sidecar ids for which two boots have records in more than one common window.

    A restart causes only one common window.

    Args:
        store: the store.
        since: windows that begin earlier are left out.
        until: windows that begin at this time or later are left out; None for no limit.
    """
    starts = store.read("sidecars", since, until).select("window", "sidecar", "boot")
    one, other = starts.alias("one"), starts.alias("other")
    both = F.expr("one.window = other.window AND one.sidecar = other.sidecar AND one.boot < other.boot")
    windows = one.join(other, both).groupBy("one.sidecar", "one.boot", "other.boot").count()
    return sorted({row["sidecar"] for row in windows.where("count > 1").select("sidecar").collect()})


def _paths_by_problem(spark: SparkSession, store: Store, folder: str) -> defaultdict[str, list[str]]:
    """Returns the sorted URLs of files, by their problem. Segments that the stream reads next are left out."""
    files = file_problems(spark, store.ledger, folder).where(F.col("problem") != FileProblem.UNREAD.value)
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for row in sorted(files.select("path", "problem").collect()):
        paths[row["problem"]].append(row["path"])
    return paths
