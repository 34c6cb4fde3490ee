"""The job as users run it: journals on disk, a separate process, its output and its exit status."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from group_sidecar.coordinator.model.facts import (
    ClientRefused,
    Departure,
    MemberGone,
    RebalanceCause,
    RebalanceCompleted,
)
from group_sidecar.coordinator.model.views import CommittedOffset, GroupState, GroupView, MemberView
from group_sidecar.metrics.array_lines import Line
from group_sidecar.metrics.journal_segments import JournalSegments
from group_sidecar.metrics.record_builder import RecordBuilder
from group_sidecar.metrics.records import timestamp
from group_sidecar.spark import cli as fleet_job
from group_sidecar.spark.cli import main
from group_sidecar.spark.command_arguments import arguments
from group_sidecar.spark.environment import java_missing, pyspark_missing
from group_sidecar.spark.store import Store
from tests.kafka.processes import ChildProcess
from tests.metrics.metrics_world import CoordinatorCopy, visits_of

WINDOW, TOLD = 300, 31
"""Seconds of a window of the job, and seconds within which all records are emitted."""


def lately(now: float) -> float:
    """Returns a time about a minute ago, after which all records of a test fall into one window."""
    then = int(now) - 60
    return float(then - max(then % WINDOW - (WINDOW - TOLD), 0))


NOW = lately(time.time())


def standing(generation: int, *, committed: int, members: int, log_end: int, seen: float) -> CoordinatorCopy:
    orders = GroupView(
        group_id="orders",
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol="range",
        generation=generation,
        members=tuple(MemberView(member_id=f"m{number}") for number in range(members)),
        offsets={("t", 0): CommittedOffset(committed, at=seen), ("unseen", 0): CommittedOffset(1, at=seen)},
    )
    return CoordinatorCopy(groups=(orders,), log_ends={("t", 0): (log_end, seen)})


def write(folder: Path, record_builder: RecordBuilder, *lines: Line | None) -> None:
    journal = JournalSegments(folder, record_builder.boot)
    for line in lines:
        if line is not None:
            journal.append(line)
    journal.close()
    assert journal.failure is None


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals of two sidecars, with damage, a duplicate segment, and an open segment."""
    folder = tmp_path_factory.mktemp("fleet")
    old, new = RecordBuilder("broker-1"), RecordBuilder("broker-2")
    rebalanced = RebalanceCompleted(
        group_id="orders",
        at=NOW,
        cause=RebalanceCause.NEW_MEMBER,
        generation=4,
        protocol="range",
        members=2,
        duration_seconds=0.5,
    )
    refused = ClientRefused(
        group_id="[bold]tiny",
        at=NOW,
        policy="group_max_size",
        error_code=77,
        client_id="c",
        client_host="/127.0.0.1",
        size=1,
        limit=1,
    )
    gone = MemberGone(
        group_id="orders", at=NOW, member_id="m9", client_id="c", client_host="/127.0.0.1", how=Departure.LEFT
    )
    # The old coordinator's sidecar continues to report its last state.
    stale = standing(3, committed=5, members=1, log_end=8, seen=NOW - 9)
    fresh = standing(4, committed=10, members=2, log_end=25, seen=NOW + 1)
    write(folder / "1", old, *old.snapshot(visits_of(stale), stale.log_ends.items(), {}, NOW + 30))
    write(
        folder / "2",
        new,
        *new.records_of([rebalanced, gone, refused, refused], NOW),
        *new.snapshot(visits_of(fresh, lambda _: 2), fresh.log_ends.items(), {"groups": 1.0}, NOW + 2),
    )
    (segment,) = (folder / "2").iterdir()
    shutil.copy(segment, folder / "2" / "segment-again.jsonl")
    shutil.copy(segment, folder / "2" / ".segment-open-00000001.jsonl")
    (folder / "2" / "segment-damaged.jsonl").write_text('{"version":1,\n{"version":9}\n')
    (folder / "2" / "notes.txt").write_text("not a segment\n")
    return folder


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sets the time zone of this process to nine hours ahead of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


COMMAND = [sys.executable, "-m", "group_sidecar.proxy.cli", "fleet"]


