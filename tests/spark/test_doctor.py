"""What `doctor` finds in a store and in its journals. It changes neither."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark import cli as fleet_job
from group_sidecar.spark import doctor_checks as checks
from group_sidecar.spark import line_sources, recompute
from group_sidecar.spark.cli import main
from group_sidecar.spark.doctor import DoctorOptions, Examination, examine
from group_sidecar.spark.doctor_checks import FAULT_ADVICE, Check, stale_store, unfinished_writes
from group_sidecar.spark.doctor_output import show_examination
from group_sidecar.spark.jobs import RunOptions, run
from group_sidecar.spark.lease import LeaseState, LeaseStatus
from group_sidecar.spark.line_parsing import Fault
from group_sidecar.spark.store import Store
from group_sidecar.spark.tables import TABLES
from tests.spark.record_frames import RecordsOfBoot, at
from tests.spark.segment_files import BROKEN, FOREIGN, HOUR, line, seal

pytestmark = pytest.mark.timeout(900)  # Each test runs several Spark jobs, beside other tests.

NEWEST = 3 * HOUR
"""Second of the newest record, which is also the time of the examination. Most segments were sealed a second before."""
MAX_JOBS = 25
"""Spark jobs of one examination. Each exchange of data between executors is a job of its own."""


def beats(records: RecordsOfBoot, *seconds: float) -> list[str]:
    return [line(records.heartbeat(second)) for second in seconds]


def seal_at(second: float, folder: Path, name: str, lines: Sequence[str]) -> None:
    """Writes a segment that was sealed at a second after midnight."""
    sealed = at(second).timestamp()
    os.utime(seal(folder, name, lines), (sealed, sealed))


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The segments of a fleet with one healthy sidecar, `steady`."""
    folder = tmp_path_factory.mktemp("journals")
    seal_at(NEWEST, folder, "steady", beats(RecordsOfBoot("steady"), 10, NEWEST - 100, NEWEST))
    lossy = RecordsOfBoot("lossy")
    before = beats(lossy, NEWEST - 200)
    lossy.skip(5)
    seal(folder, "lossy", [*before, *beats(lossy, NEWEST - 90)])
    for sidecar, last in (("quiet", NEWEST - 400), ("quieter", NEWEST - 500)):
        seal(folder, sidecar, beats(RecordsOfBoot(sidecar), last - 300, last))
    seal_at(NEWEST - 50, folder, "fast", beats(RecordsOfBoot("fast", ahead=50), NEWEST - 50))
    for boot in ("1", "2"):
        seal(folder, f"twin{boot}", beats(RecordsOfBoot("twin", boot), NEWEST - 610, NEWEST - 110))
    broken = [BROKEN, "\x1b[2J{", FOREIGN, *(FOREIGN.replace("}", f',"sidecar":"s{number}"}}') for number in range(5))]
    seal(folder, "broken", broken)
    return folder


@pytest.fixture(scope="module")
def store(spark: SparkSession, journals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all segments."""
    return stored(spark, journals, tmp_path_factory.mktemp("store"))


def stored(spark: SparkSession, journals: Path, store: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recompute, "TABLES", {"sidecars": TABLES["sidecars"]})
        run(spark, RunOptions(source=str(journals), output=str(store)))
    return store


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the job run in this process, with the existing session."""
    monkeypatch.setattr(fleet_job, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)


def subjects(found: Examination) -> list[tuple[str, str]]:
    return [(finding.check.value, finding.subject.rsplit("/", 1)[-1]) for finding in found.findings]


def state(folder: Path) -> list[tuple[str, int, float]]:
    """Returns the name, size and date of each file and folder."""
    stats = ((path, path.stat()) for path in [folder, *folder.rglob("*")])
    return sorted((str(path), stat.st_size, stat.st_mtime) for path, stat in stats)


def test_store_findings_name_sidecars_and_faults(spark: SparkSession, store: Path) -> None:
    """The examination finds each problem of a store with its figures, in few Spark jobs, and changes nothing."""
    before = state(store)
    spark.sparkContext.setJobGroup("doctor", "doctor")
    found = examine(spark, DoctorOptions(output=str(store)), at(NEWEST))
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup("doctor"))
    assert 0 < jobs <= MAX_JOBS
    assert state(store) == before
    assert subjects(found) == [
        ("silent", "quieter"),
        ("silent", "quiet"),
        ("missing", "lossy"),
        ("clock_ahead", "fast"),
        ("shared_id", "twin"),
        ("quarantine", "unknown_version"),
        ("quarantine", "not_json_object"),
    ]
    problems = [finding.problem for finding in found.findings]
    assert problems[0] == "The sidecar has sent no record for 8 min 20 s, while another sidecar has."
    assert problems[2] == "The sidecar sent 7 records in the range, and 5 of them are missing."
    assert problems[3] == "Its records arrive 50 s before their own time, so its clock is ahead."
    assert problems[5].startswith("6 lines of s0, s1, s2 and 2 more are in quarantine, for example: {")
    assert problems[6].startswith("2 lines of no known sidecar are in quarantine, for example: \x1b[2J{")
    assert (found.newest, found.since) == (at(NEWEST), at(NEWEST) - timedelta(days=1))
    rows = {row["sidecar"]: row for row in found.sidecars.rows}
    assert [*rows][:3] == ["quieter", "quiet", "lossy"]
    twin = rows["twin"]
    assert (twin["boots"], twin["records"], twin["missing"]) == (2, 4, 0)
    assert found.lease is not None
    assert (found.lease.state, found.attempts, found.sidecars.left_out) == (LeaseState.RELEASED, [], 0)


