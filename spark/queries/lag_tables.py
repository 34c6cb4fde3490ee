"""The queries for the lag of groups."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Commit, LogEnd
from group_sidecar.spark.queries.windows import ORDER, WINDOW, seconds_between, with_window

_PARTITION = (WINDOW, "topic", "partition")


def lag(records: DataFrame, width: str) -> DataFrame:
    """Returns the lag of each group at the end of each window, in each partition with a committed offset.

    Commits come from the coordinator's sidecar and log ends from the leader's sidecar, so their times differ. A
    negative difference is returned as zero. If no sidecar reported the log end, the lag is null, not zero.

    Returns:
        window TIMESTAMP: Beginning of the window.
        group STRING: Group id.
        topic STRING: Topic.
        partition BIGINT: Partition.
        committed BIGINT: Committed offset.
        log_end BIGINT or null: Log end offset; null if no sidecar reported it in the window.
        lag BIGINT or null: Number of messages from the committed offset to the log end, at least 0; null without a log
            end.
        lag_seconds DOUBLE or null: 0 if the lag is 0. Otherwise the lag divided by the rate at which the log grew
            within the window; null if the log did not grow, was truncated, was seen only once, or has no known end.
        committed_at TIMESTAMP: When the commit was observed.
        log_end_at TIMESTAMP or null: When the log end was observed; null without a log end.
        skew_seconds DOUBLE or null: The distance between `log_end_at` and the period in which the commit is known to
            have been current. That period begins at `committed_at` and ends when the commit was last reported. 0: the
            lag is exact, as of `log_end_at`. Negative: the log end is older than the commit, so the lag may be larger.
            Positive: the log end is newer than the last report of the commit, so the lag may be smaller. Null without a
            log end.
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
    """Returns `log_end` minus `committed`, at least 0; null if there is no log end."""
    return F.when(F.col("log_end").isNotNull(), F.greatest(F.col("log_end") - F.col("committed"), F.lit(0)))


def group_lag(lags: DataFrame, width: str) -> DataFrame:
    """Returns the total lag of each group. `lags` is the result of `lag`.

    Returns:
        window TIMESTAMP: Beginning of the window.
        group STRING: Group id.
        lag BIGINT or null: Sum over the partitions with a log end; null if there are none, or if false records make the
            sum exceed BIGINT.
        max_partition_lag BIGINT or null: The largest lag of a partition; null if no partition has a log end.
        lag_seconds DOUBLE or null: The largest `lag_seconds` of a partition; null if none is known.
        topics BIGINT: Number of topics with a committed offset.
        partitions BIGINT: Number of partitions with a committed offset.
        partitions_without_log_end BIGINT: How many of these partitions have no known log end.
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
        with_window(records, width, Commit.KIND)
        .groupBy(*_PARTITION, "group")
        .agg(
            F.max_by("offset", ORDER).alias("committed"),
            F.max("observed_at").alias("committed_at"),
            F.max_by("emitted_at", ORDER).alias("held_until"),
        )
    )


def _log_ends(records: DataFrame, width: str) -> DataFrame:
    # A snapshot of the window may contain a log end that was observed before the window. Such a log end does not show
    # how the log grew in the window.
    within = F.when(F.col("observed_at") >= F.col(WINDOW), F.col(ORDER))
    grown = F.col("log_end") - F.col("first")
    return (
        with_window(records, width, LogEnd.KIND)
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
