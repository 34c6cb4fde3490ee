"""When the journal is told, and what where its disk fails."""

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client import CollectorRegistry

from group_sidecar.coordinator.facts import Departure, MemberGone
from group_sidecar.coordinator.views import CommittedOffset, GroupView
from group_sidecar.metrics.collector import Sources
from group_sidecar.metrics.instruments import Instruments
from group_sidecar.metrics.traffic import Traffic
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.client import KafkaClient, connect
from group_sidecar.proxy.outlet import RECORDS_WRITTEN_AT_ONCE, Outlet
from group_sidecar.proxy.sections import Journal
from tests.metrics.world import Copy
from tests.proxy.fakes import holds
from tests.proxy.scripted_broker import MemoryNetwork
from tests.proxy.topic_broker import TOPIC, TopicBroker

GONE = MemberGone(group_id="g", at=5.0, member_id="m", client_id="c", client_host="/h", how=Departure.LEFT)


def sources(outlet: Outlet, *groups: GroupView, traffic: Traffic | None = None) -> Sources:
    return Sources(
        copies=lambda: [Copy(groups=groups)],
        traffic=traffic or Traffic(),
        instruments=Instruments(CollectorRegistry()),
        mirror_ready=lambda: True,
        held_bytes=lambda: 7,
        outlets=outlet.outlets(),
        most_members=lambda _: 3,
    )


def told(folder: Path) -> list[dict[str, Any]]:
    """All records, in order."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def kinds(folder: Path) -> list[str]:
    return [record["kind"] for record in told(folder)]


def written(outlet: Outlet) -> int:
    """Records in the folder."""
    return outlet.outlets()["folder"].records_written


def nobody() -> AbstractAsyncContextManager[KafkaClient]:
    """In place of a broker, where no topic is written to."""
    raise AssertionError


def epoch() -> float:
    return 1_000_000.0 + trio.current_time()


async def test_what_stands_is_told_at_every_interval(tmp_path: Path) -> None:
    outlet = Outlet("here", Journal(folder=tmp_path, interval_seconds=0.1), nobody)
    traffic = Traffic()
    traffic.received_bytes = 11
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, sources(outlet, GroupView(group_id="g"), traffic=traffic), epoch)
        await holds(lambda: written(outlet) >= 2)
        outlet.tell(GONE, epoch())
        await holds(lambda: written(outlet) >= 7)
        nursery.cancel_scope.cancel()
    found = kinds(tmp_path)
    assert found.count("member") == 1
    found.remove("member")
    assert found == ["heartbeat", "group"] * (len(found) // 2)
    first, group, *_ = told(tmp_path)
    assert first["sample"]["group_sidecar_received_bytes_total"] == 11
    assert first["sample"]["group_sidecar_held_bytes"] == 7
    assert group["max_size"] == 3


async def test_records_carry_the_systems_time_where_the_copies_have_another(tmp_path: Path) -> None:
    outlet = Outlet("here", Journal(folder=tmp_path, interval_seconds=60), nobody)
    offsets = {("t", 0): CommittedOffset(7, at=1_000_000.0)}
    drifted = replace(sources(outlet, GroupView(group_id="g", offsets=offsets)), drift=lambda: 86_400.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, drifted, lambda: 1_000_000.0)
        await holds(lambda: written(outlet) == 3)
        nursery.cancel_scope.cancel()
    for record in told(tmp_path):
        assert (record["observed_at"][:10], record["emitted_at"][:10]) == ("1970-01-13", "1970-01-13")


async def test_what_is_left_is_written_at_the_end(tmp_path: Path) -> None:
    outlet = Outlet("here", Journal(folder=tmp_path, interval_seconds=60), nobody)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, sources(outlet), epoch)
        await holds(lambda: written(outlet) == 1)
        outlet.tell(GONE, epoch())
        nursery.cancel_scope.cancel()
    assert kinds(tmp_path) == ["heartbeat", "member"]


async def test_many_records_are_written_in_shares(tmp_path: Path) -> None:
    outlet = Outlet("here", Journal(folder=tmp_path), nobody)
    offsets = {("t", number): CommittedOffset(number) for number in range(3 * RECORDS_WRITTEN_AT_ONCE)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, sources(outlet, GroupView(group_id="g", offsets=offsets)), epoch)
        await holds(lambda: written(outlet) >= RECORDS_WRITTEN_AT_ONCE)
        await holds(lambda: written(outlet) == 3 * RECORDS_WRITTEN_AT_ONCE + 2)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("beside_a_folder", [True, False])
async def test_a_topic_gets_the_same_records(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside_a_folder: bool
) -> None:
    network, at, broker = MemoryNetwork(nursery), Address("broker", 9092), TopicBroker()
    network.brokers[at] = broker
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    folder = tmp_path if beside_a_folder else None
    settings = Journal(folder=folder, topic=TOPIC, interval_seconds=0.1, topic_linger_seconds=0)
    outlet = Outlet("here", settings, lambda: connect(*at))
    assert [*outlet.outlets()] == (["folder", "topic"] if beside_a_folder else ["topic"])
    async with trio.open_nursery() as running:
        running.start_soon(outlet.run, sources(outlet), epoch)
        await holds(lambda: outlet.outlets()["topic"].records_written >= 3)
        outlet.tell(GONE, epoch())
        running.cancel_scope.cancel()
    assert broker.topic.seqs == list(range(1, len(broker.topic.seqs) + 1))
    assert [record["seq"] for record in told(tmp_path)] == (broker.topic.seqs if beside_a_folder else [])


async def test_a_disk_that_fails_is_told_once_and_once_that_it_is_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "records"
    folder.write_text("in the way")
    outlet = Outlet("here", Journal(folder=folder, interval_seconds=0.1), nobody)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run, sources(outlet), epoch)
        await holds(lambda: outlet.outlets()["folder"].failures >= 3)
        folder.unlink()
        await holds(lambda: written(outlet) >= 3)
        nursery.cancel_scope.cancel()
    shown = capsys.readouterr().out
    assert shown.count("the journal cannot be written") == 1
    assert shown.count("the journal is written again") == 1
