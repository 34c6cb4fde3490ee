"""The journal in a topic of a real broker has the same records as the folder, each once, despite failures."""

import json
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Message

from group_sidecar.metrics.records import timestamp
from group_sidecar.proxy.broker.kafka_client import connect
from group_sidecar.proxy.config.sections import Journal
from group_sidecar.proxy.journal.topic_writer import TopicWriter
from group_sidecar.proxy.runtime import backoff
from tests.conformance.librdkafka import consume, create_topic, leaders_of, messages_in, produce
from tests.conformance.reply_dropping_proxy import CuttingProxy
from tests.conformance.routes import Route, Run
from tests.kafka.broker import VERSION, KafkaBroker
from tests.kafka.processes import GIVE_UP_SECONDS, free_addresses, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.kafka.tools import kafka_tool
from tests.proxy.journal.topic_model import record

PRODUCE = 0
PARTITIONS = 3
DUMP = "org.apache.kafka.tools.DumpLogSegments"
_BATCH = re.compile(r"^baseOffset: .* count: (\d+) baseSequence: (\d+) .*producerId: (\d+) ", re.MULTILINE)


@dataclass(frozen=True)
class Stage:
    """A broker, a sidecar whose own connections may break, and the folder and the topic of its records."""

    broker: KafkaBroker
    cutting: CuttingProxy
    sidecar: SidecarProcess
    folder: Path
    run: Run
    topic: str

    def written(self, outlet: str = "topic") -> float:
        return self.sidecar.metric("group_sidecar_records_written_total", outlet=outlet)

    def wait_for_more(self) -> None:
        """Waits until at least five more records are in the topic."""
        before = self.written()
        self.sidecar.process.wait_until(lambda: self.written() >= before + 5)

    def in_topic(self) -> list[Message]:
        """Returns all messages of the topic, partition by partition."""
        return messages_in(self.run.bootstrap, self.topic)

    def in_folder(self) -> list[bytes]:
        """Returns all lines in the folder, including incomplete lines of killed processes."""
        segments = sorted(self.folder.iterdir(), key=lambda path: (path.stat().st_mtime_ns, path.name))
        return [line for path in segments for line in path.read_bytes().split(b"\n") if line]


def by_boot(lines: list[bytes]) -> dict[str, list[bytes]]:
    """Returns the lines by the boot of the sidecar that wrote them."""
    found: dict[str, list[bytes]] = {}
    for line in lines:
        found.setdefault(json.loads(line)["boot"], []).append(line)
    return found


def values(messages: list[Message]) -> list[bytes]:
    return [message.value() or b"" for message in messages]


def seqs(lines: list[bytes]) -> list[int]:
    return [json.loads(line)["seq"] for line in lines]


@contextmanager
def staged(folder: Path, version: str) -> Iterator[Stage]:
    [between] = free_addresses(1)
    with (
        KafkaBroker(folder / "broker", version=version) as broker,
        CuttingProxy(between, broker.client, PRODUCE) as cutting,
    ):
        around = Run(Route("direct", broker.direct, broker.direct), f"t{secrets.token_hex(5)}")
        topic = create_topic(around, "records", PARTITIONS)
        journal: dict[str, Any] = {
            "folder": str(folder / "journal"),
            "topic": topic,
            "interval_seconds": 0.2,
            "topic_linger_seconds": 0.05,
        }
        settings = {"sidecar_id": "here", "own_connection": {"address": host_port(between)}, "journal": journal}
        with SidecarProcess(folder, listen=broker.sidecar, upstream=broker.client, settings=settings) as sidecar:
            yield Stage(broker, cutting, sidecar, folder / "journal", around, topic)


def consume_something(stage: Stage) -> None:
    """Runs consumers that commit through the sidecar."""
    through = Run(Route("sidecar", stage.broker.sidecar, stage.broker.sidecar), stage.run.prefix)
    create_topic(stage.run, "work", 4)
    produce(stage.run, "work", ["value"] * 8)
    for number in range(3):
        consume(through, f"workers{number}", ["work"], 8)


