"""Tests how records get to a topic, over connections that break and brokers that are not ready."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from group_sidecar.codecs.messages.init_producer_id import InitProducerIdRequest
from group_sidecar.codecs.messages.produce import ProduceRequest
from group_sidecar.proxy.broker.kafka_client import DEFAULT_TIMEOUT, connect
from group_sidecar.proxy.config.sections import Journal
from group_sidecar.proxy.journal import topic_writer
from group_sidecar.proxy.journal.topic_writer import CLOSE_SECONDS, PERMANENT_FAILURE_SECONDS, TopicWriter
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.journal.topic_broker import NOBODY, THIS, TOPIC, Fault, TopicBroker
from tests.proxy.journal.topic_model import record
from tests.proxy.scripted_broker import MemoryNetwork

BROKER = Address("broker", 9092)


@pytest.fixture
def network(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    network = MemoryNetwork(nursery)
    monkeypatch.setattr(trio, "open_tcp_stream", network.open_tcp_stream)
    return network


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the work of threads at once: a test's clock would jump while it waits for a thread."""

    async def run_sync(work: Callable[..., Any], *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return work(*args)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)


async def until(condition: Callable[[], bool]) -> None:
    """Waits until a condition is true, while the test's clock advances."""
    with trio.fail_after(10_000):
        while not condition():  # noqa: ASYNC110 - the sleep also advances the test's clock
            await trio.sleep(0.5)


class Stage:
    """A topic writer and its broker."""

    def __init__(self, network: MemoryNetwork, broker: TopicBroker | None, **settings: Any) -> None:
        self.network = network
        self.broker = broker or TopicBroker()
        network.brokers[BROKER] = self.broker
        queue = settings.pop("queue_records", 1000)
        journal = Journal(**{"topic": TOPIC, "topic_linger_seconds": 0, **settings})
        self.outlet = TopicWriter("here", TOPIC, journal, lambda: connect(*BROKER), queue)
        self.appended = 0

    def tell(self, number: int = 1, size: int = 1) -> None:
        for _ in range(number):
            self.appended += 1
            self.outlet.append(record(self.appended, "t" * size))

    async def all_written(self) -> None:
        await until(lambda: self.outlet.records_written == self.appended)
        assert self.broker.topic.seqs == list(range(1, self.appended + 1))

    async def find_home(self) -> int:
        """Writes the first record, and returns its partition."""
        self.tell()
        await self.all_written()
        [home] = [number for number, partition in enumerate(self.broker.topic.partitions) if partition.seqs]
        return home


@asynccontextmanager
async def staged(network: MemoryNetwork, broker: TopicBroker | None = None, **settings: Any) -> AsyncIterator[Stage]:
    """Yields a running topic writer, and closes it at the end."""
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
async def test_records_are_written_in_all_versions(
    network: MemoryNetwork, autojump_clock: MockClock, version: int
) -> None:
    """Records are written in each supported version of Produce."""
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
    """Produce uses version 12 at most, because later versions name topics by id."""
    async with staged(network, TopicBroker(versions={ProduceRequest: (0, 13)})) as stage:
        stage.tell()
        await stage.all_written()
    assert {version for request, version in stage.broker.asked if isinstance(request, ProduceRequest)} == {12}


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_compression(network: MemoryNetwork, autojump_clock: MockClock, compression: str) -> None:
    """Batches are compressed as configured."""
    async with staged(network, topic_compression=compression) as stage:
        stage.tell(2)
        await stage.all_written()
    [request, *_] = stage.broker.requests(ProduceRequest)
    assert request.topic_data[0].partition_data[0].records[22] & 7 == (compression == "gzip")


