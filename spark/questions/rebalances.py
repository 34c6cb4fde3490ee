"""How often groups rebalanced, why, and what it cost. Must not know: where answers go."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Rebalance
from group_sidecar.spark.questions.windows import WINDOW, told_once

UNKNOWN = "unknown"
"""The cause of a rebalance whose sidecar did not tell one."""


def rebalances(records: DataFrame, width: str) -> DataFrame:
    """How often each group rebalanced in each window, by cause.

    Returns:
        window, group, cause (`unknown` where none was told), reason, rebalances, seconds (sum of how long they took),
        longest_seconds, lost_consumer_seconds (sum of seconds times members: they all stood still, so it is the most
        that was lost), members (the most), last_at.
    """
    lasted = F.col("duration_seconds")
    return (
        told_once(records, width, Rebalance.KIND)
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
