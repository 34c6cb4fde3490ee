"""Sealed segments of a small fleet, with every kind of damage, and the contents of a store as plain Python.

The segments are in the order in which a stream reads them.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from group_sidecar.metrics.records import timestamp
from group_sidecar.spark.store import QUARANTINE, Store
from group_sidecar.spark.tables import TABLES
from tests.spark.record_frames import RecordsOfBoot, Row, at

HOUR = 3600
NOW = at(3 * HOUR)
SEALED = at(3 * HOUR - 1).timestamp()
"""All segments have the same date, so that their dates do not distinguish copies of a record."""
BROKEN = '{"version":1,'
FOREIGN = '{"version":9}'


def line(record: Row) -> str:
    """Returns a record as its sidecar writes it."""
    cells = {name: cell for name, cell in record.items() if name != "arrived_at"}
    return json.dumps({name: _written(cell) for name, cell in cells.items()})


def seal(folder: Path, name: str, lines: Iterable[str]) -> Path:
    """Writes a segment as a sidecar does: under a hidden name until it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}.jsonl"
    hidden.write_text("".join(f"{each}\n" for each in lines))
    os.utime(hidden, (SEALED, SEALED))
    return hidden.rename(folder / f"{name}.jsonl")


def segments_in_order() -> dict[str, list[str]]:
    """Returns segments by name, in the order of their arrival.

    Two sidecars report a group whose coordinator moves. The clock of a third sidecar is ahead, first slightly and then
    too far. `again` is a copy with damaged lines and a very old record. `late` is about an hour that is over.
    """
    a, b, fast, ancient = (
        RecordsOfBoot("a"),
        RecordsOfBoot("b"),
        RecordsOfBoot("fast", ahead=200),
        RecordsOfBoot("ancient"),
    )
    begin = [
        a.heartbeat(10, connections=4),
        a.group(10, "orders", 1),
        a.commit(10, "orders", "t", 0, 5),
        b.log_end(11, "t", 0, 8),
        b.heartbeat(12),
        fast.heartbeat(15),
    ]
    delayed = [b.group(400, "orders", 2, members=3), b.refusal(410, "tiny", "group_max_size", 77), b.heartbeat(420)]
    second = [
        b.group(HOUR + 10, "orders", 3, members=2),
        b.commit(HOUR + 10, "orders", "t", 0, 9),
        b.log_end(HOUR + 10, "t", 0, 29),
        b.rebalance(HOUR + 20, "orders", "join", 0.5, cause="new_member", members=2),
        b.member(HOUR + 20, "orders", "joined"),
        a.heartbeat(HOUR + 30, connections=6),
    ]
    lying = [fast.heartbeat(3 * HOUR + 200)]
    begin_lines = [line(record) for record in begin]
    return {
        "begin": begin_lines,
        "second": [line(record) for record in second],
        "again": [*begin_lines, BROKEN, BROKEN, FOREIGN, line(ancient.heartbeat(-400 * 24 * HOUR)), *map(line, lying)],
        "late": [line(record) for record in delayed],
    }


def all_rows(store: Store, tables: Iterable[str] = tuple(TABLES)) -> dict[str, list[str]]:
    """Returns all rows of these tables and of the quarantine, each as a string, sorted."""
    return {name: cells(store.read(name)) for name in (*tables, QUARANTINE)}


def cells(rows: DataFrame) -> list[str]:
    """Returns all rows, each as a string, sorted."""
    return sorted(str(row) for row in rows.collect())


def folders(store: Path, pattern: str) -> list[str]:
    """Returns the matching folders of a store, relative to it."""
    return sorted(str(found.relative_to(store)) for found in store.glob(pattern))


def _written(cell: Any) -> Any:
    if isinstance(cell, datetime):
        return timestamp(cell.astimezone(UTC).timestamp())
    return dict(cell) if isinstance(cell, Mapping) else cell


def tell(folder: Path, names: Sequence[str]) -> None:
    """Seals the segments with these names."""
    lines_by_segment = segments_in_order()
    for name in names:
        seal(folder, name, lines_by_segment[name])
