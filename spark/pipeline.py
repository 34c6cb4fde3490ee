"""The questions asked of a fleet's records, each from DataFrame to DataFrame.

Owns: what the answers mean. Must not know: where records come from, nor where answers go. Input is what
`intake` accepted, each record once. Only aggregations and joins on equal keys: no windows over rows, no
order, nothing that a stream could not do.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics.records import Audit, Commit, Group, Heartbeat, LogEnd, Rebalance, Refusal


def group_list(records: DataFrame) -> DataFrame:
    """The groups of the fleet as they were last told of, one row per group.

    Of what one sidecar says of a group, the newest holds. Where several sidecars speak of it, because it changed its
    coordinator, the newest generation holds, and of equal ones what was seen last.

    Returns:
        group, sidecar (whose word holds), sidecars (how many speak of it), protocol, state, protocol_type, assignor,
        generation, members, max_size, observed_at.
    """
    told = ("protocol", "state", "protocol_type", "assignor", "generation", "members", "max_size", "observed_at")
    each = _latest(records, Group.KIND, ("group", "sidecar"), told)
    newest = F.struct("generation", "observed_at", "sidecar")
    return (
        each.groupBy("group")
        .agg(F.max_by(F.struct("sidecar", *told), newest).alias("told"), F.count("*").alias("sidecars"))
        .select("group", "told.sidecar", "sidecars", *(f"told.{name}" for name in told))
    )


def partition_lag(records: DataFrame) -> DataFrame:
    """How far each group is behind in each partition that it committed an offset of.

    Commit and log end are seen at different moments, so their difference may be below zero; it is given as zero.
    A partition whose log end no sidecar saw has no lag: null, not zero.

    Returns:
        group, topic, partition, committed (offset), log_end (offset), lag (messages), committed_at, log_end_at.
    """
    commits = _latest(records, Commit.KIND, ("group", "topic", "partition"), ("offset", "observed_at")).select(
        "group", "topic", "partition", F.col("offset").alias("committed"), F.col("observed_at").alias("committed_at")
    )
    ends = _latest(records, LogEnd.KIND, ("topic", "partition"), ("offset", "observed_at")).select(
        "topic", "partition", F.col("offset").alias("log_end"), F.col("observed_at").alias("log_end_at")
    )
    behind = F.col("log_end") - F.col("committed")
    return commits.join(ends, ["topic", "partition"], "left_outer").select(
        "group",
        "topic",
        "partition",
        "committed",
        "log_end",
        F.when(behind < 0, F.lit(0)).otherwise(behind).alias("lag"),
        "committed_at",
        "log_end_at",
    )


def group_lag(partition_lag: DataFrame) -> DataFrame:
    """How far each group is behind in all, from `partition_lag`.

    Returns:
        group, lag (sum over the partitions with a log end; null if there are none), max_partition_lag, partitions,
        partitions_without_log_end.
    """
    return partition_lag.groupBy("group").agg(
        F.sum("lag").alias("lag"),
        F.max("lag").alias("max_partition_lag"),
        F.count("*").alias("partitions"),
        F.count_if(F.col("lag").isNull()).alias("partitions_without_log_end"),
    )


def rebalances(records: DataFrame) -> DataFrame:
    """How often each group rebalanced, why, and how long it took.

    Returns:
        group, rebalances, rebalance_causes (reason -> how often), rebalance_seconds (sum), last_rebalance_at.
    """
    by_reason = (
        records.where(F.col("kind") == Rebalance.KIND)
        .groupBy("group", "reason")
        .agg(
            F.count("*").alias("times"),
            F.sum("duration_seconds").alias("seconds"),
            F.max("observed_at").alias("last_at"),
        )
    )
    causes = F.map_from_entries(F.sort_array(F.collect_list(F.struct("reason", "times"))))
    return by_reason.groupBy("group").agg(
        F.sum("times").alias("rebalances"),
        causes.alias("rebalance_causes"),
        F.sum("seconds").alias("rebalance_seconds"),
        F.max("last_at").alias("last_rebalance_at"),
    )


def refusals(records: DataFrame) -> DataFrame:
    """How often each policy refused clients of each group, and with which error.

    Returns:
        group, policy, error_code, refusals, last_refusal_at.
    """
    return _verdicts(records, Refusal.KIND)


def audits(records: DataFrame) -> DataFrame:
    """How often each policy in audit mode would have refused clients of each group, and with which error.

    Returns:
        group, policy, error_code, audits, last_audit_at.
    """
    return _verdicts(records, Audit.KIND)


def sidecars(records: DataFrame) -> DataFrame:
    """Which sidecars live, and what of theirs is missing.

    A record is missing if its number lies between others of the same boot and it is not there: dropped, lost or
    in quarantine. Numbers before the first one that is there are not counted: old segments may be gone by intent.

    Returns:
        sidecar, boots, records, missing, last_heartbeat (null if there was none), last_record.
    """
    heartbeat = F.when(F.col("kind") == Heartbeat.KIND, F.col("emitted_at"))
    boots = records.groupBy("sidecar", "boot").agg(
        F.count("*").alias("records"),
        (F.max("seq") - F.min("seq") + 1 - F.count("*")).alias("missing"),
        F.max(heartbeat).alias("last_heartbeat"),
        F.max("emitted_at").alias("last_record"),
    )
    return boots.groupBy("sidecar").agg(
        F.count("*").alias("boots"),
        F.sum("records").alias("records"),
        F.sum("missing").alias("missing"),
        F.max("last_heartbeat").alias("last_heartbeat"),
        F.max("last_record").alias("last_record"),
    )


def overview(records: DataFrame) -> DataFrame:
    """Everything about each group in one row, for every group that any record names.

    Returns:
        group; the columns of `group_list` (null if there was no snapshot of it); those of `rebalances`; refusals;
        those of `group_lag`. Counts are zero where nothing happened; lag is null where no commit or no log end was
        seen.
    """
    names = records.where(F.col("group").isNotNull()).select("group").distinct()
    refused = refusals(records).groupBy("group").agg(F.sum("refusals").alias("refusals"))
    joined = names
    for answer in (group_list(records), rebalances(records), refused, group_lag(partition_lag(records))):
        joined = joined.join(answer, "group", "left_outer")
    counts = ("rebalances", "rebalance_seconds", "refusals", "partitions", "partitions_without_log_end")
    return joined.fillna(0, subset=list(counts))


def _verdicts(records: DataFrame, kind: str) -> DataFrame:
    return (
        records.where(F.col("kind") == kind)
        .groupBy("group", "policy", "error_code")
        .agg(F.count("*").alias(f"{kind}s"), F.max("observed_at").alias(f"last_{kind}_at"))
    )


def _latest(records: DataFrame, kind: str, keys: tuple[str, ...], values: tuple[str, ...]) -> DataFrame:
    newest: Column = F.struct("observed_at", "emitted_at", "seq")
    return (
        records.where(F.col("kind") == kind)
        .groupBy(*keys)
        .agg(F.max_by(F.struct(*values), newest).alias("latest"))
        .select(*keys, "latest.*")
    )
