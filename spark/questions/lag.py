"""How far groups are behind. Must not know: where answers go."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Commit, LogEnd
from group_sidecar.spark.questions.windows import ORDER, WINDOW, seconds_between, told

_PARTITION = (WINDOW, "topic", "partition")


def lag(records: DataFrame, width: str) -> DataFrame:
    """How far each group was behind, at the end of each window, in each partition that it has an offset of.

    The commits are those that the coordinator's sidecar restates, the log ends those that the leader's does: so they
    are of different moments. Their difference may be below zero, and is given as zero. A partition whose log end no
    sidecar told has no lag: null, not zero.

    Returns:
        window, group, topic, partition, committed (offset), log_end (offset), lag (messages); lag_seconds: the lag
        divided by the rate at which the log grew within the window, 0 where there is no lag, null where the log did
        not grow, or was cut, or was seen only once; committed_at, log_end_at; skew_seconds: how far the log end was
        seen from the time in which the commit is known to have held. This is from `committed_at` to when it was told
        last. 0: lag is exact, as of `log_end_at`. Below zero: the log end is older than the commit, so lag may be more.
        Above: the log end is newer than the last word of the commit, so lag may be less.
    """
    return (
        _commits(records, width)
        .join(_log_ends(records, width), [*_PARTITION], "left_outer")
        .withColumn("lag", messages_behind())
        .select(
            WINDOW,
            "group",
            "topic",
            "partition",
            "committed",
            "log_end",
            "lag",
            F.when(F.col("lag") == 0, 0.0).otherwise(F.col("lag") / F.col("per_second")).alias("lag_seconds"),
            "committed_at",
            "log_end_at",
            _skew().alias("skew_seconds"),
        )
    )


def messages_behind() -> Column:
    """How far `committed` is behind `log_end`: not below zero; null where there is no log end."""
    return F.when(F.col("log_end").isNotNull(), F.greatest(F.col("log_end") - F.col("committed"), F.lit(0)))


def group_lag(lags: DataFrame, width: str) -> DataFrame:
    """How far each group was behind in all. Asked of what `lag` answered.

    Returns:
        window, group, lag (sum over the partitions with a log end; null if there are none, or if a sidecar lies and
        the sum is beyond BIGINT), max_partition_lag, lag_seconds (the largest; null if none is known), topics,
        partitions, partitions_without_log_end.
    """
    return lags.groupBy(WINDOW, "group").agg(
        F.try_sum("lag").alias("lag"),
        F.max("lag").alias("max_partition_lag"),
        F.max("lag_seconds").alias("lag_seconds"),
        F.count_distinct("topic").alias("topics"),
        F.count("*").alias("partitions"),
        F.count_if(F.col("lag").isNull()).alias("partitions_without_log_end"),
    )


def _commits(records: DataFrame, width: str) -> DataFrame:
    return (
        told(records, width, Commit.KIND)
        .groupBy(*_PARTITION, "group")
        .agg(
            F.max_by("offset", ORDER).alias("committed"),
            F.max("observed_at").alias("committed_at"),
            F.max_by("emitted_at", ORDER).alias("held_until"),
        )
    )


def _log_ends(records: DataFrame, width: str) -> DataFrame:
    # One that was seen before the window and is restated in it says nothing of how the log grew within.
    within = F.when(F.col("observed_at") >= F.col(WINDOW), F.col(ORDER))
    grown = F.col("log_end") - F.col("first")
    return (
        told(records, width, LogEnd.KIND)
        .groupBy(*_PARTITION)
        .agg(
            F.max_by("offset", ORDER).alias("log_end"),
            F.max("observed_at").alias("log_end_at"),
            F.min_by("offset", within).alias("first"),
            F.min_by("observed_at", within).alias("first_at"),
        )
        .withColumn(
            "per_second", F.when(grown > 0, grown / F.nullif(seconds_between("first_at", "log_end_at"), F.lit(0.0)))
        )
    )


def _skew() -> Column:
    seen = F.col("log_end_at")
    return (
        F.when(seen < F.col("committed_at"), seconds_between("committed_at", seen))
        .when(seen > F.col("held_until"), seconds_between("held_until", seen))
        .when(seen.isNotNull(), 0.0)
    )
