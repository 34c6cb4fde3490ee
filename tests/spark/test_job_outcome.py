"""The outcome of a job for schedulers: the JSON file of `--result`, and the exit status."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from group_sidecar.spark import cli as fleet_job
from group_sidecar.spark import jobs, recompute
from group_sidecar.spark.cli import main
from group_sidecar.spark.job_outcome import JobOutcome, ResultFile
from group_sidecar.spark.jobs import RunOptions, run
from group_sidecar.spark.tables import TABLES
from tests.spark.record_frames import RecordsOfBoot
from tests.spark.segment_files import BROKEN, HOUR, line, seal

pytestmark = pytest.mark.timeout(900)  # Each test runs several Spark jobs, beside other tests.


@pytest.fixture(autouse=True)
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the job run in this process, with the existing session and one table."""
    monkeypatch.setattr(fleet_job, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(recompute, "TABLES", {"sidecars": TABLES["sidecars"]})


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """Records of two hours, a broken line and a file that is never read."""
    folder = tmp_path / "in"
    records = RecordsOfBoot("a")
    seal(folder, "a", [*(line(records.heartbeat(second)) for second in (10, 20, HOUR + 10)), BROKEN])
    (folder / "notes.txt").write_text("not a segment\n")
    return folder


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """The file of `--result`, with the contents of an earlier job."""
    file = tmp_path / "result.json"
    file.write_text("{}")
    return file


def document(file: Path) -> dict[str, Any]:
    """Returns the document without its times, which must be in order. Nothing else is left in the folder."""
    found: dict[str, Any] = json.loads(file.read_text())
    started, ended = (datetime.fromisoformat(found.pop(name)) for name in ("started_at", "ended_at"))
    assert timedelta(0) <= ended - started < timedelta(hours=1)
    assert not [*file.parent.glob(".*")]
    return found


HOURS = ["2025-01-31T00:00:00.000Z", "2025-01-31T01:00:00.000Z"]


def test_run_and_replay_write_outcome(journals: Path, result: Path, tmp_path: Path) -> None:
    """The document has the records, the faults, the hours and the warnings of the job."""
    store = str(tmp_path / "store")
    assert main(["run", "--input", str(journals), "--output", store, "--result", str(result)]) == 0
    found = document(result)
    (warning,) = found.pop("warnings")
    assert warning.startswith("files are not read, because only *.jsonl files are: 1 file (")
    assert found == {
        "command": "run",
        "exit_status": 0,
        "failure": None,
        "records": 3,
        "quarantined": {"not_json_object": 1},
        "hours": HOURS,
    }
    span = ("--from", "2025-01-31T01:00", "--to", "2025-01-31T02:00")
    assert main(["replay", "--input", str(journals), "--output", store, *span, "--result", str(result)]) == 0
    assert document(result) == {
        "command": "replay",
        "exit_status": 0,
        "failure": None,
        "records": 1,
        "quarantined": {},
        "hours": HOURS[1:],
        "warnings": [],
    }


def test_requeue_writes_outcome(spark: SparkSession, journals: Path, result: Path, tmp_path: Path) -> None:
    """The document of requeue has the records that have left the quarantine."""
    store = str(tmp_path / "store")
    run(spark, RunOptions(source=str(journals), output=store, retention=timedelta(days=1)))
    assert main(["requeue", "--output", store, "--fault", "too_old", "--result", str(result)]) == 0
    found = document(result)
    assert (found["command"], found["records"], found["hours"]) == ("requeue", 3, HOURS)


def test_fail_if_empty_has_status_6(journals: Path, result: Path, tmp_path: Path) -> None:
    """A run or replay without a record fails if asked, and otherwise succeeds."""
    run_again = ["run", "--input", str(journals), "--output", str(tmp_path / "store")]
    assert main([*run_again, "--fail-if-empty"]) == 0
    assert main([*run_again, "--fail-if-empty", "--result", str(result)]) == 6
    found = document(result)
    assert (found["exit_status"], found["failure"], found["records"]) == (6, "failed: no record was stored", 0)
    assert main(run_again) == 0
    replay = ["replay", *run_again[1:], "--from", "2025-01-30", "--to", "2025-01-31", "--fail-if-empty"]
    assert main(replay) == 6


def test_recovered_records_are_no_empty_run() -> None:
    """A run that only completes an interrupted run has stored records."""
    assert JobOutcome().stored_nothing
    assert not JobOutcome(recovered=True).stored_nothing
    assert not JobOutcome(records=1).stored_nothing


def test_failure_is_written(
    result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that fails writes its exit status and its failure, even if the failure is a fault of the job."""
    (tmp_path / "empty").mkdir()
    assert main(["requeue", "--output", str(tmp_path / "empty"), "--result", str(result)]) == 2
    found = document(result)
    assert (found["exit_status"], found["failure"]) == (2, f"there are no tables in {tmp_path / 'empty'}")
    assert capsys.readouterr().err.splitlines()[-1] == found["failure"]

    for error, status in ((RuntimeError("boom\nand more"), 1), (KeyboardInterrupt(), 130)):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(jobs, "run", fail)
        with pytest.raises(type(error)):
            main(["run", "--input", str(tmp_path), "--result", str(result)])
        found = document(result)
        assert (found["exit_status"], found["failure"]) == (status, "boom" if status == 1 else "KeyboardInterrupt")


def test_usage_error_leaves_earlier_result(result: Path, tmp_path: Path) -> None:
    """A wrong command line leaves the file of an earlier job. Status 2 of a job that has started is in its own file."""
    gone = tmp_path / "gone"
    with pytest.raises(SystemExit) as left:
        main(["run", "--input", str(gone), "--result", str(result)])
    assert left.value.code == 2
    assert result.read_text() == "{}"
    assert main(["run", "--input", gone.as_uri(), "--result", str(result)]) == 2
    found = document(result)
    assert (found["exit_status"], found["failure"]) == (2, f"there is no {gone.as_uri()}")


def test_unwritable_result_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the file cannot be written, the job ends with status 1 and the reason."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.setattr(jobs, "run", lambda *_: folder.rmdir())
    assert main(["run", "--input", str(tmp_path), "--result", str(folder / "result.json")]) == 1
    assert "failed: cannot write" in capsys.readouterr().err


def test_earlier_result_is_removed_at_start(result: Path) -> None:
    """No reader takes the document of an earlier job for the new one. At most 100 warnings are kept."""
    outcome = JobOutcome()
    outcome.warnings.extend(map(str, range(200)))
    file = ResultFile(result, "run")
    assert not result.exists()
    assert file.write(0, outcome)
    assert document(result)["warnings"] == [*map(str, range(100, 200))]
