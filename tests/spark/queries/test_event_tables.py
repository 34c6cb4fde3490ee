"""The tables of rebalances, verdicts and member changes, computed from a few literal records."""

from pyspark.sql import SparkSession

from tests.spark.record_frames import RecordsOfBoot, at, select_columns, table


def test_rebalances_by_cause_and_cost(spark: SparkSession) -> None:
    """Rebalances are counted by window, group, cause and reason, with their durations and lost consumer time."""
    boot, other = RecordsOfBoot(), RecordsOfBoot("b")
    found = table(
        spark,
        "rebalances",
        boot.rebalance(1, "orders", "join", 0.5, cause="new_member", members=2),
        boot.rebalance(7, "orders", "join", 0.25, cause="new_member", members=4),
        other.rebalance(3, "orders", "join", 1.5, cause="static_replaced", members=1),
        boot.rebalance(301, "orders", "join", 0.25, cause="new_member", members=4),
        # An event counts in the window of its emission, even if that is late.
        boot.record("rebalance", 302, seen=299, group="orders", reason="leave", cause="member_left", generation=7)
        | {"duration_seconds": 2.0, "members": 0},
        # An old sidecar reports no cause.
        boot.rebalance(4, "logs", "expired", 3.0, cause=None),
        boot.rebalance(5, "logs", "leave", 1.0, cause=None),
        boot.rebalance(6, "logs", "unknown", 1.0, cause="unknown", members=3),
        boot.group(5, "quiet", 1),
    )
    columns = ("rebalances", "seconds", "longest_seconds", "lost_consumer_seconds", "members", "last_at")
    assert select_columns(found, *columns) == {
        (0, "orders", "new_member", "join"): (2, 0.75, 0.5, 2.0, 4, at(7)),
        (0, "orders", "static_replaced", "join"): (1, 1.5, 1.5, 1.5, 1, at(3)),
        (300, "orders", "new_member", "join"): (1, 0.25, 0.25, 1.0, 4, at(301)),
        (300, "orders", "member_left", "leave"): (1, 2.0, 2.0, 0.0, 0, at(299)),
        (0, "logs", "unknown", "expired"): (1, 3.0, 3.0, 3.0, 1, at(4)),
        (0, "logs", "unknown", "leave"): (1, 1.0, 1.0, 1.0, 1, at(5)),
        (0, "logs", "unknown", "unknown"): (1, 1.0, 1.0, 3.0, 3, at(6)),
    }


def test_verdicts_by_policy_and_error(spark: SparkSession) -> None:
    """Refusals are counted by group, policy and error, and audits separately."""
    boot = RecordsOfBoot()
    records = [
        boot.refusal(1, "orders", "group_max_size", 77),
        boot.refusal(3, "orders", "group_max_size", 77),
        boot.refusal(2, "orders", "group_max_size", 77, client_id="d"),
        boot.refusal(2, "orders", "group_max_size", 81),
        boot.refusal(2, "orders", "quiet_hours", 77),
        boot.refusal(2, "", "group_max_size", 77, client_id=""),
        boot.refusal(300, "orders", "group_max_size", 77),
        boot.refusal(2, "orders", "group_max_size", 77, kind="audit"),
        boot.refusal(3, "orders", "group_max_size", 77, kind="audit"),
    ]
    assert select_columns(table(spark, "refusals", *records), "refusals", "clients", "last_at") == {
        (0, "orders", "group_max_size", 77): (3, 2, at(3)),
        (0, "orders", "group_max_size", 81): (1, 1, at(2)),
        (0, "orders", "quiet_hours", 77): (1, 1, at(2)),
        (0, "", "group_max_size", 77): (1, 1, at(2)),
        (300, "orders", "group_max_size", 77): (1, 1, at(300)),
    }
    assert select_columns(table(spark, "audits", *records), "audits", "clients", "last_at") == {
        (0, "orders", "group_max_size", 77): (2, 1, at(3))
    }


def test_member_changes(spark: SparkSession) -> None:
    """Member changes are counted by window, group and kind of change."""
    boot = RecordsOfBoot()
    found = table(
        spark,
        "churn",
        boot.member(1, "orders", "joined", "m1"),
        boot.member(2, "orders", "left", "m1"),
        boot.member(3, "orders", "joined", "m1"),
        boot.member(4, "orders", "joined", "m2"),
        boot.member(4, "größe ☂", "fenced"),
        boot.member(301, "orders", "expired", "m2"),
    )
    assert select_columns(found, "members") == {
        (0, "orders", "joined"): (3,),
        (0, "orders", "left"): (1,),
        (0, "größe ☂", "fenced"): (1,),
        (300, "orders", "expired"): (1,),
    }
