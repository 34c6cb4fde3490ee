"""The job as it is run: a journal on disk, a process of its own, its output and its exit status."""

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

from group_sidecar.coordinator.facts import ClientRefused, Departure, MemberGone, RebalanceCause, RebalanceCompleted
from group_sidecar.coordinator.views import CommittedOffset, GroupState, GroupView, MemberView
from group_sidecar.metrics.chronicle import Chronicle
from group_sidecar.metrics.journal import Journal
from group_sidecar.metrics.records import Record, timestamp
from group_sidecar.spark import fleet as fleet_job
from group_sidecar.spark.fleet import arguments, main, run
from group_sidecar.spark.requirements import java_missing, spark_missing
from tests.metrics.world import Copy, visits_of

NOW = float(int(time.time())) - 60


def standing(generation: int, *, committed: int, members: int, log_end: int, seen: float) -> Copy:
    orders = GroupView(
        group_id="orders",
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol="range",
        generation=generation,
        members=tuple(MemberView(member_id=f"m{number}") for number in range(members)),
        offsets={("t", 0): CommittedOffset(committed, at=seen), ("unseen", 0): CommittedOffset(1, at=seen)},
    )
    return Copy(groups=(orders,), log_ends={("t", 0): (log_end, seen)})


def write(folder: Path, chronicle: Chronicle, *records: Record | None) -> None:
    journal = Journal(folder, chronicle.boot)
    for record in records:
        if record is not None:
            journal.append(record)
    journal.close()
    assert journal.failure is None


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals of two sidecars; with damage, a segment that is there twice, and one that is still open."""
    folder = tmp_path_factory.mktemp("fleet")
    old, new = Chronicle("broker-1"), Chronicle("broker-2")
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
    # The old coordinator goes on restating what it last saw.
    stale = standing(3, committed=5, members=1, log_end=8, seen=NOW - 9)
    fresh = standing(4, committed=10, members=2, log_end=25, seen=NOW + 1)
    write(folder / "1", old, *old.restate(visits_of(stale), stale.log_ends.items(), {}, NOW + 30))
    write(
        folder / "2",
        new,
        *new.tell([rebalanced, gone, refused, refused], NOW),
        *new.restate(visits_of(fresh, lambda _: 2), fresh.log_ends.items(), {"groups": 1.0}, NOW + 2),
    )
    (segment,) = (folder / "2").iterdir()
    shutil.copy(segment, folder / "2" / "segment-again.jsonl")
    shutil.copy(segment, folder / "2" / ".segment-open-00000001.jsonl")
    (folder / "2" / "segment-damaged.jsonl").write_text('{"version":1,\n{"version":9}\n')
    (folder / "2" / "notes.txt").write_text("not a segment\n")
    return folder


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of this process is nine hours ahead of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


def job(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "group_sidecar.spark", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def test_what_sidecars_wrote_is_what_the_job_tells(fleet: Path, tmp_path: Path, spark: SparkSession) -> None:
    done = job("--input", fleet, "--output", tmp_path / "tables", "--json")
    assert done.returncode == 0, done.stderr
    # The 5 of broker-1, and twice the 9 of broker-2.
    assert "23 records, 2 lines in quarantine (not_json_object 1, unknown_version 1)" in done.stderr
    orders, tiny = map(json.loads, done.stdout.splitlines())
    assert orders == {
        "group": "orders",
        "sidecar": "broker-2",
        "sidecars": 2,
        "protocol": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "range",
        "generation": 4,
        "members": 2,
        "max_size": 2,
        "observed_at": timestamp(NOW + 2),
        "rebalances": 1,
        "rebalance_causes": {"join": 1},
        "rebalance_seconds": 0.5,
        "last_rebalance_at": timestamp(NOW),
        "refusals": 0,
        "lag": 15,
        "max_partition_lag": 15,
        "partitions": 2,
        "partitions_without_log_end": 1,
    }
    assert (tiny["group"], tiny["state"], tiny["refusals"], tiny["lag"]) == ("[bold]tiny", None, 2, None)

    def written(table: str, *columns: str) -> set[tuple[object, ...]]:
        return {tuple(row) for row in spark.read.parquet(f"{tmp_path}/tables/{table}").select(*columns).collect()}

    assert written("groups", "group", "lag") == {("orders", 15), ("[bold]tiny", None)}
    assert written("lag", "topic", "partition", "lag") == {("t", 0, 15), ("unseen", 0, None)}
    assert written("rebalances", "group", "rebalances") == {("orders", 1)}
    assert written("refusals", "group", "policy", "error_code", "refusals") == {("[bold]tiny", "group_max_size", 77, 2)}
    assert written("sidecars", "sidecar", "records", "missing") == {("broker-1", 5, 0), ("broker-2", 9, 0)}
    assert written("quarantine", "fault", "line") == {
        ("not_json_object", '{"version":1,'),
        ("unknown_version", '{"version":9}'),
    }


def show(spark: SparkSession, capsys: pytest.CaptureFixture[str], *chosen: str | Path) -> list[list[str]]:
    """The words of each line that the job prints."""
    run(spark, arguments([*map(str, chosen)]))
    return [words for line in capsys.readouterr().out.splitlines() if (words := line.split())]


def test_groups_are_a_table_in_the_terminal(
    fleet: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    title, _, *found = show(spark, capsys, "--input", fleet)
    assert title == ["group", "state", "members", "rebalances", "refusals", "lag"]
    assert found == [["orders", "Stable", "2", "1", "0", "15"], ["[bold]tiny", "0", "2"]]


def test_moments_are_shown_in_utc_and_rows_are_limited(
    fleet: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tokyo: None
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, _, found, more = show(spark, capsys, "--input", fleet, "--show", "sidecars", "--limit", "1")
    beat = timestamp(NOW + 2).removesuffix(".000Z").split("T")
    assert found == ["broker-2", "1", "9", "0", *beat, *beat]
    assert more[:5] == ["These", "are", "the", "first", "1"]


def test_a_folder_without_segments_has_no_groups(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(show(spark, capsys, "--input", tmp_path)) == 2
    assert show(spark, capsys, "--input", tmp_path, "--json") == []


def test_a_url_without_input_has_status_2(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_job, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    nowhere = (tmp_path / "none").as_uri()
    assert main(["--input", nowhere]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"there is no {nowhere}"


def test_help_names_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    assert "3 PySpark or Java is missing" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["--input", "no such folder"],
        ["--input", ".", "--output", __file__],
        ["--input", ".", "--limit", "0"],
        ["--input", ".", "--limit", "many"],
        ["--input", ".", "--show", "y"],
    ],
)
def test_a_wrong_argument_has_status_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(wrong)
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_without_java_it_says_how_to_get_it(tmp_path: Path) -> None:
    done = job("--input", tmp_path, PATH=str(tmp_path), JAVA_HOME="")
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
def test_the_java_that_spark_would_start_is_looked_at(
    says: str, complaint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    missing = java_missing()
    assert missing == spark_missing()
    if complaint is None:
        assert missing is None
    else:
        assert missing is not None
        assert complaint in missing
        assert "apt-get install openjdk-17-jre-headless" in missing


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert str(tmp_path) in (java_missing() or "")
