"""The queries of the summaries, which aggregate the tables' rows of a range of time.

The current state of a group, partition or sidecar is its state in the newest window for which the range has data of
that group, partition or sidecar. The docstring of a query declares the query's columns. docs/tables.md is generated
from these docstrings.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.queries.lag_tables import messages_behind
from group_sidecar.spark.queries.windows import WINDOW, seconds_between
from group_sidecar.spark.tables import TableReader

EXAMPLE_LENGTH = 200
"""The maximum number of characters of an example line in the summary `quarantine`."""


def groups(read: TableReader) -> DataFrame:
    """Returns one row for each group that was reported, has offsets, rebalanced, or had clients refused.

    `main_cause` is the cause with the most rebalances. Among equally frequent causes, it is the cause with the most
    lost consumer time. If the lost consumer time is equal too, it is the alphabetically last cause.

    Returns:
        group STRING: Group id.
        sidecar STRING or null: The sidecar whose record of the group was taken. If no sidecar reported the group, this
            column and the next columns, up to `gone`, are null.
        sidecars BIGINT or null: How many sidecars reported the group.
        protocol STRING or null: classic, consumer, share or streams.
        state STRING or null: State, spelled as in DescribeGroups.
        protocol_type STRING or null: Kind of the members: consumer, connect, ...; empty if not known.
        assignor STRING or null: The protocol that the members agreed on; empty if none.
        generation BIGINT or null: Generation, or group epoch; -1 if there was none.
        members BIGINT or null: Number of members.
        max_size BIGINT or null: The maximum number of members of the group; null if there is no limit, or the group was
            not reported.
        first_seen TIMESTAMP or null: The first report in the range.
        last_seen TIMESTAMP or null: The last report in the range.
        gone BOOLEAN or null: True if the last complete snapshot of the column `sidecar` does not contain the group. A
            group is also gone after a restart of its sidecar, until the sidecar has read the log.
        lag BIGINT or null: This column and the next five have the values of the table group_lag in the newest window
            with a known lag. All six are null if the group is gone or has no committed offsets, or if the group's
            newest window has no committed offsets.
        max_partition_lag BIGINT or null: The largest lag of a partition.
        lag_seconds DOUBLE or null: The largest `lag_seconds` of a partition.
        topics BIGINT or null: Number of topics with a committed offset.
        partitions BIGINT or null: Number of partitions with a committed offset.
        partitions_without_log_end BIGINT or null: How many of these partitions have no known log end.
        rebalances BIGINT: Number of rebalances; 0 if there were none.
        rebalance_seconds DOUBLE: Sum of the rebalances' durations; 0 if there were none.
        lost_consumer_seconds DOUBLE: Sum of duration times members; 0 if there were none.
        main_cause STRING or null: The cause of most rebalances; null if there were none.
        last_rebalance_at TIMESTAMP or null: When the last rebalance was observed; null if there was none.
        refusals BIGINT: Number of refusals; 0 if there were none.
    """
    lags = ("lag", "max_partition_lag", "lag_seconds", "topics", "partitions", "partitions_without_log_end")
    behind = _newest(read("group_lag"), ("group",), lags, known="lag").withColumnRenamed(WINDOW, "lag_window")
    refused = read("refusals").groupBy("group").agg(F.sum("refusals").alias("refusals"))
    latest_groups = _latest_groups(read)
    joined = latest_groups
    for part in (behind, _rebalances_of(read("rebalances")), refused):
        joined = joined.join(part, "group", "full_outer")
    joined = joined.fillna(0, subset=["rebalances", "rebalance_seconds", "lost_consumer_seconds", "refusals"])
    stale = F.coalesce(F.col("gone") | (F.col("lag_window") < F.col(WINDOW)), F.lit(False))
    current = {name: F.when(~stale, F.col(name)) for name in lags}
    return joined.withColumns(current).drop(WINDOW, "lag_window")


def lag(read: TableReader) -> DataFrame:
    """Returns the current offset and lag of each group in each partition.

    Commit and log end may come from different windows, because the records of the coordinator's sidecar may arrive
    before those of the leader's sidecar.

    Returns:
        group STRING: Group id.
        topic STRING: Topic.
        partition BIGINT: Partition.
        committed BIGINT: Committed offset.
        log_end BIGINT or null: Log end offset; null if no sidecar reported it in the range.
        lag BIGINT or null: Number of messages from the committed offset to the log end, at least 0; null without a log
            end.
        lag_seconds DOUBLE or null: 0 if `lag` is 0. Otherwise as in the table `lag`, but null if commit and log end
            come from different windows.
        committed_at TIMESTAMP: When the commit was observed.
        log_end_at TIMESTAMP or null: When the log end was observed; null without a log end.
        skew_seconds DOUBLE or null: As in the table `lag` if commit and log end come from the same window. Otherwise
            the time from `committed_at` to `log_end_at` if it is negative, or 0. Null without a log end.
        window TIMESTAMP: The newest window with a report of the commit.
    """
    seen = F.when(F.col("log_end").isNotNull(), F.col(WINDOW))
    ends = F.struct("log_end", "lag_seconds", "log_end_at", "skew_seconds", WINDOW)
    newest = (
        read("lag")
        .groupBy("group", "topic", "partition")
        .agg(
            F.max_by(F.struct("committed", "committed_at"), WINDOW).alias("commit"),
            F.max_by(ends, seen).alias("end"),
            F.max(WINDOW).alias(WINDOW),
        )
        .select("group", "topic", "partition", "commit.*", "end.log_end", "end.log_end_at", "end", WINDOW)
    )
    same, seconds_newer = F.col("end.window") == F.col(WINDOW), seconds_between("committed_at", "log_end_at")
    return newest.withColumn("lag", messages_behind()).select(
        "group",
        "topic",
        "partition",
        "committed",
        "log_end",
        "lag",
        F.when(F.col("lag") == 0, 0.0).when(same, F.col("end.lag_seconds")).alias("lag_seconds"),
        "committed_at",
        "log_end_at",
        F.when(same, F.col("end.skew_seconds"))
        .when(seconds_newer < 0, seconds_newer)
        .when(~same, 0.0)
        .alias("skew_seconds"),
        WINDOW,
    )


def rebalances(read: TableReader) -> DataFrame:
    """Returns how often each group rebalanced, by cause.

    Returns:
        group STRING: Group id.
        cause STRING: Cause; `unknown` if the record has none.
        reason STRING: What began the rebalances: join, leave, metadata, expired or unknown.
        rebalances BIGINT: Number of rebalances.
        seconds DOUBLE: Sum of the rebalances' durations.
        longest_seconds DOUBLE: The longest duration.
        lost_consumer_seconds DOUBLE: Sum of duration times members, as in the table `rebalances`.
        members BIGINT: The maximum number of members.
        last_at TIMESTAMP: When the last rebalance was observed.
    """
    return (
        read("rebalances")
        .groupBy("group", "cause", "reason")
        .agg(
            F.sum("rebalances").alias("rebalances"),
            F.sum("seconds").alias("seconds"),
            F.max("longest_seconds").alias("longest_seconds"),
            F.sum("lost_consumer_seconds").alias("lost_consumer_seconds"),
            F.max("members").alias("members"),
            F.max("last_at").alias("last_at"),
        )
    )


def refusals(read: TableReader) -> DataFrame:
    """Returns how often each policy refused clients of each group, by error.

    Returns:
        group STRING: Group id.
        policy STRING: Name of the policy.
        error_code BIGINT: Kafka's error code.
        refusals BIGINT: Number of refusals.
        clients BIGINT: The largest number of different client ids in one window.
        last_at TIMESTAMP: When the last refusal was observed.
    """
    return _verdicts(read, "refusals")


def audits(read: TableReader) -> DataFrame:
    """Returns how often each policy in audit mode would have refused clients of each group, by error.

    Returns:
        group STRING: Group id.
        policy STRING: Name of the policy.
        error_code BIGINT: Kafka's error code.
        audits BIGINT: Number of requests that would have been refused.
        clients BIGINT: The largest number of different client ids in one window.
        last_at TIMESTAMP: When the last of these requests was observed.
    """
    return _verdicts(read, "audits")


def sidecars(read: TableReader) -> DataFrame:
    """Returns which sidecars are alive, how many of their records are missing, and how far their clocks are off.

    A record is missing if the sidecar has sent a record before it and a record after it since the same start, but it is
    not stored. A missing record was dropped, lost, delayed or put into quarantine. Records before the first stored
    record of a start in the range are not counted.

    Returns:
        sidecar STRING: Id of the sidecar.
        boots BIGINT: Number of starts of the sidecar.
        records BIGINT: Number of records.
        missing BIGINT: Number of missing records.
        heartbeats BIGINT: Number of heartbeats.
        last_heartbeat TIMESTAMP or null: When the last heartbeat was emitted; null if there was none.
        last_record TIMESTAMP: When the last record was emitted.
        clock_skew_seconds DOUBLE or null: As in the table `sidecars`, from the newest window in which the skew is
            known; null if there is no such window.
        silent_seconds DOUBLE: Time from the sidecar's last record to the newest record of the fleet, corrected if the
            sidecar's clock is certainly ahead.
    """
    return _with_silence(_sidecars(read))


def churn(read: TableReader) -> DataFrame:
    """Returns how many members joined and left each group, by kind of change.

    Returns:
        group STRING: Group id.
        change STRING: joined, left, expired, dropped, removed, kicked or fenced.
        members BIGINT: Number of members; a member that joined twice counts twice.
    """
    return read("churn").groupBy("group", "change").agg(F.sum("members").alias("members"))


def metrics(read: TableReader) -> DataFrame:
    """Returns the sidecars' own metrics, summed over the fleet.

    Returns:
        metric STRING: Name of the metric.
        value DOUBLE: Value in the newest window with the metric.
        increase DOUBLE or null: Growth over the whole range; null except for counters.
        sidecars BIGINT: How many sidecars have the metric, in the newest window.
        window TIMESTAMP: The newest window with the metric.
    """
    newest = F.max_by(F.struct("value", "sidecars"), WINDOW).alias("newest")
    return (
        read("metrics")
        .groupBy("metric")
        .agg(newest, F.sum("increase").alias("increase"), F.max(WINDOW).alias(WINDOW))
        .select("metric", "newest.value", "increase", "newest.sidecars", WINDOW)
    )


def quarantine(read: TableReader) -> DataFrame:
    """Returns the number of lines in quarantine, by fault and sidecar.

    `example` has the first `EXAMPLE_LENGTH` characters of one of these lines, the line that sorts first.

    Returns:
        fault STRING: Fault.
        sidecar STRING or null: Id of the sidecar; null if it cannot be parsed.
        lines BIGINT: Number of lines.
        example STRING or null: The beginning of one of these lines; null if none of them has a text.
        last_arrived_at TIMESTAMP or null: When the topic or the segment got the last of these lines; null if not known.
    """
    return (
        read("quarantine")
        .groupBy("fault", "sidecar")
        .agg(
            F.count("*").alias("lines"),
            F.min(F.left("line", F.lit(EXAMPLE_LENGTH))).alias("example"),
            F.max("arrived_at").alias("last_arrived_at"),
        )
    )


def _latest_groups(read: TableReader) -> DataFrame:
    """Returns the newest row of each group.

    The result also has `window`, the first and last time that the group was seen, and whether the group is gone.
    """
    latest_fields = (
        "sidecar",
        "sidecars",
        "protocol",
        "state",
        "protocol_type",
        "assignor",
        "generation",
        "members",
        "max_size",
    )
    newest = (
        read("groups")
        .groupBy("group")
        .agg(
            F.max_by(F.struct(*latest_fields), WINDOW).alias("latest"),
            F.min("observed_at").alias("first_seen"),
            F.max("observed_at").alias("last_seen"),
            F.max(WINDOW).alias(WINDOW),
        )
        .select("group", "latest.*", "first_seen", "last_seen", WINDOW)
    )
    # The newest snapshot of a sidecar may be incomplete, because some of its records may not be written yet. A snapshot
    # is complete if the sidecar has begun another snapshot since.
    complete_window = (
        read("sidecars")
        .where("heartbeats > 0")
        .select("sidecar", WINDOW)
        .distinct()
        .groupBy("sidecar")
        .agg(F.max_by(WINDOW, WINDOW, 2).alias("windows"))
        .select("sidecar", F.try_element_at("windows", F.lit(2)).alias("complete_window"))
    )
    gone = F.coalesce(F.col(WINDOW) < F.col("complete_window"), F.lit(False))
    return newest.join(complete_window, "sidecar", "left_outer").withColumn("gone", gone).drop("complete_window")


def _rebalances_of(table: DataFrame) -> DataFrame:
    by_cause = table.groupBy("group", "cause").agg(
        F.sum("rebalances").alias("times"),
        F.sum("seconds").alias("seconds"),
        F.sum("lost_consumer_seconds").alias("lost"),
        F.max("last_at").alias("last_at"),
    )
    return by_cause.groupBy("group").agg(
        F.sum("times").alias("rebalances"),
        F.sum("seconds").alias("rebalance_seconds"),
        F.sum("lost").alias("lost_consumer_seconds"),
        F.max_by("cause", F.struct("times", "lost", "cause")).alias("main_cause"),
        F.max("last_at").alias("last_rebalance_at"),
    )


def _verdicts(read: TableReader, table: str) -> DataFrame:
    return (
        read(table)
        .groupBy("group", "policy", "error_code")
        .agg(F.sum(table).alias(table), F.max("clients").alias("clients"), F.max("last_at").alias("last_at"))
    )


def _sidecars(read: TableReader) -> DataFrame:
    numbers = F.max("last_seq") - F.min("first_seq") + 1
    boots = (
        read("sidecars")
        .groupBy("sidecar", "boot")
        .agg(
            F.sum("records").alias("records"),
            F.greatest(numbers - F.sum("records"), F.lit(0)).alias("missing"),
            F.sum("heartbeats").alias("heartbeats"),
            F.max("last_heartbeat").alias("last_heartbeat"),
            F.max("last_record").alias("last_record"),
            F.max_by("clock_skew_seconds", _where_known("clock_skew_seconds")).alias("skew"),
            F.max(_where_known("clock_skew_seconds")).alias("skew_at"),
        )
    )
    return boots.groupBy("sidecar").agg(
        F.count("*").alias("boots"),
        F.sum("records").alias("records"),
        F.sum("missing").alias("missing"),
        F.sum("heartbeats").alias("heartbeats"),
        F.max("last_heartbeat").alias("last_heartbeat"),
        F.max("last_record").alias("last_record"),
        F.max_by("skew", "skew_at").alias("clock_skew_seconds"),
    )


def _with_silence(summary: DataFrame) -> DataFrame:
    # A record that arrives before its `emitted_at` comes from a sidecar whose clock is ahead. A clock that is behind
    # has the same effect as slow transport.
    ahead = F.least("clock_skew_seconds", F.lit(0.0))
    at = F.unix_millis("last_record") / F.lit(1000.0) + ahead
    newest = summary.agg(F.max(at)).scalar()
    return summary.withColumn("silent_seconds", newest - at)


def _newest(table: DataFrame, keys: tuple[str, ...], values: tuple[str, ...], known: str) -> DataFrame:
    """Returns the newest row of each key. Rows with a value in column `known` take precedence.

    `window` is the newest window of all rows of the key.
    """
    order = F.struct(F.col(known).isNotNull(), WINDOW)
    newest = table.groupBy(*keys).agg(F.max_by(F.struct(*values), order).alias("row"), F.max(WINDOW).alias(WINDOW))
    return newest.select(*keys, "row.*", WINDOW)


def _where_known(column: str) -> Column:
    return F.when(F.col(column).isNotNull(), F.col(WINDOW))
