"""The tables of sidecars and of their metrics, computed from a few literal records."""

from pyspark.sql import SparkSession

from tests.spark.record_frames import RecordsOfBoot, Row, at, select_columns, table


def test_boots_with_numbers_and_skew(spark: SparkSession) -> None:
    """Each boot of a sidecar has its record numbers, heartbeats and clock skew."""
    steady, mute, unknown = (
        RecordsOfBoot("steady", travels=2),
        RecordsOfBoot("mute", travels=1),
        RecordsOfBoot("unknown"),
    )
    first, second = RecordsOfBoot("restarted", "1", travels=1), RecordsOfBoot("restarted", "2", travels=1)
    fast, slow = RecordsOfBoot("fast", ahead=60, travels=1), RecordsOfBoot("slow", ahead=-45, travels=1)
    records = [steady.heartbeat(10), steady.heartbeat(20), steady.group(25, "g", 1), steady.heartbeat(310)]
    records += [first.heartbeat(1), first.group(1, "g", 1)]
    first.skip(3)
    records += [first.heartbeat(2)]
    second.skip(5)
    records += [second.heartbeat(8), second.heartbeat(9)]
    # The last segment waited for the disk, so two segments arrive at once, one of them ten minutes late.
    late = second.heartbeat(11) | {"arrived_at": at(611)}
    records += [late, mute.group(4, "h", 1), fast.heartbeat(5), slow.heartbeat(50), unknown.heartbeat(3)]
    found = table(spark, "sidecars", *records)
    numbers = ("first_seq", "last_seq", "records", "heartbeats", "last_heartbeat", "last_record")
    assert select_columns(found, *numbers, "clock_skew_seconds") == {
        (0, "steady", "1"): (1, 3, 3, 2, at(20), at(25), 2.0),
        (300, "steady", "1"): (4, 4, 1, 1, at(310), at(310), 2.0),
        (0, "restarted", "1"): (1, 6, 3, 2, at(2), at(2), 1.0),
        (0, "restarted", "2"): (6, 8, 3, 3, at(11), at(11), 1.0),
        (0, "mute", "1"): (1, 1, 1, 0, None, at(4), None),
        (0, "fast", "1"): (1, 1, 1, 1, at(65), at(65), -59.0),
        (0, "slow", "1"): (1, 1, 1, 1, at(5), at(5), 46.0),
        (0, "unknown", "1"): (1, 1, 1, 1, at(3), at(3), None),
    }


def test_record_numbers_count_once(spark: SparkSession) -> None:
    """Record numbers are counted once across blocks and copies."""
    boot = RecordsOfBoot("a", travels=1)
    many = [boot.heartbeat(1) if number % 50 == 0 else boot.group(1, "g", 1) for number in range(62)]
    boot.skip(3)  # The last number of a block, and the first number of the next block.
    many += [boot.group(2, "g", 1) for _ in range(70)]
    again = [{**each, "arrived_at": at(200)} for each in many[::3]]
    [found] = select_columns(
        table(spark, "sidecars", *many, *again), "first_seq", "last_seq", "records", "heartbeats"
    ).values()
    assert found == (1, 135, 132, 2)


def test_metrics_are_summed_over_sidecars(spark: SparkSession) -> None:
    """The newest figures of all sidecars are summed. Timestamps are not summed: the oldest one counts."""
    a, b, old, new = RecordsOfBoot("a"), RecordsOfBoot("b"), RecordsOfBoot("c", "1"), RecordsOfBoot("c", "2")
    lives: list[Row] = [
        a.heartbeat(10, groups=3, flush_timestamp_seconds=100),
        a.heartbeat(20, groups=5, flush_timestamp_seconds=110),
        b.heartbeat(15, groups=7, flush_timestamp_seconds=105),
        # The newest value of a sidecar counts, from any of its boots. A sidecar without a value counts nowhere.
        new.heartbeat(18, groups=1),
        old.heartbeat(17, groups=100),
        a.heartbeat(305, groups=6),
        b.group(306, "g", 1),
        # A value that cannot be added, and a metric without any value.
        b.heartbeat(307) | {"sample": {"groups": None, "joins_total": None}},
    ]
    assert select_columns(table(spark, "metrics", *lives), "value", "increase", "sidecars") == {
        (0, "groups"): (13.0, None, 3),
        (0, "flush_timestamp_seconds"): (105.0, None, 2),
        (300, "groups"): (6.0, None, 1),
    }


def test_counters_grow_across_restarts(spark: SparkSession) -> None:
    """The increase of counters includes restarts and resets, and leaves out unknown gaps."""
    steady, before, after, lost, cut_off = (
        RecordsOfBoot("steady"),
        RecordsOfBoot("restarted", "1"),
        RecordsOfBoot("restarted", "2"),
        RecordsOfBoot("lost"),
        RecordsOfBoot("cut off"),
    )
    for boot in (steady, before, lost, cut_off):
        boot.skip(50)
    records: list[Row] = [
        # Counts before the first sample do not belong to this window.
        steady.heartbeat(10, joins_total=1000),
        steady.heartbeat(290, joins_total=1004),
        # Counts between two windows of an hour belong to the later window.
        steady.heartbeat(301, joins_total=1007),
        steady.heartbeat(590, joins_total=1010, leaves_total=2),
        # Counts between two hours are unknown if only one hour is computed.
        steady.heartbeat(3590, joins_total=1100),
        steady.heartbeat(3601, joins_total=1200),
        steady.heartbeat(3610, joins_total=1201),
        # A new boot in this window counts from zero.
        before.heartbeat(10, joins_total=500),
        before.heartbeat(20, joins_total=510),
        after.heartbeat(30, joins_total=3),
        after.heartbeat(40, joins_total=4),
        after.heartbeat(310, joins_total=9),
        # A counter that has decreased was reset. A window without samples is skipped.
        lost.heartbeat(3610, resets_total=50),
        lost.heartbeat(3620, resets_total=8),
        cut_off.heartbeat(3610, silences_total=50),
        cut_off.heartbeat(4210, silences_total=60),
        cut_off.heartbeat(4220, silences_total=61),
    ]
    found = table(spark, "metrics", *records)
    assert select_columns(found, "value", "increase", "sidecars") == {
        (0, "joins_total"): (1008.0, 4.0 + 10.0 + 4.0, 2),
        (300, "joins_total"): (1019.0, 6.0 + 5.0, 2),
        (300, "leaves_total"): (2.0, 2.0, 1),
        (3300, "joins_total"): (1100.0, 0.0, 1),
        (3600, "joins_total"): (1201.0, 1.0, 1),
        (3600, "resets_total"): (8.0, 8.0, 1),
        (3600, "silences_total"): (50.0, 0.0, 1),
        (4200, "silences_total"): (61.0, 1.0, 1),
    }