async def test_records_linger_into_one_batch(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Records wait for the linger time and are then written in one batch."""
    async with staged(network, topic_linger_seconds=60) as stage:
        stage.tell()
        await trio.sleep(50)
        stage.tell()
        assert not stage.broker.requests(ProduceRequest)
        await trio.sleep(11)
        await stage.all_written()
    assert len(stage.broker.requests(ProduceRequest)) == 1


async def test_full_batch_ends_linger(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full batch is written before the linger time ends."""
    monkeypatch.setattr(topic_writer, "MAX_BATCH_RECORDS", 5)
    async with staged(network, topic_linger_seconds=1e6) as stage:
        stage.tell(5)
        await stage.all_written()
        assert trio.current_time() < 1e6


@pytest.mark.parametrize("fault", [*Fault, 6, 7, 19, 20, 56, -1])
async def test_lost_batch_is_retried_without_duplicate(
    network: MemoryNetwork, autojump_clock: MockClock, fault: Fault | int, shown: Shown
) -> None:
    """A lost or postponed batch is sent again and is in the topic once. The log has one warning."""
    async with staged(network) as stage:
        stage.tell()
        await stage.all_written()
        stage.broker.faults += [fault, fault]
        stage.tell(2)
        await stage.all_written()
    assert stage.broker.topic.ids == 1
    assert stage.outlet.failures == 2
    lines = shown()
    assert lines.count("records do not get to the topic") == 1
    assert lines.count("records are written to a topic") == 2


@pytest.mark.parametrize("code", [45, 47, 59])
async def test_unknown_producer_takes_new_id(network: MemoryNetwork, autojump_clock: MockClock, code: int) -> None:
    """A broker error about an unknown producer makes the writer take a new producer id."""
    async with staged(network) as stage:
        stage.tell()
        await stage.all_written()
        stage.broker.faults.append(code)
        stage.tell()
        await stage.all_written()
    assert stage.broker.topic.ids == 2


async def test_possible_duplicates_are_logged(network: MemoryNetwork, autojump_clock: MockClock, shown: Shown) -> None:
    """A batch that may be in the topic twice is logged."""
    async with staged(network) as stage:
        stage.broker.faults += [Fault.LOSE_REPLY, 59]
        stage.tell(3)
        await until(lambda: stage.outlet.records_written == 3)
    assert stage.broker.topic.seqs == [1, 2, 3, 1, 2, 3]
    assert "records may be in the topic twice" in shown()


async def test_writer_leaves_moved_partition(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """The writer continues in another partition if its partition moves to another broker."""
    async with staged(network, TopicBroker(2)) as stage:
        stage.broker.topic.leader_partitions = {0}
        stage.tell()
        await stage.all_written()
        stage.broker.topic.leader_partitions = {1}
        stage.tell(2)
        await until(lambda: stage.outlet.records_written == 3)
    assert [partition.seqs for partition in stage.broker.topic.partitions] == [[1], [2, 3]]


@pytest.mark.parametrize("reported_leaders", [[THIS, THIS], [NOBODY, NOBODY]])
@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST])
async def test_restarted_leader_is_awaited(
    network: MemoryNetwork, autojump_clock: MockClock, reported_leaders: list[int], fault: Fault, shown: Shown
) -> None:
    """The writer waits for its partition while a restarted broker does not yet lead it."""
    async with staged(network, TopicBroker(2)) as stage:
        home = await stage.find_home()
        stage.broker.topic.leader_partitions, stage.broker.reported_leaders = {1 - home}, reported_leaders
        stage.broker.faults.append(fault)
        stage.tell(2)
        await until(lambda: stage.outlet.failures >= 4)
        assert f"the broker has yet to take up partition {home}" in shown()
        stage.broker.topic.leader_partitions = {0, 1}
        await until(lambda: stage.outlet.records_written == 3)
    assert stage.broker.topic.partitions[home].seqs == [1, 2, 3]
    assert stage.broker.topic.ids == 1


