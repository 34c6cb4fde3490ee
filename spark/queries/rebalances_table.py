"""The query for rebalances: how often, why, and at what cost."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Rebalance
from group_sidecar.spark.queries.windows import WINDOW, with_window_distinct

UNKNOWN = "unknown"
"""The cause of a rebalance whose record has no cause."""


def rebalances(records: DataFrame, width: str) -> DataFrame:
    """Returns how often each group rebalanced in each window, by cause.

    Returns:
        window TIMESTAMP: Beginning of the window.
        group STRING: Group id.
        cause STRING: Cause; `unknown` if the record has none.
        reason STRING: What began the rebalances: join, leave, metadata, expired or unknown.
        rebalances BIGINT: Number of rebalances.
        seconds DOUBLE: Sum of the rebalances' durations.
        longest_seconds DOUBLE: The longest duration.
        lost_consumer_seconds DOUBLE: Sum of duration times members. This is an upper bound of the lost time, because it
            assumes that all members paused.
        members BIGINT: The maximum number of members.
        last_at TIMESTAMP: When the last rebalance was observed.
    """
    lasted = F.col("duration_seconds")
    return (
        with_window_distinct(records, width, Rebalance.KIND)
        .withColumn("cause", F.coalesce("cause", F.lit(UNKNOWN)))
        .groupBy(WINDOW, "group", "cause", "reason")
        .agg(
            F.count("*").alias("rebalances"),
            F.sum(lasted).alias("seconds"),
            F.max(lasted).alias("longest_seconds"),
            F.sum(lasted * F.col("members")).alias("lost_consumer_seconds"),
            F.max("members").alias("members"),
            F.max("observed_at").alias("last_at"),
        )
    )
