"""One batch of lines into the store: a small backfill.

Owns: which hours a batch touches, and that all tables of these hours are answered again. Must not know: whether the
batch came by a stream, nor what the questions are.

Nothing is kept between batches but what the store has. So the same function fills a store from a year's journals and
keeps it up to date from minute to minute; a batch that was cut short is done again from its beginning; and a record
that comes hours late only has its hour answered once more. There is no watermark: it would drop that record, and so
falsify the hour without a word.
"""

import json
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark import intake
from group_sidecar.spark.piles import Batch
from group_sidecar.spark.store import Store
from group_sidecar.spark.tables import RECORDS, TABLES, Table

_AT_ONCE = 3
"""Tables that are answered side by side: planning one keeps the driver busy, and the executors wait."""


_KEPT = "has fewer lines than when it was first taken, for segments are gone: the {} lines of then are kept"


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """What a batch brought.

    Attributes:
        records: lines that are records, repeated ones included.
        quarantined: number of the other lines, by fault.
        hours: the hours (UTC) that were answered again, oldest first.
        days_dropped: days that were too old to be kept.
        warnings: what somebody should look at, each in one line.
    """

    records: int
    quarantined: Mapping[str, int]
    hours: tuple[datetime, ...]
    days_dropped: int = 0
    warnings: tuple[str, ...] = ()


def refresh(store: Store, lines: DataFrame, batch: Batch, now: datetime | None = None) -> Refreshed:
    """Takes a batch of lines into the store.

    Doing the same batch again has the same effect as doing it once, also if the first attempt was cut short anywhere.

    Args:
        store: where to.
        lines: `value` STRING and `arrived_at` TIMESTAMP; with `file`, as `sources` gives it, they go into the ledger.
        batch: its number in the stream, larger than those of batches that are done; or a name, of what is none of it.
        now: when the future begins, and which moment ages are counted from; the current time if None.
    """
    now = now or datetime.now(UTC)
    files = Observation() if "file" in lines.columns else None
    if files is not None:
        lines = lines.observe(files, F.to_json(F.collect_set("file")).alias("files"))
    with store.writing:
        days_dropped = store.tidy(batch, now) if isinstance(batch, int) else 0
        taken = _take(store, _judged(store, lines, now), batch, now)
        answer(store, taken.hours)
        if files is not None:
            segments = json.loads(files.get["files"])
            if segments:
                store.ledger.add(batch, "".join(f"{json.dumps(each)}\n" for each in segments))
    return replace(taken, days_dropped=days_dropped)


def replay(store: Store, lines: DataFrame, since: datetime, until: datetime, now: datetime | None = None) -> Refreshed:
    """Answers these hours again, from the records that the store has and those among the lines that it lacks.

    No stream may be writing to the store. Lines that are no records are left to the stream, which counts them.

    Args:
        store: where to.
        lines: `value` STRING and `arrived_at` TIMESTAMP.
        since: the beginning of the first hour.
        until: the end of the last hour.
        now: as for `refresh`.
    """
    now = now or datetime.now(UTC)
    told = F.col("emitted_at")
    judged = _judged(store, lines, now)
    chosen = judged.where(F.col("fault").isNull() & (told >= F.lit(since)) & (told < F.lit(until)))
    taken = _take(store, chosen, f"replay-{now:%Y%m%d%H%M%S%f}", now)
    hours = tuple(sorted({*taken.hours, *store.hours(since, until)}))
    answer(store, hours)
    return replace(taken, hours=hours)


def answer(store: Store, hours: Collection[datetime]) -> None:
    """Answers every question for these hours again, from the records that the store has of them."""
    if not hours:
        return
    records = store.records(hours)

    def ask(first: Table) -> None:
        store.replace(first.name, first.ask(records, store.window), hours)
        for table in TABLES.values():
            if table.source == first.name:
                store.replace(table.name, table.ask(store.answers(first.name, hours), store.window), hours)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = [pool.submit(ask, table) for table in TABLES.values() if table.source == RECORDS]
    for each in asked:
        each.result()


def _judged(store: Store, lines: DataFrame, now: datetime) -> DataFrame:
    oldest = store.oldest(now)
    return intake.judged(lines, F.lit(now), None if oldest is None else F.lit(oldest))


def _take(store: Store, judged: DataFrame, batch: Batch, now: datetime) -> Refreshed:
    added = store.add(batch, judged, now)
    warnings = () if not added.kept else (f"batch {batch} {_KEPT.format(added.kept)}",)
    hours = tuple(sorted(added.hours))
    return Refreshed(records=added.records, quarantined=added.quarantined, hours=hours, warnings=warnings)
