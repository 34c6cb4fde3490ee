"""Tests the tail: which partitions are read, what happens when the broker changes, and what is logged."""

import gc
import random
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9
from group_sidecar.codecs.messages.fetch import FetchRequest
from group_sidecar.codecs.messages.list_offsets import ListOffsetsRequest
from group_sidecar.codecs.messages.metadata import MetadataRequest
from group_sidecar.coordinator.log import follower
from group_sidecar.coordinator.state.log_partitions import partition_for
from group_sidecar.proxy.broker import topic_log_queries
from group_sidecar.proxy.broker.broker_errors import AuthenticationFailed, BrokerClosed
from group_sidecar.proxy.broker.broker_state import BrokerState
from group_sidecar.proxy.broker.group_queries import Node
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.own_connections import OwnConnections
from group_sidecar.proxy.offsets_log import partition_reader
from group_sidecar.proxy.offsets_log.tail import OffsetsTail
from group_sidecar.proxy.runtime.addresses import Address
from tests.coordinator.model_log import batch
from tests.coordinator.sweeping import in_doubt
from tests.proxy.dataplane.playbook import EPOCH, broker_state, complete_state, stable_group
from tests.proxy.offsets_log.log_broker import THIS_NODE, LogBroker
from tests.proxy.scripted_broker import HangUp, MemoryNetwork

BROKER = Address("10.1.1.1", 9092)
GROUPS = {partition_for(name, 2): name for name in ("a", "b")}
"""A group for each of two partitions."""
OLD_VERSIONS: dict[type, tuple[int, int]] = {FetchRequest: (0, 2), ListOffsetsRequest: (0, 1), MetadataRequest: (0, 4)}
"""The versions of a broker that does not report epochs, and cuts batches off."""
UNTOLD = ("reading __consumer_offsets", "Finished loading")
"""Prefixes of the usual log lines."""


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    monkeypatch.setattr(random, "uniform", lambda least, most: most)
    network = MemoryNetwork(nursery)
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


@pytest.fixture
def broker(network: MemoryNetwork) -> LogBroker:
    served = network.brokers[BROKER] = LogBroker()
    return served


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


class Side:
    """A sidecar that reads the log."""

    def __init__(self, state: BrokerState) -> None:
        self.state = state
        buffer_size = state.config.offsets_log.load_buffer_size
        self.tail = OffsetsTail(state.copy, state.versions, state.coordinators, state.own_connections, buffer_size)

    @property
    def states(self) -> dict[int, str]:
        return {number: state.value for number, state in self.state.copy.manager.log.partitions.states.items()}

    def offset(self, group: str) -> int | None:
        """Returns the group's committed offset in the copy."""
        view = self.state.copy.manager.view(group, self.state.copy.epoch(trio.current_time()))
        found = view.offsets.get(("t", 0))
        return None if found is None else found.offset

    def fresh(self, group: str) -> bool:
        """Whether the copy may be used."""
        return self.state.copy.manager.log.partitions.is_current(group, self.state.copy.epoch(trio.current_time()))


@asynccontextmanager
async def reading(*, since: float = 1.0, **settings: Any) -> AsyncIterator[Side]:
    """Runs a tail while the block runs. The block begins after `since` seconds."""
    side = Side(broker_state(**settings))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(side.tail.run)
        await trio.sleep(since)
        yield side
        nursery.cancel_scope.cancel()


def warnings(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines if line["log_level"] in ("warning", "error")]


def events_starting_with(lines: list[Any], start: str) -> list[str]:
    return [line["event"] for line in lines if line["event"].startswith(start) and line["log_level"] != "debug"]


async def test_reconnect_learns_versions_again(broker: LogBroker, autojump_clock: MockClock) -> None:
    """After a reconnection, the broker no longer counts as Kafka 0.9, because it may have been upgraded."""
    async with reading() as side:
        side.state.versions.learn(KAFKA_0_9)
        await broker.drop()
        await trio.sleep(10)
        assert not side.state.versions.is_kafka_0_9


