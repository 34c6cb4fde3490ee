"""From a DataFrame to the few rows that a report holds.

Owns: how rows leave Spark: bounded, and with moments as seconds since the epoch, which no time zone can change. Must
not know: what is asked.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

Row = Mapping[str, Any]


class Rows(NamedTuple):
    """The first rows of a DataFrame.

    Attributes:
        types: its columns and what Spark calls their types.
        rows: what was asked for; moments in seconds since the epoch.
        left_out: how many more there are.
    """

    types: Mapping[str, str]
    rows: Sequence[Row]
    left_out: int = 0


def all_rows(frame: DataFrame) -> Sequence[Row]:
    """Every row, of a frame that was made small."""
    return _collected(frame)


def first_rows(frame: DataFrame, most: int, *order: Column) -> Rows:
    """The first rows in an order, at most so many; the rest is counted, and stays where it is."""
    found = _collected(frame.orderBy(*order).limit(most + 1))
    left_out = frame.count() - most if len(found) > most else 0
    return Rows(dict(frame.dtypes), found[:most], left_out)


def largest(name: str | None, then: Sequence[str]) -> Sequence[Column]:
    """An order: the largest values of one column first, if one is named, and then by others."""
    first = [F.col(name).desc_nulls_last()] if name else []
    return [*first, *(F.col(other).asc_nulls_last() for other in then)]


def seconds(moment: str) -> Column:
    """A column of moments as seconds since the epoch."""
    return F.unix_micros(moment) / 1e6


def step_of(step: int) -> Column:
    """In which step a row's window lies: its beginning, in seconds since the epoch."""
    return F.floor(F.unix_seconds("window") / step) * step


def _collected(frame: DataFrame) -> list[Row]:
    cells = (seconds(name).alias(name) if kind == "timestamp" else F.col(name) for name, kind in frame.dtypes)
    return [row.asDict() for row in frame.select(*cells).collect()]
