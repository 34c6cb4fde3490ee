"""Which groups there are, and how they stand. Must not know: where answers go."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Group
from group_sidecar.spark.questions.windows import ORDER, WINDOW, latest, told

GREATEST_GENERATION = 2**31 - 1
"""Kafka's generations and epochs are INT32. One beyond is a lie, and does not win."""

_STANDING = ("protocol", "state", "protocol_type", "assignor", "generation", "members", "max_size")


def groups(records: DataFrame, width: str) -> DataFrame:
    """The groups as they stood at the end of each window.

    Of what one sidecar says of a group, the newest holds. Where several sidecars speak of it, because it changed its
    coordinator, the newest generation holds, and of equal ones what was seen last.

    Returns:
        window, group, sidecar (whose word holds), sidecars (how many speak of it), protocol, state, protocol_type,
        assignor, generation, members, max_size, observed_at.
    """
    # What is restated unchanged becomes one row by hashing, before anything has to be sorted.
    distinct = (
        told(records, width, Group.KIND)
        .groupBy(WINDOW, "group", "sidecar", *_STANDING)
        .agg(F.max(ORDER).alias(ORDER), F.max("observed_at").alias("observed_at"), F.max("seq").alias("seq"))
    )
    each = latest(distinct, (WINDOW, "group", "sidecar"), (*_STANDING, "observed_at"), F.struct(ORDER, "seq"))
    # A group that nobody joined has generation 0 where its commit was seen, and -1 where it was loaded from the log.
    known = F.greatest("generation", F.lit(0))
    generation = F.when(known <= GREATEST_GENERATION, known)
    holds = F.struct(generation, "observed_at", "sidecar")
    return (
        each.groupBy(WINDOW, "group")
        .agg(F.max_by(F.struct("sidecar", *_STANDING, "observed_at"), holds).alias("word"), F.count("*").alias("n"))
        .select(
            WINDOW,
            "group",
            "word.sidecar",
            F.col("n").alias("sidecars"),
            *(f"word.{name}" for name in (*_STANDING, "observed_at")),
        )
    )
