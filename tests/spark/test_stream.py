"""The job as a stream that is killed: no row from files or from Kafka is lost or duplicated."""

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from group_sidecar.spark import line_sources, recompute
from group_sidecar.spark import stream as stream_module
from group_sidecar.spark.filesystem import Folders
from group_sidecar.spark.ingest import IngestResult, ingest
from group_sidecar.spark.lease import LeaseLostError, hold_lease
from group_sidecar.spark.progress import Progress
from group_sidecar.spark.store import Store
from group_sidecar.spark.stream import stream
from group_sidecar.spark.tables import TABLES
from tests.kafka.broker import KafkaBroker
from tests.kafka.maven import connector_jars
from tests.kafka.processes import GIVE_UP_SECONDS, host_port
from tests.spark.job_processes import finish, job, kill_when
from tests.spark.record_frames import at
from tests.spark.segment_files import HOUR, NOW, all_rows, folders, segments_in_order, tell

BEFORE, AFTER = ("second", "begin"), ("late", "again")
FEW = ("groups", "lag", "rebalances", "sidecars")


def command(source: str | Path, store: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "group_sidecar.spark", "run", "--input", str(source), "--output", str(store), *more]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_stream_killed_while_writing_resumes(spark: SparkSession, tmp_path: Path) -> None:
    """A stream job that is killed while it writes tables resumes without lost or doubled rows."""
    journals, store = tmp_path / "in", tmp_path / "store"
    tell(journals, BEFORE)
    streaming = command(journals, store, "--stream", "--trigger", "1s")
    # Some tables are already replaced, others are not, and the batch is not complete.
    kill_when(lambda: folders(store, "_attempts/tables.*/*/day=*"), tmp_path / "log", *streaming)
    assert folders(store, "checkpoint/commits/0") == []
    assert folders(store, "records/*/*/batch=0.*") != []
    tell(journals, AFTER)
    said = finish(*command(journals, store))
    assert "23 records, 3 lines in quarantine" in said
    expected = Store(spark, str(tmp_path / "whole"))
    ingest(expected, line_sources.files(spark, str(journals)), 0)
    assert all_rows(Store.opened(spark, str(store))) == all_rows(expected)
    assert len(folders(store, "checkpoint/commits/[0-9]*")) == 2


def all_lines(spark: SparkSession, store: Path) -> tuple[int, int]:
    """Returns the number of a store's records, including repeated ones, and of lines in quarantine."""
    opened = Store.opened(spark, str(store))
    return opened.records(opened.hours()).count(), opened.read("quarantine").count()


def test_second_concurrent_run_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """If two runs are concurrent, one takes all lines, and the other exits with status 4 and a message."""
    journals, store = tmp_path / "in", tmp_path / "store"
    tell(journals, BEFORE + AFTER)
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    both = [subprocess.Popen(command(journals, store), **pipes) for _ in range(2)]  # type: ignore[call-overload]
    (_, busy), (_, done) = sorted((process.wait(), process.communicate()[1]) for process in both)[::-1]
    assert sorted(process.returncode for process in both) == [0, 4], f"{busy}\n{done}"  # As text, it is printed whole.
    assert "23 records, 3 lines in quarantine" in done
    assert f" writes to file:{store}: only one process may, so nothing was read\n" in busy
    assert all_lines(spark, store) == (23, 3)
    assert folders(store, "_attempts/*") == []


@pytest.mark.long
def test_suspended_run_is_fenced(spark: SparkSession, tmp_path: Path) -> None:
    """A run that was suspended until its lease expired fails on resumption and writes nothing more."""
    journals, store, log = tmp_path / "in", tmp_path / "store", tmp_path / "log"
    tell(journals, BEFORE + AFTER)
    with job(log, *command(journals, store, "--stream", "--trigger", "1s")) as suspended:
        deadline = time.monotonic() + 3 * GIVE_UP_SECONDS
        while not folders(store, "_attempts/tables.*/*/day=*"):
            assert suspended.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        os.killpg(suspended.pid, signal.SIGSTOP)
        assert folders(store, "checkpoint/commits/0") == []
        os.utime(store / "_lease" / "00000001", (0, 0))
        assert "23 records, 3 lines in quarantine" in finish(*command(journals, store))
        whole = all_rows(Store.opened(spark, str(store)))
        os.killpg(suspended.pid, signal.SIGCONT)
        assert suspended.wait(3 * GIVE_UP_SECONDS) == 1
    assert "failed: lost the lease on" in log.read_text()
    assert all_lines(spark, store) == (23, 3)
    assert all_rows(Store.opened(spark, str(store))) == whole


