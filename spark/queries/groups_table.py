"""The query for the groups and their state."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Group
from group_sidecar.spark.queries.windows import ORDER, WINDOW, latest, with_window

GREATEST_GENERATION = 2**31 - 1
"""Kafka's generations and epochs are INT32. A larger number is wrong and counts as unknown."""

_STANDING = ("protocol", "state", "protocol_type", "assignor", "generation", "members", "max_size")


def groups(records: DataFrame, width: str) -> DataFrame:
    """Returns the state of each group at the end of each window.

    If one sidecar has several records of a group, the query takes the newest record. If several sidecars report a
    group, because its coordinator changed, the query takes the record with the largest generation. If the generations
    are equal, the query takes the record that was observed last.

    Returns:
        window TIMESTAMP: Beginning of the window.
        group STRING: Group id.
        sidecar STRING: The sidecar whose record was taken.
        sidecars BIGINT: How many sidecars report the group.
        protocol STRING: classic, consumer, share or streams.
        state STRING: State, spelled as in DescribeGroups and ConsumerGroupDescribe.
        protocol_type STRING: Kind of the members: consumer, connect, ...; empty if not known.
        assignor STRING: The protocol that all members support, or the broker's assignor; empty if none.
        generation BIGINT: Generation, or group epoch; 0 or -1 before the first one.
        members BIGINT: Number of members.
        max_size BIGINT or null: The maximum number of members of the group; null if there is no limit.
        observed_at TIMESTAMP: When the state was observed.
    """
    # Unchanged rows of several snapshots are first merged by hashing, so that fewer rows have to be sorted.
    distinct = (
        with_window(records, width, Group.KIND)
        .groupBy(WINDOW, "group", "sidecar", *_STANDING)
        .agg(F.max(ORDER).alias(ORDER), F.max("observed_at").alias("observed_at"), F.max("seq").alias("seq"))
    )
    per_sidecar = latest(distinct, (WINDOW, "group", "sidecar"), (*_STANDING, "observed_at"), F.struct(ORDER, "seq"))
    # A group without a join has generation 0 if a commit was seen, and -1 if it was loaded from the log.
    known = F.greatest("generation", F.lit(0))
    generation = F.when(known <= GREATEST_GENERATION, known)
    precedence = F.struct(generation, "observed_at", "sidecar")
    return (
        per_sidecar.groupBy(WINDOW, "group")
        .agg(
            F.max_by(F.struct("sidecar", *_STANDING, "observed_at"), precedence).alias("word"), F.count("*").alias("n")
        )
        .select(
            WINDOW,
            "group",
            "word.sidecar",
            F.col("n").alias("sidecars"),
            *(f"word.{name}" for name in (*_STANDING, "observed_at")),
        )
    )
