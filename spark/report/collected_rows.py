"""Collects the few rows of a DataFrame that a report shows.

The number of rows is bounded. Timestamps are collected as seconds since the epoch, which do not depend on a time zone.
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


def first_by(name: str | None, then_by: Sequence[str]) -> Sequence[Column]:
    """Returns an order: descending by one column, if it is named, and then ascending by others."""
    first = [F.col(name).desc_nulls_last()] if name else []
    return [*first, *(F.col(other).asc_nulls_last() for other in then_by)]


def seconds(moment: str) -> Column:
    """Returns a column of timestamps as seconds since the epoch."""
    return F.unix_micros(moment) / 1e6


def step_of(step: int) -> Column:
    """Returns the beginning of the step that contains a row's window, in seconds since the epoch."""
    return F.floor(F.unix_seconds("window") / step) * step


def _collected(frame: DataFrame) -> list[Row]:
    cells = (seconds(name).alias(name) if kind == "timestamp" else F.col(name) for name, kind in frame.dtypes)
    return [row.asDict() for row in frame.select(*cells).collect()]
