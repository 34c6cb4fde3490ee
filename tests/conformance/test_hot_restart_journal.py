"""The journal of a sidecar and of its successor, under one `sidecar_id`, as the fleet pipeline reads it."""

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from group_sidecar.metrics.journal_segments import OPEN_SEGMENTS, SEALED_SEGMENTS
from group_sidecar.spark.ingest import ingest
from group_sidecar.spark.line_sources import files
from group_sidecar.spark.missed_segments import missed_segments
from group_sidecar.spark.store import Store
from tests.conformance.fleet_answers import answer
from tests.conformance.librdkafka import create_topic, messages_in
from tests.conformance.routes import Route, Run
from tests.kafka.broker import KafkaBroker
from tests.kafka.dialect import Client, Dialect, until
from tests.kafka.group_members import ClassicMember, succeeded
from tests.kafka.sidecar_process import SidecarProcess
from tests.spark.conftest import spark

__all__ = ["spark"]  # pytest finds the imported fixtures.

INTERVAL_SECONDS = 0.5
"""Seconds between two snapshots in the journal."""
DRAIN_SECONDS = 60
"""Seconds for which the predecessor waits for parked joins. The test leaves them parked for a shorter time."""


@dataclass(frozen=True)
class Journal:
    """The records of both processes.

    Attributes:
        folder: the folder of segments, some of which may still be open.
        run: the run that created the topic.
        topic: the name of the topic with the same records.
    """

    folder: Path
    run: Run
    topic: str

    def in_folder(self) -> list[bytes]:
        """Returns the complete lines of the folder, unordered."""
        segments = [*self.folder.glob(SEALED_SEGMENTS), *self.folder.glob(OPEN_SEGMENTS)]
        return [line for path in segments for line in path.read_bytes().split(b"\n")[:-1]]

    def in_topic(self) -> list[bytes]:
        """Returns the messages of the topic."""
        return [message.value() or b"" for message in messages_in(self.run.bootstrap, self.topic)]

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Returns the records of a kind in the folder, in the order of their emission."""
        found = [json.loads(line) for line in self.in_folder()]
        return sorted((each for each in found if each["kind"] == kind), key=lambda each: str(each["emitted_at"]))


class ParkedGroup:
    """A group with one member, and a second member whose join is parked until the first member has joined again."""

    def __init__(self, stack: ExitStack, client: Client, name: str) -> None:
        self.name = name
        self._client = client
        self._first, self._second = (stack.enter_context(ClassicMember(client, name, "topic")) for _ in range(2))
        self._first.join()
        self._first.sync()
        self._second.send_join()
        until(lambda: self._first.heartbeat() != 0, "the broker asks the first member to join again")

    def complete(self) -> None:
        """Completes the rebalance over new connections. The reply to the parked join arrives on its old connection."""
        self._first.reconnect(self._client)
        self._first.send_join()
        for member in (self._second, self._first):
            succeeded(member.receive_join())
        self._second.reconnect(self._client)
        for member in sorted((self._first, self._second), key=lambda member: not member.leads):
            member.sync()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of its own, because the sidecar listens at the address that the broker advertises."""
    with KafkaBroker(tmp_path_factory.mktemp("broker")) as broker:
        broker.wait_for_coordinator()
        yield broker


@pytest.fixture(scope="module")
def journal(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Journal:
    """The journal after a restart by SIGUSR2, during which two rebalances were completed. No process writes any more.

    The first rebalance is completed while the predecessor writes to the journal. The second one is completed after a
    later snapshot of the predecessor, and then the predecessor exits.
    """
    folder = tmp_path_factory.mktemp("sidecar")
    run = Run(Route("direct", broker.direct, broker.direct), f"t{secrets.token_hex(5)}")
    journal = Journal(folder / "journal", run, create_topic(run, "records"))
    settings = {
        "sidecar_id": "here",
        "limits": {"drain_seconds": DRAIN_SECONDS},
        "journal": {
            "folder": str(journal.folder),
            "topic": journal.topic,
            "interval_seconds": INTERVAL_SECONDS,
            "topic_linger_seconds": 0,
        },
    }
    sidecar = SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=settings)
    with ExitStack() as stack:
        stack.enter_context(sidecar)
        sidecar.wait_for_log()
        client = Client(broker.sidecar, Dialect.of(broker.direct))
        early, late = (ParkedGroup(stack, client, name) for name in ("early", "late"))
        until(lambda: len(journal.records("rebalance")) == 2, "the first generations are written")
        with sidecar.handing_over():
            early.complete()
            heartbeats = len(journal.records("heartbeat"))
            until(lambda: len(journal.records("heartbeat")) >= heartbeats + 2, "the predecessor writes a snapshot")
            late.complete()
        until(lambda: len(journal.records("rebalance")) >= 4, "the second generations are written")
    return journal


def test_each_record_is_written_once(journal: Journal) -> None:
    """The numbers of each process's records have no gap, and folder and topic have the same records."""
    lines = journal.in_folder()
    assert sorted(lines) == sorted(journal.in_topic())
    numbers: dict[str, list[int]] = {}
    for line in lines:
        record = json.loads(line)
        numbers.setdefault(record["boot"], []).append(record["seq"])
    assert len(numbers) == 2
    assert all(sorted(seqs) == [*range(1, len(seqs) + 1)] for seqs in numbers.values())


def test_each_fact_is_written_once(journal: Journal) -> None:
    """Each generation of a group has one record, whichever process forwarded the requests."""
    generations = Counter((each["group"], each["generation"]) for each in journal.records("rebalance"))
    assert generations == {(group, number): 1 for group in ("early", "late") for number in (1, 2)}


def test_successor_writes_after_predecessor(journal: Journal) -> None:
    """No record of the successor is older than one of the predecessor."""
    by_boot: dict[str, list[str]] = {}
    for record in map(json.loads, journal.in_folder()):
        by_boot.setdefault(record["boot"], []).append(record["emitted_at"])
    old, new = sorted(by_boot.values(), key=min)
    assert max(old) <= min(new)


def test_fleet_reports_no_gap(spark: SparkSession, journal: Journal, tmp_path: Path) -> None:
    """The fleet pipeline counts all records, two starts, nothing missing and nothing in quarantine, and does not warn
    of two sidecars with one id.
    """
    store = Store(spark, str(tmp_path / "store"))
    ingest(store, files(spark, str(journal.folder)), 0)
    assert missed_segments(spark, store, str(journal.folder)).warnings == ()
    [sidecar] = answer(store.read, "sidecars")
    names = ("sidecar", "boots", "records", "missing")
    assert tuple(sidecar[name] for name in names) == ("here", 2, len(journal.in_folder()), 0)
    assert answer(store.read, "quarantine") == []
    assert {row["group"]: row["rebalances"] for row in answer(store.read, "groups")} == {"early": 2, "late": 2}