def job(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


@pytest.fixture(scope="module")
def tables(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder of the tables that the job has written, and its output."""
    folder = tmp_path_factory.mktemp("tables")
    return folder, job("run", "--input", fleet, "--output", folder, "--json")


Tables = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the job run in this process, with the existing session."""
    monkeypatch.setattr(fleet_job, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)


def test_job_reports_journal_contents(tables: Tables, spark: SparkSession) -> None:
    """The job returns the state of the groups in the journals and keeps damaged lines in quarantine."""
    folder, done = tables
    assert done.returncode == 0, done.stderr
    # broker-1 wrote 5 records, and broker-2 wrote 9 records twice.
    assert "23 records, 2 lines in quarantine (not_json_object 1, unknown_version 1)" in done.stderr
    orders, tiny = map(json.loads, done.stdout.splitlines())
    assert (
        orders.items()
        >= {
            "group": "orders",
            "sidecar": "broker-2",
            "protocol": "classic",
            "state": "Stable",
            "generation": 4,
            "members": 2,
            "max_size": 2,
            "last_seen": timestamp(NOW + 2),
            "gone": False,
            "rebalances": 1,
            "rebalance_seconds": 0.5,
            "main_cause": "new_member",
            "last_rebalance_at": timestamp(NOW),
            "refusals": 0,
            "lag": 15,
            "partitions": 2,
            "partitions_without_log_end": 1,
        }.items()
    )
    assert (tiny["group"], tiny["state"], tiny["refusals"], tiny["lag"]) == ("[bold]tiny", None, 2, None)
    store = Store.opened(spark, str(folder))
    quarantine = store.read("quarantine").select("fault", "line").collect()
    assert {tuple(row) for row in quarantine} == {
        ("not_json_object", '{"version":1,'),
        ("unknown_version", '{"version":9}'),
    }


def show(capsys: pytest.CaptureFixture[str], fleet: Path, folder: Path, *chosen: str) -> list[list[str]]:
    """Runs the job without new records. Returns the words of each line of its output."""
    assert main(["run", "--input", str(fleet), "--output", str(folder), *chosen]) == 0
    printed = capsys.readouterr()
    assert "0 records, 0 lines in quarantine" in printed.err
    return [words for line in printed.out.splitlines() if (words := line.split())]


@pytest.mark.usefixtures("here")
def test_groups_table_in_terminal(
    fleet: Path, tables: Tables, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job prints the groups as a table if asked, and nothing otherwise."""
    monkeypatch.setenv("COLUMNS", "200")
    title, _, orders, tiny = show(capsys, fleet, tables[0], "--show", "groups")
    assert title[:3] == ["group", "state", "members"]
    assert (orders[:3], tiny[0]) == (["orders", "Stable", "2"], "[bold]tiny")
    assert show(capsys, fleet, tables[0]) == []  # A run that keeps tables prints none by default.


@pytest.mark.usefixtures("here", "tokyo")
def test_times_are_utc_and_rows_limited(
    fleet: Path, tables: Tables, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printed table has times in UTC and at most the requested number of rows."""
    monkeypatch.setenv("COLUMNS", "300")
    title, _, found, more = show(capsys, fleet, tables[0], "--show", "sidecars", "--limit", "1")
    assert title[0] == "sidecar"
    beats = {broker: timestamp(NOW + late).removesuffix(".000Z").split("T") for broker, late in BEATS.items()}
    assert beats[found[0]][1] in found
    assert more[:5] == ["These", "are", "the", "first", "1"]


BEATS = {"broker-1": 30, "broker-2": 2}
"""The second of each sidecar's heartbeat."""


@pytest.mark.usefixtures("here")
def test_replay_and_report_commands(
    fleet: Path, tables: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report command writes a page and fails without tables. The replay command replays an hour."""
    report = tmp_path / "report.html"
    assert main(["report", "--tables", str(tables[0]), "--output", str(report)]) == 0
    assert "orders" in report.read_text()
    assert main(["report", "--tables", str(tmp_path), "--output", str(report)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"there are no tables in {tmp_path}"
    span = ("--from", "2020-01-01", "--to", "2020-01-01T01:00Z")
    assert main(["replay", "--input", str(fleet), "--output", str(tables[0]), *span]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "0 records, 0 hours computed again"


def test_size_of_store_skips_removed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another job removes a folder while the size of a store is computed, all other folders still count."""
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
        (folder / "rows.parquet").write_bytes(bytes(10))
    stat, removed = Path.stat, list[Path]()

    def stat_and_remove(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = stat(path, follow_symlinks=follow_symlinks)
        if path.suffix and not removed:
            removed.append(next(folder for folder in folders if folder != path.parent))
            shutil.rmtree(removed[0])
        return found

    monkeypatch.setattr(Path, "stat", stat_and_remove)
    assert not fleet_job._is_small(tmp_path, "*.parquet", 20)
    assert removed
    assert fleet_job._is_small(tmp_path, "*.parquet", 21)


@pytest.mark.usefixtures("here")
def test_unreadable_input_has_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An input that cannot be read makes the job exit with status 2 and a message."""
    nowhere = (tmp_path / "none").as_uri()
    assert main(["run", "--input", nowhere]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"there is no {nowhere}"
    assert main(["run", "--input", "kafka://127.0.0.1:1/records"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("Spark lacks its Kafka connector: give org.apache.spark")


def test_idle_stream_ends_on_sigterm(tmp_path: Path) -> None:
    """SIGTERM to group-sidecar fleet ends an idle stream with status 0."""
    (tmp_path / "in").mkdir()
    run = ("run", "--input", tmp_path / "in", "--output", tmp_path / "store", "--stream")
    figures = tmp_path / "fleet.prom"
    with ChildProcess([*COMMAND, *map(str, run), "--textfile", str(figures)], tmp_path / "log") as process:
        process.wait_until(lambda: figures.exists() and "last_progress" in figures.read_text())
        assert process.stop(seconds=60) == 0, process.tail()


@pytest.mark.parametrize("command", ["run", "replay", "requeue", "report", "doctor"])
def test_help_lists_exit_statuses(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The help of each command lists the exit statuses."""
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert "3 PySpark or Java is missing" in " ".join(capsys.readouterr().out.split())


def test_group_sidecar_forwards_help() -> None:
    """group-sidecar fleet --help prints the job's help."""
    done = job("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: group-sidecar fleet ")


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "run",
        "run --input nowhere",
        "run --input kafka://host/topic",
        "run --input kafka://host:1",
        f"run --input . --output {__file__}",
        "run --input . --limit 0",
        "run --input . --limit many",
        "run --input . --show y",
        "run --input . --window 7m",
        "run --input . --window 5",
        "run --input . --retention 3h",
        "run --input . --trigger 0s",
        "run --input . --trigger 5s",
        "run --input . --stream",
        "run --input . --output . --stream --json",
        "run --input . --textfile nowhere/x.prom",
        "run --input . --result nowhere/x.json",
        "run --input . --result .",
        "run --input . --output . --stream --result x.json",
        "run --input . --output . --stream --fail-if-empty",
        "run --input . --jars nowhere.jar",
        "run --input . --command-config nowhere",
        "replay --input . --output . --from 2025-01-31 --to yesterday",
        "replay --input . --output . --from 2025-01-31 --to 2025-01-31",
        "requeue",
        "requeue --output nowhere",
        "requeue --output . --fault odd",
        "requeue --output . --retention 5h",
        "requeue --output . --from 2025-01-31 --to 2025-01-31",
        "report --tables nowhere --output x.html",
        "doctor",
        "doctor --output nowhere",
        "doctor --output . --input nowhere",
        "doctor --output . --input kafka://host:1/topic",
        "doctor --output . --limit 0",
        "doctor --output . --from 2025-01-31 --to 2025-01-31",
    ],
)
def test_invalid_argument_has_status_2(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An invalid argument makes the job exit with status 2 and an error message."""
    with pytest.raises(SystemExit) as left:
        main(wrong.split())
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_valid_arguments(tmp_path: Path) -> None:
    """Arguments are parsed into windows, client settings and UTC times."""
    client = tmp_path / "client.properties"
    client.write_text("# TLS\nsecurity.protocol = SSL\n\nssl.truststore.location=/a=b\n")
    chosen = arguments(["run", "--input", "kafka://a:1,b:2/t", "--command-config", str(client), "--window", "1h"])
    assert chosen.window == "1 hours"
    assert chosen.command_config == {"security.protocol": "SSL", "ssl.truststore.location": "/a=b"}
    replayed = arguments(
        ["replay", "--input", ".", "--output", ".", "--from", "2025-01-31", "--to", "2025-01-31T10+01"]
    )
    assert (replayed.since.isoformat(), replayed.until.isoformat()) == (
        "2025-01-31T00:00:00+00:00",
        "2025-01-31T09:00:00+00:00",
    )


def test_missing_pyspark_has_install_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PySpark, the message contains the command to install it."""
    assert pyspark_missing() is None
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert pyspark_missing() == "Spark is not installed: in a checkout, pip install '.[spark]'"


def test_missing_java_has_install_hint(tmp_path: Path) -> None:
    """Without Java, the job exits with status 3 and the command to install Java."""
    done = job("run", "--input", tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "Spark needs Java 17 or later: apt-get install openjdk-17-jre-headless\n"


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "21" 2023-09-19', None),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11"),
        ('java version "1.8.0_402"', "is Java 8"),
        ("no such thing", "does not say"),
    ],
)
def test_java_version_is_checked(
    says: str, complaint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of the Java in JAVA_HOME is checked, and an old or unknown one is reported."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    missing = java_missing()
    if complaint is None:
        assert missing is None
    else:
        assert missing is not None
        assert complaint in missing
        assert "apt-get install openjdk-17-jre-headless" in missing


def test_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME without Java is named in the message."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert str(tmp_path) in (java_missing() or "")
