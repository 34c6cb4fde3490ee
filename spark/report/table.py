"""The table that stands below a chart: what its cells say, and what they are sorted by.

Owns: headings and words by the kind of column. Must not know: HTML, Spark.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any

from group_sidecar.spark.report.rows import Rows
from group_sidecar.spark.report.spelling import duration, moment, number, visible

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell says, and the number it is sorted by; None if by what it says."""

    text: str
    sort: float | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """What a column is called, and whether its cells stand on the right."""

    text: str
    right: bool


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for people. `left_out`: how many more there are than are shown."""

    caption: str
    headings: Sequence[Heading]
    rows: Sequence[Sequence[Cell]]
    left_out: int = 0


def tabled(caption: str, found: Rows) -> Table:
    """Rows as they left Spark, as a table; a column's type and name decide how its cells are spelled."""
    kinds = {name: _kind(name, sql_type) for name, sql_type in found.types.items()}
    headings = [
        Heading(
            (f"{name.removesuffix('seconds')}time" if kind == "duration" else name).replace("_", " "), kind in _RIGHT
        )
        for name, kind in kinds.items()
    ]
    rows = [[_cell(kind, row[name]) for name, kind in kinds.items()] for row in found.rows]
    return Table(caption, headings, rows, found.left_out)


def _kind(name: str, sql_type: str) -> str:
    if sql_type == "timestamp":
        return "moment"
    if sql_type in ("tinyint", "smallint", "int", "bigint", "float", "double"):
        return "duration" if name == "seconds" or name.endswith("_seconds") else "number"
    return "word"


def _cell(kind: str, value: Any) -> Cell:
    if value is None:
        return Cell(NOTHING)
    return _NUMERIC[kind](value) if kind in _NUMERIC else Cell(_said(value))


_NUMERIC: Mapping[str, Callable[[float], Cell]] = MappingProxyType(
    {
        "moment": lambda value: Cell(moment(value), value),
        "duration": lambda value: Cell(duration(value), value),
        "number": lambda value: Cell(number(value), value),
    }
)
_RIGHT = ("duration", "number")


def _said(value: Any) -> str:
    """What is no number, in a line: of a map its pairs, of a list its parts."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return _joined(f"{_said(key)} {_said(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return _joined(map(_said, value))
    if isinstance(value, date):
        return value.isoformat()
    return number(value) if isinstance(value, int | float) else visible(str(value)) or "(empty)"


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts) or NOTHING
