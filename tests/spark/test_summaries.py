"""The summaries for people, computed from the rows of tables."""

from collections.abc import Callable
from functools import cache

from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark import line_parsing
from group_sidecar.spark.summaries import SUMMARIES
from group_sidecar.spark.tables import TABLES
from tests.spark.record_frames import WIDTH, RecordsOfBoot, Row, at, by_key, frame, select_columns

TableReader = Callable[[str], DataFrame]


def tables(spark: SparkSession, *records: Row) -> TableReader:
    """Returns a reader of tables that are computed from these records."""
    rows = frame(spark, *records)
    return cache(lambda name: TABLES[name].compute(rows, WIDTH))


def test_groups_summary_rows(spark: SparkSession) -> None:
    """The summary has one row per group with its state, lag, rebalances and refusals."""
    boot = RecordsOfBoot()
    read = tables(
        spark,
        boot.heartbeat(1),
        boot.group(2, "full", 3, members=1),
        boot.rebalance(2, "full", "join", 0.5, cause="new_member", members=3),
        boot.rebalance(3, "full", "join", 0.5, cause="new_member", members=3),
        boot.rebalance(400, "full", "leave", 9.0, cause="member_left"),
        boot.refusal(3, "full", "group_max_size", 77),
        boot.refusal(3, "full", "quiet_hours", 77),
        boot.refusal(303, "full", "quiet_hours", 77),
        boot.commit(4, "full", "t", 0, 5),
        boot.group(302, "full", 4, members=2, max_size=2),
        boot.commit(304, "full", "t", 0, 7),
        boot.commit(304, "full", "t", 1, 7),
        boot.log_end(304, "t", 0, 19),
        boot.log_end(324, "t", 0, 29),
        boot.group(2, "quiet", 1),
        boot.refusal(3, "never let in", "group_max_size", 77),
        boot.commit(4, "only commits", "u", 0, 5),
        boot.member(4, "only churn", "joined"),
    )
    found = by_key(SUMMARIES["groups"].compute(read), "group")
    standing = ("sidecar", "sidecars", "state", "generation", "members", "max_size", "first_seen", "last_seen", "gone")
    behind = ("lag", "max_partition_lag", "lag_seconds", "topics", "partitions", "partitions_without_log_end")
    past = ("rebalances", "rebalance_seconds", "lost_consumer_seconds", "main_cause", "last_rebalance_at", "refusals")
    none, calm = (None,) * 9, (0, 0.0, 0.0, None, None)
    assert select_columns(found, *standing, *behind, *past) == {
        "full": (
            *("a", 1, "Stable", 4, 2, 2, at(2), at(302), False),
            *(22, 22, 44.0, 1, 2, 1),
            *(3, 10.0, 12.0, "new_member", at(400), 3),
        ),
        "quiet": ("a", 1, "Stable", 1, 1, None, at(2), at(2), False, *none[:6], *calm, 0),
        "never let in": (*none, *none[:6], *calm, 1),
        "only commits": (*none, None, None, None, 1, 1, 1, *calm, 0),
    }


def test_group_missing_from_snapshot_is_gone(spark: SparkSession) -> None:
    """A group is gone if its sidecar reports others in a later complete snapshot without it."""
    lives, dies, next_one, mute = (
        RecordsOfBoot("lives"),
        RecordsOfBoot("dies"),
        RecordsOfBoot("next"),
        RecordsOfBoot("mute"),
    )
    records: list[Row] = [lives.log_end(1, "t", 0, 9), mute.group(1, "of a mute one", 1)]
    for window in range(4):
        start = window * 300
        records += [lives.heartbeat(start), lives.group(start, "stays", 1)]
        if window == 0:
            # A group that was deleted while its sidecar continued, a group whose offsets expired, and a group that
            # moved.
            records += [lives.group(start, "deleted", 7), lives.commit(start, "deleted", "t", 0, 5)]
            records += [lives.commit(start, "stays", "t", 0, 5), lives.group(start, "moves", 3)]
            records += [dies.heartbeat(start), dies.group(start, "unheard of", 1)]
        else:
            records += [next_one.heartbeat(start), next_one.group(start, "moves", 4)]
        if window < 3:
            # The newest snapshot has arrived only in part.
            records += [lives.group(start, "cut off", 1), lives.commit(start, "cut off", "t", 0, 5)]
    # The sidecar was just restarted, and continues to report events.
    records += [RecordsOfBoot("lives", "2").heartbeat(910), lives.rebalance(1200, "stays", "join", 1.0)]
    found = by_key(SUMMARIES["groups"].compute(tables(spark, *records)), "group")
    assert select_columns(found, "sidecar", "gone", "last_seen", "lag") == {
        "stays": ("lives", False, at(900), None),
        "deleted": ("lives", True, at(0), None),
        "moves": ("next", False, at(900), None),
        "unheard of": ("dies", False, at(0), None),
        "cut off": ("lives", False, at(600), 4),
        "of a mute one": ("mute", False, at(1), None),
    }