def test_range_and_limit_bound_the_output(spark: SparkSession, store: Path) -> None:
    """Only records and lines in the range count. Each check counts the findings beyond the limit."""
    options = DoctorOptions(output=str(store), since=at(2 * HOUR), limit=1)
    found = examine(spark, options, at(NEWEST))
    left_out = {result.check.value: result.left_out for result in found.results if result.left_out}
    assert left_out == {"silent": 1}
    assert (len(found.sidecars.rows), found.sidecars.left_out) == (1, 5)
    assert subjects(found)[0] == ("silent", "quieter")
    first = examine(spark, DoctorOptions(output=str(store), until=at(HOUR)), at(NEWEST))
    assert subjects(first) == []
    assert [(row["sidecar"], row["records"]) for row in first.sidecars.rows] == [("steady", 1)]


def test_journal_findings_name_files(
    spark: SparkSession, journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are never read, changed or too large are findings of their own. Unread segments are one finding."""
    monkeypatch.setattr(line_sources, "MAX_READ_BYTES", 5_000)
    folder = tmp_path / "in"
    seal(folder, "steady", beats(RecordsOfBoot("steady"), NEWEST - 100, NEWEST))
    output = stored(spark, folder, tmp_path / "store")
    options = DoctorOptions(output=str(output), journals=str(folder))
    assert subjects(examine(spark, options, at(NEWEST))) == []
    (folder / "more.jsonl.gz").write_text("x" * 12)
    (folder / ".open.jsonl").write_text("{\n")
    seal(folder, "empty", [])
    seal(folder, "steady", ["{"])
    seal(folder, "large", ["x" * 5_001])
    for name, age in (("old", 1_000), ("older", 2_000)):
        seal_at(NEWEST - age, folder, name, [BROKEN])
    before = state(folder), state(output)
    # The segment `large` was sealed only a second ago, so the next run may still read it.
    found = examine(spark, options, at(NEWEST))
    assert subjects(found) == [
        ("not_segment", "more.jsonl.gz"),
        ("changed_segment", "steady.jsonl"),
        ("unread_segments", "older.jsonl"),
    ]
    assert "12 bytes" in found.findings[0].problem
    assert found.findings[2].problem == (
        "No run has read 2 segments in the input, of which this one is the oldest and was sealed at "
        "2025-01-31 02:26:40."
    )
    later = examine(spark, replace(options, limit=1), at(NEWEST) + timedelta(minutes=15))
    assert ("large_segment", "large.jsonl") in subjects(later)
    assert (state(folder), state(output)) == before


@pytest.mark.usefixtures("here")
def test_doctor_command_reports_status_and_json(
    spark: SparkSession,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The status is 5 with findings, 0 without, and 2 if there is no store. Each line of JSON is one object."""
    assert main(["doctor", "--output", str(store), "--json"]) == 5
    lines = [*map(json.loads, capsys.readouterr().out.splitlines())]
    assert [each["kind"] for each in lines[:7]] == ["store", *["sidecar"] * 6]
    assert {each["kind"] for each in lines[7:]} == {"finding"}
    assert lines[0]["newest_record"] == "2025-01-31T03:00:00.000Z"
    assert lines[0]["last_batch"] > "2025-01-31"
    lossy = next(each for each in lines if each.get("sidecar") == "lossy")
    assert (lossy["starts"], lossy["records"], lossy["missing"]) == (1, 2, 5)
    stale, silent = lines[7:9]
    assert (stale["check"], stale["subject"]) == ("stale", "store")
    assert (silent["check"], silent["figures"]) == ("silent", {"silent_seconds": 500.0})
    assert {"problem", "advice"} <= silent.keys()

    monkeypatch.setattr(checks, "STALE_AFTER", timedelta(days=36_500))
    seal(tmp_path / "in", "steady", beats(RecordsOfBoot("steady"), NEWEST))
    healthy = stored(spark, tmp_path / "in", tmp_path / "healthy")
    capsys.readouterr()
    assert main(["doctor", "--output", str(healthy), "--input", str(tmp_path / "in")]) == 0
    printed = capsys.readouterr().out
    assert "steady" in printed
    assert printed.endswith("No findings.\n")
    assert main(["doctor", "--output", str(healthy), "--input", (tmp_path / "none").as_uri()]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"there is no file:{tmp_path}/none"
    assert main(["doctor", "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"there are no tables in {tmp_path}"
    assert main(["doctor", "--output", "nothing://there"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("failed: cannot open nothing://there: ")


def test_text_has_findings_without_control_characters(
    spark: SparkSession, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text has the sidecars, the lease and the findings. Lines of strangers send no control characters."""
    show_examination(examine(spark, DoctorOptions(output=str(store), limit=2), at(NEWEST)))
    printed = capsys.readouterr().out
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    assert lines[0].split() == ["sidecar", "starts", "newest", "record", "age", "records", "missing", "clock", "skew"]
    assert lines[2].split()[:2] == ["quieter", "1"]
    assert "4 more sidecars: --limit shows more." in lines
    assert "Range: 2025-01-30 03:00:00 to the newest record (UTC)" in lines
    assert any(each.startswith("Lease: released, last written by process ") for each in lines)
    assert "7 findings." in lines
    assert "Advice: Synchronise the clock of the sidecar's machine, for instance with chrony." in lines
    assert "\x1b" not in printed
    assert "\N{REPLACEMENT CHARACTER}[2J{" in printed


def test_store_without_records_is_stale(spark: SparkSession, tmp_path: Path) -> None:
    """A store without records has one finding."""
    Store(spark, str(tmp_path))
    found = examine(spark, DoctorOptions(output=str(tmp_path)))
    assert subjects(found) == [("stale", "store")]
    assert found.findings[0].problem == "The store has no records."
    assert (found.newest, found.lease, found.sidecars.rows) == (None, None, [])


def test_attempts_of_dead_writer_are_found(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    """Attempts without a process that holds the lease are a finding."""
    copied = tmp_path / "store"
    shutil.copytree(store, copied)
    (copied / "_attempts" / "1.00000001-ab").mkdir(parents=True)
    found = examine(spark, DoctorOptions(output=str(copied)), at(NEWEST))
    assert subjects(found)[-1] == ("unfinished_write", "1.00000001-ab")


def lease(state: LeaseState, token: int = 7, renewed_at: datetime | None = None) -> LeaseStatus:
    return LeaseStatus(token=token, holder="process 1 on host", state=state, renewed_at=renewed_at)


HELD, DIED = lease(LeaseState.HELD), lease(LeaseState.DIED)


@pytest.mark.parametrize(
    ("before", "attempts", "after", "found"),
    [
        (DIED, ["1.a"], DIED, True),
        (lease(LeaseState.EXPIRED), ["1.a"], lease(LeaseState.EXPIRED), True),
        (DIED, [], DIED, False),
        (HELD, ["1.a"], HELD, False),
        # The writer began or ended while the attempts were listed.
        (HELD, ["1.a"], lease(LeaseState.RELEASED), False),
        (DIED, ["2.a"], lease(LeaseState.HELD, 8), False),
        (DIED, ["2.a"], lease(LeaseState.RELEASED, 8), False),
        (None, ["1.a"], lease(LeaseState.HELD, 1), False),
    ],
)
def test_running_writer_is_no_finding(
    before: LeaseStatus | None, attempts: Sequence[str], after: LeaseStatus | None, found: bool
) -> None:
    """Unfinished attempts are a finding only if no process could have written them meanwhile."""
    assert bool(unfinished_writes(before, attempts, after).findings) == found


NOON = datetime(2025, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("minutes", "last_batch", "writer", "running"),
    [
        (16, 14, None, True),
        (16, 16, None, False),
        (16, None, HELD, True),
        (16, None, lease(LeaseState.RELEASED, renewed_at=NOON - timedelta(minutes=14)), True),
        (16, 16, lease(LeaseState.DIED, renewed_at=NOON - timedelta(minutes=16)), False),
        (15, None, None, None),
    ],
)
def test_advice_on_stale_store_depends_on_writer(
    minutes: int, last_batch: int | None, writer: LeaseStatus | None, running: bool | None
) -> None:
    """A store is stale after 15 minutes. The advice depends on whether a job has written lately."""
    batch_at = None if last_batch is None else NOON - timedelta(minutes=last_batch)
    result = stale_store(NOON, NOON - timedelta(minutes=minutes), batch_at, writer)
    if running is None:
        assert not result.findings
        return
    (finding,) = result.findings
    assert finding.check == Check.STALE
    assert finding.problem.startswith("The newest record is from 2025-01-31 11:44:00, 16 min ago")
    assert ("the last batch was completed at" in finding.problem) == (last_batch is not None)
    assert finding.advice.startswith("A job wrote in the last 15 min" if running else "No job has written lately")


def test_each_fault_has_advice() -> None:
    """Every fault of the quarantine has advice."""
    assert set(FAULT_ADVICE) == set(Fault)
