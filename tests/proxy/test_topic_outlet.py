"""How records get to a topic, over connections that break and brokers that are not ready for them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from group_sidecar.codecs.messages.init_producer_id import InitProducerIdRequest
from group_sidecar.codecs.messages.produce import ProduceRequest
from group_sidecar.proxy import topic_outlet
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.client import DEFAULT_TIMEOUT, connect
from group_sidecar.proxy.sections import Journal
from group_sidecar.proxy.topic_outlet import CLOSE_SECONDS, HOPELESS_SECONDS, TopicOutlet
from tests.proxy.scripted_broker import MemoryNetwork
from tests.proxy.topic_broker import NOBODY, THIS, TOPIC, Fault, TopicBroker
from tests.proxy.topic_model import record

BROKER = Address("broker", 9092)


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    network = MemoryNetwork(nursery)
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done in a thread is done at once: a test's clock would jump while it waits for one."""

    async def run_sync(work: Callable[..., Any], *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return work(*args)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)


async def until(condition: Callable[[], bool]) -> None:
    """Returns when a condition holds; time passes meanwhile."""
    with trio.fail_after(10_000):
        while not condition():  # noqa: ASYNC110 - it is also what lets the test's clock go on
            await trio.sleep(0.5)


class Stage:
    """An outlet before a broker."""

    def __init__(self, network: MemoryNetwork, broker: TopicBroker | None, **settings: Any) -> None:
        self.network = network
        self.broker = broker or TopicBroker()
        network.brokers[BROKER] = self.broker
        queue = settings.pop("queue_records", 1000)
        journal = Journal(**{"topic": TOPIC, "topic_linger_seconds": 0, **settings})
        self.outlet = TopicOutlet("here", TOPIC, journal, lambda: connect(*BROKER), queue)
        self.told = 0

    def tell(self, number: int = 1, size: int = 1) -> None:
        for _ in range(number):
            self.told += 1
            self.outlet.append(record(self.told, "t" * size))

    async def all_written(self) -> None:
        await until(lambda: self.outlet.records_written == self.told)
        assert self.broker.topic.seqs == list(range(1, self.told + 1))

    async def find_home(self) -> int:
        """Writes the first record, and tells to which partition that went."""
        self.tell()
        await self.all_written()
        [home] = [number for number, partition in enumerate(self.broker.topic.partitions) if partition.seqs]
        return home


@asynccontextmanager
async def staged(network: MemoryNetwork, broker: TopicBroker | None = None, **settings: Any) -> AsyncIterator[Stage]:
    """A running outlet, closed at the end."""
    stage = Stage(network, broker, **settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.outlet.run, lambda: 1_000_000.0)
        try:
            yield stage
        finally:
            stage.outlet.close()


Shown = Callable[[], str]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    return lambda: capsys.readouterr().out


@pytest.mark.parametrize("version", range(3, 13))
async def test_records_are_written_in_every_version(
    network: MemoryNetwork, autojump_clock: MockClock, version: int
) -> None:
    broker = TopicBroker(versions={ProduceRequest: (version, version)})
    async with staged(network, broker) as stage:
        stage.tell(3)
        await stage.all_written()
        stage.tell(2)
        await stage.all_written()
    assert broker.topic.ids == 1
    assert stage.outlet.last_flush == 1_000_000.0
    assert stage.outlet.failures == 0


