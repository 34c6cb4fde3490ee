"""A summary on standard output: a table for people, or JSON lines for scripts.

Owns: order, limits, how cells are written. Must not know: what a summary says.
"""

import sys
from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from group_sidecar.metrics.records import TIMESTAMP_FORMAT
from group_sidecar.spark.summaries import Summary

_UNFOLDED = 10_000


def show_json(answer: DataFrame, shown: Summary) -> None:
    """Writes all rows, each a JSON object on a line of its own."""
    for line in _json_lines(answer, shown):
        sys.stdout.write(line + "\n")


def show_table(answer: DataFrame, shown: Summary, limit: int) -> None:
    """Writes the first `limit` rows as a table, and whether there are more."""
    all_types = dict(answer.dtypes)
    types = {name: all_types[name] for name in shown.glance or answer.columns}
    # Spark writes the moments: Python would show them in the time zone of this machine.
    cells = (
        F.date_format(name, "yyyy-MM-dd HH:mm:ss") if kind == "timestamp" else name for name, kind in types.items()
    )
    rows = answer.orderBy(*_order(shown)).select(*cells).take(limit + 1)
    table = Table(box=SIMPLE_HEAD)
    for name, kind in types.items():
        table.add_column(name, justify="right" if kind in ("bigint", "double") else "left", overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(Text(_spelled(cell)) for cell in row))
    # What is no terminal is read by programs, which nothing should be folded for.
    console = Console(width=None if sys.stdout.isatty() else _UNFOLDED)
    console.print(table)
    if len(rows) > limit:
        console.print(f"These are the first {limit} rows; --limit or --json shows more.")


def _spelled(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.1f}"
    # What clients and broken sidecars write must not steer the terminal.
    return (
        ""
        if cell is None
        else "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(cell))
    )


def _json_lines(answer: DataFrame, shown: Summary) -> Iterator[str]:
    options = {"ignoreNullFields": "false", "timestampFormat": TIMESTAMP_FORMAT}
    # One sorted partition, read row by row: a global order would first ask everything once more, for a sample.
    ordered = answer.repartition(1).sortWithinPartitions(*_order(shown))
    for row in ordered.select(F.to_json(F.struct("*"), options)).toLocalIterator():
        yield row[0]


def _order(shown: Summary) -> list[Column]:
    largest = [F.col(shown.largest).desc_nulls_last()] if shown.largest else []
    return [*largest, *(F.col(name) for name in shown.then)]
