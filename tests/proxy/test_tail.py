"""The tail: which partitions of the log are read, how it bears with a broker that changes, and what it says."""

import random
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
from group_sidecar.coordinator import following
from group_sidecar.coordinator.partitions import partition_for
from group_sidecar.proxy import log_reader
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.broker_copy import BrokerCopy
from group_sidecar.proxy.client import AuthenticationFailed
from group_sidecar.proxy.tail import OffsetsTail
from tests.coordinator.model_log import batch
from tests.coordinator.sweeping import in_doubt
from tests.proxy.log_broker import THIS_NODE, LogBroker
from tests.proxy.playbook import EPOCH, broker_copy, certain_copy, settled
from tests.proxy.scripted_broker import HangUp, MemoryNetwork

BROKER = Address("10.1.1.1", 9092)
GROUPS = {partition_for(name, 2): name for name in ("a", "b")}
"""A group for either of two partitions."""
OLD_VERSIONS: dict[type, tuple[int, int]] = {FetchRequest: (0, 2), ListOffsetsRequest: (0, 1), MetadataRequest: (0, 4)}
"""Of a broker that tells no epochs, and cuts batches."""
UNTOLD = ("reading __consumer_offsets", "Finished loading")
"""How the usual lines begin."""


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
    """A sidecar's reading of the log."""

    def __init__(self, copy: BrokerCopy) -> None:
        self.copy = copy
        self.tail = OffsetsTail(copy)

    @property
    def states(self) -> dict[int, str]:
        return {number: state.value for number, state in self.copy.manager.log.partitions.states.items()}

    def offset(self, group: str) -> int | None:
        """What the group has committed, as the copy has it."""
        view = self.copy.manager.view(group, self.copy.epoch(trio.current_time()))
        found = view.offsets.get(("t", 0))
        return None if found is None else found.offset

    def fresh(self, group: str) -> bool:
        """Whether the copy may be used."""
        return self.copy.manager.log.partitions.follows(group, self.copy.epoch(trio.current_time()))


@asynccontextmanager
async def reading(*, since: float = 1.0, **settings: Any) -> AsyncIterator[Side]:
    """A tail at work, `since` so many seconds when the block begins."""
    side = Side(broker_copy(**settings))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(side.tail.run)
        await trio.sleep(since)
        yield side
        nursery.cancel_scope.cancel()


def warnings(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines if line["log_level"] in ("warning", "error")]


def told(lines: list[Any], start: str) -> list[str]:
    return [line["event"] for line in lines if line["event"].startswith(start) and line["log_level"] != "debug"]


async def test_a_broker_that_comes_back_may_have_been_upgraded(broker: LogBroker, autojump_clock: MockClock) -> None:
    async with reading() as side:
        side.copy.learn_versions(KAFKA_0_9)
        await broker.drop()
        await trio.sleep(10)
        assert not side.copy.is_kafka_0_9