def test_lag_summary_uses_newest_observations(spark: SparkSession) -> None:
    """The lag of a partition uses the newest commit and the newest log end, even from different windows."""
    boot, leader = RecordsOfBoot(), RecordsOfBoot("leader")
    read = tables(
        spark,
        boot.commit(1, "g", "t", 0, 5),
        leader.log_end(1, "t", 0, 10),
        leader.log_end(11, "t", 0, 20),
        boot.commit(301, "g", "t", 0, 12),
        leader.log_end(301, "t", 0, 20),
        leader.log_end(311, "t", 0, 30),
        # The records of the leader's sidecar in the newest window have not arrived yet.
        boot.commit(1, "ahead", "t", 1, 12, seen=-9),
        leader.log_end(0.5, "t", 1, 10),
        leader.log_end(1, "t", 1, 20),
        boot.commit(301, "ahead", "t", 1, 15),
        boot.commit(1, "level", "t", 1, 12),
        boot.commit(301, "level", "t", 1, 20),
        boot.commit(301, "rests", "t", 1, 12, seen=-9),
        boot.commit(1, "rests", "t", 1, 12, seen=-9),
        boot.commit(1, "blind", "u", 0, 12),
        boot.commit(301, "blind", "u", 0, 13),
    )
    found = by_key(SUMMARIES["lag"].compute(read), "group", "topic", "partition")
    columns = ("committed", "log_end", "lag", "lag_seconds", "committed_at", "log_end_at", "skew_seconds", "window")
    assert select_columns(found, *columns) == {
        ("g", "t", 0): (12, 30, 18, 18.0, at(301), at(311), 10.0, at(300)),
        ("ahead", "t", 1): (15, 20, 5, None, at(301), at(1), -300.0, at(300)),
        ("level", "t", 1): (20, 20, 0, 0.0, at(301), at(1), -300.0, at(300)),
        ("rests", "t", 1): (12, 20, 8, None, at(-9), at(1), 0.0, at(300)),
        ("blind", "u", 0): (13, None, None, None, at(301), None, None, at(300)),
    }


def test_events_are_summed_over_windows(spark: SparkSession) -> None:
    """Rebalances, refusals, audits and member changes are summed over all windows."""
    boot = RecordsOfBoot()
    read = tables(
        spark,
        boot.rebalance(1, "g", "join", 0.5, cause="new_member", members=2),
        boot.rebalance(301, "g", "join", 2.0, cause="new_member", members=1),
        boot.rebalance(301, "g", "leave", 2.0, cause="member_left", members=1),
        boot.refusal(1, "g", "p", 77),
        boot.refusal(2, "g", "p", 77, client_id="d"),
        boot.refusal(301, "g", "p", 77, client_id="e"),
        boot.refusal(302, "g", "p", 77, kind="audit"),
        boot.member(1, "g", "joined"),
        boot.member(301, "g", "joined"),
        boot.member(301, "g", "left"),
    )
    asked = {name: SUMMARIES[name].compute(read) for name in ("rebalances", "refusals", "audits", "churn")}
    assert by_key(asked["rebalances"], "group", "cause", "reason") == {
        ("g", "new_member", "join"): {
            "rebalances": 2,
            "seconds": 2.5,
            "longest_seconds": 2.0,
            "lost_consumer_seconds": 3.0,
            "members": 2,
            "last_at": at(301),
        },
        ("g", "member_left", "leave"): {
            "rebalances": 1,
            "seconds": 2.0,
            "longest_seconds": 2.0,
            "lost_consumer_seconds": 2.0,
            "members": 1,
            "last_at": at(301),
        },
    }
    verdict = ("group", "policy", "error_code")
    assert select_columns(by_key(asked["refusals"], *verdict), "refusals", "clients", "last_at") == {
        ("g", "p", 77): (3, 2, at(301))
    }
    assert select_columns(by_key(asked["audits"], *verdict), "audits", "clients", "last_at") == {
        ("g", "p", 77): (1, 1, at(302))
    }
    assert select_columns(by_key(asked["churn"], "group", "change"), "members") == {
        ("g", "joined"): (2,),
        ("g", "left"): (1,),
    }


