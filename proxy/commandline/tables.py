"""Tables, fields and JSON on standard output.

The module formats rows as lines, for a terminal and for other outputs.
"""

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
"""In tables: there is none, or nobody tells."""

_RIGHT_ALIGNED = frozenset(
    ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "#PARTITIONS", "#MEMBERS", "LIMIT", "REBALANCES", "COUNT")
)
_UNBROKEN_COLUMNS = frozenset(("STATE", "LAST-REBALANCE", "CAUSE"))  # Never long, and unreadable in pieces.
_GAP = 2  # Columns of a terminal between those of a table.
_NAME = 30  # Columns that a name gets before other columns of the table have to go.

Cells = Mapping[str, object]
"""Values by heading; None and the empty string are missing."""


def print_json(answer: Mapping[str, object]) -> None:
    """Prints one JSON document; errors in it by their texts."""
    typer.echo(json.dumps(answer, indent=2, default=str))


def print_fields(fields: Cells) -> None:
    """Prints a line for each field."""
    width = max(map(len, fields))
    for heading, value in fields.items():
        typer.echo(f"{heading:{width}}  {format_cell(value)}")


def print_table(headings: Sequence[str], rows: Sequence[Cells]) -> None:
    """Plain columns, a line for each row; on a terminal, folded to its width and without columns that say nothing."""
    cells = {heading: [format_cell(row[heading]) for row in rows] for heading in headings}
    if sys.stdout.isatty():
        shown = {heading: column for heading, column in cells.items() if set(column) != {MISSING}}
        Console().print(_folding_table(shown), crop=False)  # Where even the headings are too wide, the terminal wraps.
        return
    widths = [max(map(len, (heading, *column))) for heading, column in cells.items()]
    for line in (tuple(headings), *zip(*cells.values(), strict=True)):
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def fit_table(headings: Sequence[str], rows: Sequence[Cells], width: int, droppable: Sequence[str]) -> Table:
    """A table of one line for each row in a terminal of this width.

    What has no room is left out of `droppable`, in its order; then the first column is cut.

    Args:
        headings: the first is of names.
        rows: the values.
        width: in columns.
        droppable: headings of columns that may go.
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
    """Without control characters: ids and metadata are any client's text and must not steer a terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
