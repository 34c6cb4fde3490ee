"""What is on disk: batches that are written again, compaction that is cut short, retention, tables by the hour."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark.folders import Folders
from group_sidecar.spark.store import Store, StoreError
from group_sidecar.spark.tables import RECORDS
from tests.spark.frames import MIDNIGHT, Row, Told, at, frame
from tests.spark.journals import HOUR, NOW, cells, folders

HOURS = [at(hour * HOUR) for hour in range(4)]


def judged(spark: SparkSession, records: list[Row], *lines: str) -> DataFrame:
    """Records, and lines that came at midnight and are none, as `intake.judged` gives them."""
    broken = [("not_json_object", line, MIDNIGHT) for line in lines]
    quarantine = spark.createDataFrame(broken, "fault STRING, line STRING, arrived_at TIMESTAMP")
    return frame(spark, *records).unionByName(quarantine, allowMissingColumns=True)


def seqs(records: DataFrame) -> list[int]:
    return sorted(row["seq"] for row in records.select("seq").distinct().collect())


@pytest.fixture
def add(spark: SparkSession) -> Callable[..., set[datetime]]:
    """Adds records and broken lines to a store."""

    def add(store: Store, batch: int, records: list[Row], *lines: str) -> set[datetime]:
        added = store.add(batch, judged(spark, records, *lines), NOW)
        assert added.records == len(records)
        assert added.quarantined == ({"not_json_object": len(lines)} if lines else {})
        return set(added.hours)

    return add


Add = Callable[..., set[datetime]]


def test_a_batch_that_is_written_again_replaces_what_it_left(spark: SparkSession, tmp_path: Path, add: Add) -> None:
    a = Told("a")
    first, second, third = a.heartbeat(10), a.heartbeat(HOUR + 10), a.heartbeat(2 * HOUR + 10)
    store = Store(spark, str(tmp_path))
    assert add(store, 1, [first, second], "{", "{") == {at(0), at(HOUR)}
    assert add(store, 2, [second]) == {at(HOUR)}
    # The job was killed, and batch 2 has other hours and other lines now.
    store = Store(spark, str(tmp_path))
    assert add(store, 2, [third], "[") == {at(HOUR), at(2 * HOUR)}
    assert seqs(store.records(HOURS)) == [1, 2, 3]
    assert seqs(store.records([at(0), at(2 * HOUR)])) == [1, 3]
    assert sorted(row["line"] for row in store.read("quarantine").collect()) == ["[", "{", "{"]
    assert folders(tmp_path, "records/*/hour=1/*") == ["records/day=2025-01-31/hour=1/batch=1"]
    assert store.hours() == HOURS[:3]
    # The same store again: it knows what it wrote itself.
    assert add(store, 2, [second]) == {at(HOUR), at(2 * HOUR)}
    assert seqs(store.records(HOURS)) == [1, 2]


def test_a_batch_that_was_cut_short_before_it_was_in_its_place_is_not_there(
    spark: SparkSession, tmp_path: Path, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Told("a")
    first, second, third = a.heartbeat(10), a.heartbeat(HOUR + 10), a.heartbeat(2 * HOUR + 10)
    # The job is killed when it has moved the quarantine, and of the records one hour.
    for moved in (0, 1, 2):
        store = Store(spark, str(tmp_path / f"{moved}"))
        with monkeypatch.context() as patch:
            patch.setattr(Folders, "replace", _failing_after(moved, Folders.replace))
            with pytest.raises(KeyboardInterrupt):
                add(store, 1, [first, second], "{")
        assert len(store.hours()) == max(0, moved - 1)
        store = Store(spark, str(tmp_path / f"{moved}"))
        add(store, 1, [second, third], "[")
        assert sorted(row["seq"] for row in store.records(HOURS).collect()) == [2, 3]
        assert [row["line"] for row in store.read("quarantine").collect()] == ["["]
        assert folders(tmp_path / f"{moved}", "_*") == []


def test_compaction_may_be_cut_short_anywhere(
    spark: SparkSession, tmp_path: Path, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Told("a")
    beats = [a.heartbeat(10 + number) for number in range(5)]
    store = Store(spark, str(tmp_path))
    for batch in range(4):
        # Each brings one record anew and one again.
        add(store, batch, beats[batch : batch + 2], *["{"] * (batch == 1))
    # In turn: before anything is removed, when one folder is, and not at all.
    for removals in (0, 1):
        with monkeypatch.context() as patch:
            patch.setattr(Folders, "remove", _failing_after(removals, Folders.remove))
            with pytest.raises(KeyboardInterrupt):
                store.compact(at(HOUR), 3)
        assert seqs(store.records(HOURS)) == [1, 2, 3, 4, 5]
    assert store.compact(at(HOUR), 3) == 4  # Batches 1 and 2, and what two attempts wrote.
    assert store.compact(at(HOUR), 3) == 0
    assert seqs(store.records(HOURS)) == [1, 2, 3, 4, 5]
    compacted, untouched = sorted(folders(tmp_path, "records/*/hour=0/*"), reverse=True)
    assert untouched.endswith("/batch=3")
    rows = spark.read.parquet(str(tmp_path / compacted))
    assert sorted(row["seq"] for row in rows.collect()) == [1, 2, 3, 4]
    assert len(list((tmp_path / compacted).glob("*.parquet"))) == 1
    # An hour that is still open is left alone; the batch is done again; something comes late.
    assert store.compact(at(0), 4) == 0
    assert add(store, 3, [beats[4]]) == {at(0)}
    assert store.compact(at(HOUR), 4) == 2
    assert seqs(store.records(HOURS)) == [1, 2, 3, 4, 5]
    assert [row["line"] for row in store.read("quarantine").collect()] == ["{"]


def _failing_after(times: int, done: Callable[..., None]) -> Callable[..., None]:
    left = [times]

    def fail(self: Folders, *folders: str, **others: str) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        done(self, *folders, **others)

    return fail


def answer(spark: SparkSession, *rows: tuple[datetime, str]) -> DataFrame:
    columns = ("group", "policy", "error_code", "refusals", "clients", "last_at")
    values = [(window, group, "p", 77, 1, 1, window) for window, group in rows]
    types = ("STRING", "STRING", "BIGINT", "BIGINT", "BIGINT", "TIMESTAMP")
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in zip(columns, types, strict=True))
    return spark.createDataFrame(values, f"window TIMESTAMP, {ddl}")


def told(rows: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((row["window"].astimezone(UTC), row["group"]) for row in rows.collect())


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_an_hour_of_a_table_is_replaced_as_a_whole(format: str, spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, str(tmp_path), format)
    assert told(store.read("refusals")) == []
    assert store.read("refusals").columns[:2] == ["window", "group"]
    late = at(300)
    store.replace("refusals", answer(spark, (at(0), "a"), (late, "b"), (at(HOUR), "c")), HOURS[:2])
    store.replace("refusals", answer(spark, (at(0), "d")), HOURS[:1])
    assert told(store.read("refusals")) == [(at(0), "d"), (at(HOUR), "c")]
    store.replace("refusals", answer(spark, (at(0), "d"), (late, "e")), HOURS[:1])
    assert told(store.read("refusals", since=late)) == [(late, "e"), (at(HOUR), "c")]
    assert told(store.read("refusals", until=late)) == [(at(0), "d")]
    assert told(store.read("refusals", late, at(HOUR))) == [(late, "e")]
    assert told(store.answers("refusals", HOURS[:1])) == [(at(0), "d"), (late, "e")]
    assert told(store.answers("refusals", [HOURS[1], HOURS[3]])) == [(at(HOUR), "c")]
    assert store.answers("refusals", HOURS).columns == answer(spark).columns
    assert store.read("refusals").columns == answer(spark).columns


def test_an_hour_without_an_answer_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, str(tmp_path))
    store.replace("refusals", answer(spark, (at(0), "a"), (at(HOUR), "b")), HOURS)
    store.replace("refusals", answer(spark), HOURS[:1])
    assert told(store.read("refusals")) == [(at(HOUR), "b")]
    assert folders(tmp_path, "refusals/_*") == []


def test_days_that_are_too_old_are_dropped_and_counted(spark: SparkSession, tmp_path: Path, add: Add) -> None:
    a, day = Told("a"), 24 * HOUR
    store = Store(spark, str(tmp_path), retention=timedelta(days=2))
    add(store, 0, [a.heartbeat(number * day) for number in (-3, -2, -1, 0)], "{")
    store.replace("refusals", answer(spark, (at(-3 * day), "a"), (at(0), "b")), [at(-3 * day), at(0)])
    now = at(HOUR)
    assert store.oldest(now) == at(-2 * day)
    assert store.tidy(1, now) == 1
    assert seqs(store.records(store.hours())) == [2, 3, 4]
    assert told(store.read("refusals")) == [(at(0), "b")]
    # The quarantine's day is that on which the line came, 31 January.
    assert cells(store.read("quarantine")) != []
    assert store.drop_before(at(day)) == 3
    assert (store.hours(), cells(store.read("quarantine"))) == ([], [])


def test_tidying_is_done_once_an_hour(spark: SparkSession, tmp_path: Path, add: Add) -> None:
    a = Told("a")
    store = Store(spark, str(tmp_path))
    for batch in range(2):
        add(store, batch, [a.heartbeat(10)])

    def batches() -> int:
        return len(folders(tmp_path, f"{RECORDS}/*/hour=0/*"))

    store.tidy(2, at(2 * HOUR + 10))  # That hour may still get records.
    assert batches() == 2
    store.tidy(2, at(3 * HOUR + 10))
    assert batches() == 1
    add(store, 2, [a.heartbeat(20)])
    store.tidy(3, at(3 * HOUR + 20))
    assert batches() == 2
    store.tidy(3, at(4 * HOUR))
    assert batches() == 1


def test_a_store_is_used_as_it_was_made(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there are no tables in"):
        Store.opened(spark, str(tmp_path / "store"))
    made = Store(spark, str(tmp_path / "store"), window="10 minutes")
    assert (made.width, Store.opened(spark, str(tmp_path / "store")).window) == (timedelta(minutes=10), "10 minutes")
    with pytest.raises(StoreError, match="was made with window 10 minutes, not 5 minutes"):
        Store(spark, str(tmp_path / "store"))
    with pytest.raises(StoreError, match="a window of 7 minutes does not divide an hour"):
        Store(spark, str(tmp_path / "other"), window="7 minutes")
    with pytest.raises(StoreError, match="no format delta"):
        Store(spark, str(tmp_path / "other"), "delta")
    assert not (tmp_path / "other").exists()


def test_hours_are_found_by_the_range_they_are_in(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("day=2025-01-30/hour=23", "day=2025-01-31/hour=0", "day=2025-01-31/hour=10", "_temporary/0"):
        (tmp_path / "t" / name).mkdir(parents=True)
    found = Folders(spark, str(tmp_path))
    hours = [at(-HOUR), at(0), at(10 * HOUR)]
    assert found.hours("t") == hours
    assert found.hours("t", at(-1)) == hours
    assert found.hours("t", at(0)) == hours[1:]
    assert found.hours("t", at(0), at(10 * HOUR)) == hours[1:2]
    assert found.hours("t", until=at(10 * HOUR + 1)) == hours
    assert found.newest_hour("t") == hours[-1]
    assert (found.newest_hour("none"), found.hours("none")) == (None, [])
