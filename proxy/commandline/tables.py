"""Prints tables, fields and JSON on standard output, for a terminal or for programs."""

import json
import sys
from collections.abc import Mapping, Sequence

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

MISSING = "-"
"""Stands in tables for a value that does not exist or is unknown."""

_RIGHT_ALIGNED = frozenset(
    ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "#PARTITIONS", "#MEMBERS", "LIMIT", "REBALANCES", "COUNT")
)
_UNBROKEN_COLUMNS = frozenset(("STATE", "LAST-REBALANCE", "CAUSE"))  # Their values are short, and are not folded.
_OPTIONAL_COLUMNS = frozenset(("PRINCIPAL",))  # Clusters without TLS and SASL have no principals.
_GAP = 2  # Characters between two columns of a table.
_NAME = 30  # `fit_table` drops columns until names have room for this many characters.

Cells = Mapping[str, object]
"""Values by heading. None and the empty string stand for a missing value."""


def print_json(answer: Mapping[str, object]) -> None:
    """Prints one JSON document. An exception in `answer` is written as its text."""
    typer.echo(json.dumps(answer, indent=2, default=str))


def print_fields(fields: Cells) -> None:
    """Prints a line for each field."""
    width = max(map(len, fields))
    for heading, value in fields.items():
        typer.echo(f"{heading:{width}}  {format_cell(value)}")


def print_table(headings: Sequence[str], rows: Sequence[Cells]) -> None:
    """Prints aligned columns, one line for each row.

    On a terminal the table is folded to the terminal's width, and columns without any value are left out. Elsewhere,
    only columns of `_OPTIONAL_COLUMNS` are left out if they have no value.
    """
    cells = {heading: [format_cell(row[heading]) for row in rows] for heading in headings}
    for heading in _OPTIONAL_COLUMNS.intersection(cells):
        if set(cells[heading]) <= {MISSING}:
            del cells[heading]
    if sys.stdout.isatty():
        shown = {heading: column for heading, column in cells.items() if set(column) != {MISSING}}
        Console().print(_folding_table(shown), crop=False)  # If even the headings are too wide, the terminal wraps.
        return
    widths = [max(map(len, (heading, *column))) for heading, column in cells.items()]
    for line in (tuple(cells), *zip(*cells.values(), strict=True)):
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def fit_table(headings: Sequence[str], rows: Sequence[Cells], width: int, droppable: Sequence[str]) -> Table:
    """Returns a table with one line for each row, which fits into a terminal.

    If the table is too wide, columns of `droppable` are left out, in that order. Then the first column is cut.

    Args:
        headings: the headings. The first column contains names.
        rows: the values.
        width: the width of the terminal, in characters.
        droppable: the headings of columns that may be left out.
    """
    cells = {heading: [format_cell(row[heading]) for row in rows] for heading in headings}
    widths = {heading: max(map(cell_len, (heading, *column))) + _GAP for heading, column in cells.items()}
    named, *others = widths
    for heading in droppable:
        if min(widths[named], _NAME) + sum(widths[other] for other in others) > width:
            others.remove(heading)
    widths[named] = max(min(widths[named], width - sum(widths[other] for other in others)), _GAP + 1)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for heading in (named, *others):
        table.add_column(
            heading, justify=_justify(heading), no_wrap=True, overflow="ellipsis", width=widths[heading] - _GAP
        )
    for line in zip(*(cells[heading] for heading in (named, *others)), strict=True):
        table.add_row(*map(Text, line))
    return table


def _folding_table(cells: Mapping[str, Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading, column in cells.items():
        whole = max(map(cell_len, column), default=0) if heading in _UNBROKEN_COLUMNS else 0
        table.add_column(heading, justify=_justify(heading), overflow="fold", min_width=max(len(heading), whole))
    for line in zip(*cells.values(), strict=True):
        table.add_row(*map(Text, line))
    return table


def _justify(heading: str) -> JustifyMethod:
    return "right" if heading in _RIGHT_ALIGNED else "left"


def format_cell(value: object) -> str:
    """Returns a value as text for a table."""
    return MISSING if value is None or value == "" else printable(str(value))


def printable(text: str) -> str:
    """Returns the text with control characters escaped, because any client can choose ids and metadata."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
