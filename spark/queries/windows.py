"""Assigns records to windows of time, and selects the newest of several observations.

A record counts in the window of its `emitted_at`. All records of one snapshot have the same `emitted_at`, so a
snapshot is never split over two windows.
"""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.duplicates import deduplicated

WINDOW = "window"
"""The first column of every table: the beginning of the window. Windows are counted from the full hour, in UTC."""

ORDER = "order"
"""The column with the order of observations, which `with_window` computes."""

_HOUR = 3_600_000
_HOUR_BITS = 22
"""Number of bits of a number that counts the milliseconds of an hour."""
_LONGEST_AGO = -(2 ** (63 - _HOUR_BITS))
"""The earliest observation, in milliseconds from the beginning of the hour: 69 years before. An earlier observation
counts as if it were made at this moment."""


def with_window(records: DataFrame, width: str, *kinds: str) -> DataFrame:
    """Adds to each record its window, and its order among all observations.

    Observations are ordered by `observed_at`, and equal ones by `emitted_at`. Values of `order` can be compared within
    an hour. `order` is one BIGINT instead of a struct, because Spark can aggregate numbers by hashing, but has to sort
    all records to aggregate structs. The lower 22 bits of `order` are `emitted_at`, in milliseconds of its hour. The
    other bits are `observed_at`, in milliseconds before or after the beginning of that hour.

    Args:
        records: records of the contract. For records that may be duplicates, see `with_window_distinct`.
        width: the width of a window, which divides an hour, for instance ``5 minutes``.
        kinds: the kinds of records to select; all kinds if none is named.
    """
    chosen = records.where(F.col("kind").isin(*kinds)) if kinds else records
    emitted = F.unix_millis("emitted_at")
    of_hour = F.pmod(emitted, F.lit(_HOUR))
    observed = F.greatest(F.unix_millis("observed_at") - (emitted - of_hour), F.lit(_LONGEST_AGO))
    order = F.shiftleft(observed, _HOUR_BITS).bitwiseOR(of_hour)
    return chosen.withColumns({WINDOW: F.window("emitted_at", width)["start"], ORDER: order})


def with_window_distinct(records: DataFrame, width: str, kind: str) -> DataFrame:
    """Does what `with_window` does, after removing duplicate records.

    Removing duplicates shuffles all columns, so this function is only for rare kinds of records. In queries over
    records of snapshots, a duplicate makes no difference.
    """
    return with_window(deduplicated(records.where(F.col("kind") == kind)), width)


def next_window(width: str) -> Column:
    """Returns the window after `window` if it is in the same hour; else null."""
    following = F.col(WINDOW) + F.expr(f"INTERVAL '{width}'")
    return F.when(F.pmod(F.unix_millis(following), F.lit(_HOUR)) != 0, following)


def seconds_between(earlier: Column | str, later: Column | str) -> Column:
    """Returns the seconds from one moment to another; negative if `later` is before `earlier`."""
    return (F.unix_millis(later) - F.unix_millis(earlier)) / F.lit(1000.0)


def latest(rows: DataFrame, keys: Iterable[str], values: Iterable[str], order: Column) -> DataFrame:
    """Returns the last row of each key in an order, with the keys first and then the values."""
    chosen = tuple(keys)
    newest = rows.groupBy(*chosen).agg(F.max_by(F.struct(*values), order).alias("newest"))
    return newest.select(*chosen, "newest.*")
