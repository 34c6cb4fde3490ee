"""Client loads on a broker or on a proxy, at the lowest cost for the client: one process, frames built in advance."""

import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from group_sidecar.codecs.headers import RequestHeader, encode_request
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.schema import Struct
from tests.kafka.processes import Address, host_port

RECORD = b"x" * 1024
_SECONDS = 60
_AT_A_TIME = 10_000
_NEVER_FULL = 10_000_000
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_BUFFER_BYTES = 1 << 16


class LoadFailed(Exception):
    """A reply did not arrive or was wrong."""


PLAIN_CLIENT: Mapping[str, str] = {}
"""The settings of a librdkafka client without TLS."""
FAILURES = (LoadFailed, OSError, KafkaException)
"""The exceptions that a load raises if it cannot run at a target."""


def framed(request: Struct, version: int) -> bytes:
    """Encodes a request with its length field."""
    return encode_request(request, RequestHeader(request.KEY, version, 1, "bench"))


HEARTBEAT = framed(HeartbeatRequest(group_id="nobody", generation_id=1, member_id="none"), 4)
"""A heartbeat of an unknown member. The broker refuses the heartbeat at once, so its time is mainly the time of the
round trip."""


class Asker:
    """A connection with one request in flight, for the length of a with statement.

    Args:
        address: where to connect.
        tls: the context of a TLS client, or None for a plain connection.

    Attributes:
        socket: a blocking socket. The kernel ends a wait after a minute.
        size: bytes of the last reply, length field included.
    """

    def __init__(self, address: Address, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(address, timeout=_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(None)  # Python's timeout would add a poll to each call; the kernel's does not.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _SECONDS, 0))
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self.size = 0
        self._view = memoryview(bytearray(1 << 22))

    def ask(self, frame: bytes) -> float:
        """Sends a request.

        Returns the seconds until its reply is complete. Raises LoadFailed if the connection ends.
        """
        view, received, size = self._view, 0, 4
        began = time.perf_counter()
        self.socket.sendall(frame)
        while received < size:
            count = self.socket.recv_into(view[received:] if received else view)
            if not count:
                raise LoadFailed("the connection ended before the reply")
            received += count
            if received >= 4:
                size = 4 + int.from_bytes(view[:4], "big")
        self.size = size
        return time.perf_counter() - began

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self.socket.close()


def one_by_one(address: Address, frame: bytes, count: int, tls: ssl.SSLContext | None = None) -> float:
    """Returns the requests per second over one connection, with one request in flight."""
    with Asker(address, tls) as asker:
        asker.ask(frame)
        began = time.perf_counter()
        for _ in range(count):
            asker.ask(frame)
        return count / (time.perf_counter() - began)


def side_by_side(
    address: Address, frame: bytes, connections: int, count: int, tls: ssl.SSLContext | None = None
) -> float:
    """Returns the requests per second over `connections` connections, with one request in flight on each.

    A reply must fit into one read of 4,096 bytes.
    """
    with ExitStack() as stack, select.epoll() as poller:
        askers = [stack.enter_context(Asker(address, tls)) for _ in range(connections)]
        for asker in askers:
            asker.ask(frame)
        sockets = {asker.socket.fileno(): asker.socket for asker in askers}
        for number, each in sockets.items():
            poller.register(number, select.EPOLLIN)
            each.send(frame)
        done, began = 0, time.perf_counter()
        while done < count:
            ready = poller.poll(_SECONDS)
            if not ready:
                raise LoadFailed("no reply for a minute")
            for number, _ in ready:
                each = sockets[number]
                if not each.recv(4096):
                    raise LoadFailed("a connection ended before its reply")
                each.send(frame)
            done += len(ready)
        return done / (time.perf_counter() - began)


def answer_times(address: Address, frame: bytes, count: int, at_least: int) -> list[float]:
    """Returns the microseconds from each request to its complete reply, over one connection.

    Raises:
        LoadFailed: a reply has fewer bytes than `at_least`, so it is a refusal.
    """
    taken = []
    with Asker(address) as asker:
        for _ in range(count):
            taken.append(asker.ask(frame) * 1e6)
            if asker.size < at_least:
                raise LoadFailed(f"a reply of {asker.size} bytes")
    return taken


def churn(address: Address, at_once: int, count: int) -> float:
    """Returns connections per second. Each connection sends one ApiVersions request, and is closed after the reply."""
    sockets: dict[int, socket.socket] = {}
    with select.epoll() as poller:

        def begin() -> None:
            each = socket.socket()
            sockets[each.fileno()] = each
            each.connect(address)
            each.send(_API_VERSIONS)
            poller.register(each.fileno(), select.EPOLLIN)

        try:
            done, began = 0, time.perf_counter()
            for _ in range(at_once):
                begin()
            while done < count:
                ready = poller.poll(_SECONDS)
                if not ready:
                    raise LoadFailed("no reply for a minute")
                for number, _ in ready:
                    with sockets.pop(number) as each:
                        _read_reply(each)
                    done += 1
                    if done + len(sockets) < count:
                        begin()
            return done / (time.perf_counter() - began)
        finally:
            for each in sockets.values():
                each.close()


def _read_reply(connection: socket.socket) -> None:
    data = connection.recv(_BUFFER_BYTES)
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = connection.recv(_BUFFER_BYTES)
        if not more:
            raise LoadFailed("the connection ended before the reply")
        data += more


@contextmanager
def held(address: Address, count: int) -> Iterator[None]:
    """Holds `count` idle connections for the length of a with statement. Each has sent one ApiVersions request."""
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(address, timeout=_SECONDS))
            connection.sendall(_API_VERSIONS)
            _read_reply(connection)
        yield


def produce(address: Address, topic: str, records: int, client: Mapping[str, str] = PLAIN_CLIENT) -> float:
    """Returns the MB per second of produced 1 KiB records, with acks=1. Raises LoadFailed if a delivery fails.

    `client`: further settings of librdkafka.
    """
    producer = Producer(
        {
            "bootstrap.servers": host_port(address),
            "acks": "1",
            "linger.ms": 5,
            "queue.buffering.max.messages": records + 1,
            "queue.buffering.max.kbytes": 1 << 20,
            "delivery.report.only.error": True,
            **client,
        }
    )
    lost: list[object] = []
    producer.list_topics(topic, timeout=_SECONDS)
    batch = [{"value": RECORD}] * min(records, _AT_A_TIME)
    began = time.perf_counter()
    for _ in range(records // len(batch)):
        if producer.produce_batch(topic, batch, partition=0, on_delivery=lambda error, _: lost.append(error)) != len(
            batch
        ):
            raise LoadFailed("librdkafka did not take all records")
    if producer.flush(_SECONDS) or lost:
        raise LoadFailed(f"records were not delivered: {lost[:1]}")
    return records * len(RECORD) / 1e6 / (time.perf_counter() - began)


def consume(address: Address, topic: str, records: int, client: Mapping[str, str] = PLAIN_CLIENT) -> float:
    """Returns the MB per second of consumed records, from the first one on.

    `client`: further settings of librdkafka. Raises LoadFailed if records are missing.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": host_port(address),
            "group.id": "bench",
            "enable.auto.commit": False,
            # With a full queue, librdkafka pauses its fetches for a second, which would affect fast targets most.
            "queued.min.messages": _NEVER_FULL,
            "queued.max.messages.kbytes": 1 << 20,
            **client,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        read = len(consumer.consume(1, timeout=_SECONDS))
        began = time.perf_counter()
        while read < records:
            received = consumer.consume(min(_AT_A_TIME, records - read), timeout=_SECONDS)
            if not received:
                raise LoadFailed(f"{read} of {records} records came")
            read += len(received)
        return read * len(RECORD) / 1e6 / (time.perf_counter() - began)
    finally:
        consumer.close()


def brokers_named(address: Address) -> list[Address]:
    """Returns the brokers' addresses in the Metadata reply of a bootstrap address."""
    known = AdminClient({"bootstrap.servers": host_port(address)}).list_topics(timeout=_SECONDS).brokers
    return [(str(each.host), each.port) for each in known.values()]
