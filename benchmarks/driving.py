"""Load for benchmarks, as cheap as it can be: frames built before, one thread, one epoll.

Owns: who sends when, and what came of it. Must not know: what the frames say, nor who answers them.

All replies to the frames of one load must be of one size: they are counted by their bytes.
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
"""Bytes of one read, and of the longest frames that are sent together."""
AT_ONCE = 32
"""Connections that are opened together."""


class Load(NamedTuple):
    """What came of a load."""

    replies: int
    seconds: float

    @property
    def rate(self) -> float:
        """Replies a second."""
        return self.replies / self.seconds


def connected(address: Address, count: int, frame: bytes) -> list[socket.socket]:
    """So many connections, on each of which a frame has had its reply.

    They are opened some at a time: Kafka has 50 wait to be accepted, and the system answers further ones a second
    later.
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
    """Ends them."""
    for connection in connections:
        connection.close()


def reply_size(connection: socket.socket, frame: bytes) -> int:
    """Sends a frame and waits for its reply. Gives the bytes of it, length included."""
    connection.sendall(frame)
    return _receive_reply(connection)


def _receive_reply(connection: socket.socket) -> int:
    head = connection.recv(4, socket.MSG_WAITALL)
    size = int.from_bytes(head, "big")
    if len(head) < 4 or len(connection.recv(size, socket.MSG_WAITALL)) < size:
        raise ConnectionError("the connection ended before the reply")
    return 4 + size


class Driver:
    """A closed loop: so many requests are under way all the time, and connections take turns to send the next one.

    Args:
        connections: blocking ones, at rest.
        frames: what is sent, one after the other and from the beginning again.
        in_flight: requests under way.
    """

    def __init__(self, connections: Sequence[socket.socket], frames: Sequence[bytes], in_flight: int) -> None:
        self._connections = connections
        self._frames: Iterator[bytes] = cycle(frames)
        self._apart = len(connections) > 1 or len(frames[0]) > CHUNK
        self._in_flight = in_flight
        self._reply = reply_size(connections[0], frames[0])
        self._parts = {connection.fileno(): 0 for connection in connections}
        """Bytes of a reply that has not come whole, by descriptor."""

    def run(self, seconds: float) -> Load:
        """Drives for so long, and waits for the last replies."""
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
        """How many replies have come whole."""
        chunk = connection.recv(CHUNK)
        if not chunk:
            raise ConnectionError("the connection ended before the reply")
        number = connection.fileno()
        replies, self._parts[number] = divmod(self._parts[number] + len(chunk), self._reply)
        return replies


def latencies(connections: Sequence[socket.socket], frame: bytes, rate: float, seconds: float) -> list[float]:
    """An open loop: so many requests a second, each sent when it is due whatever became of those before.

    Connections take turns. Gives for each request the seconds from when it was due until its reply was there, in
    ascending order: so what is late because of others before it is counted as late.
    """
    size, count = reply_size(connections[0], frame), round(rate * seconds)
    due_of: dict[int, deque[float]] = {connection.fileno(): deque() for connection in connections}
    parts = dict.fromkeys(due_of, 0)
    taken: list[float] = []
    sent, began = 0, perf_counter()
    with selectors.SelectSelector() as selector:  # Its timeout is in microseconds, epoll's in milliseconds.
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