def test_lost_lease_is_reported_for_failed_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that fails in Spark after the lease was lost reports the lost lease. Any other failure is Spark's."""
    tell(tmp_path / "in", BEFORE)

    def fail(*_: object) -> None:
        raise RuntimeError("a folder of the batch is gone")

    monkeypatch.setattr(stream_module, "ingest", fail)
    times = count(0.0, 2.0)
    with hold_lease(Folders(spark, str(tmp_path / "store")), clock=lambda: next(times)) as lease:
        store = Store(spark, str(tmp_path / "store"), lease=lease)
        for lost, raised in ((False, StreamingQueryException), (True, LeaseLostError)):
            if lost:
                (tmp_path / "store/_lease" / f"{lease.token + 1:08}").write_text("{}")
            lines = line_sources.files_stream(spark, str(tmp_path / "in"))
            with pytest.raises(raised):
                stream(store, lines, Progress(lambda _: None), trigger=None, on_batch=fail)


def produce(broker: KafkaBroker, names: tuple[str, ...]) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": host_port(broker.direct)})
    on_batch = segments_in_order()
    for name in names:
        for line in on_batch[name]:
            producer.produce("records", line.encode(), on_delivery=delivered)
    assert producer.flush(GIVE_UP_SECONDS) == 0
    assert failed == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_stream_killed_between_batches_resumes(spark: SparkSession, tmp_path: Path) -> None:
    """A stream from a topic that is killed between two batches resumes without lost or doubled rows."""
    store = tmp_path / "store"
    jars = ("--jars", ",".join(map(str, connector_jars())))
    with KafkaBroker(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": host_port(broker.direct)})
        admin.create_topics([NewTopic("records", 2, 1)])["records"].result(GIVE_UP_SECONDS)
        topic = f"kafka://{host_port(broker.direct)}/records"
        produce(broker, BEFORE)
        streaming = command(topic, store, *jars, "--stream", "--trigger", "1s")
        kill_when(lambda: folders(store, "checkpoint/commits/0"), tmp_path / "log", *streaming)
        produce(broker, AFTER)
        said = finish(*command(topic, store, *jars))
    # Only newly arrived records, and the broken lines.
    assert "11 records, 3 lines in quarantine" in said
    tell(tmp_path / "in", (*BEFORE, *AFTER))
    expected = Store(spark, str(tmp_path / "whole"))
    ingest(expected, line_sources.files(spark, str(tmp_path / "in")), 0)
    found, whole = all_rows(Store.opened(spark, str(store)), FEW), all_rows(expected, FEW)
    # Files and topics give different arrival times.
    assert len(found.pop("quarantine")) == len(whole.pop("quarantine")) == 3
    assert len(found.pop("sidecars")) == len(whole.pop("sidecars"))
    assert found == whole


def test_stream_takes_only_new_segments(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stream run takes only new, sealed segments."""
    monkeypatch.setattr(recompute, "TABLES", {name: TABLES[name] for name in ("groups", "sidecars")})
    store = Store(spark, str(tmp_path / "store"))
    brought: list[IngestResult] = []

    def take() -> Progress:
        progress = Progress(lambda _: None)
        lines = line_sources.files_stream(spark, str(tmp_path / "in"))
        stream(store, lines, progress, trigger=None, on_batch=brought.append, clock=lambda: NOW)
        return progress

    tell(tmp_path / "in" / "deep", ["begin"])
    (tmp_path / "in" / ".open.jsonl").write_text("{\n")
    (tmp_path / "in" / "notes.txt").write_text("{\n")
    assert take().health.batch == 0
    assert take().ended.is_set()  # Without new lines there is no batch.
    tell(tmp_path / "in", ["second"])
    assert take().health.batch == 1
    assert [(each.records, each.hours) for each in brought] == [(6, (at(0),)), (6, (at(HOUR),))]
    assert all(each.quarantined == {} for each in brought)
