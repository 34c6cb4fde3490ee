"""Each question, asked of a few literal records."""

from pyspark.sql import SparkSession

from group_sidecar.spark import pipeline
from tests.spark.frames import Told, at, frame, rows


def test_a_group_is_as_its_sidecar_last_told(spark: SparkSession) -> None:
    told = Told()
    answer = pipeline.group_list(
        frame(
            spark,
            told.group(1, "orders", 3, state="PreparingRebalance", members=2),
            told.group(9, "orders", 4, state="Stable", members=3, max_size=5),
            told.group(5, "orders", 3, state="CompletingRebalance", members=2),
            told.group(5, "logs", -1, state="Empty", members=0, assignor="", protocol_type=""),
        )
    )
    columns = ("group", "state", "generation", "members", "max_size", "sidecar", "sidecars", "observed_at")
    assert rows(answer, *columns) == [
        ("logs", "Empty", -1, 0, None, "a", 1, at(5)),
        ("orders", "Stable", 4, 3, 5, "a", 1, at(9)),
    ]


def test_of_several_coordinators_the_newest_generation_holds_then_the_newest_time(spark: SparkSession) -> None:
    old, new = Told("old"), Told("new")
    answer = pipeline.group_list(
        frame(
            spark,
            # The old coordinator goes on restating what it knew.
            new.group(5, "moved", 8, members=4),
            old.group(9, "moved", 7, members=2),
            # Both know the same generation.
            old.group(5, "tied", 3, state="PreparingRebalance"),
            new.group(6, "tied", 3, state="Stable"),
        )
    )
    assert rows(answer, "group", "sidecar", "generation", "members", "state", "sidecars") == [
        ("moved", "new", 8, 4, "Stable", 2),
        ("tied", "new", 3, 1, "Stable", 2),
    ]


def test_a_group_that_was_deleted_and_made_again_begins_anew(spark: SparkSession) -> None:
    told = Told()
    answer = pipeline.group_list(frame(spark, told.group(1, "orders", 50), told.group(9, "orders", 1, members=7)))
    assert rows(answer, "group", "generation", "members") == [("orders", 1, 7)]


def test_of_snapshots_of_one_moment_the_last_one_told_holds(spark: SparkSession) -> None:
    told = Told()
    answer = pipeline.group_list(frame(spark, told.group(1, "g", 1, members=9), told.group(1, "g", 1, members=2)))
    assert rows(answer, "group", "members") == [("g", 2)]


def test_lag_is_between_the_latest_commit_and_the_latest_log_end(spark: SparkSession) -> None:
    coordinator, leader = Told("coordinator"), Told("leader")
    answer = pipeline.partition_lag(
        frame(
            spark,
            coordinator.commit(5, "orders", "t", 0, 100),
            coordinator.commit(9, "orders", "t", 0, 130),
            leader.log_end(4, "t", 0, 110),
            leader.log_end(8, "t", 0, 150),
            leader.log_end(7, "t", 0, 140),
            leader.log_end(8, "t", 1, 999),
            coordinator.commit(9, "logs", "t", 0, 10),
        )
    )
    columns = ("group", "topic", "partition", "committed", "log_end", "lag", "committed_at", "log_end_at")
    assert rows(answer, *columns) == [
        ("logs", "t", 0, 10, 150, 140, at(9), at(8)),
        ("orders", "t", 0, 130, 150, 20, at(9), at(8)),
    ]


def test_a_commit_may_go_back(spark: SparkSession) -> None:
    told = Told()
    answer = pipeline.partition_lag(
        frame(spark, told.commit(1, "g", "t", 0, 90), told.commit(2, "g", "t", 0, 10), told.log_end(3, "t", 0, 90))
    )
    assert rows(answer, "group", "lag") == [("g", 80)]


def test_lag_is_never_below_zero(spark: SparkSession) -> None:
    told = Told()
    answer = pipeline.partition_lag(frame(spark, told.log_end(1, "t", 0, 10), told.commit(2, "g", "t", 0, 12)))
    assert rows(answer, "group", "committed", "log_end", "lag") == [("g", 12, 10, 0)]


def test_without_a_log_end_there_is_no_lag(spark: SparkSession) -> None:
    told = Told()
    partitions = pipeline.partition_lag(
        frame(
            spark,
            told.commit(1, "some", "t", 0, 1),
            told.commit(1, "some", "t", 1, 2),
            told.commit(1, "some", "u", 1, 3),
            told.commit(1, "none", "u", 0, 4),
            told.log_end(1, "t", 0, 11),
            told.log_end(1, "t", 1, 9),
        )
    )
    assert rows(partitions.where("topic = 'u'"), "group", "log_end", "lag") == [
        ("none", None, None),
        ("some", None, None),
    ]
    columns = ("group", "lag", "max_partition_lag", "partitions", "partitions_without_log_end")
    assert rows(pipeline.group_lag(partitions), *columns) == [("none", None, None, 1, 1), ("some", 17, 10, 3, 1)]


