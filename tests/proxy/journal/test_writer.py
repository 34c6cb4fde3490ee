"""Tests when the journal gets records, and what happens when its disk fails."""

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client import CollectorRegistry

from group_sidecar.coordinator.model.facts import Departure, MemberGone
from group_sidecar.coordinator.model.views import CommittedOffset, GroupView
from group_sidecar.metrics.collector import ScrapeSources
from group_sidecar.metrics.fact_counters import FactCounters
from group_sidecar.metrics.records import timestamp
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.kafka_client import KafkaClient, connect
from group_sidecar.proxy.config.sections import Journal
from group_sidecar.proxy.journal import writer
from group_sidecar.proxy.journal.writer import RECORDS_WRITTEN_AT_ONCE, JournalWriter
from group_sidecar.proxy.runtime.addresses import Address
from tests.metrics.metrics_world import CoordinatorCopy
from tests.proxy.fakes import holds
from tests.proxy.journal.topic_broker import TOPIC, TopicBroker
from tests.proxy.scripted_broker import MemoryNetwork

GONE = MemberGone(group_id="g", at=5.0, member_id="m", client_id="c", client_host="/h", how=Departure.LEFT)


def sources(outlet: JournalWriter, *groups: GroupView, traffic: TrafficCounters | None = None) -> ScrapeSources:
    return ScrapeSources(
        managers=lambda: [CoordinatorCopy(groups=groups)],
        traffic=traffic or TrafficCounters(),
        fact_counters=FactCounters(CollectorRegistry()),
        copies_ready=lambda: True,
        held_bytes=lambda: 7,
        outlets=outlet.outlets(),
        max_members=lambda _: 3,
    )


def written_records(folder: Path) -> list[dict[str, Any]]:
    """Returns the JSON of all lines, in order."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def kinds(folder: Path) -> list[str]:
    return [record["kind"] for record in written_records(folder)]


def written(outlet: JournalWriter) -> int:
    """Returns the number of records written to the folder."""
    return outlet.outlets()["folder"].records_written


def nobody() -> AbstractAsyncContextManager[KafkaClient]:
    """Replaces the connection in tests without a topic."""
    raise AssertionError


def epoch() -> float:
    return 1_000_000.0 + trio.current_time()


async def test_snapshot_is_written_each_interval(tmp_path: Path) -> None:
    """Each interval writes a heartbeat and the snapshot of the groups, and a fact is written once."""
    outlet = JournalWriter("here", Journal(folder=tmp_path, interval_seconds=0.1), nobody)
    traffic = TrafficCounters()
    traffic.add_listener("clients").received_bytes = 11
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, sources(outlet, GroupView(group_id="g"), traffic=traffic), epoch)
        await holds(lambda: written(outlet) >= 2)
        outlet.write_fact(GONE, epoch())
        await holds(lambda: written(outlet) >= 7)
        nursery.cancel_scope.cancel()
    found = kinds(tmp_path)
    assert found.count("member") == 1
    found.remove("member")
    assert found == ["heartbeat", "group"] * (len(found) // 2)
    first, group, *_ = written_records(tmp_path)
    assert first["sample"]["group_sidecar_received_bytes_total"] == 11
    assert first["sample"]["group_sidecar_held_bytes"] == 7
    assert group["max_size"] == 3


async def test_record_times_include_clock_drift(tmp_path: Path) -> None:
    """Records carry the system clock's time if it differs from the copies' clock."""
    outlet = JournalWriter("here", Journal(folder=tmp_path, interval_seconds=60), nobody)
    offsets = {("t", 0): CommittedOffset(7, at=1_000_000.0)}
    drifted = replace(sources(outlet, GroupView(group_id="g", offsets=offsets)), drift=lambda: 86_400.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, drifted, lambda: 1_000_000.0)
        await holds(lambda: written(outlet) == 3)
        nursery.cancel_scope.cancel()
    for record in written_records(tmp_path):
        assert (record["observed_at"][:10], record["emitted_at"][:10]) == ("1970-01-13", "1970-01-13")


async def test_pending_records_are_written_at_stop(tmp_path: Path) -> None:
    """Records that are pending at a cancellation are written."""
    outlet = JournalWriter("here", Journal(folder=tmp_path, interval_seconds=60), nobody)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, sources(outlet), epoch)
        await holds(lambda: written(outlet) == 1)
        outlet.write_fact(GONE, epoch())
        nursery.cancel_scope.cancel()
    assert kinds(tmp_path) == ["heartbeat", "member"]


async def test_fact_before_run_is_written_with_first_snapshot(tmp_path: Path) -> None:
    """A fact that is written before the writer runs becomes a record when it runs, and keeps its own time."""
    outlet = JournalWriter("here", Journal(folder=tmp_path, interval_seconds=60), nobody)
    outlet.write_fact(GONE, 1_000_000.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, sources(outlet), lambda: 1_000_100.0)
        await holds(lambda: written(outlet) == 2)
        nursery.cancel_scope.cancel()
    assert [(record["kind"], record["seq"]) for record in written_records(tmp_path)] == [
        ("member", 1),
        ("heartbeat", 2),
    ]
    [emitted] = {record["emitted_at"] for record in written_records(tmp_path)}
    assert emitted == timestamp(1_000_100.0)
    assert written_records(tmp_path)[0]["observed_at"] == timestamp(GONE.at)


async def test_facts_before_run_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the writer runs late, facts beyond a limit are in the queue, which counts what it drops. None is lost here."""
    monkeypatch.setattr(writer, "MAX_KEPT_FACTS", 2)
    outlet = JournalWriter("here", Journal(folder=tmp_path, interval_seconds=60), nobody)
    for _ in range(5):
        outlet.write_fact(GONE, epoch())
    assert len(outlet._kept_facts) == 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, sources(outlet), epoch)
        await holds(lambda: written(outlet) == 6)
        nursery.cancel_scope.cancel()
    assert [record["seq"] for record in written_records(tmp_path)] == [*range(1, 7)]


