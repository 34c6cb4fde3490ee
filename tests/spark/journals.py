"""Sealed segments of a small fleet, with every kind of damage; and what a store has, as plain Python.

The fleet's story is told in parts, as the parts of a stream come: each is a segment.
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
from tests.spark.frames import Row, Told, at

HOUR = 3600
NOW = at(3 * HOUR)
SEALED = at(3 * HOUR - 1).timestamp()
"""When segments were sealed, all of them: how late each was must not tell one copy from another."""
BROKEN = '{"version":1,'
FOREIGN = '{"version":9}'


def line(record: Row) -> str:
    """A record as its sidecar writes it."""
    cells = {name: cell for name, cell in record.items() if name != "arrived_at"}
    return json.dumps({name: _written(cell) for name, cell in cells.items()})


def seal(folder: Path, name: str, lines: Iterable[str]) -> Path:
    """Writes a segment as a sidecar does: under a hidden name, until it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}.jsonl"
    hidden.write_text("".join(f"{each}\n" for each in lines))
    os.utime(hidden, (SEALED, SEALED))
    return hidden.rename(folder / f"{name}.jsonl")


def story() -> dict[str, list[str]]:
    """Segments by name, in the order in which they come.

    Two sidecars tell of a group whose coordinator moves; the clock of a third is ahead, by a little and then by too
    much. `again` is a copy, with broken lines and a record of long ago; `late` is about an hour that is over.
    """
    a, b, fast, ancient = Told("a"), Told("b"), Told("fast", ahead=200), Told("ancient")
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
    told = [line(record) for record in begin]
    return {
        "begin": told,
        "second": [line(record) for record in second],
        "again": [*told, BROKEN, BROKEN, FOREIGN, line(ancient.heartbeat(-400 * 24 * HOUR)), *map(line, lying)],
        "late": [line(record) for record in delayed],
    }


def everything(store: Store, tables: Iterable[str] = tuple(TABLES)) -> dict[str, list[str]]:
    """All rows of these tables and of the quarantine, each as a string, sorted."""
    return {name: cells(store.read(name)) for name in (*tables, QUARANTINE)}


def cells(rows: DataFrame) -> list[str]:
    """All rows, each as a string, sorted."""
    return sorted(str(row) for row in rows.collect())


def folders(store: Path, pattern: str) -> list[str]:
    """Which folders a store has, relative to it."""
    return sorted(str(found.relative_to(store)) for found in store.glob(pattern))


def _written(cell: Any) -> Any:
    if isinstance(cell, datetime):
        return timestamp(cell.astimezone(UTC).timestamp())
    return dict(cell) if isinstance(cell, Mapping) else cell


def tell(folder: Path, names: Sequence[str]) -> None:
    """Seals these parts of the story."""
    told = story()
    for name in names:
        seal(folder, name, told[name])
