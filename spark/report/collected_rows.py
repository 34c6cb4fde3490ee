"""Collects the few rows of a DataFrame that a report shows.

`first_rows` bounds the number of rows. Callers of `all_rows` pass a frame that has few rows. Timestamps are collected
as seconds since the epoch, which do not depend on a time zone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

Row = Mapping[str, Any]


class Rows(NamedTuple):
    """The first rows of a DataFrame.

    Attributes:
        types: Spark's type of each column.
        rows: the collected rows, with timestamps in seconds since the epoch.
        left_out: how many further rows there are.
    """

    types: Mapping[str, str]
    rows: Sequence[Row]
    left_out: int = 0


def all_rows(frame: DataFrame) -> Sequence[Row]:
    """Collects every row of a small frame."""
    return _collected(frame)


def first_rows(frame: DataFrame, at_most: int, *order: Column) -> Rows:
    """Collects at most `at_most` rows in an order, and counts the rest without collecting them."""
    found = _collected(frame.orderBy(*order).limit(at_most + 1))
    left_out = frame.count() - at_most if len(found) > at_most else 0
    return Rows(dict(frame.dtypes), found[:at_most], left_out)


def sort_order(name: str | None, then_by: Sequence[str]) -> Sequence[Column]:
    """Returns a sort order: descending by column `name` if it is given, and then ascending by the columns `then_by`."""
    first = [F.col(name).desc_nulls_last()] if name else []
    return [*first, *(F.col(other).asc_nulls_last() for other in then_by)]


def seconds(column: str) -> Column:
    """Converts a column of timestamps, given by its name, to seconds since the epoch."""
    return F.unix_micros(column) / 1e6


def step_of(step: int) -> Column:
    """Returns the beginning of a row's window, in seconds since the epoch, rounded down to a multiple of `step`
    seconds.
    """
    return F.floor(F.unix_seconds("window") / step) * step


def _collected(frame: DataFrame) -> list[Row]:
    cells = (seconds(name).alias(name) if kind == "timestamp" else F.col(name) for name, kind in frame.dtypes)
    return [row.asDict() for row in frame.select(*cells).collect()]