async def test_leaderless_partition_is_abandoned(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """The writer continues in another partition if metadata names no leader of its partition."""
    async with staged(network, TopicBroker(2)) as stage:
        home = await stage.find_home()
        stage.broker.topic.leader_partitions = {1 - home}
        stage.broker.reported_leaders = [NOBODY if number == home else THIS for number in range(2)]
        stage.tell(2)
        await until(lambda: stage.outlet.records_written == 3)
    assert stage.broker.topic.partitions[1 - home].seqs == [2, 3]


async def test_first_write_ignores_metadata_leader(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """The first write takes a partition although metadata names no leader for it."""
    async with staged(network) as stage:
        stage.broker.reported_leaders = [NOBODY]
        stage.tell()
        await stage.all_written()
    assert stage.outlet.failures == 0


@pytest.mark.parametrize("exists", [True, False])
async def test_writer_waits_without_led_partition(
    network: MemoryNetwork, autojump_clock: MockClock, exists: bool, shown: Shown
) -> None:
    """Records wait while the broker leads no partition or the topic is missing. The log has one warning."""
    broker = TopicBroker()
    broker.topic.leader_partitions, broker.exists = set(), exists
    async with staged(network, broker) as stage:
        stage.tell(2)
        await until(lambda: stage.outlet.failures >= 3)
        assert not broker.requests(ProduceRequest)
        lines = shown()
        broker.topic.leader_partitions, broker.exists = {0}, True
        await stage.all_written()
    assert lines.count("records do not get to the topic") == 1
    assert ("the broker leads none of the topic's 1 partitions" if exists else "there is no such topic") in lines


async def test_old_broker_is_retried_slowly(network: MemoryNetwork, autojump_clock: MockClock, shown: Shown) -> None:
    """A broker before Kafka 0.11 gets no records. It is retried slowly and logged once."""
    broker = TopicBroker(versions={ProduceRequest: (0, 2)})
    del broker.answers[InitProducerIdRequest]
    async with staged(network, broker, queue_records=2) as stage:
        stage.tell(5)
        await until(lambda: stage.outlet.failures >= 3)
        assert trio.current_time() >= 2 * PERMANENT_FAILURE_SECONDS
        assert stage.outlet.records_dropped["queue_full"] == 3
    lines = shown()
    assert lines.count("records do not get to the topic") == 1
    assert "Kafka 0.11" in lines


@pytest.mark.parametrize("api", ["InitProducerId", "Produce"])
async def test_missing_right_is_retried(
    network: MemoryNetwork, autojump_clock: MockClock, api: str, shown: Shown
) -> None:
    """A missing right is logged once and retried until the records are written."""
    broker = TopicBroker()
    if api == "Produce":
        broker.faults += [29, 29]
    else:
        broker.denied = 31
    async with staged(network, broker) as stage:
        stage.tell()
        await until(lambda: stage.outlet.failures == 2)
        assert trio.current_time() >= PERMANENT_FAILURE_SECONDS
        lines = shown()
        broker.denied = 0
        await stage.all_written()
    assert lines.count("grant WRITE and DESCRIBE") == 1


async def test_rejected_records_are_dropped(network: MemoryNetwork, autojump_clock: MockClock, shown: Shown) -> None:
    """Rejected and oversized records are dropped, counted and logged, and the others are written."""
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
    lines = shown()
    assert "MESSAGE_TOO_LARGE (10)" in lines
    assert "INVALID_TIMESTAMP (32)" in lines


async def test_absent_broker_is_retried(network: MemoryNetwork, autojump_clock: MockClock, shown: Shown) -> None:
    """The writer retries an absent broker without a warning of its own."""
    async with staged(network) as stage:
        broker = network.brokers.pop(BROKER)
        stage.tell(2)
        await until(lambda: len(network.attempts) >= 3)
        assert "warning" not in shown()  # The prober logs that it is unreachable.
        network.brokers[BROKER] = broker
        await stage.all_written()


async def test_throttled_writer_waits(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """The writer waits for the throttle time before it sends again."""
    async with staged(network) as stage:
        stage.broker.throttled = 30_000
        stage.tell()
        await stage.all_written()
        stage.broker.throttled = 0
        stage.tell()
        await stage.all_written()
        assert trio.current_time() >= 30


async def test_close_writes_queued_records(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Queued records are written when the writer is closed."""
    async with staged(network, topic_linger_seconds=1e6) as stage:
        stage.tell(2)
    assert stage.broker.topic.seqs == [1, 2]


async def test_close_waits_briefly_for_broker(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A closed writer ends within CLOSE_SECONDS if the broker does not respond."""
    async with staged(network) as stage:
        network.brokers[BROKER] = None
        stage.tell()
        await until(lambda: bool(network.attempts))
        closed_at = trio.current_time()
    assert trio.current_time() <= closed_at + CLOSE_SECONDS
    assert CLOSE_SECONDS < DEFAULT_TIMEOUT


async def test_cancellation_alone_does_not_end_writer(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A cancelled writer still writes its records until it is closed."""
    stage = Stage(network, None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.outlet.run, lambda: 1.0)
        nursery.cancel_scope.cancel()
        stage.tell()
        stage.outlet.close()
    assert stage.broker.topic.seqs == [1]


async def test_wait_for_room_ends_on_failure(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """wait_for_room waits while the broker accepts records and returns when the broker accepts none."""
    async with staged(network, queue_records=10) as stage:
        stage.tell(6)
        await stage.outlet.wait_for_room()
        assert stage.outlet.records_written == 6
        network.brokers[BROKER] = None
        stage.broker.faults.append(Fault.LOSE_REQUEST)
        stage.tell(6)
        await stage.outlet.wait_for_room()  # The call returns, although the broker accepts nothing.
        assert stage.outlet.failures == 1
        network.brokers[BROKER] = stage.broker
        await stage.all_written()
