"""Removes duplicate records: a line may be read more than once, for instance from a folder and from a topic."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.line_parsing import record_types

_IDENTITY = ("sidecar", "boot", "seq")


def deduplicated(records: DataFrame) -> DataFrame:
    """Removes duplicate records. A record is identified by (sidecar, boot, seq).

    The record keeps the earliest arrival of its lines, so results do not depend on which line Spark reads first.
    """
    arrived = F.min("arrived_at").alias("arrived_at")
    # The columns come from the contract, because a Declarative Pipeline must not ask a frame for its columns.
    rest = (F.first(column).alias(column) for column in record_types() if column not in _IDENTITY)
    return records.groupBy(*_IDENTITY).agg(*rest, arrived).select(*record_types(), "arrived_at")
