"""Combines conditions about a row into one condition."""

from collections.abc import Iterable
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812


def all_of(conditions: Iterable[Column]) -> Column:
    """Returns whether all conditions are true; true if there are none."""
    return reduce(and_, conditions, F.lit(True))


def any_of(conditions: Iterable[Column]) -> Column:
    """Returns whether at least one condition is true; false if there are none."""
    return reduce(or_, conditions, F.lit(False))