def test_silence_gaps_and_skew_of_sidecars(spark: SparkSession) -> None:
    """The summary of sidecars reports silence, missing records and clock skew."""
    steady, first, second, silent = (
        RecordsOfBoot("steady"),
        RecordsOfBoot("gaps", "1"),
        RecordsOfBoot("gaps", "2"),
        RecordsOfBoot("silent"),
    )
    fast, mute = RecordsOfBoot("fast", ahead=200, travels=0), RecordsOfBoot("mute")
    records = [steady.heartbeat(10), steady.heartbeat(310), steady.heartbeat(610), first.heartbeat(1)]
    first.skip(3)
    records.append(first.heartbeat(2))
    first.skip(1)
    # The gap in the numbers is between two windows.
    records.append(first.heartbeat(303))
    # Records that were dropped before the first remaining record do not count as a gap.
    second.skip(5)
    records += [second.heartbeat(608), second.heartbeat(609)]
    records += [RecordsOfBoot("slow to arrive", travels=50).heartbeat(400)]
    records += [silent.heartbeat(310), fast.heartbeat(600), mute.group(500, "g", 1)]
    found = by_key(SUMMARIES["sidecars"].compute(tables(spark, *records)), "sidecar")
    columns = ("boots", "records", "missing", "heartbeats", "last_heartbeat", "last_record", "silent_seconds")
    assert select_columns(found, *columns, "clock_skew_seconds") == {
        "steady": (1, 3, 0, 3, at(610), at(610), 0.0, None),
        "gaps": (2, 5, 4, 5, at(609), at(609), 1.0, None),
        "silent": (1, 1, 0, 1, at(310), at(310), 300.0, None),
        "fast": (1, 1, 0, 1, at(800), at(800), 10.0, -200.0),
        "slow to arrive": (1, 1, 0, 1, at(400), at(400), 210.0, 50.0),
        "mute": (1, 1, 0, 0, None, at(500), 110.0, None),
    }


def test_metrics_summary_uses_newest_window(spark: SparkSession) -> None:
    """The summary has each metric's value in the newest window and the total increase of counters."""
    boot = RecordsOfBoot()
    read = tables(
        spark,
        boot.heartbeat(10, joins_total=2, groups=5),
        boot.heartbeat(310, joins_total=7, groups=4),
        boot.heartbeat(320, joins_total=9, groups=3),
        RecordsOfBoot("b").heartbeat(10, once=1),
    )
    found = by_key(SUMMARIES["metrics"].compute(read), "metric")
    assert select_columns(found, "value", "increase", "sidecars", "window") == {
        "joins_total": (9.0, 9.0, 1, at(300)),
        "groups": (3.0, None, 1, at(300)),
        "once": (1.0, None, 1, at(0)),
    }


def test_quarantine_summary_has_example(spark: SparkSession) -> None:
    """The quarantine is counted by fault and sidecar, with an example and the last arrival."""
    whose = '{"version":1,"kind":"weather","sidecar":"b"}'
    lines = [("{b", at(1)), ("{a", at(3)), ("[" + "x" * 500, None), (whose, at(2))]
    judged = line_parsing.judged(spark.createDataFrame(lines, "value STRING, arrived_at TIMESTAMP"))
    found = by_key(
        SUMMARIES["quarantine"].compute({"quarantine": line_parsing.quarantined(judged)}.__getitem__),
        "fault",
        "sidecar",
    )
    assert select_columns(found, "lines", "example", "last_arrived_at") == {
        ("not_json_object", None): (3, "[" + "x" * 199, at(3)),
        ("unknown_kind", "b"): (1, whose, at(2)),
    }


def test_declared_columns_exist(spark: SparkSession) -> None:
    """The columns that declare keys, order and display of tables and summaries exist."""
    read = tables(spark, RecordsOfBoot().heartbeat(1))
    for name, table in TABLES.items():
        assert table.name == name
        assert read(name).columns[0] == "window"
        assert set(table.keys) < set(read(name).columns), name
        assert table.doc.endswith("."), name
    judged = line_parsing.judged(spark.createDataFrame([], "value STRING, arrived_at TIMESTAMP"))
    for name, summary in SUMMARIES.items():
        answer = summary.compute(
            lambda table: line_parsing.quarantined(judged) if table == "quarantine" else read(table)
        )
        named = {*summary.then_by, *summary.terminal_columns} | ({summary.first_by} if summary.first_by else set())
        assert summary.name == name
        assert named <= set(answer.columns), name
        assert summary.doc.endswith("."), name