async def test_all_partitions_are_loaded_and_tailed(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
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
    assert told(lines, "Finished loading")[0].startswith(
        "Finished loading offsets and group metadata from 2 partitions of __consumer_offsets in "
    )
    assert warnings(lines) == []


async def test_an_idle_tail_asks_no_more_than_it_must(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    async with reading():
        broker.asked.clear()
        await trio.sleep(20)
        assert len(broker.requests(FetchRequest)) == pytest.approx(40, abs=2)
        assert len(broker.requests(MetadataRequest)) == pytest.approx(10, abs=2)
        assert broker.requests(ListOffsetsRequest) == []


async def test_it_tells_where_groups_are_coordinated_while_it_is_connected(
    broker: LogBroker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with reading() as side:
        assert side.copy.coordinator(GROUPS[1]) == THIS_NODE
        broker.partitions[1].led = False  # By a broker that Metadata does not tell of.
        await trio.sleep(3)
        assert [side.copy.coordinator(GROUPS[n]) for n in (0, 1)] == [THIS_NODE, None]
        del network.brokers[BROKER]
        await broker.drop()
        await trio.sleep(3)
        assert side.copy.coordinator(GROUPS[0]) is None


@pytest.mark.parametrize("versions", [None, OLD_VERSIONS])
async def test_a_topic_that_comes_later_is_found(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], versions: dict[type, tuple[int, int]] | None
) -> None:
    broker = network.brokers[BROKER] = LogBroker(0, versions)
    async with reading() as side:
        assert side.copy.manager.log.partitions.count is None
        assert side.tail.standing()["read"] is True
        await trio.sleep(30)
        broker.partitions = LogBroker(2).partitions
        broker.partitions[0].commit(GROUPS[0], 5)
        await trio.sleep(3)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.offset(GROUPS[0]) == 5
        broker.partitions.clear()
        await trio.sleep(3)
        assert side.copy.manager.log.partitions.count is None
    assert warnings(lines) == []


async def test_leadership_gained_and_lost(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
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
async def test_what_is_taken_over_is_told_from_what_was_led_before(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], versions: dict[type, tuple[int, int]]
) -> None:
    """However soon that is after the first look."""
    broker = network.brokers[BROKER] = LogBroker(2, versions)
    broker.partitions[1].led = False
    async with reading() as side:
        broker.partitions[1].led, broker.partitions[1].epoch = True, 2
        await trio.sleep(3)
        led = side.copy.manager.log.partitions.led
        assert [led[number].tenure.moved for number in (0, 1)] == [None, True]
        assert all(led[number].tenure.began_at <= side.copy.epoch(trio.current_time()) for number in (0, 1))


@pytest.mark.parametrize("versions", [{}, {FetchRequest: (0, 8)}])
async def test_another_epoch_is_loaded_anew(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], versions: dict[type, tuple[int, int]]
) -> None:
    broker = network.brokers[BROKER] = LogBroker(2, versions)
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading() as side:
        broker.partitions[0].epoch = 2
        await trio.sleep(3)
        assert side.states == {0: "owned", 1: "owned"}
        assert broker.fetched(0).count(0) == 2
        assert side.offset(GROUPS[0]) == 5


async def test_an_older_epoch_is_ignored(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading() as side:
        partition = broker.partitions[0]
        partition.epoch, partition.led = 0, True
        await trio.sleep(10)
        assert 0 not in side.states  # The broker does not take our epoch, and we do not take the broker's.
        partition.epoch = 2
        await trio.sleep(3)
        assert side.states == {0: "owned", 1: "owned"}


async def test_a_connection_that_is_lost_and_comes_back(
    broker: LogBroker, network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any]
) -> None:
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading() as side:
        del network.brokers[BROKER]
        await broker.drop()
        await trio.sleep(0.01)
        assert side.states == {0: "loading", 1: "loading"}
        assert not side.fresh(GROUPS[0])
        assert side.tail.standing()["read"] is False
        await trio.sleep(60)
        broker.partitions[0].commit(GROUPS[0], 6)
        broker.asked.clear()
        network.brokers[BROKER] = broker
        await trio.sleep(15)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.fresh(GROUPS[0])
        assert side.offset(GROUPS[0]) == 6
        assert set(broker.fetched(0)) == {1, 2}  # The epoch is the same: it went on where it was.
    assert warnings(lines) == ["__consumer_offsets is not read"]
    assert len(told(lines, "reading")) == 2


async def test_without_epochs_all_is_loaded_anew_after_a_break(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any]
) -> None:
    broker = network.brokers[BROKER] = LogBroker(2, OLD_VERSIONS)
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading() as side:
        assert side.offset(GROUPS[0]) == 5
        broker.asked.clear()
        await broker.drop()
        await trio.sleep(3)
        assert side.states == {0: "owned", 1: "owned"}
        assert broker.fetched(0)[0] == 0


