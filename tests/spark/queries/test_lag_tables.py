"""The tables of lag, computed from a few literal records."""

from pyspark.sql import SparkSession

from tests.spark.record_frames import RecordsOfBoot, at, select_columns, table


def test_lag_per_partition(spark: SparkSession) -> None:
    """Lag is the difference of the latest commit and the latest log end in the window, and never negative."""
    coordinator, leader, old = RecordsOfBoot("coordinator"), RecordsOfBoot("leader"), RecordsOfBoot("old")
    found = table(
        spark,
        "lag",
        coordinator.commit(5, "orders", "t", 0, 100),
        coordinator.commit(9, "orders", "t", 0, 130),
        leader.log_end(4, "t", 0, 110),
        leader.log_end(8, "t", 0, 150),
        leader.log_end(7, "t", 0, 140),
        leader.log_end(8, "t", 1, 999),
        coordinator.commit(9, "logs", "t", 0, 10),
        # No sidecar reports the log end of this partition.
        coordinator.commit(9, "orders", "unseen", 0, 7),
        coordinator.commit(9, "", "größe ☂", 0, 7),
        leader.log_end(9, "größe ☂", 0, 8),
        # A commit may go back. A commit beyond the log end has lag 0.
        coordinator.commit(1, "back", "t", 0, 149),
        coordinator.commit(2, "back", "t", 0, 70),
        coordinator.commit(9, "beyond", "t", 0, 151),
        # The sidecars of the old coordinator and the old leader continue to report their last values.
        coordinator.commit(5, "moved", "t", 0, 120, seen=4),
        old.commit(9, "moved", "t", 0, 90, seen=1),
        old.log_end(9, "t", 0, 100, seen=2),
        # If two values were observed at the same moment, the one that was emitted last counts.
        coordinator.commit(9, "hasty", "t", 0, 6, seen=1),
        coordinator.commit(8, "hasty", "t", 0, 5, seen=1),
        # An observation time before Kafka existed counts as old.
        coordinator.commit(9, "ancient", "t", 0, 149, seen=-1e9),
        old.commit(9, "ancient", "t", 0, 1, seen=-6e10),
        # The next window has only a commit.
        coordinator.commit(301, "orders", "t", 0, 160),
    )
    columns = ("committed", "log_end", "lag", "committed_at", "log_end_at")
    assert select_columns(found, *columns) == {
        (0, "orders", "t", 0): (130, 150, 20, at(9), at(8)),
        (0, "logs", "t", 0): (10, 150, 140, at(9), at(8)),
        (0, "orders", "unseen", 0): (7, None, None, at(9), None),
        (0, "", "größe ☂", 0): (7, 8, 1, at(9), at(9)),
        (0, "back", "t", 0): (70, 150, 80, at(2), at(8)),
        (0, "beyond", "t", 0): (151, 150, 0, at(9), at(8)),
        (0, "moved", "t", 0): (120, 150, 30, at(4), at(8)),
        (0, "hasty", "t", 0): (6, 150, 144, at(1), at(8)),
        (0, "ancient", "t", 0): (149, 150, 1, at(-1e9), at(8)),
        (300, "orders", "t", 0): (160, None, None, at(301), None),
    }
    unseen = found[0, "orders", "unseen", 0]
    assert (unseen["lag_seconds"], unseen["skew_seconds"]) == (None, None)


def test_lag_seconds_use_log_growth(spark: SparkSession) -> None:
    """Lag in seconds is computed from the log's growth within the window, or null without growth."""
    boot, other = RecordsOfBoot(), RecordsOfBoot("b")
    found = table(
        spark,
        "lag",
        # 50 messages in 20 seconds, and the group has a lag of 25.
        boot.log_end(10, "grows", 0, 100),
        other.log_end(20, "grows", 0, 120),
        boot.log_end(30, "grows", 0, 150),
        boot.commit(30, "g", "grows", 0, 125),
        boot.commit(30, "level", "grows", 0, 150),
        boot.log_end(10, "rests", 0, 100),
        boot.log_end(30, "rests", 0, 100),
        boot.commit(30, "g", "rests", 0, 99),
        boot.commit(30, "level", "rests", 0, 100),
        boot.log_end(10, "once", 0, 100),
        boot.commit(30, "g", "once", 0, 99),
        # A truncated log ends before its former end.
        boot.log_end(10, "cut", 0, 1000),
        boot.log_end(30, "cut", 0, 40),
        boot.commit(30, "g", "cut", 0, 20),
        boot.commit(30, "level", "cut", 0, 900),
        # The value is in a snapshot of the next window, but was observed before that window.
        boot.log_end(305, "grows", 0, 150, seen=30),
        boot.log_end(340, "grows", 0, 190),
        boot.commit(340, "g", "grows", 0, 160),
    )
    assert select_columns(found, "lag", "lag_seconds") == {
        (0, "g", "grows", 0): (25, 10.0),
        (0, "level", "grows", 0): (0, 0.0),
        (0, "g", "rests", 0): (1, None),
        (0, "level", "rests", 0): (0, 0.0),
        (0, "g", "once", 0): (1, None),
        (0, "g", "cut", 0): (20, None),
        (0, "level", "cut", 0): (0, 0.0),
        (300, "g", "grows", 0): (30, None),
    }


def test_skew_of_log_end_and_commit(spark: SparkSession) -> None:
    """The skew is the time between the observed log end and the period in which the commit was valid."""
    boot = RecordsOfBoot()
    found = table(
        spark,
        "lag",
        boot.log_end(100, "t", 0, 9, seen=50),
        boot.commit(100, "held", "t", 0, 5, seen=20),
        boot.commit(100, "younger", "t", 0, 5, seen=62.5),
        boot.commit(30, "silent since", "t", 0, 5, seen=20),
        boot.commit(40, "silent since", "t", 0, 5, seen=20),
    )
    assert select_columns(found, "skew_seconds") == {
        (0, "held", "t", 0): (0.0,),
        (0, "younger", "t", 0): (-12.5,),
        (0, "silent since", "t", 0): (10.0,),
    }


def test_group_lag_sums_known_partitions(spark: SparkSession) -> None:
    """The lag of a group sums its partitions with a known log end. An overflow is null."""
    boot = RecordsOfBoot()
    found = table(
        spark,
        "group_lag",
        boot.commit(1, "some", "t", 0, 1),
        boot.commit(1, "some", "t", 1, 2),
        boot.commit(1, "some", "u", 1, 3),
        boot.commit(1, "none", "u", 0, 4),
        boot.commit(301, "some", "t", 0, 11),
        boot.log_end(1, "t", 0, 1),
        boot.log_end(2, "t", 0, 11),
        boot.log_end(1, "t", 1, 9),
        boot.log_end(301, "t", 0, 11),
        # No log has such an end, and the sum of two such ends overflows.
        boot.log_end(1, "lied about", 0, 2**63 - 1),
        boot.log_end(1, "lied about", 1, 2**63 - 1),
        boot.commit(1, "lied to", "lied about", 0, 0),
        boot.commit(1, "lied to", "lied about", 1, 0),
    )
    columns = ("lag", "max_partition_lag", "lag_seconds", "topics", "partitions", "partitions_without_log_end")
    assert select_columns(found, *columns) == {
        (0, "some"): (17, 10, 1.0, 2, 3, 1),
        (0, "none"): (None, None, None, 1, 1, 1),
        (300, "some"): (0, 0, 0.0, 1, 1, 0),
        (0, "lied to"): (None, 2**63 - 1, None, 1, 2, 0),
    }
