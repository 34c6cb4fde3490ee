"""The network around the sidecar: it delays bytes, cuts them into chunks, and closes connections.

Each socket of the sidecar is one end of a Unix socket pair. The network has the other end and moves its bytes in
virtual time. So the simulation runs the product's event loop, connections and compiled fast path. The sidecar's own
connections to the broker are trio streams in memory.
"""

import os
import select
import socket
from collections.abc import Callable
from enum import Enum, auto
from random import Random
from typing import Protocol

import trio

from tests.simulation.timeline import Timeline

CALM_SECONDS = 0.0005
"""The usual delay of a chunk."""
LONGEST_DELAY = 0.6
"""The maximum delay of a chunk. Less than LOST_REQUEST_SECONDS, within which a lost request must reach the broker."""
RETRY_SECONDS = 0.005
READ_BYTES = 1 << 20
SMALL_BUFFER = 4_608
"""The send buffer of some of the sidecar's sockets, in bytes. The kernel's minimum."""
EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET


class Reset(Enum):
    """When the connection of a request breaks between the sidecar and the broker."""

    BEFORE = auto()
    """Before the broker has received the request."""
    LATE = auto()
    """Before the broker has received the request. The sidecar notices the break at once. The broker receives the
    request afterwards."""
    AFTER = auto()
    """When the broker has made the reply, which is lost."""


class Peer(Protocol):
    """A client or a broker's connection, as the network uses it."""

    def received(self, data: bytes) -> None:
        """Called with bytes that have arrived."""

    def closed(self) -> None:
        """Called once when the other side has closed its direction of the connection."""


class Weather:
    """Chooses the delays of bytes, where they are cut into chunks, and which connections break.

    Args:
        rng: chooses delays and cuts.
        small_buffers: the share of the sidecar's sockets with a small send buffer.
        distance: the seconds of delay that each reply of the broker on the sidecar's own connections has.
        usual_resets: the share of clients' requests whose connection breaks between the sidecar and the broker.

    Attributes:
        storms: the share of chunks with a long delay. 0 means calm weather.
        resets: `usual_resets`, or a larger share for some seconds.
        own_lag: further seconds of delay that the broker's replies on the sidecar's own connections have now. The
            log then shows a change long after the wire, so the copy depends on the wire.
    """

    def __init__(self, rng: Random, small_buffers: float, distance: float, usual_resets: float) -> None:
        self.rng = rng
        self.small_buffers, self.distance, self.usual_resets = small_buffers, distance, usual_resets
        self.storms, self.resets = 0.0, usual_resets
        self.own_lag = distance

    def delay(self) -> float:
        """Returns the seconds that the next chunk takes."""
        if self.rng.random() < self.storms:
            return self.rng.uniform(CALM_SECONDS, LONGEST_DELAY)
        return self.rng.uniform(0.2, 2.0) * CALM_SECONDS

    def reset(self, times: int) -> Reset | None:
        """Returns when the connection of the next request breaks; None if it does not.

        `times`: how many times more often than usual it breaks.
        """
        return self.rng.choice((*Reset,)) if self.resets and self.rng.random() < self.resets * times else None

    def own_delay(self) -> float:
        """Returns the seconds that the next chunk takes from the broker to the sidecar on an own connection."""
        return self.delay() + self.own_lag * self.rng.uniform(0.5, 1.0)

    def chunks(self, data: bytes) -> list[bytes]:
        """Returns the data, cut into one or more chunks."""
        if len(data) < 2 or self.rng.random() > 0.1:
            return [data]
        cuts = sorted({self.rng.randrange(1, len(data)) for _ in range(self.rng.choice((1, 1, 2, 4)))})
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


class Line:
    """One direction of a connection: delivers chunks in order, each after its delay.

    `delay`: returns the delay of the next chunk. Default: that of the weather.
    """

    def __init__(
        self,
        timeline: Timeline,
        weather: Weather,
        deliver: Callable[[bytes], None],
        delay: Callable[[], float] | None = None,
    ) -> None:
        self._timeline, self._weather, self._deliver = timeline, weather, deliver
        self._delay = delay or weather.delay
        self._last = 0.0

    def send(self, data: bytes) -> None:
        """Sends bytes. Empty `data` is the end of the stream."""
        for chunk in self._weather.chunks(data):
            self._last = max(self._last, self._timeline.now + self._delay())
            self._timeline.at(self._last, lambda chunk=chunk: self._deliver(chunk))  # type: ignore[misc]