def test_rebalances_are_counted_with_their_causes(spark: SparkSession) -> None:
    told = Told()
    answer = pipeline.rebalances(
        frame(
            spark,
            told.rebalance(1, "orders", "join", 0.5),
            told.rebalance(2, "orders", "leave", 1.25),
            told.rebalance(7, "orders", "join", 0.25),
            told.rebalance(4, "logs", "expired", 3.0),
            told.group(5, "quiet", 1),
        )
    )
    assert rows(answer, "group", "rebalances", "rebalance_causes", "rebalance_seconds", "last_rebalance_at") == [
        ("logs", 1, {"expired": 1}, 3.0, at(4)),
        ("orders", 3, {"join": 2, "leave": 1}, 2.0, at(7)),
    ]


def test_refusals_are_counted_by_policy_and_error(spark: SparkSession) -> None:
    told = Told()
    answer = pipeline.refusals(
        frame(
            spark,
            told.refusal(1, "orders", "group_max_size", 77),
            told.refusal(3, "orders", "group_max_size", 77),
            told.refusal(2, "orders", "group_max_size", 81),
            told.refusal(2, "orders", "quiet_hours", 77),
            told.refusal(2, "logs", "group_max_size", 77),
        )
    )
    found = {tuple(row) for row in rows(answer, "group", "policy", "error_code", "refusals", "last_refusal_at")}
    assert found == {
        ("orders", "group_max_size", 77, 2, at(3)),
        ("orders", "group_max_size", 81, 1, at(2)),
        ("orders", "quiet_hours", 77, 1, at(2)),
        ("logs", "group_max_size", 77, 1, at(2)),
    }


def test_audits_are_no_refusals_and_counted_apart(spark: SparkSession) -> None:
    told = Told()
    records = frame(
        spark,
        told.refusal(1, "orders", "group_max_size", 77),
        told.refusal(2, "orders", "group_max_size", 77, kind="audit"),
        told.refusal(3, "orders", "group_max_size", 77, kind="audit"),
        told.refusal(3, "logs", "group_max_size", 81, kind="audit"),
    )
    assert rows(pipeline.refusals(records), "group", "refusals") == [("orders", 1)]
    assert rows(pipeline.audits(records), "group", "policy", "error_code", "audits", "last_audit_at") == [
        ("logs", "group_max_size", 81, 1, at(3)),
        ("orders", "group_max_size", 77, 2, at(3)),
    ]
    assert rows(pipeline.overview(records), "group", "refusals") == [("logs", 0), ("orders", 1)]


def test_sidecars_and_what_of_theirs_is_missing(spark: SparkSession) -> None:
    steady, first, second, mute = Told("steady"), Told("gaps", "1"), Told("gaps", "2"), Told("mute")
    records = [steady.heartbeat(10), steady.heartbeat(20), steady.group(25, "g", 1), first.heartbeat(1)]
    first.skip(3)
    records.append(first.heartbeat(2))
    first.skip(1)
    records.append(first.heartbeat(3))
    # What was dropped before the first record that is left is no gap.
    second.skip(5)
    records += [second.heartbeat(8), second.heartbeat(9), mute.group(4, "h", 1)]
    answer = pipeline.sidecars(frame(spark, *records))
    assert rows(answer, "sidecar", "boots", "records", "missing", "last_heartbeat", "last_record") == [
        ("gaps", 2, 5, 4, at(9), at(9)),
        ("mute", 1, 1, 0, None, at(4)),
        ("steady", 1, 3, 0, at(20), at(25)),
    ]


def test_the_overview_has_a_row_for_every_group_that_is_named(spark: SparkSession) -> None:
    told = Told()
    answer = pipeline.overview(
        frame(
            spark,
            told.heartbeat(1),
            told.group(2, "full", 3, members=2, max_size=2),
            told.rebalance(2, "full", "join", 0.5),
            told.refusal(3, "full", "group_max_size", 77),
            told.refusal(3, "full", "quiet_hours", 77),
            told.commit(4, "full", "t", 0, 5),
            told.log_end(4, "t", 0, 9),
            told.group(2, "quiet", 1),
            told.refusal(3, "never let in", "group_max_size", 77),
            told.commit(4, "only commits", "u", 0, 5),
        )
    )
    columns = (
        *("group", "state", "members", "max_size", "rebalances", "rebalance_causes", "rebalance_seconds"),
        *("refusals", "lag", "partitions", "partitions_without_log_end"),
    )
    assert rows(answer, *columns) == [
        ("full", "Stable", 2, 2, 1, {"join": 1}, 0.5, 2, 4, 1, 0),
        ("never let in", None, None, None, 0, None, 0.0, 1, None, 0, 0),
        ("only commits", None, None, None, 0, None, 0.0, 0, None, 1, 1),
        ("quiet", "Stable", 1, None, 0, None, 0.0, 0, None, 0, 0),
    ]
