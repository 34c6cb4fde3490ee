"""Lines of a newer contract wait in quarantine, and `requeue` takes them once the job knows this contract."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from group_sidecar.metrics import records as contract
from group_sidecar.spark import line_parsing, line_sources, recompute
from group_sidecar.spark.filesystem import Folders
from group_sidecar.spark.ingest import ingest
from group_sidecar.spark.jobs import RequeueOptions, RunOptions, run, run_requeue
from group_sidecar.spark.lease import LeaseTakenError
from group_sidecar.spark.line_parsing import Fault
from group_sidecar.spark.requeue import requeue
from group_sidecar.spark.store import Store
from group_sidecar.spark.tables import TABLES
from tests.spark.job_processes import finish, kill_when
from tests.spark.record_frames import RecordsOfBoot, at
from tests.spark.segment_files import BROKEN, FOREIGN, HOUR, NOW, all_rows, folders, line, seal, segments_in_order, tell

pytestmark = pytest.mark.timeout(900)  # Each test runs several Spark jobs, beside other tests.

KNOWN = ("groups", "sidecars")
"""Tables that the old job has too."""
ALL = (*KNOWN, "churn")


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Limits the job to these tables, to save time."""
    monkeypatch.setattr(recompute, "TABLES", {name: TABLES[name] for name in names})


def columns_with(name: str, **changes: Any) -> Callable[[Any], tuple[contract.Column, ...]]:
    """Returns the contract's columns, one of them changed."""
    return lambda part: tuple(
        replace(column, **changes) if column.name == name else column for column in contract.columns(part)
    )


_BODIES = tuple(body for body in contract.BODIES if body is not contract.Member)
OLD_CONTRACTS: dict[str, dict[str, object]] = {
    "unknown_version": {"VERSION": 0},
    "unknown_kind": {"BODIES": _BODIES, "KINDS": {body.KIND: body for body in _BODIES}},
    "wrong_type": {"TIMESTAMP_FORMAT": "yyyy-MM-dd'T'HH:mm:ssX"},
    "missing_column": {"columns": columns_with("instance_id", nullable=False)},
    "out_of_range": {"columns": columns_with("generation", note=contract.Note("Generation.", 4))},
}
"""By the fault that a record of the present contract has by an older contract: what that contract has instead."""


@contextmanager
def old_job(fault: str = "unknown_kind") -> Iterator[None]:
    """Makes the job one that knows only an older contract."""
    with pytest.MonkeyPatch.context() as patch:
        only(patch, *KNOWN)
        for name, value in OLD_CONTRACTS[fault].items():
            patch.setattr(line_parsing, name, value)
        yield


@pytest.fixture(autouse=True)
def few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits the job to few tables. All tables are written in the same way."""
    only(monkeypatch, *ALL)


@pytest.fixture
def requeued(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Returns a function that runs the command, and returns the lines on standard error."""

    def requeued(store: Path, **options: Any) -> list[str]:
        capsys.readouterr()
        run_requeue(spark, RequeueOptions(output=str(store), **options))
        return capsys.readouterr().err.splitlines()

    return requeued


Requeued = Callable[..., list[str]]


def die_at_replace(*_: object) -> None:
    raise KeyboardInterrupt


def run_once(spark: SparkSession, journals: Path, store: Path, **options: Any) -> Store:
    """Runs the job over all segments."""
    run(spark, RunOptions(source=str(journals), output=str(store), **options))
    return Store.opened(spark, str(store))


def names_of_records(store: Store) -> list[tuple[Any, ...]]:
    """Returns the name of each stored record, including repeated ones."""
    return sorted(tuple(row) for row in store.records(store.hours()).select("sidecar", "boot", "seq").collect())


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journals")
    tell(folder, [*segments_in_order()])
    return folder


