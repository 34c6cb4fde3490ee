"""What people read: the tables' rows of a range of time, summed up.

Owns: the names of the summaries, what each says, and how it is shown. Must not know: where tables are kept, what a
record says.

"Now" is the newest window of the range, as far as it goes for each group, partition or sidecar.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.spark.questions.lag import messages_behind
from group_sidecar.spark.questions.windows import WINDOW, seconds_between

Read = Callable[[str], DataFrame]
"""A table's rows of the range, by its name: one of `tables.TABLES`, or `quarantine`."""

EXAMPLE_LENGTH = 200
"""Letters of a line that a summary shows as an example."""


@dataclass(frozen=True)
class Summary:
    """One summary, and how it is shown.

    Attributes:
        name: its name.
        ask: makes it, given what reads a table.
        largest: the column whose largest values come first; None if none does.
        then: what orders rows after that.
        glance: the columns a terminal shows; all if empty.
        doc: what it tells, in one line.
    """

    name: str
    ask: Callable[[Read], DataFrame]
    largest: str | None
    then: tuple[str, ...]
    glance: tuple[str, ...]
    doc: str


def groups(read: Read) -> DataFrame:
    """Every group that was told of, has offsets, rebalanced, or had clients refused, in one row.

    Returns:
        group, sidecar (whose word holds), sidecars (how many spoke of it), protocol, state, protocol_type, assignor,
        generation, members, max_size; first_seen, last_seen (the first and the last word of it in the range); gone
        (no longer restated, although its sidecar lives; so is, until it has read the log, what a sidecar knew before
        it was started anew); lag, max_partition_lag, lag_seconds, topics, partitions, partitions_without_log_end (of
        the newest window in which a lag is known; null where it has no committed offsets, or is gone); rebalances,
        rebalance_seconds, lost_consumer_seconds, main_cause (of most rebalances), last_rebalance_at; refusals. Counts
        are zero where nothing happened.
    """
    lags = ("lag", "max_partition_lag", "lag_seconds", "topics", "partitions", "partitions_without_log_end")
    behind = _newest(read("group_lag"), ("group",), lags, known="lag").withColumnRenamed(WINDOW, "lag_window")
    refused = read("refusals").groupBy("group").agg(F.sum("refusals").alias("refusals"))
    standing = _standing(read)
    joined = standing
    for answer in (behind, _rebalances_of(read("rebalances")), refused):
        joined = joined.join(answer, "group", "full_outer")
    joined = joined.fillna(0, subset=["rebalances", "rebalance_seconds", "lost_consumer_seconds", "refusals"])
    stale = F.coalesce(F.col("gone") | (F.col("lag_window") < F.col(WINDOW)), F.lit(False))
    current = {name: F.when(~stale, F.col(name)) for name in lags}
    return joined.withColumns(current).drop(WINDOW, "lag_window")


def lag(read: Read) -> DataFrame:
    """Where each group stands in each partition now.

    Commit and log end may come from different windows: what the coordinator's sidecar wrote may be here before what
    the leader's did.

    Returns:
        group, topic, partition, committed, log_end, lag, lag_seconds (null if they do), committed_at, log_end_at,
        skew_seconds, window (the newest in which the commit was told).
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
    same, older = F.col("end.window") == F.col(WINDOW), seconds_between("committed_at", "log_end_at")
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
        F.when(same, F.col("end.skew_seconds")).when(older < 0, older).when(~same, 0.0).alias("skew_seconds"),
        WINDOW,
    )


def rebalances(read: Read) -> DataFrame:
    """How often each group rebalanced, by cause.

    Returns:
        group, cause, reason, rebalances, seconds, longest_seconds, lost_consumer_seconds, members (the most), last_at.
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


def refusals(read: Read) -> DataFrame:
    """How often each policy refused clients of each group, and with which error.

    Returns:
        group, policy, error_code, refusals, clients (the most in one window), last_at.
    """
    return _verdicts(read, "refusals")


def audits(read: Read) -> DataFrame:
    """How often each policy in audit mode would have refused clients of each group, and with which error.

    Returns:
        group, policy, error_code, audits, clients (the most in one window), last_at.
    """
    return _verdicts(read, "audits")


def sidecars(read: Read) -> DataFrame:
    """Which sidecars live, what of theirs is missing, and how their clocks go.

    A record is missing if its number lies between others of the same boot and it is not there: dropped, lost, late or
    in quarantine. Numbers before the first one in the range are not counted.

    Returns:
        sidecar, boots, records, missing, heartbeats, last_heartbeat (null if there was none), last_record,
        silent_seconds (from its last record to the newest of the fleet; a clock that is surely ahead is set right
        for this), clock_skew_seconds (see the table; that of the newest window).
    """
    return _with_silence(_sidecars(read))


def churn(read: Read) -> DataFrame:
    """How many members came to each group, and went, by how.

    Returns:
        group, change, members.
    """
    return read("churn").groupBy("group", "change").agg(F.sum("members").alias("members"))


