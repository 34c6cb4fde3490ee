"""The query for the sidecars: their heartbeats, their missing records, and the error of their clocks."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Heartbeat
from group_sidecar.spark.queries.windows import WINDOW, seconds_between, with_window

_BLOCK_BITS = 6
"""A block has 2^6 sequence numbers, because a BIGINT has 64 bits."""


def sidecars(records: DataFrame, width: str) -> DataFrame:
    """Returns what each sidecar sent in each window, by start of the sidecar.

    Returns:
        window TIMESTAMP: Beginning of the window.
        sidecar STRING: Id of the sidecar.
        boot STRING: Id of this start of the sidecar.
        first_seq BIGINT: The smallest sequence number.
        last_seq BIGINT: The largest sequence number.
        records BIGINT: Number of records. None is missing if it equals last_seq - first_seq + 1.
        heartbeats BIGINT: Number of heartbeats.
        last_heartbeat TIMESTAMP or null: When the last heartbeat was emitted; null if there was none.
        last_record TIMESTAMP: When the last record was emitted.
        clock_skew_seconds DOUBLE or null: Median over the heartbeats of arrival time minus emission time; null if not
            known. It includes the transport time, so a positive value proves nothing. A negative value proves that the
            sidecar's clock is ahead.
    """
    beat = F.when(F.col("kind") == Heartbeat.KIND, F.col("emitted_at"))
    start = (WINDOW, "sidecar", "boot")
    # Duplicate records count once: each sequence number is one bit of its block.
    blocks = (
        with_window(records, width)
        .groupBy(*start, beat.alias("beat"), F.shiftright("seq", _BLOCK_BITS).alias("block"))
        .agg(
            F.min("seq").alias("first_seq"),
            F.max("seq").alias("last_seq"),
            F.bit_or(F.expr(f"shiftleft(1L, CAST(seq & {2**_BLOCK_BITS - 1} AS INT))")).alias("numbers"),
            F.max("emitted_at").alias("last_record"),
            F.min("arrived_at").alias("arrived_at"),
        )
    )
    # A heartbeat is one row, and all records between two heartbeats are one row. So the median is over few rows.
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