async def test_topic_ids_are_not_used(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with staged(network, TopicBroker(versions={ProduceRequest: (0, 13)})) as stage:
        stage.tell()
        await stage.all_written()
    assert {version for request, version in stage.broker.asked if isinstance(request, ProduceRequest)} == {12}


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_compression(network: MemoryNetwork, autojump_clock: MockClock, compression: str) -> None:
    async with staged(network, topic_compression=compression) as stage:
        stage.tell(2)
        await stage.all_written()
    [request, *_] = stage.broker.requests(ProduceRequest)
    assert request.topic_data[0].partition_data[0].records[22] & 7 == (compression == "gzip")


async def test_records_wait_for_each_other(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with staged(network, topic_linger_seconds=60) as stage:
        stage.tell()
        await trio.sleep(50)
        stage.tell()
        assert not stage.broker.requests(ProduceRequest)
        await trio.sleep(11)
        await stage.all_written()
    assert len(stage.broker.requests(ProduceRequest)) == 1


async def test_but_not_when_there_are_enough_of_them(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_outlet, "PACKED_AT_ONCE", 5)
    async with staged(network, topic_linger_seconds=1e6) as stage:
        stage.tell(5)
        await stage.all_written()
        assert trio.current_time() < 1e6


@pytest.mark.parametrize("fault", [*Fault, 6, 7, 19, 20, 56, -1])
async def test_what_is_lost_or_put_off_is_sent_again_and_is_there_once(
    network: MemoryNetwork, autojump_clock: MockClock, fault: Fault | int, shown: Shown
) -> None:
    async with staged(network) as stage:
        stage.tell()
        await stage.all_written()
        stage.broker.faults += [fault, fault]
        stage.tell(2)
        await stage.all_written()
    assert stage.broker.topic.ids == 1
    assert stage.outlet.failures == 2
    said = shown()
    assert said.count("records do not get to the topic") == 1
    assert said.count("records are written to a topic") == 2


@pytest.mark.parametrize("code", [45, 47, 59])
async def test_a_producer_that_is_not_known_any_more_takes_a_new_id(
    network: MemoryNetwork, autojump_clock: MockClock, code: int
) -> None:
    async with staged(network) as stage:
        stage.tell()
        await stage.all_written()
        stage.broker.faults.append(code)
        stage.tell()
        await stage.all_written()
    assert stage.broker.topic.ids == 2


async def test_what_may_be_there_twice_is_said(network: MemoryNetwork, autojump_clock: MockClock, shown: Shown) -> None:
    async with staged(network) as stage:
        stage.broker.faults += [Fault.LOSE_ANSWER, 59]
        stage.tell(3)
        await until(lambda: stage.outlet.records_written == 3)
    assert stage.broker.topic.seqs == [1, 2, 3, 1, 2, 3]
    assert "records may be in the topic twice" in shown()


async def test_a_partition_that_moves_away_is_left_for_another(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with staged(network, TopicBroker(2)) as stage:
        stage.broker.topic.led = {0}
        stage.tell()
        await stage.all_written()
        stage.broker.topic.led = {1}
        stage.tell(2)
        await until(lambda: stage.outlet.records_written == 3)
    assert [partition.seqs for partition in stage.broker.topic.partitions] == [[1], [2, 3]]


@pytest.mark.parametrize("said", [[THIS, THIS], [NOBODY, NOBODY]])
@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.LOSE_QUESTION])
async def test_a_partition_that_a_restarted_broker_has_yet_to_take_up_is_waited_for(
    network: MemoryNetwork, autojump_clock: MockClock, said: list[int], fault: Fault, shown: Shown
) -> None:
    async with staged(network, TopicBroker(2)) as stage:
        home = await stage.find_home()
        stage.broker.topic.led, stage.broker.said = {1 - home}, said
        stage.broker.faults.append(fault)
        stage.tell(2)
        await until(lambda: stage.outlet.failures >= 4)
        assert f"the broker has yet to take up partition {home}" in shown()
        stage.broker.topic.led = {0, 1}
        await until(lambda: stage.outlet.records_written == 3)
    assert stage.broker.topic.partitions[home].seqs == [1, 2, 3]
    assert stage.broker.topic.ids == 1


async def test_but_not_one_that_nobody_leads(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with staged(network, TopicBroker(2)) as stage:
        home = await stage.find_home()
        stage.broker.topic.led = {1 - home}
        stage.broker.said = [NOBODY if number == home else THIS for number in range(2)]
        stage.tell(2)
        await until(lambda: stage.outlet.records_written == 3)
    assert stage.broker.topic.partitions[1 - home].seqs == [2, 3]


async def test_the_first_partition_is_taken_whatever_metadata_says(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with staged(network) as stage:
        stage.broker.said = [NOBODY]
        stage.tell()
        await stage.all_written()
    assert stage.outlet.failures == 0


@pytest.mark.parametrize("exists", [True, False])
async def test_where_the_broker_leads_nothing_records_wait_and_it_is_said_once(
    network: MemoryNetwork, autojump_clock: MockClock, exists: bool, shown: Shown
) -> None:
    broker = TopicBroker()
    broker.topic.led, broker.exists = set(), exists
    async with staged(network, broker) as stage:
        stage.tell(2)
        await until(lambda: stage.outlet.failures >= 3)
        assert not broker.requests(ProduceRequest)
        said = shown()
        broker.topic.led, broker.exists = {0}, True
        await stage.all_written()
    assert said.count("records do not get to the topic") == 1
    assert ("it leads none of 1 partitions" if exists else "there is no such topic") in said


async def test_an_old_broker_gets_nothing_and_is_told_of_once(
    network: MemoryNetwork, autojump_clock: MockClock, shown: Shown
) -> None:
    broker = TopicBroker(versions={ProduceRequest: (0, 2)})
    del broker.answers[InitProducerIdRequest]
    async with staged(network, broker, queue_records=2) as stage:
        stage.tell(5)
        await until(lambda: stage.outlet.failures >= 3)
        assert trio.current_time() >= 2 * HOPELESS_SECONDS
        assert stage.outlet.records_dropped["queue_full"] == 3
    said = shown()
    assert said.count("records do not get to the topic") == 1
    assert "Kafka 0.11" in said


@pytest.mark.parametrize("api", ["InitProducerId", "Produce"])
async def test_a_right_that_is_lacking_is_said_and_tried_again(
    network: MemoryNetwork, autojump_clock: MockClock, api: str, shown: Shown
) -> None:
    broker = TopicBroker()
    if api == "Produce":
        broker.faults += [29, 29]
    else:
        broker.denied = 31
    async with staged(network, broker) as stage:
        stage.tell()
        await until(lambda: stage.outlet.failures == 2)
        assert trio.current_time() >= HOPELESS_SECONDS
        said = shown()
        broker.denied = 0
        await stage.all_written()
    assert said.count("grant WRITE and DESCRIBE") == 1


async def test_records_that_the_topic_does_not_take_are_dropped_and_the_others_written(
    network: MemoryNetwork, autojump_clock: MockClock, shown: Shown
) -> None:
    async with staged(network, topic_compression="none") as stage:
        stage.broker.topic.largest = 1_000
        stage.tell(3)
        stage.tell(1, size=900)
        stage.tell(3)
        await until(lambda: stage.outlet.records_written == 6)
        stage.broker.faults.append(32)
        stage.tell()
        await until(lambda: stage.outlet.records_dropped["refused"] == 1)
    assert stage.broker.topic.seqs == [1, 2, 3, 5, 6, 7]
    assert stage.outlet.records_dropped == {"queue_full": 0, "too_large": 1, "refused": 1}
    said = shown()
    assert "MESSAGE_TOO_LARGE (10)" in said
    assert "INVALID_TIMESTAMP (32)" in said


async def test_a_broker_that_is_not_there_is_tried_again(
    network: MemoryNetwork, autojump_clock: MockClock, shown: Shown
) -> None:
    async with staged(network) as stage:
        broker = network.brokers.pop(BROKER)
        stage.tell(2)
        await until(lambda: len(network.attempts) >= 3)
        assert "warning" not in shown()  # The prober says that it is not there.
        network.brokers[BROKER] = broker
        await stage.all_written()


async def test_a_throttled_producer_waits(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with staged(network) as stage:
        stage.broker.throttled = 30_000
        stage.tell()
        await stage.all_written()
        stage.broker.throttled = 0
        stage.tell()
        await stage.all_written()
        assert trio.current_time() >= 30


async def test_what_is_queued_at_the_end_is_written(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with staged(network, topic_linger_seconds=1e6) as stage:
        stage.tell(2)
    assert stage.broker.topic.seqs == [1, 2]


async def test_the_end_waits_for_no_broker_for_long(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with staged(network) as stage:
        network.brokers[BROKER] = None
        stage.tell()
        await until(lambda: bool(network.attempts))
        closed_at = trio.current_time()
    assert trio.current_time() <= closed_at + CLOSE_SECONDS
    assert CLOSE_SECONDS < DEFAULT_TIMEOUT


async def test_a_cancellation_alone_does_not_end_it(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    stage = Stage(network, None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.outlet.run, lambda: 1.0)
        nursery.cancel_scope.cancel()
        stage.tell()
        stage.outlet.close()
    assert stage.broker.topic.seqs == [1]


async def test_whoever_can_wait_does_so_while_records_are_taken(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with staged(network, queue_records=10) as stage:
        stage.tell(6)
        await stage.outlet.digest()
        assert stage.outlet.records_written == 6
        network.brokers[BROKER] = None
        stage.broker.faults.append(Fault.LOSE_QUESTION)
        stage.tell(6)
        await stage.outlet.digest()  # Else this would never end.
        assert stage.outlet.failures == 1
        network.brokers[BROKER] = stage.broker
        await stage.all_written()
