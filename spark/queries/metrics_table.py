"""The query for the metrics in the sidecars' heartbeats, summed over the fleet."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Heartbeat
from group_sidecar.spark.queries.windows import WINDOW, next_window, with_window

_START = (WINDOW, "sidecar", "boot")
_COUNTER, _MOMENT = "_total", "_timestamp_seconds"


def metrics(records: DataFrame, width: str) -> DataFrame:
    """Returns the metrics that heartbeats contain, summed over the fleet.

    The increase of a counter is counted from the last sample of the previous window, if that window is in the same
    hour. Otherwise the increase is counted from the first sample of this window. So hours can be computed one by one or
    all at once, with the same result. Growth between the last sample of an hour and the first of the next hour is not
    counted. If a sidecar started in this window, its counters are counted from 0.

    Returns:
        window TIMESTAMP: Beginning of the window.
        metric STRING: Name of the metric.
        value DOUBLE: Sum over the sidecars of the last sample with this metric. If the metric is a time, with a name
            that ends in `_timestamp_seconds`, the earliest of the last samples instead.
        increase DOUBLE or null: The growth of a counter within the window. The name of a counter ends in `_total`. Null
            for other metrics.
        sidecars BIGINT: How many sidecars have the metric.
    """
    counts = F.col("metric").endswith(_COUNTER)
    figures = (
        _boots(records, width)
        .select(*_START, "last_at", "base", F.explode("last").alias("metric", "figure"))
        # A sidecar leaves out a figure that it does not have. A null in place of a figure is removed here.
        .where(F.col("figure").isNotNull())
        .withColumn("grown", F.when(counts, _growth()))
        .groupBy(WINDOW, "metric", "sidecar")
        .agg(F.max_by("figure", F.struct("last_at", "boot")).alias("figure"), F.sum("grown").alias("grown"))
    )
    together = F.when(F.col("metric").endswith(_MOMENT), F.min("figure")).otherwise(F.sum("figure"))
    return figures.groupBy(WINDOW, "metric").agg(
        together.alias("value"), F.sum("grown").alias("increase"), F.count("figure").alias("sidecars")
    )


def _boots(records: DataFrame, width: str) -> DataFrame:
    """Returns the last sample of each boot in each window, and `base`, the sample from which increases are counted."""
    # Each sample also counts in the next window, whose increases may be counted from this sample.
    counted_in = F.explode(F.array_compact(F.array(F.col(WINDOW), next_window(width))))
    beats = with_window(records, width, Heartbeat.KIND).select(
        "sidecar", "boot", "seq", "emitted_at", "sample", F.col(WINDOW).alias("emitted_in"), counted_in.alias(WINDOW)
    )
    own, before = F.col("emitted_in") == F.col(WINDOW), F.col("emitted_in") < F.col(WINDOW)
    samples = beats.groupBy(*_START).agg(
        F.max(F.when(own, F.col("emitted_at"))).alias("last_at"),
        F.max_by("sample", F.when(own, F.col("seq"))).alias("last"),
        F.min_by("sample", F.when(own, F.col("seq"))).alias("first"),
        F.max_by("sample", F.when(before, F.col("seq"))).alias("before"),
    )
    began = with_window(records.where(F.col("seq") == 1), width).select(*_START, F.lit(True).alias("began")).distinct()
    base = F.when(F.col("began"), F.create_map().cast("map<string,double>")).otherwise(F.coalesce("before", "first"))
    return samples.join(began, [*_START], "left_outer").select(*_START, "last_at", "last", base.alias("base"))


def _growth() -> Column:
    base = F.col("base")[F.col("metric")]
    # A counter that did not exist before or was reset grew from zero.
    return F.when(F.col("figure") >= base, F.col("figure") - base).otherwise(F.col("figure"))