@pytest.fixture(scope="module")
def whole(spark: SparkSession, journals: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The rows of a store that took all lines by the present contract."""
    with pytest.MonkeyPatch.context() as patch:
        only(patch, *ALL)
        return all_rows(run_once(spark, journals, tmp_path_factory.mktemp("whole")), ALL)


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=() if fault == "unknown_kind" else pytest.mark.long) for fault in OLD_CONTRACTS]
)
def test_upgrade_cures_lines(
    fault: str, spark: SparkSession, journals: Path, whole: dict[str, list[str]], tmp_path: Path, requeued: Requeued
) -> None:
    """After an upgrade, the store equals one that took all lines by the new contract at once."""
    with old_job(fault):
        before = all_rows(run_once(spark, journals, tmp_path), KNOWN)
        waiting = sum(BROKEN not in row for row in before["quarantine"])
        assert sum(fault in row for row in before["quarantine"]) >= 1
        assert requeued(tmp_path) == [requeue_summary(waiting, 0)]
        assert all_rows(Store.opened(spark, str(tmp_path)), KNOWN) == before
    assert requeued(tmp_path) == [requeue_summary(waiting, waiting - 1)]
    store = Store.opened(spark, str(tmp_path))
    assert all_rows(store, ALL) == whole
    assert folders(tmp_path, "_attempts/*") == []
    # Only the line of version 9 is left.
    assert requeued(tmp_path) == [requeue_summary(1, 0)]
    assert all_rows(store, ALL) == whole


def requeue_summary(judged: int, records: int) -> str:
    """Returns what the command prints."""
    return f"{judged} lines judged again: {records} are records now, {judged - records} stay in quarantine"


def member_lines(*seconds: float) -> list[str]:
    """Returns lines that `old_job` does not know, and that the present contract accepts."""
    boot = RecordsOfBoot("b")
    return [line(boot.member(second, "orders", "joined", f"m{second:g}")) for second in seconds]


def beat_lines(*seconds: float) -> list[str]:
    boot = RecordsOfBoot("a")
    return [line(boot.heartbeat(second)) for second in seconds]


def test_empty_quarantine(spark: SparkSession, tmp_path: Path, requeued: Requeued) -> None:
    """Without lines in quarantine, the command does nothing."""
    Store(spark, str(tmp_path))
    assert requeued(tmp_path) == [requeue_summary(0, 0)]
    seal(tmp_path / "in", "only", beat_lines(10))
    run_once(spark, tmp_path / "in", tmp_path)
    assert requeued(tmp_path) == [requeue_summary(0, 0)]


@pytest.mark.long
def test_line_in_both_places_counts_once(spark: SparkSession, tmp_path: Path, requeued: Requeued) -> None:
    """A line that is in quarantine several times, and among the records too, counts once after the command."""
    journals, store = tmp_path / "in", tmp_path / "store"
    lines = [*member_lines(10, HOUR + 10), *beat_lines(20)]
    seal(journals, "first", lines)
    seal(journals, "copy", lines)
    with old_job():
        run_once(spark, journals, store)
    seal(journals, "third", lines)
    run_once(spark, journals, store)
    assert requeued(store) == [requeue_summary(4, 4)]
    expected = run_once(spark, journals, tmp_path / "expected")
    found = Store.opened(spark, str(store))
    assert all_rows(found, ALL) == all_rows(expected, ALL)
    assert set(names_of_records(found)) == {("a", "1", 1), ("b", "1", 1), ("b", "1", 2)}


def test_lines_that_stay_keep_their_place(spark: SparkSession, tmp_path: Path, requeued: Requeued) -> None:
    """A line that stays keeps its bytes, its hour and its arrival time. A line with another fault now shows it."""
    boot = RecordsOfBoot("b")
    bad = {**boot.member(30, "orders", "left"), "seq": 0}
    future = line(RecordsOfBoot("fast").heartbeat(4 * HOUR))
    lines = [*member_lines(10), line(bad), BROKEN, future, FOREIGN]
    arrived = [(each, moment) for each in lines for moment in (at(HOUR + 5), None)]
    store = Store(spark, str(tmp_path))
    with old_job():
        frame = spark.createDataFrame(arrived, "value STRING, arrived_at TIMESTAMP")
        assert ingest(store, frame, "first", NOW).records == 0
    # The future has become the present meanwhile, but only lines of other faults are judged again.
    assert requeued(tmp_path) == [requeue_summary(6, 2)]
    found = store.read("quarantine").select("fault", "line", F.unix_seconds("arrived_at").alias("at"), "sidecar")
    seconds = int(at(HOUR + 5).timestamp())
    assert {tuple(row) for row in found.collect()} == {
        (fault, text, moment, sidecar)
        for fault, text, sidecar in (
            ("out_of_range", line(bad), "b"),
            ("not_json_object", BROKEN, None),
            ("in_future", future, "fast"),
            ("unknown_version", FOREIGN, None),
        )
        for moment in (seconds, None)
    }
    assert found.count() == 8
    # A line without arrival time is in the hour in which it was first read.
    for hour in (1, 3):
        assert len(folders(tmp_path, f"quarantine/day=2025-01-31/hour={hour}/batch=requeue-*")) == 1
        assert len(folders(tmp_path, f"quarantine/day=2025-01-31/hour={hour}/*")) == 1
    assert requeued(tmp_path, faults=[Fault.IN_FUTURE]) == [requeue_summary(2, 2)]
    assert requeued(tmp_path, faults=[Fault.NOT_JSON_OBJECT, Fault.TOO_OLD]) == [requeue_summary(2, 0)]
    assert len(set(names_of_records(store))) == 2


@pytest.mark.long
def test_range_of_arrival(spark: SparkSession, tmp_path: Path, requeued: Requeued) -> None:
    """Only lines that arrived in the hours of the range are judged again."""
    store = Store(spark, str(tmp_path))
    lines = [(text, at(hour * HOUR)) for hour, text in enumerate(member_lines(10, 20, 30))]
    with old_job():
        ingest(store, spark.createDataFrame(lines, "value STRING, arrived_at TIMESTAMP"), "first", NOW)
    assert requeued(tmp_path, since=at(HOUR), until=at(2 * HOUR)) == [requeue_summary(1, 1)]
    assert names_of_records(store) == [("b", "1", 2)]
    assert requeued(tmp_path, until=at(HOUR)) == [requeue_summary(1, 1)]
    assert requeued(tmp_path, since=at(HOUR)) == [requeue_summary(1, 1)]
    assert names_of_records(store) == [("b", "1", 1), ("b", "1", 2), ("b", "1", 3)]


@pytest.mark.long
def test_retention_limits_records(spark: SparkSession, tmp_path: Path, requeued: Requeued) -> None:
    """Records that are older than the retention stay in quarantine."""
    seal(tmp_path / "in", "only", member_lines(10))
    with old_job():
        run_once(spark, tmp_path / "in", tmp_path)
    assert requeued(tmp_path, retention=timedelta(days=30)) == [requeue_summary(1, 0)]
    (row,) = Store.opened(spark, str(tmp_path)).read("quarantine").collect()
    assert row["fault"] == "too_old"
    assert requeued(tmp_path, retention=timedelta(days=36500), faults=[Fault.TOO_OLD]) == [requeue_summary(1, 1)]


@pytest.mark.long
def test_other_format(spark: SparkSession, tmp_path: Path, requeued: Requeued) -> None:
    """The hours are computed again in a store whose tables have another format than Parquet."""
    seal(tmp_path / "in", "only", [*beat_lines(10), *member_lines(10, HOUR + 10)])
    with old_job():
        run_once(spark, tmp_path / "in", tmp_path / "store", format="orc")
    assert requeued(tmp_path / "store") == [requeue_summary(2, 2)]
    expected = run_once(spark, tmp_path / "in", tmp_path / "expected")
    assert all_rows(Store.opened(spark, str(tmp_path / "store")), ALL) == all_rows(expected, ALL)


@pytest.mark.long
def test_batch_in_progress_is_left_out(spark: SparkSession, tmp_path: Path, requeued: Requeued) -> None:
    """Lines of a batch that the next run repeats are left to this run, which judges them by the new contract."""
    seal(tmp_path / "in", "only", [*beat_lines(10), *member_lines(10), BROKEN])
    store = tmp_path / "store"
    with old_job():
        run_once(spark, tmp_path / "in", store)
    for mark in (store / "checkpoint/commits").glob("*0*"):
        mark.unlink()
    warning = "warning: lines of a batch that was interrupted are left out: the next run judges them again"
    assert requeued(store) == [warning, requeue_summary(0, 0)]
    found = run_once(spark, tmp_path / "in", store)
    expected = run_once(spark, tmp_path / "in", tmp_path / "expected")
    assert all_rows(found, ALL) == all_rows(expected, ALL)
    assert requeued(store) == [requeue_summary(0, 0)]
    assert names_of_records(found) == [("a", "1", 1), ("b", "1", 1)]


@pytest.mark.long
def test_interrupted_compaction_counts_once(
    spark: SparkSession, tmp_path: Path, requeued: Requeued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that an interrupted compaction of the quarantine has left twice count once."""
    first, second = member_lines(10, 20)
    with old_job():
        for name, lines in (("1", [first, BROKEN]), ("2", [second, BROKEN])):
            seal(tmp_path / "in", name, lines)
            store = run_once(spark, tmp_path / "in", tmp_path)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Folders, "remove", die)
        with pytest.raises(KeyboardInterrupt):
            store.compact(NOW, 2)
    assert len(folders(tmp_path, "quarantine/*/*/*")) == 3
    assert requeued(tmp_path) == [requeue_summary(2, 2)]
    assert names_of_records(store) == [("b", "1", 1), ("b", "1", 2)]
    assert [row["line"] for row in store.read("quarantine").collect()] == [BROKEN, BROKEN]


