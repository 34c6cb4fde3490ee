"""Segments that Spark silently skips, lines that would end a stream permanently, and several sidecars with one id."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark import line_parsing, line_sources, recompute
from group_sidecar.spark import segment_ledger as ledger_module
from group_sidecar.spark.jobs import RunOptions, run
from group_sidecar.spark.store import Store
from group_sidecar.spark.tables import TABLES
from tests.spark.record_frames import RecordsOfBoot
from tests.spark.segment_files import BROKEN, folders, line, seal, segments_in_order

DAY = 24 * 3600

Run = Callable[[], list[str]]


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    return tmp_path / "in"


@pytest.fixture
def run_again(
    spark: SparkSession,
    tmp_path: Path,
    journals: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Returns a function that runs the job again with few tables, and returns the lines on standard error."""
    monkeypatch.setattr(recompute, "TABLES", {"sidecars": TABLES["sidecars"]})

    def run_again() -> list[str]:
        run(spark, RunOptions(source=str(journals), output=str(tmp_path / "store")))
        return [said.replace(f"file:{journals}/", "") for said in capsys.readouterr().err.splitlines()]

    return run_again


def test_no_segment_is_missed(spark: SparkSession, tmp_path: Path, journals: Path, run_again: Run) -> None:
    """Dates, file names and record times hide no segment. The job reads changed segments again with a warning."""
    lines_by_segment = segments_in_order()
    ahead, copied = time.time() + 60 * DAY, RecordsOfBoot("half")
    whole = [line(copied.heartbeat(second)) for second in (10, 20)]
    for name, date in (("begin", ahead), ("far", 9_000_000_000.0)):
        seal(journals, name, [*lines_by_segment["begin"], BROKEN] if name == "far" else lines_by_segment["begin"])
        os.utime(journals / f"{name}.jsonl", (date, date))
    assert run_again() == ["12 records, 1 lines in quarantine (not_json_object 1)"]

    # All of these segments are at least 60 days older than the others, and one is incomplete.
    half = seal(journals, "half", [whole[0], whole[1][:20]])
    ancient = [
        line(RecordsOfBoot(f"old {year}").heartbeat(0)).replace("2025-", f"{year}-")
        for year in ("0000", "0001", "1999")
    ]
    seal(journals, "second", [*lines_by_segment["second"], *ancient])
    for name in ("more.jsonl.gz", "notes.txt", ".open.jsonl"):
        (journals / name).write_text("{\n")
    warned = "warning: files are not read, because only *.jsonl files are: 2 files (more.jsonl.gz, notes.txt)"
    said = "7 records, 4 lines in quarantine (not_json_object 1, too_old 3)"
    assert sorted(run_again()) == [said, warned]

    # The segment has the same name, and here also the same date.
    half.unlink()
    seal(journals, "half", whole)
    again = "warning: segments are read again, because they changed after they were read: 1 file (half.jsonl)"
    assert sorted(run_again()) == ["2 records, 0 lines in quarantine", warned, again]
    assert sorted(run_again()) == ["0 records, 0 lines in quarantine", warned]
    store = Store.opened(spark, str(tmp_path / "store"))
    names = store.records(store.hours()).select("sidecar", "seq").distinct().collect()
    assert len(names) == 14
    # The arrival time of a line is unknown if its file has a date in 2255.
    assert {row["line"] for row in store.read("quarantine").collect()} == {BROKEN, whole[1][:20], *ancient}


def test_long_line_does_not_stop_fleet(
    spark: SparkSession, tmp_path: Path, journals: Path, run_again: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is too long goes to quarantine without its rest. A line that is longer still is skipped with a
    warning. The other lines of both segments are read. A large segment without such lines causes no warning.
    """
    monkeypatch.setattr(line_parsing, "MAX_LINE_BYTES", 2_000)
    monkeypatch.setattr(line_sources, "MAX_READ_BYTES", 10_000)
    records = RecordsOfBoot("a")
    seal(journals, "long", ["x" * 2_001, line(records.heartbeat(10))])
    seal(journals, "longer", [line(records.heartbeat(20)), "x" * 10_001, line(records.heartbeat(30))])
    skipped = "warning: lines of more than 10000 bytes were skipped in 1 file (longer.jsonl)"
    assert sorted(run_again()) == ["3 records, 1 lines in quarantine (not_json_object 1)", skipped]
    store = Store.opened(spark, str(tmp_path / "store"))
    assert [row["line"] for row in store.read("quarantine").collect()] == ["x" * line_parsing.KEPT_CHARACTERS]

    seal(journals, "large", [line(records.heartbeat(10 * number)) for number in range(4, 64)])
    assert (journals / "large.jsonl").stat().st_size > 10_000
    assert run_again() == ["60 records, 0 lines in quarantine"]
    seal(journals, "only", ["x" * 10_001])
    unread = "warning: no line was read so far, and lines of more than 10000 bytes are skipped: 1 file (only.jsonl)"
    assert sorted(run_again()) == ["0 records, 0 lines in quarantine", unread]


def test_duplicate_sidecar_id_is_detected(
    journals: Path, run_again: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sidecars with one id cause a warning, and a restarted sidecar does not."""

    def beats(sidecar: str, boot: str, *seconds: float) -> list[str]:
        records = RecordsOfBoot(sidecar, boot)
        return [line(records.heartbeat(second)) for second in seconds]

    seal(journals, "again", [*beats("again", "1", 10, 310), *beats("again", "2", 320, 610)])
    seal(journals, "twin1", beats("twin", "1", 10, 310))
    assert run_again() == ["6 records, 0 lines in quarantine"]
    seal(journals, "twin2", beats("twin", "2", 20, 320))
    monkeypatch.setattr(ledger_module, "_MERGE_AT", 2)
    warning = "warning: several sidecars run with one id, so their records are mixed up: twin"
    assert sorted(run_again()) == ["2 records, 0 lines in quarantine", warning]
    assert len(folders(tmp_path / "store", "ledger/*")) == 1
    # The state about segments has survived.
    seal(journals, "twin1", beats("twin", "1", 10, 310, 320))
    assert (
        "warning: segments are read again, because they changed after they were read: 1 file (twin1.jsonl)"
        in run_again()
    )