async def test_a_log_that_was_cut_off_is_loaded_anew(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    for offset in (5, 6):
        broker.partitions[0].commit(GROUPS[0], offset)
    async with reading() as side:
        broker.partitions[0].batches.pop()
        broker.partitions[0].high_watermark = 1
        await trio.sleep(1)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.offset(GROUPS[0]) == 5
    assert told(lines, "a partition was cut off: it is loaded anew")


async def test_another_count_of_partitions_forgets_all(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    broker.partitions[0].commit("a", 5)
    async with reading() as side:
        broker.partitions = LogBroker(3).partitions
        await trio.sleep(3)
        assert side.copy.manager.log.partitions.count == 3
        assert side.states == {0: "owned", 1: "owned", 2: "owned"}
        assert side.offset("a") is None


@pytest.mark.parametrize("versions", [None, OLD_VERSIONS])
async def test_a_batch_larger_than_the_buffer_is_read_and_told_once(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], versions: dict[type, tuple[int, int]] | None
) -> None:
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


async def test_a_partition_that_fails_leaves_the_others_alone(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    broker.partitions[1].commit(GROUPS[1], 6)
    damaged = bytearray(batch(0, [(b"key", b"value")]))
    damaged[-1] ^= 1
    broker.partitions[0].append(bytes(damaged))
    async with reading() as side:
        assert side.states == {0: "failed", 1: "owned"}
        assert side.offset(GROUPS[1]) == 6
        standing: Any = side.tail.standing()
        assert standing["failed"] == {"count": 1, "partitions": [0]}
        assert "crc" in standing["reasons"]["0"].lower()
        await trio.sleep(100)
        assert side.fresh(GROUPS[1])
        assert broker.fetched(0) == [0] * 5  # At once, and after 5, 15, 35 and 75 seconds.
        broker.partitions[0].batches[0] = 0, 1, batch(0, [(b"\0\x7fkey", b"value")])
        await trio.sleep(100)
        assert side.states == {0: "owned", 1: "owned"}
        assert side.tail.numbers.skipped == {"other": 1}
    assert warnings(lines) == ["failed to load offsets and group metadata from __consumer_offsets-0"]


async def test_an_error_of_one_partition_leaves_the_others_alone(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
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


async def test_a_fault_of_our_own_fails_one_partition(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.partitions[0].commit(GROUPS[0], 5)
    monkeypatch.setattr(log_reader, "first_batch_size", lambda data: 1 // 0)
    async with reading() as side:
        assert side.states == {0: "failed", 1: "owned"}
    assert lines[0]["event"] == "a partition of the log cannot be followed" or warnings(lines)[0].startswith("a part")


@pytest.mark.parametrize("where", ["describe", "read"])
async def test_what_may_not_be_read_is_told_once_and_tried_again(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], where: str
) -> None:
    if where == "describe":
        broker.topic_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.granted = where != "read"
    async with reading() as side:
        assert side.states == {}
        assert side.copy.manager.log.partitions.count is None
        await trio.sleep(600)
        assert len(broker.requests(MetadataRequest)) == 11
        assert warnings(lines) == ["the sidecar may not read __consumer_offsets: it works from the wire and by asking"]
        assert told(lines, "reading") == []
        denials = [side.tail.denied]
        broker.topic_error, broker.granted = 0, True
        await trio.sleep(61)
        denials.append(side.tail.denied)
        assert denials == [True, False]
        assert side.states == {0: "owned", 1: "owned"}
        broker.granted = False  # It may be taken away as well.
        await trio.sleep(1)
        assert side.states == {}
    assert len(warnings(lines)) == 2


async def test_refused_credentials_are_no_matter_of_rights(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise AuthenticationFailed("wrong password")

    monkeypatch.setattr(BrokerCopy, "connect", refused)
    async with reading():
        [line] = lines
    assert (line["hint"], line["reason"]) == ("mend own_connection.sasl", "wrong password")


async def test_expired_offsets_are_told(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    broker.partitions[0].commit(GROUPS[0], 5)
    async with reading() as side:
        broker.partitions[0].expire(GROUPS[0])
        await trio.sleep(1)
        assert side.offset(GROUPS[0]) is None
        assert side.tail.numbers.expired == 1
    assert told(lines, "Removed") == ["Removed 1 expired offsets in 0 milliseconds."]


async def test_what_was_compacted_away_at_the_end_does_not_keep_a_load_waiting(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    broker.partitions[0].commit(GROUPS[0], 5)
    broker.partitions[0].high_watermark = 7
    async with reading() as side:
        assert side.states == {0: "owned", 1: "owned"}
        assert broker.fetched(0)[:2] == [0, 1]


async def test_a_log_that_begins_later_is_read_from_there(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    for offset in (5, 6):
        broker.partitions[0].commit(GROUPS[0], offset)
    broker.partitions[0].start = 1
    async with reading() as side:
        assert side.offset(GROUPS[0]) == 6
        assert broker.fetched(0)[0] == 1


async def test_a_busy_partition_does_not_starve_the_others(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    async with reading(offsets_log={"load_buffer_size": 65_536}) as side:
        for _ in range(20):
            broker.partitions[0].commit(GROUPS[0], 5, "x" * 30_000, times=2)
        broker.partitions[1].commit(GROUPS[1], 6, "x" * 10_000)  # What the other one leaves is too little for it.
        broker.asked.clear()
        await trio.sleep(2)
        assert (side.offset(GROUPS[0]), side.offset(GROUPS[1])) == (5, 6)
        assert broker.fetched(1).index(1) <= 3  # Its turn came while the other one's batches were still coming.
        assert side.tail.numbers.lag == 0


async def test_what_is_loaded_is_tailed_at_once(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    for _ in range(10):
        broker.partitions[1].commit(GROUPS[1], 5, "x" * 30_000, times=2)  # Longer to load than the other one.
    async with reading(since=0.1, offsets_log={"load_buffer_size": 65_536}) as side:
        assert side.states == {0: "owned", 1: "owned"}
        broker.partitions[1].commit(GROUPS[1], 6)
        await trio.sleep(0.05)
        assert side.offset(GROUPS[1]) == 6


async def test_what_was_replayed_is_merged_though_the_reading_ends(
    network: MemoryNetwork, autojump_clock: MockClock, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = network.brokers[BROKER] = LogBroker(1)
    for group in "abc":
        broker.partitions[0].commit(group, 5)

    async def end(*_: Any) -> None:
        scope.cancel()
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(following, "GROUPS_AT_ONCE", 1)
    monkeypatch.setattr(log_reader.LogReader, "_breathe", end)
    side = Side(broker_copy())
    with trio.CancelScope() as scope:
        await side.tail.run()
    assert [side.offset(group) for group in "abc"] == [5, 5, 5]


async def test_numbers(broker: LogBroker, autojump_clock: MockClock, lines: list[Any]) -> None:
    for offset in range(3):
        broker.partitions[0].commit(GROUPS[0], offset)
    async with reading() as side:
        numbers = side.tail.numbers
        assert (numbers.records, numbers.states, sum(numbers.loads.counts)) == (3, {"owned": 2}, 2)
        assert side.tail.standing() == {
            "read": True,
            "partitions": 2,
            "loading": {"count": 0, "partitions": []},
            "owned": {"count": 2, "partitions": [0, 1]},
            "failed": {"count": 0, "partitions": []},
        }


async def test_a_broker_that_hangs_up_at_the_first_question_is_told_of_once(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    broker.answers[MetadataRequest] = HangUp()
    async with reading():
        await trio.sleep(100)
    assert warnings(lines) == ["__consumer_offsets is not read"]
    assert lines[0]["setting"] == "own_connection.sasl"


async def test_what_was_found_to_be_wrong_is_read_again(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any]
) -> None:
    broker.partitions[0].commit(GROUPS[0], 5)
    broker.partitions[1].commit(GROUPS[1], 6)
    async with reading() as side:
        logged = side.copy.manager.log.partitions.led[0].log.groups[GROUPS[0].encode()]
        logged.offsets.clear()
        assert side.offset(GROUPS[0]) is None
        side.tail.read_again(GROUPS[0])
        await trio.sleep(2)
        assert [side.offset(GROUPS[n]) for n in (0, 1)] == [5, 6]
        assert side.fresh(GROUPS[0])
        assert side.states == {0: "owned", 1: "owned"}
        assert told(lines, "a partition is loaded anew") == ["a partition is loaded anew"]
        side.tail.read_again(GROUPS[0])
        side.tail.read_again(GROUPS[0])
        await trio.sleep(2)
        assert side.fresh(GROUPS[0]), "it may be asked for twice"
    assert warnings(lines) == []


async def test_without_the_log_what_was_found_to_be_wrong_is_left_to_the_broker() -> None:
    side = Side(certain_copy())
    now = EPOCH + 100
    settled(side.copy, "m1")
    side.tail.read_again("g")
    assert side.copy.manager.group_lacking("g", now) is not None
    assert in_doubt(side.copy.manager) == ["g"]


async def test_a_log_that_does_not_fit_is_not_read_to_its_end(
    broker: LogBroker, autojump_clock: MockClock, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, all of it was taken into memory first."""
    monkeypatch.setattr(following, "TABLE_BYTES", 100_000)
    groups = [name for name in map("group{}".format, range(300)) if partition_for(name, 2) == 0][:100]
    for group in groups:
        broker.partitions[0].commit(group, 5, "m" * 3000)
    broker.partitions[1].commit(GROUPS[1], 6)
    settings = {"limits": {"offsets": 200}, "offsets_log": {"load_buffer_size": 65_536}}
    async with reading(since=0.5, **settings) as side:
        assert side.states == {0: "failed", 1: "owned"}
        assert 0 < max(broker.fetched(0)) < len(groups) / 2
        assert side.offset(GROUPS[1]) == 6
        assert side.copy.manager.overflowed > 0
        assert [line["reason"] for line in lines if "reason" in line] == [
            "more bytes of metadata than limits.offsets allows"
        ]
