"""Looks for segments that a stream passes over, and for several sidecars with one id.

Owns: what is looked for, and the warnings. Must not know: how the stream works.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark import sources
from group_sidecar.spark.refresh import Refreshed, refresh
from group_sidecar.spark.store import Store

_LOOK_BACK = timedelta(days=1)
"""Sidecars are compared over so long before the newest hour."""
_NAMED = 3
"""Files or sidecars that a warning names."""
_SEGMENT = f"%{sources.SEGMENTS.removeprefix('*')}"


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The findings.

    Attributes:
        warnings: what somebody should look at, each in one line.
        taken: what changed segments brought; None if there were none.
    """

    warnings: tuple[str, ...]
    taken: Refreshed | None = None


def survey(spark: SparkSession, store: Store, folder: str | None, now: datetime | None = None) -> Survey:
    """Takes segments that have changed since they were taken, and warns of them and of others that are passed over.

    No other thread may be taking a batch.

    Args:
        spark: the session.
        store: where to.
        folder: with the segments; None where lines come from a topic.
        now: the current time if None.
    """
    warnings: list[str] = []
    taken = None
    if folder is not None:
        files = sources.all_files(spark, folder)
        others = sorted(row["path"] for row in files.where(~F.col("path").like(_SEGMENT)).select("path").collect())
        if others:
            warnings.append(f"not read, for only *.jsonl is: {_files(others)}")
        if changed := store.ledger.changed(files):
            warnings.append(f"read again, for they changed after they were read: {_files(changed)}")
            lines = sources.files(spark, folder).where(F.col("file.path").isin(changed))
            now = now or datetime.now(UTC)
            taken = refresh(store, lines, f"changed-{now:%Y%m%d%H%M%S%f}", now)
        store.ledger.merge()
    if twins := _twins(store):
        warnings.append(f"several sidecars run with one id, so their records are mixed up: {_first(twins)}")
    return Survey(warnings=tuple(warnings), taken=taken)


def _twins(store: Store) -> list[str]:
    """Ids of sidecars of which two starts wrote in the same windows, more than once: a restart has one such window."""
    newest = store.newest_hour()
    if newest is None:
        return []
    starts = store.read("sidecars", newest - _LOOK_BACK).select("window", "sidecar", "boot")
    one, other = starts.alias("one"), starts.alias("other")
    both = F.expr("one.window = other.window AND one.sidecar = other.sidecar AND one.boot < other.boot")
    windows = one.join(other, both).groupBy("one.sidecar", "one.boot", "other.boot").count()
    return sorted({row["sidecar"] for row in windows.where("count > 1").select("sidecar").collect()})


def _files(paths: list[str]) -> str:
    return f"{'1 file' if len(paths) == 1 else f'{len(paths)} files'} ({_first(paths)})"


def _first(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