def failing_at(step: int, steps: Iterator[int], done: Callable[..., None]) -> Callable[..., None]:
    def fail(self: Folders, *folders: str, **others: str) -> None:
        if next(steps) == step:
            raise KeyboardInterrupt
        done(self, *folders, **others)

    return fail


@pytest.mark.long
def test_requeue_killed_at_any_step(
    spark: SparkSession, tmp_path: Path, requeued: Requeued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A requeue that is killed at any step is completed by the next run or requeue, without lost or doubled rows."""
    only(monkeypatch, "churn")
    journals, seed = tmp_path / "in", tmp_path / "seed"
    seal(journals, "only", [*beat_lines(10), *member_lines(10, HOUR + 10), BROKEN, FOREIGN])
    with old_job():
        run_once(spark, journals, seed)
    expected = all_rows(run_once(spark, journals, tmp_path / "expected"), ["churn"])
    killed, step = True, 0
    while killed:
        path = tmp_path / f"{step}"
        shutil.copytree(seed, path)
        with monkeypatch.context() as patch:
            steps = count()
            for name in ("move", "remove"):
                patch.setattr(Folders, name, failing_at(step, steps, getattr(Folders, name)))
            try:
                requeue(Store.opened(spark, str(path)))
                killed = False
            except KeyboardInterrupt:
                step += 1
        if killed:
            # The process that completes the attempt dies too, before it has computed the tables of all hours.
            with monkeypatch.context() as patch:
                patch.setattr(Store, "replace", die_at_replace)
                with suppress(KeyboardInterrupt):
                    requeued(path)
        found = run_once(spark, journals, path) if step % 2 else Store.opened(spark, str(path))
        requeued(path)
        assert all_rows(found, ["churn"]) == expected, step
        assert names_of_records(found) == [("a", "1", 1), ("b", "1", 1), ("b", "1", 2)], step
        assert folders(path, "_attempts/*") == [], step
    # The steps: the mark of completeness, one hour of the quarantine, two hours of records, the replaced folder, two
    # hours of the table and the folder of this table, the folder of the attempt.
    assert step == 9


def test_concurrent_requeues(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two requeues run at once, one takes all lines, and the other ends without an effect."""
    seal(tmp_path / "in", "only", member_lines(10, HOUR + 10))
    with old_job():
        run_once(spark, tmp_path / "in", tmp_path / "store")
    options = RequeueOptions(output=str(tmp_path / "store"))
    replace_hours, refused = Store.replace, []

    def meanwhile(self: Store, name: str, rows: DataFrame, hours: Any) -> None:
        with pytest.raises(LeaseTakenError) as raised:
            run_requeue(spark, options)
        refused.append(str(raised.value))
        replace_hours(self, name, rows, hours)

    only(monkeypatch, "churn")
    monkeypatch.setattr(Store, "replace", meanwhile)
    run_requeue(spark, options)
    assert [text.partition(" (")[0].split()[0] for text in refused] == ["process"]
    found = Store.opened(spark, str(tmp_path / "store"))
    assert names_of_records(found) == [("b", "1", 1), ("b", "1", 2)]
    assert all_rows(found, ["churn"])["quarantine"] == []
    assert found.read("churn").count() == 2
    assert folders(tmp_path / "store", "_attempts/*") == []


ENVELOPE = '"version":3,"kind":"commit","sidecar":"b","boot":"1","seq":7,"emitted_at":"2025-01-31T11:59:00.250Z"'
NEWER_LINES = {
    "known column of another type first": f'{{"offset":{{"new":[1,{{"a":2}}]}},{ENVELOPE}}}',
    "nested unknown column": f'{{{ENVELOPE},"partitions":[[1,2],{{"a":[null]}}]}}',
    "sidecar is an object": f'{{"sidecar":{{"id":1}},{ENVELOPE.replace("sidecar", "rack")}}}',
    "version is a string": f"{{{ENVELOPE.replace('3,', '<3>,', 1).replace('<3>', chr(34) + '3' + chr(34))}}}",
    "version beyond a BIGINT": f"{{{ENVELOPE.replace('3,', '9' * 30 + ',', 1)}}}",
    "no version": f"{{{ENVELOPE.replace('version', 'edition')}}}",
    "a name twice": f'{{{ENVELOPE},"seq":8}}',
    "a lone surrogate and NUL": f'{{{ENVELOPE},"group":"\\ud800\\u0000"}}',
    "spaces around": f"  {{ {ENVELOPE} }}\t",
    "25 million characters": f'{{{ENVELOPE},"group":"{"x" * 25_000_000}"}}',
    "nested 5,000 times": f'{{{ENVELOPE},"deep":{"[" * 5000}{"]" * 5000}}}',
    "a number of 3,000 digits": f'{{{ENVELOPE},"offset":{"1" * 3000}}}',
    "a name of 60,000 characters": f'{{{ENVELOPE},"{"n" * 60_000}":1}}',
}
"""Lines as a newer sidecar may write them. The last four exceed limits of Spark's parser."""
BEYOND_PARSER = 4


@pytest.mark.long
def test_newer_lines_are_kept_byte_for_byte(spark: SparkSession, tmp_path: Path, requeued: Requeued) -> None:
    """No line of a newer contract fails a batch or loses a byte, and all return to quarantine unchanged."""
    kept = {name: text.encode() for name, text in NEWER_LINES.items()}
    kept["not UTF-8"] = b'{%s,"group":"\xff\xfe"}' % ENVELOPE.encode()
    (tmp_path / "in").mkdir()
    for number, text in enumerate(kept.values()):
        (tmp_path / "in" / f"{number}.jsonl").write_bytes(text + b"\n")
    seal(tmp_path / "in", "cured", member_lines(10))
    with old_job():
        store = run_once(spark, tmp_path / "in", tmp_path)
    faults = [Fault.UNKNOWN_VERSION, Fault.UNKNOWN_KIND, Fault.NOT_JSON_OBJECT]
    for _ in range(2):
        rows = store.read("quarantine").where("fault <> 'unknown_kind'")
        found = rows.select("fault", F.col("line").cast("binary").alias("line")).collect()
        lines = {bytes(row["line"]): row["fault"] for row in found}
        assert [name for name, text in kept.items() if text not in lines] == []
        assert len(found) == len(kept)
        assert sorted(lines.values()) == [
            *["not_json_object"] * BEYOND_PARSER,
            *["unknown_version"] * (len(kept) - BEYOND_PARSER),
        ]
        requeued(tmp_path, faults=faults)
    assert names_of_records(store) == [("b", "1", 1)]


def command(action: str, store: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "group_sidecar.spark", action, "--output", str(store), *more]


@pytest.mark.long
def test_command_in_processes(spark: SparkSession, tmp_path: Path) -> None:
    """The command takes lines that were too old for a retention, also if a first process is killed."""
    journals, store = tmp_path / "in", tmp_path / "store"
    tell(journals, ["begin", "second"])
    assert "too_old 12)" in finish(*command("run", store, "--input", str(journals), "--retention", "30d"))
    anew = command("requeue", store, "--fault", "too_old")
    # The tables of some hours are computed, and those of other hours are not.
    kill_when(lambda: folders(store, "_attempts/tables.*/*/day=*"), tmp_path / "log", *anew)
    assert folders(store, "_attempts/requeue-*") != []
    completed = "the records of an interrupted run are stored now, in 2 hours"
    assert finish(*anew).splitlines()[-2:] == [completed, requeue_summary(0, 0)]
    expected = Store(spark, str(tmp_path / "expected"))
    with pytest.MonkeyPatch.context() as patch:
        only(patch, *TABLES)
        ingest(expected, line_sources.files(spark, str(journals)), 0)
    assert all_rows(Store.opened(spark, str(store))) == all_rows(expected)
    assert folders(store, "_attempts/*") == []
