"""Windows of time, and which of several observations is the newest.

Owns: in which window a record counts, and the order of what was observed. Must not know: any question.

A record counts in the window of `emitted_at`. All records of one restatement have the same, so no window splits it.
"""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.intake import deduplicated

WINDOW = "window"
"""The first column of every table: when the window begins. Windows are counted from the full hour, in UTC."""

ORDER = "order"
"""The order of observations: see `told`."""

_HOUR = 3_600_000
_HOUR_BITS = 22
"""An hour in milliseconds is less than two to the power of this."""
_LONGEST_AGO = -(2 ** (63 - _HOUR_BITS))
"""In milliseconds, 69 years: what a sidecar says it saw before that was seen then."""


def told(records: DataFrame, width: str, *kinds: str) -> DataFrame:
    """Records with the window that each counts in, and their order.

    The order of observations is that of `observed_at`, and among equal ones that of `emitted_at`; `order` may be
    compared within an hour. It is one BIGINT, and no struct: only with numbers can Spark aggregate by hashing, else it
    sorts all records first. Its lower 22 bits are the moment of telling, in milliseconds of its hour; the others the
    moment of observation, in milliseconds before or after that hour began.

    Args:
        records: of the contract; see `told_once` for those that came twice.
        width: of a window, for instance ``5 minutes``; it divides an hour.
        kinds: which records; all if none is named.
    """
    chosen = records.where(F.col("kind").isin(*kinds)) if kinds else records
    emitted = F.unix_millis("emitted_at")
    of_hour = F.pmod(emitted, F.lit(_HOUR))
    observed = F.greatest(F.unix_millis("observed_at") - (emitted - of_hour), F.lit(_LONGEST_AGO))
    order = F.shiftleft(observed, _HOUR_BITS).bitwiseOR(of_hour)
    return chosen.withColumns({WINDOW: F.window("emitted_at", width)["start"], ORDER: order})


def told_once(records: DataFrame, width: str, kind: str) -> DataFrame:
    """The same for what is counted: of records that came twice each once.

    For kinds that are rare. It hands all columns around; whatever a sidecar restates is asked so that a record which
    came twice makes no difference.
    """
    return told(deduplicated(records.where(F.col("kind") == kind)), width)


def next_window(width: str) -> Column:
    """The window after `window`, if it is in the same hour; else null."""
    following = F.col(WINDOW) + F.expr(f"INTERVAL '{width}'")
    return F.when(F.pmod(F.unix_millis(following), F.lit(_HOUR)) != 0, following)


def seconds_between(earlier: Column | str, later: Column | str) -> Column:
    """Seconds from one moment to another; below zero if they are the other way round."""
    return (F.unix_millis(later) - F.unix_millis(earlier)) / F.lit(1000.0)


def latest(rows: DataFrame, keys: Iterable[str], values: Iterable[str], order: Column) -> DataFrame:
    """Of each key the row that comes last in an order: the keys, then the values."""
    chosen = tuple(keys)
    newest = rows.groupBy(*chosen).agg(F.max_by(F.struct(*values), order).alias("newest"))
    return newest.select(*chosen, "newest.*")