async def test_lost_connection_is_freed_without_collector(
    broker: LogBroker, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost connection, and what was read over it, is freed without the cyclic collector, which never frees a frozen
    cycle. `python -m tests.soak` found that each restart of a broker kept the log of each partition.
    """
    clients: list[weakref.ref[KafkaClient]] = []
    negotiate = KafkaClient.negotiate

    async def noted(client: KafkaClient) -> None:
        clients.append(weakref.ref(client))
        await negotiate(client)

    monkeypatch.setattr(KafkaClient, "negotiate", noted)
    gc.disable()
    try:
        async with reading():
            before = len(clients)
            await broker.drop()
            await trio.sleep(10)
            assert len(clients) > before > 0
            assert [client() for client in clients[:before]] == [None] * before
    finally:
        gc.enable()


async def test_all_partitions_are_loaded_and_tailed(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    """The tail loads all partitions and then applies new records. A completed load is logged once."""
    broker.partitions[0].commit(GROUPS[0], 5)
    broker.partitions[1].commit(GROUPS[1], 6)
    async with reading() as side:
        assert side.states == {0: "owned", 1: "owned"}
        assert [side.offset(GROUPS[n]) for n in (0, 1)] == [5, 6]
        broker.partitions[1].commit(GROUPS[1], 7)
        await trio.sleep(1)
        assert [side.offset(GROUPS[n]) for n in (0, 1)] == [5, 7]
        await trio.sleep(30)
        assert side.fresh(GROUPS[0])
    assert events_starting_with(lines, "Finished loading")[0].startswith(
        "Finished loading offsets and group metadata from 2 partitions of __consumer_offsets in "
    )
    assert warnings(lines) == []


async def test_idle_tail_sends_few_requests(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """An idle tail sends two Fetch requests a second, one Metadata request every two seconds and no ListOffsets."""
    async with reading():
        broker.asked.clear()
        await trio.sleep(20)
        assert len(broker.requests(FetchRequest)) == pytest.approx(40, abs=2)
        assert len(broker.requests(MetadataRequest)) == pytest.approx(10, abs=2)
        assert broker.requests(ListOffsetsRequest) == []


async def test_coordinators_are_known_while_connected(
    broker: LogBroker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """The copy knows a group's coordinator while the broker leads its partition and is connected."""
    async with reading() as side:
        assert side.state.coordinators.coordinator(GROUPS[1]) == THIS_NODE
        broker.partitions[1].led = False  # Its new leader is not in Metadata.
        await trio.sleep(3)
        assert [side.state.coordinators.coordinator(GROUPS[n]) for n in (0, 1)] == [THIS_NODE, None]
        del network.brokers[BROKER]
        await broker.drop()
        await trio.sleep(3)
        assert side.state.coordinators.coordinator(GROUPS[0]) is None


@pytest.mark.parametrize("versions", [None, OLD_VERSIONS])
async def test_topic_created_later_is_found(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], versions: dict[type, tuple[int, int]] | None
) -> None:
    """The tail finds a topic that is created later, and notices its deletion."""
    broker = network.brokers[BROKER] = LogBroker(0, versions)
    async with reading() as side:
        assert side.state.copy.manager.log.partitions.count is None
        assert side.tail.status()["read"] is True
        await trio.sleep(30)
        broker.partitions = LogBroker(2).partitions
        broker.partitions[0].commit(GROUPS[0], 5)
        await trio.sleep(3)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.offset(GROUPS[0]) == 5
        broker.partitions.clear()
        await trio.sleep(3)
        assert side.state.copy.manager.log.partitions.count is None
    assert warnings(lines) == []


