"""Which sidecars live, what of theirs is there, and how their clocks go. Must not know: where answers go."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Heartbeat
from group_sidecar.spark.questions.windows import WINDOW, seconds_between, told

_BLOCK_BITS = 6
"""A BIGINT has two to the power of this bits."""


def sidecars(records: DataFrame, width: str) -> DataFrame:
    """What each start of each sidecar told in each window.

    Returns:
        window, sidecar, boot, first_seq, last_seq, records (fewer than from first to last: some are missing),
        heartbeats, last_heartbeat (null if there was none), last_record, clock_skew_seconds (median over the
        heartbeats of when they arrived less when they were made; null if that is not known. It has the time on the
        way in it, so only below zero is it the clock's alone: this one is ahead).
    """
    beat = F.when(F.col("kind") == Heartbeat.KIND, F.col("emitted_at"))
    start = (WINDOW, "sidecar", "boot")
    # Records that came twice count once: a number is a bit of its block, and a bit is set or not.
    blocks = (
        told(records, width)
        .groupBy(*start, beat.alias("beat"), F.shiftright("seq", _BLOCK_BITS).alias("block"))
        .agg(
            F.min("seq").alias("first_seq"),
            F.max("seq").alias("last_seq"),
            F.bit_or(F.expr(f"shiftleft(1L, CAST(seq & {2**_BLOCK_BITS - 1} AS INT))")).alias("numbers"),
            F.max("emitted_at").alias("last_record"),
            F.min("arrived_at").alias("arrived_at"),
        )
    )
    # Each heartbeat is a row, and all between are one: the median is then of few rows.
    beats = blocks.groupBy(*start, "beat").agg(
        F.min("first_seq").alias("first_seq"),
        F.max("last_seq").alias("last_seq"),
        F.sum(F.bit_count("numbers").cast("bigint")).alias("records"),
        F.max("last_record").alias("last_record"),
        F.min("arrived_at").alias("arrived_at"),
    )
    skew = F.when(F.col("beat").isNotNull(), seconds_between("beat", "arrived_at"))
    return beats.groupBy(*start).agg(
        F.min("first_seq").alias("first_seq"),
        F.max("last_seq").alias("last_seq"),
        F.sum("records").alias("records"),
        F.coalesce(F.sum(F.when(F.col("beat").isNotNull(), F.col("records"))), F.lit(0)).alias("heartbeats"),
        F.max("beat").alias("last_heartbeat"),
        F.max("last_record").alias("last_record"),
        F.median(skew).alias("clock_skew_seconds"),
    )
