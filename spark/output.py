"""Writes tables to standard output for people, and summaries also as JSON lines for scripts."""

import sys
from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from group_sidecar.metrics.records import TIMESTAMP_FORMAT
from group_sidecar.spark.summaries import Summary

_TABLE_WIDTH = 10_000


def show_json(answer: DataFrame, summary: Summary) -> None:
    """Writes all rows, each as a JSON object on its own line."""
    for line in _json_lines(answer, summary):
        sys.stdout.write(line + "\n")


def show_table(answer: DataFrame, summary: Summary, limit: int) -> None:
    """Writes the first `limit` rows as a table, and a note if there are more."""
    all_types = dict(answer.dtypes)
    types = {name: all_types[name] for name in summary.terminal_columns or answer.columns}
    # Spark formats the timestamps, because Python would use the time zone of this machine.
    cells = (
        F.date_format(name, "yyyy-MM-dd HH:mm:ss") if kind == "timestamp" else name for name, kind in types.items()
    )
    rows = answer.orderBy(*_order(summary)).select(*cells).take(limit + 1)
    columns = [(name, kind in ("bigint", "double")) for name, kind in types.items()]
    print_table(columns, rows[:limit])
    if len(rows) > limit:
        print_text(f"These are the first {limit} rows; --limit or --json shows more.")


def print_table(columns: Sequence[tuple[str, bool]], rows: Iterable[Iterable[object]]) -> None:
    """Writes a table.

    Args:
        columns: the name of each column, and whether its cells are aligned to the right.
        rows: the cells of each row. None is an empty cell.
    """
    table = Table(box=SIMPLE_HEAD)
    for name, right in columns:
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    _console().print(table)


def print_text(text: str) -> None:
    """Writes a line of text. A terminal folds the line between words."""
    _console().print(Text(printable(text)))


def _console() -> Console:
    # Output that is not a terminal is read by programs, so lines are not folded.
    return Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH)


def printable(cell: object) -> str:
    """Formats a cell as text without control characters. None becomes an empty text."""
    if isinstance(cell, float):
        return f"{cell:.1f}"
    # Text from clients and broken sidecars must not send control characters to the terminal.
    return (
        ""
        if cell is None
        else "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(cell))
    )


def _json_lines(answer: DataFrame, summary: Summary) -> Iterator[str]:
    options = {"ignoreNullFields": "false", "timestampFormat": TIMESTAMP_FORMAT}
    # Rows are read from one sorted partition. A global sort would first compute everything again, for a sample.
    ordered = answer.repartition(1).sortWithinPartitions(*_order(summary))
    for row in ordered.select(F.to_json(F.struct("*"), options)).toLocalIterator():
        yield row[0]


def _order(summary: Summary) -> list[Column]:
    first_by = [F.col(summary.first_by).desc_nulls_last()] if summary.first_by else []
    return [*first_by, *(F.col(name) for name in summary.then_by)]