async def test_leadership_changes_are_followed(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """The tail loads a partition that the broker gains and unloads one that it loses."""
    broker.partitions[1].led = False
    broker.partitions[1].commit(GROUPS[1], 6)
    async with reading() as side:
        assert side.states == {0: "owned"}
        broker.partitions[1].led, broker.partitions[1].epoch = True, 2
        await trio.sleep(3)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.offset(GROUPS[1]) == 6
        broker.partitions[1].led, broker.partitions[1].epoch = False, 3
        await trio.sleep(0.6)
        assert side.states == {0: "owned"}
        assert side.offset(GROUPS[1]) is None
        await trio.sleep(10)
        assert side.states == {0: "owned"}
    [line] = [line for line in lines if line["event"] == "the broker resigned from partitions of __consumer_offsets"]
    assert line["partitions"] == [1]


@pytest.mark.parametrize("versions", [{}, OLD_VERSIONS])
async def test_takeover_differs_from_first_load(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], versions: dict[type, tuple[int, int]]
) -> None:
    """A partition that the broker takes over counts as moved, and one that it led at the first request does not."""
    broker = network.brokers[BROKER] = LogBroker(2, versions)
    broker.partitions[1].led = False
    async with reading() as side:
        broker.partitions[1].led, broker.partitions[1].epoch = True, 2
        await trio.sleep(3)
        led = side.state.copy.manager.log.partitions.leader_partitions
        assert [led[number].leader_term.moved for number in (0, 1)] == [None, True]
        assert all(led[number].leader_term.began_at <= side.state.copy.epoch(trio.current_time()) for number in (0, 1))


@pytest.mark.parametrize("versions", [{}, {FetchRequest: (0, 8)}])
async def test_new_epoch_reloads_partition(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], versions: dict[type, tuple[int, int]]
) -> None:
    """A new leader epoch loads the partition again from its start."""
    broker = network.brokers[BROKER] = LogBroker(2, versions)
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading() as side:
        broker.partitions[0].epoch = 2
        await trio.sleep(3)
        assert side.states == {0: "owned", 1: "owned"}
        assert broker.fetched(0).count(0) == 2
        assert side.offset(GROUPS[0]) == 5


async def test_older_epoch_is_ignored(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """A partition whose leader epoch goes back is not read until its epoch is newer than before."""
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading() as side:
        partition = broker.partitions[0]
        partition.epoch, partition.led = 0, True
        await trio.sleep(10)
        assert 0 not in side.states  # The broker rejects our epoch, and we reject the broker's.
        partition.epoch = 2
        await trio.sleep(3)
        assert side.states == {0: "owned", 1: "owned"}


async def test_reconnect_continues_at_last_offset(
    broker: LogBroker, network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any]
) -> None:
    """After a lost connection, the tail continues at its last offset if the epoch is the same."""
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading() as side:
        del network.brokers[BROKER]
        await broker.drop()
        await trio.sleep(0.01)
        assert side.states == {0: "loading", 1: "loading"}
        assert not side.fresh(GROUPS[0])
        assert side.tail.status()["read"] is False
        await trio.sleep(60)
        broker.partitions[0].commit(GROUPS[0], 6)
        broker.asked.clear()
        network.brokers[BROKER] = broker
        await trio.sleep(15)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.fresh(GROUPS[0])
        assert side.offset(GROUPS[0]) == 6
        assert set(broker.fetched(0)) == {1, 2}  # The epoch is the same, so the reading continued.
    assert warnings(lines) == ["__consumer_offsets is not read"]
    assert len(events_starting_with(lines, "reading")) == 2


async def test_reconnect_without_epochs_reloads(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any]
) -> None:
    """After a lost connection to a broker without epochs, the tail loads each partition from its start."""
    broker = network.brokers[BROKER] = LogBroker(2, OLD_VERSIONS)
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading() as side:
        assert side.offset(GROUPS[0]) == 5
        broker.asked.clear()
        await broker.drop()
        await trio.sleep(3)
        assert side.states == {0: "owned", 1: "owned"}
        assert broker.fetched(0)[0] == 0