class Link:
    """The network's end of a socket of the sidecar.

    `is_instant`: whether bytes take no time on this connection.

    Attributes:
        peer: gets what the sidecar sends.
        reads: whether the peer takes bytes. If not, they stay in the kernel's buffer.
        sends: whether the peer may still send. False after `half_close`.
        on_sent: called with bytes that the sidecar has sent, at once.
        on_arrived: called with bytes when the sidecar can read them.
        on_ended: called when the sidecar's end was closed, or learns that the connection is closed.
    """

    def __init__(self, network: "Network", end: socket.socket, *, is_instant: bool) -> None:
        self._network, self._end = network, end
        self._fd = end.fileno()
        self.peer: Peer
        self.reads = self.sends = True
        self.on_sent: Callable[[bytes], None] = _ignore
        self.on_arrived: Callable[[bytes], None] = _ignore
        self.on_ended: Callable[[], None] = _ignore_end
        self.is_open = True
        self._pending = b""
        self._ends = self._has_ended = False
        delay = _no_delay if is_instant else None
        self._to_peer = Line(network.timeline, network.weather, self._reach_peer, delay)
        self._to_sidecar = Line(network.timeline, network.weather, self._reach_sidecar, delay)

    @property
    def fd(self) -> int:
        return self._fd

    def send(self, data: bytes) -> None:
        """Sends bytes from the peer to the sidecar."""
        if self.is_open:
            self._to_sidecar.send(data)

    def half_close(self) -> None:
        """Sends the end of the peer's stream. The peer continues to read."""
        if self.is_open:
            self.sends = False
            self._to_sidecar.send(b"")

    def cut(self) -> None:
        """Breaks the connection now. Bytes on their way to the sidecar are lost. Bytes that it has sent are not."""
        if self.is_open:
            self._close()
            self.on_ended()

    def collect(self) -> bool:
        """Receives the bytes that the sidecar has sent. Returns whether there were bytes or the end of the stream."""
        moved = False
        while self.is_open and self.reads and not self._has_ended:
            try:
                data = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            moved = self._network.timeline.is_touched = True
            if data:
                self.on_sent(data)
                self._to_peer.send(data)
            else:
                self._has_ended = True
                self._to_peer.send(b"")
                self.on_ended()
        return moved

    def _reach_peer(self, chunk: bytes) -> None:
        if chunk:
            self.peer.received(chunk)
        else:
            self.peer.closed()

    def _reach_sidecar(self, chunk: bytes) -> None:
        if not self.is_open:
            return
        self._ends |= not chunk
        self._pending += chunk
        self._write()

    def _write(self) -> None:
        """Writes the bytes that have arrived to the sidecar's socket. Tries again later if the socket is full."""
        if not self.is_open:
            return
        self._network.timeline.is_touched = True
        try:
            while self._pending:
                written = os.write(self._fd, self._pending)
                arrived, self._pending = self._pending[:written], self._pending[written:]
                self.on_arrived(arrived)
            if self._ends:
                self._end.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            self._network.timeline.after(RETRY_SECONDS, self._write)
        except OSError:
            self._pending = b""  # The sidecar has closed the socket. `collect` finds the end of the stream.

    def _close(self) -> None:
        self.is_open = False
        self._network.timeline.is_touched = True
        self._network.forget(self)
        self._end.close()


class OwnStream(trio.abc.Stream):
    """A connection that the sidecar opens for itself.

    Attributes:
        peer: gets what the sidecar sends.
    """

    def __init__(self, network: "Network") -> None:
        self.peer: Peer
        self._buffer = b""
        self._ended = self._closed = False
        self._arrived = trio.Event()
        self._to_peer = Line(network.timeline, network.weather, self._reach_peer)
        own_delay = network.weather.own_delay
        self._to_sidecar = Line(network.timeline, network.weather, self._reach_sidecar, own_delay)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise trio.ClosedResourceError
        if self._ended:
            raise trio.BrokenResourceError
        self._to_peer.send(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        while not self._buffer:
            if self._closed:
                raise trio.ClosedResourceError
            if self._ended:
                await trio.lowlevel.checkpoint()
                return b""
            self._arrived = trio.Event()
            await self._arrived.wait()
        size = len(self._buffer) if max_bytes is None else max_bytes
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        await trio.lowlevel.checkpoint()
        return data

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._arrived.set()
            self._to_peer.send(b"")
        await trio.lowlevel.checkpoint()

    # The broker's side.

    def half_close(self) -> None:
        """Sends the end of the broker's stream."""
        self._to_sidecar.send(b"")

    def send(self, data: bytes) -> None:
        """Sends bytes from the broker to the sidecar."""
        self._to_sidecar.send(data)

    def cut(self) -> None:
        """Breaks the connection now."""
        self._ended = True
        self._arrived.set()

    def _reach_peer(self, chunk: bytes) -> None:
        if chunk:
            self.peer.received(chunk)
        else:
            self.peer.closed()

    def _reach_sidecar(self, chunk: bytes) -> None:
        if not chunk:
            self.cut()
        elif not self._ended:
            self._buffer += chunk
            self._arrived.set()


class Network:
    """All connections of the sidecar."""

    def __init__(self, timeline: Timeline, weather: Weather) -> None:
        self.timeline, self.weather = timeline, weather
        self._epoll = select.epoll()
        self._links: dict[int, Link] = {}

    def pair(self, *, is_instant: bool = False) -> tuple[Link, socket.socket]:
        """Opens a connection. Returns the network's end and the sidecar's end. `is_instant`: see `Link`."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        if self.weather.rng.random() < self.weather.small_buffers:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        link = Link(self, ours, is_instant=is_instant)
        self.timeline.is_touched = True
        self._links[link.fd] = link
        self._epoll.register(link.fd, EVENTS)
        return link, theirs

    def forget(self, link: Link) -> None:
        """Forgets a link before it is closed."""
        self._epoll.unregister(link.fd)
        del self._links[link.fd]

    def collect(self) -> bool:
        """Receives the bytes that the sidecar has sent on all connections. Returns whether there was anything."""
        moved = False
        for fd, _ in self._epoll.poll(0):
            link = self._links.get(fd)
            moved = (link is not None and link.collect()) or moved
        return moved

    def close(self) -> None:
        """Closes all sockets."""
        for link in [*self._links.values()]:
            link.cut()
        self._epoll.close()


def _ignore(_: bytes) -> None:
    pass


def _no_delay() -> float:
    return 0.0


def _ignore_end() -> None:
    pass
