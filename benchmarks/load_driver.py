"""Sends load for benchmarks at the lowest cost: with frames built in advance, one thread and one epoll.

All replies to the frames of one load must have the same size, because replies are counted by their bytes.
"""

import selectors
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from time import perf_counter
from typing import NamedTuple

from tests.kafka.processes import Address

CHUNK = 65_536
"""Bytes per read. Frames that are longer than a chunk are sent one by one."""
AT_ONCE = 32
"""How many connections are opened at the same time."""


class Load(NamedTuple):
    """The result of a load."""

    replies: int
    seconds: float

    @property
    def rate(self) -> float:
        """Replies per second."""
        return self.replies / self.seconds


def connected(address: Address, count: int, frame: bytes) -> list[socket.socket]:
    """Opens `count` connections, and waits for the reply to one frame on each.

    At most `AT_ONCE` connections are opened at a time. Kafka's listen backlog is 50, and the system would retry further
    connections after a second.
    """
    found: list[socket.socket] = []
    while len(found) < count:
        burst = [socket.create_connection(address) for _ in range(min(AT_ONCE, count - len(found)))]
        for connection in burst:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(frame)
        for connection in burst:
            _receive_reply(connection)
        found += burst
    return found


def close(connections: Sequence[socket.socket]) -> None:
    """Closes connections."""
    for connection in connections:
        connection.close()


def reply_size(connection: socket.socket, frame: bytes) -> int:
    """Sends a frame and waits for its reply. Returns the size of the reply in bytes, length field included."""
    connection.sendall(frame)
    return _receive_reply(connection)


def _receive_reply(connection: socket.socket) -> int:
    head = connection.recv(4, socket.MSG_WAITALL)
    size = int.from_bytes(head, "big")
    if len(head) < 4 or len(connection.recv(size, socket.MSG_WAITALL)) < size:
        raise ConnectionError("the connection ended before the reply")
    return 4 + size


class Driver:
    """A closed loop with a constant number of in-flight requests. The connections take turns to send a request.

    Args:
        connections: blocking sockets without in-flight requests.
        frames: the frames, which are sent in order, again and again.
        in_flight: the number of in-flight requests.
    """

    def __init__(self, connections: Sequence[socket.socket], frames: Sequence[bytes], in_flight: int) -> None:
        self._connections = connections
        self._frames: Iterator[bytes] = cycle(frames)
        self._apart = len(connections) > 1 or len(frames[0]) > CHUNK
        self._in_flight = in_flight
        self._reply = reply_size(connections[0], frames[0])
        self._parts = {connection.fileno(): 0 for connection in connections}
        """Bytes of an incomplete reply, by descriptor."""

    def run(self, seconds: float) -> Load:
        """Sends load for `seconds` seconds, and waits for the last replies."""
        with selectors.EpollSelector() as selector:
            for connection in self._connections:
                selector.register(connection, selectors.EVENT_READ)
            resting = deque(islice(cycle(self._connections), max(self._in_flight, len(self._connections))))
            under_way = done = 0
            began = perf_counter()
            while (more := perf_counter() - began < seconds) or under_way:
                if more:
                    self._send([resting.popleft() for _ in range(self._in_flight - under_way)])
                    under_way = self._in_flight
                for key, _ in selector.select():
                    assert isinstance(key.fileobj, socket.socket)
                    replies = self._receive(key.fileobj)
                    resting.extend([key.fileobj] * replies)
                    under_way -= replies
                    done += replies
            return Load(done, perf_counter() - began)

    def _send(self, connections: list[socket.socket]) -> None:
        if self._apart:
            for connection in connections:
                connection.sendall(next(self._frames))
        elif connections:
            connections[0].sendall(b"".join(islice(self._frames, len(connections))))

    def _receive(self, connection: socket.socket) -> int:
        """Reads from a connection. Returns how many replies were completed."""
        chunk = connection.recv(CHUNK)
        if not chunk:
            raise ConnectionError("the connection ended before the reply")
        number = connection.fileno()
        replies, self._parts[number] = divmod(self._parts[number] + len(chunk), self._reply)
        return replies


def latencies(connections: Sequence[socket.socket], frame: bytes, rate: float, seconds: float) -> list[float]:
    """Sends requests at a constant rate. Returns the latencies of all requests in seconds, in ascending order.

    The connections take turns. The loop is open: each request is sent when it is due, even if earlier requests are
    unanswered. A latency begins when the request is due, so the latency includes delays by earlier requests.
    """
    size, count = reply_size(connections[0], frame), round(rate * seconds)
    due_of: dict[int, deque[float]] = {connection.fileno(): deque() for connection in connections}
    parts = dict.fromkeys(due_of, 0)
    taken: list[float] = []
    sent, began = 0, perf_counter()
    with selectors.SelectSelector() as selector:  # select's timeout is in microseconds, epoll's in milliseconds.
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while len(taken) < count:
            while sent < count and (due := began + sent / rate) <= perf_counter():
                connection = connections[sent % len(connections)]
                due_of[connection.fileno()].append(due)
                connection.sendall(frame)
                sent += 1
            left = began + sent / rate - perf_counter() if sent < count else None
            ready = selector.select(left)
            arrived = perf_counter()
            for key, _ in ready:
                replies, parts[key.fd] = divmod(parts[key.fd] + _received(key.fileobj), size)
                taken += [arrived - due_of[key.fd].popleft() for _ in range(replies)]
    return sorted(taken)


def _received(connection: object) -> int:
    assert isinstance(connection, socket.socket)
    if count := len(connection.recv(CHUNK)):
        return count
    raise ConnectionError("the connection ended before the reply")