def metrics(read: Read) -> DataFrame:
    """The sidecars' own metrics, summed over the fleet.

    Returns:
        metric, value and sidecars (of its newest window), increase (in the whole range; null but for counters),
        window (the newest).
    """
    newest = F.max_by(F.struct("value", "sidecars"), WINDOW).alias("newest")
    return (
        read("metrics")
        .groupBy("metric")
        .agg(newest, F.sum("increase").alias("increase"), F.max(WINDOW).alias(WINDOW))
        .select("metric", "newest.value", "increase", "newest.sidecars", WINDOW)
    )


def quarantine(read: Read) -> DataFrame:
    """Lines that are no records, counted.

    Returns:
        fault, sidecar (null where not even that can be read), lines, example (its beginning), last_arrived_at.
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


def _standing(read: Read) -> DataFrame:
    """The newest word of each group, with `window`, when it was seen first and last, and whether it is gone."""
    told = (
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
            F.max_by(F.struct(*told), WINDOW).alias("told"),
            F.min("observed_at").alias("first_seen"),
            F.max("observed_at").alias("last_seen"),
            F.max(WINDOW).alias(WINDOW),
        )
        .select("group", "told.*", "first_seen", "last_seen", WINDOW)
    )
    # A restatement may be cut where what has been written ends; but not if the sidecar has begun another since.
    complete = (
        read("sidecars")
        .where("heartbeats > 0")
        .select("sidecar", WINDOW)
        .distinct()
        .groupBy("sidecar")
        .agg(F.max_by(WINDOW, WINDOW, 2).alias("windows"))
        .select("sidecar", F.try_element_at("windows", F.lit(2)).alias("complete"))
    )
    gone = F.coalesce(F.col(WINDOW) < F.col("complete"), F.lit(False))
    return newest.join(complete, "sidecar", "left_outer").withColumn("gone", gone).drop("complete")


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


def _verdicts(read: Read, table: str) -> DataFrame:
    return (
        read(table)
        .groupBy("group", "policy", "error_code")
        .agg(F.sum(table).alias(table), F.max("clients").alias("clients"), F.max("last_at").alias("last_at"))
    )


def _sidecars(read: Read) -> DataFrame:
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


def _with_silence(told: DataFrame) -> DataFrame:
    # What arrives before it was made was made by a clock that is ahead. One that is behind cannot be told from slow
    # transport.
    ahead = F.least("clock_skew_seconds", F.lit(0.0))
    at = F.unix_millis("last_record") / F.lit(1000.0) + ahead
    newest = told.agg(F.max(at)).scalar()
    return told.withColumn("silent_seconds", newest - at)


def _newest(table: DataFrame, keys: tuple[str, ...], values: tuple[str, ...], known: str) -> DataFrame:
    """The newest row of each key, of those where a column is known if there are any; `window`: the newest of all."""
    order = F.struct(F.col(known).isNotNull(), WINDOW)
    newest = table.groupBy(*keys).agg(F.max_by(F.struct(*values), order).alias("row"), F.max(WINDOW).alias(WINDOW))
    return newest.select(*keys, "row.*", WINDOW)


def _where_known(column: str) -> Column:
    return F.when(F.col(column).isNotNull(), F.col(WINDOW))


_VERDICT = ("group", "policy", "error_code")
SUMMARIES: Mapping[str, Summary] = MappingProxyType(
    {
        summary.name: summary
        for summary in (
            Summary(
                "groups",
                groups,
                "lag",
                ("group",),
                ("group", "state", "members", "lag", "lag_seconds", "rebalances", "main_cause", "refusals", "gone"),
                "Every group: how it stands, how far it is behind, what it went through.",
            ),
            Summary(
                "lag",
                lag,
                "lag",
                ("group", "topic", "partition"),
                ("group", "topic", "partition", "committed", "log_end", "lag", "lag_seconds", "log_end_at"),
                "Every partition of every group.",
            ),
            Summary(
                "rebalances",
                rebalances,
                "lost_consumer_seconds",
                ("group", "cause", "reason"),
                ("group", "cause", "rebalances", "seconds", "longest_seconds", "lost_consumer_seconds", "last_at"),
                "Why groups rebalanced, and what it cost.",
            ),
            Summary("refusals", refusals, "refusals", _VERDICT, (), "Clients that a policy refused."),
            Summary("audits", audits, "audits", _VERDICT, (), "Clients that a policy in audit mode let pass."),
            Summary("sidecars", sidecars, "silent_seconds", ("sidecar",), (), "Which sidecars live."),
            Summary("churn", churn, "members", ("group", "change"), (), "Members that came and went."),
            Summary("metrics", metrics, None, ("metric",), (), "The sidecars' own metrics, summed."),
            Summary("quarantine", quarantine, "lines", ("fault", "sidecar"), (), "Lines that are no records."),
        )
    }
)
"""All summaries by name."""
