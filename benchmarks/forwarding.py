"""The cost of the data path, and of refusing, beside the direct connection to the same broker.

    python -m benchmarks.forwarding [--rounds N]

Starts a real broker and a sidecar with metrics, policy and inspection on, and measures both ways in
turn, round by round. Prints a table of medians and of the ratio to direct within each round. The
sidecar's CPU is what the kernel charged its process.
"""

import argparse
import os
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.groups import consumers, joining
from group_sidecar.codecs.headers import RequestHeader, encode_request
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, spelled
from tests.kafka.sidecar import SidecarProcess

HEARTBEATS = 8_000
RECORDS = 100_000
RECORD = b"x" * 1024
TOPIC = "bench"
FULL = "full"
"""A group with one member, which is all that it may have."""
TICKS = os.sysconf("SC_CLK_TCK")


def heartbeats(address: Address, connections: int) -> float:
    """Heartbeats a second, each connection with one under way. The broker refuses them: their cost is the way."""
    heartbeat = HeartbeatRequest(group_id="nobody", generation_id=1, member_id="none")
    return _repeat(address, connections, encode_request(heartbeat, RequestHeader(heartbeat.KEY, 4, 1, "bench")))


def refusals(address: Address) -> float:
    """Joins of a full group that are refused, a second: the broker has the same limit as the sidecar."""
    return _repeat(address, 1, encode_request(joining(FULL), RequestHeader(JoinGroupRequest.KEY, 3, 1, "bench")))


def _repeat(address: Address, connections: int, frame: bytes) -> float:
    sockets = [socket.create_connection(address) for _ in range(connections)]
    try:
        for connection in sockets:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(frame)
        return _ping_pong(sockets, frame)
    finally:
        for connection in sockets:
            connection.close()


def _ping_pong(sockets: list[socket.socket], frame: bytes) -> float:
    with selectors.EpollSelector() as selector:
        for connection in sockets:
            selector.register(connection, selectors.EVENT_READ)
        done, began = 0, time.perf_counter()
        while done < HEARTBEATS:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.recv(4096)  # A reply of a few bytes comes whole.
                key.fileobj.send(frame)
                done += 1
        return done / (time.perf_counter() - began)


def produce(address: Address) -> float:
    """MB a second of 1 KiB records, acks=1, by librdkafka."""
    producer = Producer(
        {"bootstrap.servers": spelled(address), "acks": "1", "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    )
    producer.list_topics(TOPIC, timeout=10)
    began = time.perf_counter()
    for _ in range(RECORDS):
        producer.produce(TOPIC, RECORD, partition=0)
    if producer.flush(60):
        raise RuntimeError("records were not delivered")
    return RECORDS * len(RECORD) / 1e6 / (time.perf_counter() - began)


def consume(address: Address) -> float:
    """MB a second of the same records, by librdkafka."""
    consumer = Consumer({"bootstrap.servers": spelled(address), "group.id": "bench", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        first = consumer.consume(1, timeout=30)
        began, read = time.perf_counter(), len(first)
        while read < RECORDS:
            read += len(consumer.consume(10_000, timeout=30))
        return read * len(RECORD) / 1e6 / (time.perf_counter() - began)
    finally:
        consumer.close()


def connect(address: Address) -> float:
    """Connections opened, used for one request and closed, a second."""
    frame = encode_request(
        HeartbeatRequest(group_id="nobody", generation_id=1, member_id="none"), RequestHeader(12, 4, 1, "bench")
    )
    count, began = 300, time.perf_counter()
    for _ in range(count):
        with socket.create_connection(address) as connection:
            connection.sendall(frame)
            connection.recv(4096)
    return count / (time.perf_counter() - began)


@dataclass
class Measure:
    """A rate and how it is got; `units` is how many things of what `per` counts one run does."""

    name: str
    run: Callable[[Address], float]
    units: float
    per: str
    direct: list[float] = field(default_factory=list)
    through: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


MEASURES = (
    Measure("Heartbeat, 1 connection, per second", lambda at: heartbeats(at, 1), HEARTBEATS / 10_000, "10,000"),
    Measure("Heartbeat, 16 connections, per second", lambda at: heartbeats(at, 16), HEARTBEATS / 10_000, "10,000"),
    Measure("JoinGroup refused, per second", refusals, HEARTBEATS / 10_000, "10,000"),
    Measure("produce 1 KiB, acks=1, MB/s", produce, RECORDS * len(RECORD) / 1e9, "GB"),
    Measure("consume, MB/s", consume, RECORDS * len(RECORD) / 1e9, "GB"),
    Measure("connect, Heartbeat, close, per second", connect, 300 / 10_000, "10,000"),
)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(rounds: int) -> None:
    """Measures, and prints the table."""
    full = {"group.max.size": "1", "group.max.session.timeout.ms": "3600000"}
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder) / "broker", properties=full) as broker:
        settings = {"policies": {"group_max_size": {"limit": 1}}, "answers": {"exclusive": True}}
        sidecar = SidecarProcess(
            Path(folder) / "sidecar", listen=broker.sidecar, upstream=broker.client, settings=settings
        )
        with sidecar, ExitStack() as held:
            admin = AdminClient({"bootstrap.servers": spelled(broker.direct)})
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
            produce(broker.direct)
            broker.wait_for_coordinator()
            held.enter_context(consumers(broker.sidecar, FULL, members=1))
            pid = sidecar.process.running.pid
            for number in range(rounds):
                print(f"round {number + 1} of {rounds}", file=sys.stderr)
                for measure in MEASURES:
                    _round(measure, broker, pid, direct_first=number % 2 == 0)
    for line in table():
        print(line)


def _round(measure: Measure, broker: KafkaBroker, pid: int, *, direct_first: bool) -> None:
    for direct in (direct_first, not direct_first):
        if direct:
            measure.direct.append(measure.run(broker.direct))
        else:
            before = cpu_seconds(pid)
            measure.through.append(measure.run(broker.sidecar))
            measure.cpu.append((cpu_seconds(pid) - before) / measure.units)


def table() -> list[str]:
    """The figures as Markdown."""
    lines = ["| measure | direct | sidecar | ratio (min, median, max) | sidecar CPU s |", "|---|---|---|---|---|"]
    for m in MEASURES:
        ratios = sorted(through / direct for through, direct in zip(m.through, m.direct, strict=True))
        middle = statistics.median(ratios)
        lines.append(
            f"| {m.name} | {statistics.median(m.direct):,.0f} | {statistics.median(m.through):,.0f} "
            f"| {ratios[0]:.2f}, **{middle:.2f}**, {ratios[-1]:.2f} "
            f"| {statistics.median(m.cpu):.2f} per {m.per} |"
        )
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    run(parser.parse_args().rounds)