async def test_truncated_log_is_reloaded(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """A truncated log is loaded again."""
    for offset in (5, 6):
        broker.partitions[0].commit(GROUPS[0], offset)
    async with reading() as side:
        broker.partitions[0].batches.pop()
        broker.partitions[0].high_watermark = 1
        await trio.sleep(1)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.offset(GROUPS[0]) == 5
    assert events_starting_with(lines, "offset out of range: a partition is loaded again")


async def test_deleted_start_of_log_is_reported(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """One warning and the status name a partition from whose start the broker has deleted records."""
    partition = broker.partitions[0]
    for offset in (5, 6):
        partition.commit(GROUPS[0], offset)
    async with reading() as side:
        assert "records_deleted" not in side.tail.status()
        partition.start, partition.epoch = 1, 2
        await trio.sleep(10)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.offset(GROUPS[0]) == 6
        assert side.tail.status()["records_deleted"] == {"count": 1, "partitions": [0]}
    assert warnings(lines) == ["the broker has deleted records from the start of partitions of __consumer_offsets"]


def _answers(side: Side, group: str) -> bool:
    """Whether the copy answers for the group's offsets, or answers that the group does not exist."""
    manager, now = side.state.copy.manager, side.state.copy.epoch(trio.current_time())
    reasons = (manager.offsets_fallback_reason(group, now), manager.consumer_fallback_reason(group, now))
    return None in reasons or manager.listing_fallback_reason(now) is None


@pytest.mark.parametrize("exclusive", [False, True])
async def test_changed_partition_count_ends_reading(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], exclusive: bool
) -> None:
    """After a change of the number of partitions, the copy answers nothing from the log, and does not read it again.

    The broker's coordinator uses the number that it read at its start.
    """
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading(answers={"exclusive": exclusive}) as side:
        assert _answers(side, GROUPS[0])
        broker.partitions |= {2: LogBroker(3).partitions[2]}
        await trio.sleep(3)
        assert side.states == {}
        assert side.offset(GROUPS[0]) is None
        assert not _answers(side, GROUPS[0])
        assert side.state.coordinators.coordinator(GROUPS[0]) is None
        assert side.tail.is_loaded  # A successor does not wait for the log.
        status = side.tail.status()
        assert status["read"] is False
        assert status["trouble"] == "__consumer_offsets has 3 partitions, and had 2 before"
        broker.asked.clear()
        await trio.sleep(600)
        assert broker.asked == []
        assert not _answers(side, GROUPS[0])
    [line] = [line for line in lines if line["log_level"] == "warning"]
    assert line["event"] == "__consumer_offsets is not read any more: the number of its partitions has changed"


async def test_recreated_topic_with_other_count_is_not_read(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    """If the topic is created again with another number of partitions, the log is not read any more."""
    async with reading() as side:
        partitions = broker.partitions
        for found, unusable in (({}, False), (partitions, False), ({}, False), (LogBroker(3).partitions, True)):
            broker.partitions = found
            await trio.sleep(3)
            assert side.tail.unusable is unusable


async def test_other_error_hides_no_changed_count(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the load fails in the moment in which the number of partitions has changed, the log is still given up."""
    has_changed = trio.Event()

    async def fail(tail: OffsetsTail) -> None:
        await has_changed.wait()
        raise BrokerClosed("the broker closed the connection")

    async def find_leaders(client: KafkaClient, topic: str) -> tuple[dict[int, int], dict[int, Node]]:
        found = await topic_log_queries.leaders(client, topic)
        if len(found[0]) == 3:
            has_changed.set()
            with trio.CancelScope(shield=True):  # The load fails first.
                await trio.sleep(0.001)
        return found

    monkeypatch.setattr(OffsetsTail, "_load", fail)
    monkeypatch.setattr(partition_reader, "leaders", find_leaders)
    async with reading() as side:
        broker.partitions = LogBroker(3).partitions
        await trio.sleep(600)
        assert side.tail.unusable
        assert side.states == {}
        assert side.tail.status()["trouble"] == "__consumer_offsets has 3 partitions, and had 2 before"
    assert warnings(lines) == ["__consumer_offsets is not read any more: the number of its partitions has changed"]


@pytest.mark.parametrize("loaded", [False, True])
async def test_misplaced_records_end_reading(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], loaded: bool
) -> None:
    """If a partition has records of a group that another partition stores, the copy answers nothing from the log.

    The topic may have got more partitions before the start of the sidecar, and the broker may not have been restarted.
    """
    broker.partitions[0].commit(GROUPS[0], 5)
    if not loaded:
        broker.partitions[1].commit(GROUPS[0], 6)
    async with reading() as side:
        if loaded:
            assert _answers(side, GROUPS[0])
            broker.partitions[1].commit(GROUPS[0], 6)
            await trio.sleep(1)
        assert side.states == {}
        assert not _answers(side, GROUPS[0])
        assert side.tail.status()["trouble"] == (
            f"__consumer_offsets-1 has records of the group {GROUPS[0]!r}, which another partition stores"
        )
    assert warnings(lines) == ["__consumer_offsets is not read any more: the number of its partitions has changed"]


async def test_misplaced_tombstone_is_ignored(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """A group whose records in a wrong partition were all deleted does not matter."""
    broker.partitions[0].commit(GROUPS[0], 5)
    broker.partitions[1].commit(GROUPS[0], 6)
    broker.partitions[1].expire(GROUPS[0])
    async with reading() as side:
        broker.partitions[1].expire(GROUPS[0])
        await trio.sleep(1)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.offset(GROUPS[0]) == 5
        [misplaced] = [found for number, found in side.state.copy.manager.log.partitions if number == 1]
        assert (misplaced.log.groups, misplaced.log.size) == ({}, 0)
    assert warnings(lines) == []


@pytest.mark.parametrize("versions", [None, OLD_VERSIONS])
async def test_oversized_batch_is_read_and_logged(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], versions: dict[type, tuple[int, int]] | None
) -> None:
    """A batch larger than the buffer is read, and one warning names its size."""
    broker = network.brokers[BROKER] = LogBroker(2, versions)
    partition = broker.partitions[0]
    partition.commit(GROUPS[0], 5)
    for offset in (6, 7):
        partition.commit(GROUPS[0], offset, "x" * 30_000, times=4)
    partition.commit(GROUPS[0], 8)
    size = len(partition.batches[1][2])
    async with reading(offsets_log={"load_buffer_size": 65_536}) as side:
        assert side.offset(GROUPS[0]) == 8
    [line] = warnings(lines)
    assert line == (
        f"loading offsets and group metadata from __consumer_offsets-0 with buffer larger ({size} bytes) than "
        "configured offsets_log.load_buffer_size (65536 bytes)"
    )
    assert len(broker.fetched(0)) < 15


async def test_damaged_partition_fails_alone(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """A damaged partition fails alone, is retried with growing pauses, and recovers."""
    broker.partitions[1].commit(GROUPS[1], 6)
    damaged = bytearray(batch(0, [(b"key", b"value")]))
    damaged[-1] ^= 1
    broker.partitions[0].append(bytes(damaged))
    async with reading() as side:
        assert side.states == {0: "failed", 1: "owned"}
        assert side.offset(GROUPS[1]) == 6
        status: Any = side.tail.status()
        assert status["failed"] == {"count": 1, "partitions": [0]}
        assert "crc" in status["reasons"]["0"].lower()
        await trio.sleep(100)
        assert side.fresh(GROUPS[1])
        assert broker.fetched(0) == [0] * 5  # At once, and after 5, 15, 35 and 75 seconds.
        broker.partitions[0].batches[0] = 0, 1, batch(0, [(b"\0\x7fkey", b"value")])
        await trio.sleep(100)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.tail.read_counters.skipped == {"other": 1}
    assert warnings(lines) == ["failed to load offsets and group metadata from __consumer_offsets-0"]


async def test_partition_error_fails_alone(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """A broker error on one partition fails that partition alone until the error ends."""
    broker.partitions[0].error = 56
    async with reading() as side:
        assert side.states == {0: "failed", 1: "owned"}
        broker.partitions[0].error = 0
        await trio.sleep(10)
        assert side.states == {0: "owned", 1: "owned"}
        broker.partitions[0].error = 56
        await trio.sleep(1)
        assert side.states == {0: "failed", 1: "owned"}
        broker.partitions[0].led = False
        await trio.sleep(7)
        assert side.states == {1: "owned"}
    assert warnings(lines) == ["failed to load offsets and group metadata from __consumer_offsets-0"] * 2


async def test_internal_error_fails_one_partition(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An internal error fails one partition and leaves the others readable."""
    broker.partitions[0].commit(GROUPS[0], 5)
    monkeypatch.setattr(partition_reader, "first_batch_size", lambda data: 1 // 0)
    async with reading() as side:
        assert side.states == {0: "failed", 1: "owned"}
    assert lines[0]["event"] == "a partition of the log cannot be followed" or warnings(lines)[0].startswith("a part")


@pytest.mark.parametrize("where", ["describe", "read"])
async def test_denied_read_is_logged_and_retried(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], where: str
) -> None:
    """A missing right to read the log is logged once and retried each minute. A revoked right counts again."""
    if where == "describe":
        broker.topic_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.granted = where != "read"
    async with reading() as side:
        assert side.states == {}
        assert side.state.copy.manager.log.partitions.count is None
        await trio.sleep(600)
        assert len(broker.requests(MetadataRequest)) == 11
        assert warnings(lines) == [
            "the sidecar is not allowed to read __consumer_offsets: its copy follows the wire and the broker's answers"
        ]
        assert events_starting_with(lines, "reading") == []
        denials = [side.tail.denied]
        broker.topic_error, broker.granted = 0, True
        await trio.sleep(61)
        denials.append(side.tail.denied)
        assert denials == [True, False]
        assert side.states == {0: "owned", 1: "owned"}
        broker.granted = False  # The right may be revoked, too.
        await trio.sleep(1)
        assert side.states == {}
    assert len(warnings(lines)) == 2


async def test_refused_credentials_have_own_hint(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused credentials are logged with a hint at own_connection.sasl."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AuthenticationFailed("wrong password")

    monkeypatch.setattr(OwnConnections, "connect", refused)
    async with reading():
        [line] = lines
    assert (line["hint"], line["reason"]) == ("correct own_connection.sasl", "wrong password")


async def test_expired_offsets_are_removed(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """Expired offsets disappear from the copy and are counted and logged."""
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading() as side:
        broker.partitions[0].expire(GROUPS[0])
        await trio.sleep(1)
        assert side.offset(GROUPS[0]) is None
        assert side.tail.read_counters.expired == 1
    assert events_starting_with(lines, "Removed") == ["Removed 1 expired offsets in 0 milliseconds."]


async def test_compacted_tail_ends_load(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """A load ends although the last offsets before the high watermark were compacted away."""
    broker.partitions[0].commit(GROUPS[0], 5)
    broker.partitions[0].high_watermark = 7
    async with reading() as side:
        assert side.states == {0: "owned", 1: "owned"}
        assert broker.fetched(0)[:2] == [0, 1]


async def test_load_begins_at_log_start(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """A load begins at the log's start offset."""
    for offset in (5, 6):
        broker.partitions[0].commit(GROUPS[0], offset)
    broker.partitions[0].start = 1
    async with reading() as side:
        assert side.offset(GROUPS[0]) == 6
        assert broker.fetched(0)[0] == 1


async def test_busy_partition_starves_no_other(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """A busy partition does not delay the records of another one."""
    async with reading(offsets_log={"load_buffer_size": 65_536}) as side:
        for _ in range(20):
            broker.partitions[0].commit(GROUPS[0], 5, "x" * 30_000, times=2)
        broker.partitions[1].commit(GROUPS[1], 6, "x" * 10_000)  # The other partition leaves too few bytes for it.
        broker.asked.clear()
        await trio.sleep(2)
        assert (side.offset(GROUPS[0]), side.offset(GROUPS[1])) == (5, 6)
        assert broker.fetched(1).index(1) <= 3  # It was read before the other's last batch.
        assert side.tail.read_counters.lag == 0


async def test_loaded_partition_is_tailed_at_once(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    """The tail applies a new record immediately after the load."""
    for _ in range(10):
        broker.partitions[1].commit(GROUPS[1], 5, "x" * 30_000, times=2)  # It takes longer to load.
    async with reading(since=0.1, offsets_log={"load_buffer_size": 65_536}) as side:
        assert side.states == {0: "owned", 1: "owned"}
        broker.partitions[1].commit(GROUPS[1], 6)
        await trio.sleep(0.05)
        assert side.offset(GROUPS[1]) == 6


async def test_replayed_groups_survive_cancellation(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All groups that were replayed are merged although the reading is cancelled."""
    broker = network.brokers[BROKER] = LogBroker(1)
    for group in "abc":
        broker.partitions[0].commit(group, 5)

    async def end(*_: Any) -> None:
        scope.cancel()
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(follower, "GROUPS_PER_MERGE_STEP", 1)
    monkeypatch.setattr(partition_reader.PartitionReader, "_yield_to_others", end)
    side = Side(broker_state())
    with trio.CancelScope() as scope:
        await side.tail.run()
    assert [side.offset(group) for group in "abc"] == [5, 5, 5]


async def test_read_counters_and_status(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """The counters and the status report the records, loads and partition states."""
    for offset in range(3):
        broker.partitions[0].commit(GROUPS[0], offset)
    async with reading() as side:
        read_counters = side.tail.read_counters
        assert (read_counters.records, read_counters.states, sum(read_counters.loads.counts)) == (3, {"owned": 2}, 2)
        assert side.tail.status() == {
            "read": True,
            "partitions": 2,
            "loading": {"count": 0, "partitions": []},
            "owned": {"count": 2, "partitions": [0, 1]},
            "failed": {"count": 0, "partitions": []},
        }
        side.state.copy.manager.exclusivity.record_bypass("a member", side.state.copy.epoch(trio.current_time()))
        assert side.tail.status()["bypassed"] == {"commits": 0, "members": 1, "exclusive": False}


async def test_hangup_at_metadata_is_logged_once(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    """A broker that closes the connection at the first request is logged once with a hint."""
    broker.answers[MetadataRequest] = HangUp()
    async with reading():
        await trio.sleep(100)
    assert warnings(lines) == ["__consumer_offsets is not read"]
    assert lines[0]["setting"] == "own_connection.sasl"


async def test_reload_group_reads_its_partition(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    """A group that verification distrusts is learned again by a load of its partition. A second request is harmless."""
    broker.partitions[0].commit(GROUPS[0], 5)
    broker.partitions[1].commit(GROUPS[1], 6)
    async with reading() as side:
        logged = side.state.copy.manager.log.partitions.leader_partitions[0].log.groups[GROUPS[0].encode()]
        logged.offsets.clear()
        assert side.offset(GROUPS[0]) is None
        side.tail.reload_group(GROUPS[0])
        await trio.sleep(2)
        assert [side.offset(GROUPS[n]) for n in (0, 1)] == [5, 6]
        assert side.fresh(GROUPS[0])
        assert side.states == {0: "owned", 1: "owned"}
        assert events_starting_with(lines, "a partition is loaded again") == ["a partition is loaded again"]
        side.tail.reload_group(GROUPS[0])
        side.tail.reload_group(GROUPS[0])
        await trio.sleep(2)
        assert side.fresh(GROUPS[0]), "a second request to reload the group must do no harm"
    assert warnings(lines) == []


async def test_reload_group_without_log_sets_doubt() -> None:
    """Without the log, a group that is to be reloaded becomes in doubt."""
    side = Side(complete_state())
    now = EPOCH + 100
    stable_group(side.state, "m1")
    side.tail.reload_group("g")
    assert side.state.copy.manager.group_fallback_reason("g", now) is not None
    assert in_doubt(side.state.copy.manager) == ["g"]


async def test_too_large_log_stops_loading(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load stops at the memory limit and fails its partition alone. The rest of that log is not fetched."""
    monkeypatch.setattr(follower, "TABLE_BYTES", 100_000)
    groups = [name for name in map("group{}".format, range(300)) if partition_for(name, 2) == 0][:100]
    for group in groups:
        broker.partitions[0].commit(group, 5, "m" * 3000)
    broker.partitions[1].commit(GROUPS[1], 6)
    settings = {"limits": {"offsets": 200}, "offsets_log": {"load_buffer_size": 65_536}}
    async with reading(since=0.5, **settings) as side:
        assert side.states == {0: "failed", 1: "owned"}
        assert 0 < max(broker.fetched(0)) < len(groups) / 2
        assert side.offset(GROUPS[1]) == 6
        assert side.state.copy.manager.overflowed > 0
        assert [line["reason"] for line in lines if "reason" in line] == [
            "more bytes of metadata than limits.offsets allows"
        ]
