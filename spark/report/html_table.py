"""Builds the table below a chart: the text of its cells, and the values by which they are sorted.

A column's type and name decide its heading and format.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any

from group_sidecar.spark.report.collected_rows import Rows
from group_sidecar.spark.report.formatting import duration, moment, number, visible

EMPTY_CELL = "-"


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a cell. `sort`: the number by which the cell is sorted; None to sort the cell by its text."""

    text: str
    sort: float | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """The name of a column, and whether its cells are aligned to the right."""

    text: str
    right: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people. `left_out` is the number of further rows that are not shown."""

    caption: str
    headings: Sequence[Heading]
    rows: Sequence[Sequence[Cell]]
    left_out: int = 0


def to_table(caption: str, found: Rows) -> Table:
    """Turns collected rows into a table. A column's type and name decide how its cells are formatted."""
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
        return Cell(EMPTY_CELL)
    return _NUMERIC[kind](value) if kind in _NUMERIC else Cell(_text_of(value))


_NUMERIC: Mapping[str, Callable[[float], Cell]] = MappingProxyType(
    {
        "moment": lambda value: Cell(moment(value), value),
        "duration": lambda value: Cell(duration(value), value),
        "number": lambda value: Cell(number(value), value),
    }
)
_RIGHT = ("duration", "number")


def _text_of(value: Any) -> str:
    """Formats a value that is not a number on one line: the pairs of a map, or the items of a list."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return _joined(f"{_text_of(key)} {_text_of(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return _joined(map(_text_of, value))
    if isinstance(value, date):
        return value.isoformat()
    return number(value) if isinstance(value, int | float) else visible(str(value)) or "(empty)"


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts) or EMPTY_CELL