@pytest.mark.parametrize("version", [VERSION, pytest.param("1.1.1", marks=pytest.mark.long)])
def test_topic_has_each_record_once(tmp_path: Path, version: str) -> None:
    """The journal topic contains the same records as the folder, each once, after lost replies, a broker restart and a
    sidecar kill.
    """
    with staged(tmp_path, version) as stage:
        stage.wait_for_more()
        consume_something(stage)
        for _ in range(4):
            stage.cutting.lose(1)
            stage.wait_for_more()
        stage.broker.stop()
        stage.broker.start()
        stage.wait_for_more()
        written = stage.written()
        stage.sidecar.stop()

        messages, lines = stage.in_topic(), stage.in_folder()
        assert values(messages) == lines
        assert seqs(lines) == list(range(1, len(lines) + 1))
        assert len(lines) >= written
        assert stage.cutting.cuts == 4
        assert {message.key() for message in messages} == {b"here"}
        assert {message.partition() for message in messages} == {messages[0].partition()}
        for message in messages:
            emitted = datetime.fromisoformat(json.loads(message.value() or b"")["emitted_at"])
            assert message.timestamp()[1] == round(emitted.timestamp() * 1000)
        kinds = {json.loads(line)["kind"] for line in lines}
        assert kinds >= {"heartbeat", "group", "commit", "log_end", "rebalance", "member"}

        stage.sidecar.start()
        stage.wait_for_more()
        stage.sidecar.process.running.kill()
        stage.sidecar.process.running.wait()
        stage.sidecar.start()
        stage.wait_for_more()
        stage.sidecar.stop()

        in_topic, kept = by_boot(values(stage.in_topic())), by_boot(stage.in_folder())
        assert list(in_topic) == list(kept)
        first, killed, last = in_topic
        assert in_topic[first] == lines
        assert in_topic[last] == kept[last]
        for found in (in_topic[killed], kept[killed]):
            assert seqs(found) == list(range(1, len(found) + 1))
        assert_each_producer_is_whole(stage.broker, producers=3)


def assert_each_producer_is_whole(broker: KafkaBroker, producers: int) -> None:
    """Asserts that each producer's sequence numbers in Kafka's own log have no gap and no repetition."""
    logs = sorted((broker.folder / "data").glob("t*-records-*/*.log"))
    assert len(logs) == PARTITIONS
    dump = kafka_tool(DUMP, "--files", ",".join(map(str, logs)))
    expected: dict[str, int] = {}
    for count, sequence, producer in _BATCH.findall(dump):
        assert int(sequence) == expected.get(producer, 0), dump
        expected[producer] = int(sequence) + int(count)
    assert len(expected) == producers


async def test_records_stay_in_partition_over_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records stay in one partition while a restarted broker takes over its partitions one after another, each within
    about 10 ms.
    """
    monkeypatch.setattr(backoff, "LONGEST_PAUSE", 0.001)
    with KafkaBroker(tmp_path, version="1.1.1") as broker:
        around = Run(Route("direct", broker.direct, broker.direct), f"t{secrets.token_hex(5)}")
        topic = create_topic(around, "records", 30)
        settings = Journal(topic=topic, topic_linger_seconds=0)
        outlet = TopicWriter("here", topic, settings, lambda: connect(*broker.client))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outlet.run, time.time)
            await _write(outlet, 1)
            for number in (2, 3):
                await trio.to_thread.run_sync(broker.stop)
                await trio.to_thread.run_sync(broker.start)
                await _write(outlet, number)
            outlet.close()
        found = await trio.to_thread.run_sync(lambda: messages_in(around.bootstrap, topic))
    assert [json.loads(value)["seq"] for value in values(found)] == [1, 2, 3]
    assert len({message.partition() for message in found}) == 1


async def _write(outlet: TopicWriter, number: int) -> None:
    outlet.append(record(number, moment=timestamp(time.time())))
    with trio.fail_after(GIVE_UP_SECONDS):
        while outlet.records_written < number:  # noqa: ASYNC110 - there is no event for a broker's answer
            await trio.sleep(0.01)


def test_records_go_to_own_brokers_partitions(tmp_path: Path) -> None:
    """With two brokers, each sidecar's records go to one partition that its own broker leads."""
    with KafkaBroker(tmp_path / "one") as one, KafkaBroker(tmp_path / "two", joins=one) as two:
        around = Run(Route("direct", one.direct, one.direct), f"t{secrets.token_hex(5)}")
        topic = create_topic(around, "records", 8)
        leaders = leaders_of(around.bootstrap, topic)
        settings = {"journal": {"topic": topic, "interval_seconds": 0.2}}
        for node, broker in ((1, one), (2, two)):
            own = {**settings, "sidecar_id": f"sidecar-{node}"}
            with SidecarProcess(
                tmp_path / str(node), listen=broker.sidecar, upstream=broker.client, settings=own
            ) as sidecar:
                sidecar.process.wait_until(lambda: sidecar.metric("group_sidecar_records_written_total") >= 3)
        found = messages_in(around.bootstrap, topic)
        assert {message.key(): leaders[message.partition() or 0] for message in found} == {
            b"sidecar-1": 1,
            b"sidecar-2": 2,
        }
        assert len({message.partition() for message in found}) == 2
