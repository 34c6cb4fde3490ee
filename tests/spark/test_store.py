"""The files of a store: repeated batches, interrupted compaction, retention, and tables by hour."""

import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from group_sidecar.spark.filesystem import FolderError, Folders
from group_sidecar.spark.jobs import RunOptions, run
from group_sidecar.spark.store import Store
from group_sidecar.spark.store_settings import StoreError
from group_sidecar.spark.tables import RECORDS
from group_sidecar.spark.write_attempts import RowCountError, WriteAttempts
from tests.spark.record_frames import MIDNIGHT, RecordsOfBoot, Row, at, frame
from tests.spark.segment_files import HOUR, NOW, cells, folders

HOURS = [at(hour * HOUR) for hour in range(4)]


def judged(spark: SparkSession, records: list[Row], *lines: str) -> DataFrame:
    """Returns records, and broken lines that arrived at midnight, as `line_parsing.judged` returns them."""
    broken = [("not_json_object", line, MIDNIGHT) for line in lines]
    quarantine = spark.createDataFrame(broken, "fault STRING, line STRING, arrived_at TIMESTAMP")
    return frame(spark, *records).unionByName(quarantine, allowMissingColumns=True)


def seqs(records: DataFrame) -> list[int]:
    return sorted(row["seq"] for row in records.select("seq").distinct().collect())


@pytest.fixture
def add(spark: SparkSession) -> Callable[..., set[datetime]]:
    """Returns a function that adds records and broken lines to a store."""

    def add(store: Store, batch: int, records: list[Row], *lines: str) -> set[datetime]:
        added = store.add(batch, judged(spark, records, *lines), NOW)
        assert added.records == len(records)
        assert added.quarantined == ({"not_json_object": len(lines)} if lines else {})
        return set(added.hours)

    return add


Add = Callable[..., set[datetime]]


def test_rewritten_batch_replaces_leftovers(spark: SparkSession, tmp_path: Path, add: Add) -> None:
    """A batch that is written again replaces the records and lines of its earlier attempt."""
    a = RecordsOfBoot("a")
    first, second, third = a.heartbeat(10), a.heartbeat(HOUR + 10), a.heartbeat(2 * HOUR + 10)
    store = Store(spark, str(tmp_path))
    assert add(store, 1, [first, second], "{", "{") == {at(0), at(HOUR)}
    assert add(store, 2, [second]) == {at(HOUR)}
    # The job was killed, and batch 2 now has other hours and other lines.
    store = Store(spark, str(tmp_path))
    assert add(store, 2, [third], "[") == {at(HOUR), at(2 * HOUR)}
    assert seqs(store.records(HOURS)) == [1, 2, 3]
    assert seqs(store.records([at(0), at(2 * HOUR)])) == [1, 3]
    assert sorted(row["line"] for row in store.read("quarantine").collect()) == ["[", "{", "{"]
    (folder,) = folders(tmp_path, "records/*/hour=1/*")
    assert re.fullmatch(r"records/day=2025-01-31/hour=1/batch=1\.0{8}-[0-9a-f]{8}", folder)
    assert store.hours() == HOURS[:3]
    # The store is opened again, and knows its own batches.
    assert add(store, 2, [second], "]") == {at(HOUR), at(2 * HOUR)}
    assert seqs(store.records(HOURS)) == [1, 2]


def test_lines_of_deleted_segment_are_kept(spark: SparkSession, tmp_path: Path, add: Add) -> None:
    """Lines of a deleted segment are kept when their batch is written again without them. No lines are merged."""
    a = RecordsOfBoot("a")
    first, second = a.heartbeat(10), a.heartbeat(HOUR + 10)
    add(Store(spark, str(tmp_path)), 1, [first, second], "{", "[")
    again = Store(spark, str(tmp_path)).add(1, judged(spark, [second], "]"), NOW)
    assert (again.records, again.kept) == (1, 4)
    store = Store(spark, str(tmp_path))
    for _ in range(2):
        assert seqs(store.records(HOURS)) == [1, 2]
        assert sorted(row["line"] for row in store.read("quarantine").collect()) == ["[", "]", "{"]
        store.compact(NOW, 2)