async def test_large_snapshot_is_written_completely(tmp_path: Path) -> None:
    """A snapshot of more records than one write takes is written completely."""
    outlet = JournalWriter("here", Journal(folder=tmp_path), nobody)
    offsets = {("t", number): CommittedOffset(number) for number in range(3 * RECORDS_WRITTEN_AT_ONCE)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, sources(outlet, GroupView(group_id="g", offsets=offsets)), epoch)
        await holds(lambda: written(outlet) >= RECORDS_WRITTEN_AT_ONCE)
        await holds(lambda: written(outlet) == 3 * RECORDS_WRITTEN_AT_ONCE + 2)
        nursery.cancel_scope.cancel()


async def test_array_lines_reach_folder_and_topic(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With version 2 of the contract, folder and topic get each record of a large snapshot once, on few lines."""
    network, at, broker = MemoryNetwork(nursery), Address("broker", 9092), TopicBroker()
    network.brokers[at] = broker
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    settings = Journal(folder=tmp_path, topic=TOPIC, contract_version=2, topic_linger_seconds=0)
    outlet = JournalWriter("here", settings, lambda: connect(*at))
    offsets = {("t", number): CommittedOffset(number) for number in range(3 * RECORDS_WRITTEN_AT_ONCE)}
    records = len(offsets) + 2
    async with trio.open_nursery() as running:
        running.start_soon(outlet.run, sources(outlet, GroupView(group_id="g", offsets=offsets)), epoch)
        await holds(lambda: written(outlet) == records == outlet.outlets()["topic"].records_written)
        running.cancel_scope.cancel()
    assert broker.topic.seqs == [*range(1, records + 1)]
    lines = written_records(tmp_path)
    assert [(line["kind"], line.get("count", 1)) for line in lines] == [
        ("heartbeat", 1),
        *[("commit", 500)] * 6,
        ("group", 1),
    ]
    assert [line["seq"] for line in lines] == [1, *range(2, 3002, 500), 3002]


@pytest.mark.parametrize("beside_a_folder", [True, False])
async def test_topic_gets_the_same_records(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside_a_folder: bool
) -> None:
    """A topic gets all records in order, and the same ones as a configured folder."""
    network, at, broker = MemoryNetwork(nursery), Address("broker", 9092), TopicBroker()
    network.brokers[at] = broker
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    folder = tmp_path if beside_a_folder else None
    settings = Journal(folder=folder, topic=TOPIC, interval_seconds=0.1, topic_linger_seconds=0)
    outlet = JournalWriter("here", settings, lambda: connect(*at))
    assert [*outlet.outlets()] == (["folder", "topic"] if beside_a_folder else ["topic"])
    async with trio.open_nursery() as running:
        running.start_soon(outlet.run, sources(outlet), epoch)
        await holds(lambda: outlet.outlets()["topic"].records_written >= 3)
        outlet.write_fact(GONE, epoch())
        running.cancel_scope.cancel()
    assert broker.topic.seqs == list(range(1, len(broker.topic.seqs) + 1))
    assert [record["seq"] for record in written_records(tmp_path)] == (broker.topic.seqs if beside_a_folder else [])


async def test_disk_failure_is_logged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A failing disk is logged once, and so is its recovery."""
    folder = tmp_path / "records"
    folder.write_text("in the way")
    outlet = JournalWriter("here", Journal(folder=folder, interval_seconds=0.1), nobody)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, sources(outlet), epoch)
        await holds(lambda: outlet.outlets()["folder"].failures >= 3)
        folder.unlink()
        await holds(lambda: written(outlet) >= 3)
        nursery.cancel_scope.cancel()
    shown = capsys.readouterr().out
    assert shown.count("the journal cannot be written") == 1
    assert shown.count("the journal is written again") == 1