def test_interrupted_batch_is_written_once(
    spark: SparkSession, tmp_path: Path, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is interrupted at any step and repeated is stored exactly once."""
    a = RecordsOfBoot("a")
    beats = [a.heartbeat(10), a.heartbeat(HOUR + 10)]
    # An attempt whose files were in place, but which was not committed.
    add(Store(spark, str(tmp_path / "earlier")), 1, beats, "{")
    killed, step = True, 0
    while killed:
        path = tmp_path / f"{step}"
        shutil.copytree(tmp_path / "earlier", path)
        store = Store(spark, str(path))
        with monkeypatch.context() as patch:
            steps = count(-step)
            for name in ("move", "remove"):
                patch.setattr(Folders, name, _failing_at_last(steps, getattr(Folders, name)))
            try:
                add(store, 1, beats, "{")
                killed = False
            except KeyboardInterrupt:
                step += 1
        store = Store(spark, str(path))
        store.recover()
        assert seqs(store.records(HOURS)) == [1, 2], step
        add(store, 1, beats, "{")
        assert sorted(row["seq"] for row in store.records(HOURS).collect()) == [1, 2], step
        assert [row["line"] for row in store.read("quarantine").collect()] == ["{"], step
        assert folders(path, "_attempts/*") == []
    # Three folders are moved after they are marked as complete. Then three folders and the attempt's folder are
    # removed.
    assert step == 8


@pytest.mark.parametrize("operation", ["rename", "delete", "mkdirs"])
def test_file_system_refusal_loses_nothing(operation: str, spark: SparkSession, tmp_path: Path, add: Add) -> None:
    """If the file system returns false from an operation, the store raises FolderError and loses nothing."""
    a = RecordsOfBoot("a")
    first, second = a.heartbeat(10), a.heartbeat(HOUR + 10)
    store = Store(spark, str(tmp_path))
    add(store, 0, [first], "{")
    store.replace("refusals", answer(spark, (at(0), "a")), HOURS[:1])
    system = store._folders._system
    store._folders._system = Refusing(system, operation)
    with pytest.raises(FolderError, match=r"^cannot (move|delete|make) "):
        add(store, 1, [second], "[")
    with pytest.raises(FolderError, match=r"^cannot (move|delete|make) "):
        store.replace("refusals", answer(spark, (at(0), "b")), HOURS[:1])
    store._folders._system = system
    assert len(sorted_rows(store.read("refusals"))) == 1
    store = Store(spark, str(tmp_path))
    # A batch with written lines is not lost, even if its segments are lost.
    assert store.recover() <= {at(HOUR)}
    assert add(store, 1, [second], "[") == {at(HOUR)}
    assert sorted(row["seq"] for row in store.records(HOURS).collect()) == [1, 2]
    assert sorted(row["line"] for row in store.read("quarantine").collect()) == ["[", "{"]


class Refusing:
    """A file system on which one operation does nothing and returns false."""

    def __init__(self, system: Any, operation: str) -> None:
        self._system = system
        self._operation = operation

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: False) if name == self._operation else getattr(self._system, name)


def test_false_rename_success_is_detected(
    spark: SparkSession, tmp_path: Path, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename that reports success without moving the files raises FolderError."""
    store = Store(spark, str(tmp_path))
    system = store._folders._system
    store._folders._system = Refusing(system, "rename")
    monkeypatch.setattr(Refusing, "__getattr__", lambda *_: _claims_to_rename(system, *_))
    with pytest.raises(FolderError, match=r"^not all files of "):
        add(store, 1, [RecordsOfBoot("a").heartbeat(10)])
    assert len(folders(tmp_path, "_attempts/1.*")) == 1


def _claims_to_rename(system: Any, _: object, name: str) -> Any:
    return (lambda *_: True) if name == "rename" else getattr(system, name)


def test_missing_lines_are_detected(
    spark: SparkSession, tmp_path: Path, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RowCountError is raised if fewer rows are written than the batch has."""
    store = Store(spark, str(tmp_path))
    monkeypatch.setattr(WriteAttempts, "_count", lambda *_: (1, {}))
    with pytest.raises(RowCountError, match="batch 1 has 2 rows, and 1 were written to _attempts/1"):
        add(store, 1, [RecordsOfBoot("a").heartbeat(10)], "{")
    assert (store.hours(), len(folders(tmp_path, "_attempts/1.*"))) == ([], 1)


def test_compaction_may_be_interrupted(
    spark: SparkSession, tmp_path: Path, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction that is interrupted at any step loses no record, and later compaction removes the repetitions."""
    a = RecordsOfBoot("a")
    beats = [a.heartbeat(10 + number) for number in range(5)]
    store = Store(spark, str(tmp_path))
    for batch in range(4):
        # Each attempt adds one new record and one repeated record.
        add(store, batch, beats[batch : batch + 2], *["{"] * (batch == 1))
    # The cases in order: before any removal, after the removal of one folder, and never.
    for removals in (0, 1):
        with monkeypatch.context() as patch:
            patch.setattr(Folders, "remove", _failing_after(removals, Folders.remove))
            with pytest.raises(KeyboardInterrupt):
                store.compact(at(HOUR), 3)
        assert seqs(store.records(HOURS)) == [1, 2, 3, 4, 5]
    assert store.compact(at(HOUR), 3) == 4  # Batches 1 and 2, and the folders of two attempts.
    assert store.compact(at(HOUR), 3) == 0
    assert seqs(store.records(HOURS)) == [1, 2, 3, 4, 5]
    compacted, untouched = sorted(folders(tmp_path, "records/*/hour=0/*"), reverse=True)
    assert "/batch=3." in untouched
    rows = spark.read.parquet(str(tmp_path / compacted))
    assert sorted(row["seq"] for row in rows.collect()) == [1, 2, 3, 4]
    assert len(list((tmp_path / compacted).glob("*.parquet"))) == 1
    # An open hour is not compacted, a batch is repeated, and a record arrives late.
    assert store.compact(at(0), 4) == 0
    assert add(store, 3, [beats[4]], "{") == {at(0)}
    assert store.compact(at(HOUR), 4) == 4  # Two folders of records, and two of the quarantine.
    assert seqs(store.records(HOURS)) == [1, 2, 3, 4, 5]
    assert [row["line"] for row in store.read("quarantine").collect()] == ["{", "{"]


def test_compacted_files_can_be_skipped(spark: SparkSession, tmp_path: Path, add: Add) -> None:
    """Compacted records are sorted by kind, compressed with zstd, and have statistics of their times."""
    a, b = RecordsOfBoot("a"), RecordsOfBoot("b")
    store = Store(spark, str(tmp_path))
    for batch in range(2):
        add(
            store,
            batch,
            [b.heartbeat(batch), a.commit(batch, "g", "t", 0, 1), a.heartbeat(batch), b.commit(batch, "g", "t", 0, 1)],
        )
    assert store.compact(at(HOUR), 2) == 2
    [path] = tmp_path.glob("records/*/*/batch=compacted-*/*.parquet")
    rows = pq.read_table(path, columns=["kind", "sidecar", "seq"]).to_pylist()
    order = [(row["kind"], row["sidecar"], row["seq"]) for row in rows]
    assert len(order) == 8
    assert order == sorted(order)
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert {each.compression for each in columns.values()} == {"ZSTD"}
    assert columns["emitted_at"].statistics.min == at(0)


def _failing_at_last(steps: Iterator[int], done: Callable[..., None]) -> Callable[..., None]:
    def fail(self: Folders, *folders: str, **others: str) -> None:
        if next(steps) == 0:
            raise KeyboardInterrupt
        done(self, *folders, **others)

    return fail


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


def sorted_rows(rows: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((row["window"].astimezone(UTC), row["group"]) for row in rows.collect())


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_table_hour_is_replaced_as_whole(format: str, spark: SparkSession, tmp_path: Path) -> None:
    """Writing an hour of a table replaces the whole hour, and reads by time return the right windows."""
    store = Store(spark, str(tmp_path), format)
    assert sorted_rows(store.read("refusals")) == []
    assert store.read("refusals").columns[:2] == ["window", "group"]
    late = at(300)
    store.replace("refusals", answer(spark, (at(0), "a"), (late, "b"), (at(HOUR), "c")), HOURS[:2])
    store.replace("refusals", answer(spark, (at(0), "d")), HOURS[:1])
    assert sorted_rows(store.read("refusals")) == [(at(0), "d"), (at(HOUR), "c")]
    store.replace("refusals", answer(spark, (at(0), "d"), (late, "e")), HOURS[:1])
    assert sorted_rows(store.read("refusals", since=late)) == [(late, "e"), (at(HOUR), "c")]
    assert sorted_rows(store.read("refusals", until=late)) == [(at(0), "d")]
    assert sorted_rows(store.read("refusals", late, at(HOUR))) == [(late, "e")]
    assert sorted_rows(store.read_hours("refusals", HOURS[:1])) == [(at(0), "d"), (late, "e")]
    assert sorted_rows(store.read_hours("refusals", [HOURS[1], HOURS[3]])) == [(at(HOUR), "c")]
    assert store.read_hours("refusals", HOURS).columns == answer(spark).columns
    assert store.read("refusals").columns == answer(spark).columns


def test_hour_without_answer_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """An hour that is replaced without rows has no rows afterwards."""
    store = Store(spark, str(tmp_path))
    store.replace("refusals", answer(spark, (at(0), "a"), (at(HOUR), "b")), HOURS)
    store.replace("refusals", answer(spark), HOURS[:1])
    assert sorted_rows(store.read("refusals")) == [(at(HOUR), "b")]
    assert folders(tmp_path, "_attempts/*") == []


def test_expired_days_are_dropped(spark: SparkSession, tmp_path: Path, add: Add) -> None:
    """Days older than the retention are dropped and counted."""
    a, day = RecordsOfBoot("a"), 24 * HOUR
    store = Store(spark, str(tmp_path), retention=timedelta(days=2))
    add(store, 0, [a.heartbeat(number * day) for number in (-3, -2, -1, 0)], "{")
    store.replace("refusals", answer(spark, (at(-3 * day), "a"), (at(0), "b")), [at(-3 * day), at(0)])
    now = at(HOUR)
    assert store.oldest(now) == at(-2 * day)
    assert store.tidy(1, now) == 1
    assert seqs(store.records(store.hours())) == [2, 3, 4]
    assert sorted_rows(store.read("refusals")) == [(at(0), "b")]
    # The quarantine's day is the day on which the line arrived, 31 January.
    assert cells(store.read("quarantine")) != []
    assert store.drop_before(at(day)) == 3
    assert (store.hours(), cells(store.read("quarantine"))) == ([], [])


def test_tidy_runs_once_per_hour(spark: SparkSession, tmp_path: Path, add: Add) -> None:
    """The store compacts finished hours at most once an hour."""
    a = RecordsOfBoot("a")
    store = Store(spark, str(tmp_path))
    for batch in range(2):
        add(store, batch, [a.heartbeat(10)])

    def batches() -> int:
        return len(folders(tmp_path, f"{RECORDS}/*/hour=0/*"))

    store.tidy(2, at(2 * HOUR + 10))  # That hour may still receive records.
    assert batches() == 2
    store.tidy(2, at(3 * HOUR + 10))
    assert batches() == 1
    add(store, 2, [a.heartbeat(20)])
    store.tidy(3, at(3 * HOUR + 20))
    assert batches() == 2
    store.tidy(3, at(4 * HOUR))
    assert batches() == 1


def test_store_keeps_its_settings(spark: SparkSession, tmp_path: Path) -> None:
    """A store is opened with the window of its creation, and other or invalid settings are refused."""
    with pytest.raises(StoreError, match="there are no tables in"):
        Store.opened(spark, str(tmp_path / "store"))
    made = Store(spark, str(tmp_path / "store"), window="10 minutes")
    assert (made.width, Store.opened(spark, str(tmp_path / "store")).window) == (timedelta(minutes=10), "10 minutes")
    with pytest.raises(StoreError, match="was made with window 10 minutes, not 5 minutes"):
        Store(spark, str(tmp_path / "store"))
    with pytest.raises(StoreError, match="a window of 7 minutes does not divide an hour"):
        Store(spark, str(tmp_path / "other"), window="7 minutes")
    with pytest.raises(StoreError, match="lacks the format delta"):
        Store(spark, str(tmp_path / "other"), "delta")
    assert not (tmp_path / "other").exists()


NEWER = "so a newer version of the job made this store: upgrade the job"
DAMAGED = "restore it, or make a new store from the journals"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"layout": 2, "shape": "round"}', f"has layout 2, {NEWER}"),
        (
            '{"layout": 1, "format": "parquet", "window": "5 minutes", "zone": "UTC"}',
            f"has the unknown setting zone, {NEWER}",
        ),
        ('{"layout": 1, "format": "par', f"is damaged, because it is no JSON: {DAMAGED}"),
        ("", f"is damaged, because it is no JSON: {DAMAGED}"),
        ("[" * 100_000, f"is damaged, because it is no JSON: {DAMAGED}"),
        ("[1]", f"is damaged, because it is no JSON object: {DAMAGED}"),
        ("{}", f"is damaged, because it has no layout 1: {DAMAGED}"),
        ('{"layout": "1"}', f"is damaged, because it has no layout 1: {DAMAGED}"),
        ('{"layout": 1, "window": "5 minutes"}', f"is damaged, because it has no format: {DAMAGED}"),
        ('{"layout": 1, "format": "parquet", "window": 5}', f"is damaged, because it has no window: {DAMAGED}"),
    ],
)
def test_unknown_settings_have_one_line(text: str, reason: str, spark: SparkSession, tmp_path: Path) -> None:
    """A store of a newer version or with damaged settings is refused in one line, before anything is written."""
    (tmp_path / "store.json").write_text(text)
    line = f"^{re.escape(f'file:{tmp_path}/store.json {reason}')}$"
    with pytest.raises(StoreError, match=line):
        Store.opened(spark, str(tmp_path))
    with pytest.raises(StoreError, match=line):
        Store(spark, str(tmp_path))
    with pytest.raises(StoreError, match=line):
        run(spark, RunOptions(source=str(tmp_path), output=str(tmp_path)))
    assert [path.name for path in tmp_path.rglob("*")] == ["store.json"]
    assert (tmp_path / "store.json").read_text() == text


def test_damaged_window_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A window that is no time is refused in one line."""
    (tmp_path / "store.json").write_text('{"layout": 1, "format": "parquet", "window": "often"}')
    with pytest.raises(StoreError, match="a window of often is no time like 5 minutes"):
        Store.opened(spark, str(tmp_path))


def test_hours_within_range(spark: SparkSession, tmp_path: Path) -> None:
    """Folders lists the hours within a range and the newest hour."""
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
