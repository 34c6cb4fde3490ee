"""A fake broker and fake dispatchers for tests of the proxy with real sockets on the loopback interface.

`FakeBroker` serves each connection with a function that the test chooses. `running_proxy` runs a connection manager
and a server in front of a fake broker.
"""

import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from group_sidecar.codecs.headers import REQUEST_HEAD
from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.config.model import DEFAULT_LISTENER
from group_sidecar.proxy.dataplane.connection import InactivityTimeouts
from group_sidecar.proxy.dataplane.connections import NO_BUDGET, NO_TIMEOUTS, ConnectionManager
from group_sidecar.proxy.dataplane.event_loop import run_in_task
from group_sidecar.proxy.dataplane.frame_editor import FrameEditor
from group_sidecar.proxy.dataplane.framing import FrameAction
from group_sidecar.proxy.dataplane.outcomes import (
    UNCHANGED,
    AnswerInOrder,
    Dispatcher,
    Forward,
    Origin,
    Pass,
    PendingReply,
    Reply,
    RequestOutcome,
)
from group_sidecar.proxy.dataplane.poller import Poller
from group_sidecar.proxy.dataplane.session import Session, SessionLimits
from group_sidecar.proxy.listeners.admission import AdmissionLimits, ClientPort
from group_sidecar.proxy.listeners.handshakes import ListenerHandshakes
from group_sidecar.proxy.listeners.ports import listen, port_of
from group_sidecar.proxy.listeners.server import Server
from group_sidecar.proxy.runtime.addresses import Address

LARGEST_FRAME = 1 << 20
MAX_IN_FLIGHT, MAX_KEPT_BYTES = 4_096, 262_144
"""The defaults of `limits.in_flight_requests` and `limits.kept_bytes`."""
SESSION_LIMITS = SessionLimits(LARGEST_FRAME, MAX_IN_FLIGHT, MAX_KEPT_BYTES)
ADMISSION_LIMITS = AdmissionLimits(10_000)
SILENT_API = 18
"""An API key of requests that `echo` reads and never answers."""
PLAIN_API = 3
ANY_PORT = Address("127.0.0.1", 0)


class Named(PendingReply):
    """A pending reply with a name. It is equal to its name, so that tests can compare the two."""

    api_key = PLAIN_API

    def __init__(self, name: object) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return self.name == (other.name if isinstance(other, Named) else other)

    def __hash__(self) -> int:
        return hash(self.name)

    def classify_reply(self, size: int, now: float) -> FrameAction:
        return FrameAction.HOLD

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        return UNCHANGED


class PassthroughDispatcher:
    """A dispatcher that passes all requests and replies without decoding them."""

    must_classify_all = False
    requires_sasl = False

    def admit(self, origin: Origin) -> str | None:
        return None

    def is_admitted(self, origin: Origin) -> bool:
        return False

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        return None

    def hold(self, api_key: int, api_version: int, size: int, origin: Origin) -> Any:
        return FrameAction.HOLD

    def evict_partial(self, api_key: int, api_version: int, origin: Origin, reason: CloseReason) -> Any:
        return None

    def evict_kept(self, note: Any, origin: Origin, reason: CloseReason) -> Any:
        return note

    def release(self, origin: Origin) -> None:
        pass

    def request(self, frame: bytes, origin: Origin, now: float) -> RequestOutcome:
        return Pass()

    def check_reply_size(self, api_key: int, size: int) -> FrameAction:
        return FrameAction.HOLD

    def classify_reply(self, note: Any, size: int, now: float) -> FrameAction:
        return FrameAction.PASS

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        raise AssertionError("the session must not ask for this reply")

    def check_tls_client(self, origin: Origin) -> CloseReason | None:
        return None

    def max_reply_seconds(self, note: Any) -> float:
        return 0.0

    def defer_reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> None:
        raise AssertionError("the session must not defer this reply")

    def defer_reply_head(self, note: Any, head: bytes, origin: Origin, now: float) -> None:
        raise AssertionError("the session must not defer the head of this reply")

    def editor(self, note: Any, size: int, origin: Origin, now: float) -> FrameEditor:
        raise AssertionError("the session must not edit this reply")

    def gone(self, notes: Sequence[Any], origin: Origin, now: float) -> None:
        pass


class AnsweringDispatcher(PassthroughDispatcher):
    """A dispatcher that answers some requests itself.

    Args:
        answered: the API key of the requests that it answers.
        size: the size of an answer's body in bytes.
        failing: the API key for which `classify` raises an error.
    """

    def __init__(self, *, answered: int = -1, size: int = 0, failing: int = -1) -> None:
        self._answered = answered
        self._size = size
        self._failing = failing

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        if api_key == self._failing:
            raise RuntimeError("a dispatcher that fails")
        return FrameAction.HOLD if api_key == self._answered else None

    def request(self, frame: bytes, origin: Origin, now: float) -> Pass | Forward | AnswerInOrder:
        correlation = int.from_bytes(frame[4:8], "big")
        return AnswerInOrder(lambda _: reply_frame(correlation, bytes(self._size)))


def request_frame(correlation: int, payload: bytes = b"", api_key: int = PLAIN_API) -> bytes:
    """A request frame with an arbitrary payload."""
    return REQUEST_HEAD.pack(8 + len(payload), api_key, 0, correlation) + payload


def reply_frame(correlation: int, payload: bytes = b"") -> bytes:
    """A reply frame with an arbitrary payload."""
    return struct.pack(">ii", 4 + len(payload), correlation) + payload


async def read_exactly(stream: trio.abc.ReceiveStream, count: int) -> bytes:
    """Reads `count` bytes.

    Raises:
        EOFError: the stream ends before.
    """
    found = bytearray()
    while len(found) < count:
        chunk = await stream.receive_some(count - len(found))
        if not chunk:
            raise EOFError(f"{len(found)} of {count} bytes")
        found += chunk
    return bytes(found)


async def read_frame(stream: trio.abc.ReceiveStream) -> bytes:
    """Reads the next frame, including its length.

    Raises:
        EOFError: the stream ends before the end of a frame.
    """
    length = await read_exactly(stream, 4)
    return length + await read_exactly(stream, int.from_bytes(length, "big"))


async def read_to_end(stream: trio.abc.ReceiveStream) -> bytes:
    """Reads until the stream ends. A reset also counts as the end."""
    found = bytearray()
    try:
        while chunk := await stream.receive_some(65536):
            found += chunk
    except trio.BrokenResourceError:
        pass
    return bytes(found)


Behaviour = Callable[[trio.SocketStream], Awaitable[None]]


async def echo(stream: trio.SocketStream) -> None:
    """Answers each request with its own payload. Never answers requests of SILENT_API."""
    try:
        while True:
            frame = await read_frame(stream)
            _, api_key, _, correlation = REQUEST_HEAD.unpack_from(frame)
            if api_key != SILENT_API:
                await stream.send_all(reply_frame(correlation, frame[REQUEST_HEAD.size :]))
    except (EOFError, trio.BrokenResourceError):
        await stream.aclose()


@dataclass
class FakeBroker:
    """A broker that serves each connection with `behaviour`.

    Attributes:
        connections: the number of connections so far.
        streams: all connections so far, on the broker's side.
        address: the listening address once the broker runs.
    """

    behaviour: Behaviour = echo
    connections: int = 0
    streams: list[trio.SocketStream] = field(default_factory=list)
    address: Address = ANY_PORT

    async def run(self, *, task_status: "trio.TaskStatus[Address]" = trio.TASK_STATUS_IGNORED) -> None:
        """Listens until cancelled. A second run listens on the same port as the first."""
        listeners = listen(self.address)
        self.address = Address("127.0.0.1", port_of(listeners))
        task_status.started(self.address)
        streams = [trio.SocketListener(trio.socket.from_stdlib_socket(listener)) for listener in listeners]
        await trio.serve_listeners(self._serve, streams)

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.streams.append(stream)
        async with stream:
            await self.behaviour(stream)


@dataclass
class RunningProxy:
    """The parts of a proxy that `running_proxy` runs. `address` is the one that clients connect to.

    Attributes:
        changes: the server's reports whether a broker is reachable.
        opened: client connections that end with the proxy.
    """

    address: Address
    connection_manager: ConnectionManager
    traffic: TrafficCounters
    counters: ListenerCounters
    broker: FakeBroker
    changes: list[tuple[Address, bool]]
    opened: list[trio.abc.AsyncResource] = field(default_factory=list)

    async def connect(self) -> trio.SocketStream:
        """Opens a client connection to the proxy."""
        return await trio.open_tcp_stream(*self.address)

    async def round_trip(self, payload: bytes = b"ping") -> None:
        """Opens a client connection, makes one request, reads the reply, and closes the connection."""
        async with await self.connect() as client:
            await client.send_all(request_frame(1, payload))
            assert await read_frame(client) == reply_frame(1, payload)

    async def closed(self, reason: CloseReason, times: int = 1) -> None:
        """Waits until exactly `times` connections have been closed for this reason."""
        await holds(lambda: self.counters.connections_closed[reason] >= times)
        assert self.counters.connections_closed[reason] == times


@asynccontextmanager
async def running_proxy(
    behaviour: Behaviour = echo,
    *,
    dispatcher: Dispatcher | None = None,
    session_limits: SessionLimits = SESSION_LIMITS,
    admission: AdmissionLimits = ADMISSION_LIMITS,
    max_per_address: int = 0,
    max_bytes: int = NO_BUDGET,
    timeouts: InactivityTimeouts = NO_TIMEOUTS,
    handshakes: Callable[[ListenerCounters], ListenerHandshakes | None] = lambda _: None,
    origins: list[Origin] | None = None,
) -> AsyncIterator[RunningProxy]:
    """Runs a connection manager and a server in front of a fake broker. Yields the running proxy."""
    traffic = TrafficCounters()
    counters = traffic.add_listener(DEFAULT_LISTENER)
    poller = Poller()
    connection_manager = ConnectionManager(poller, timeouts, max_bytes=max_bytes, max_per_address=max_per_address)
    changes: list[tuple[Address, bool]] = []
    server = Server(connection_manager, traffic, admission, None, lambda *change: changes.append(change))
    broker = FakeBroker(behaviour)
    chosen = dispatcher or PassthroughDispatcher()

    def new_session(origin: Origin, _address: Address, _peer: Address) -> Session:
        if origins is not None:
            origins.append(origin)
        return Session(chosen, traffic, origin, session_limits)

    async with trio.open_nursery() as nursery:
        address = await nursery.start(broker.run)
        listeners = listen(ANY_PORT)
        nursery.start_soon(run_in_task, poller)
        nursery.start_soon(connection_manager.run)
        nursery.start_soon(
            server.serve,
            listeners,
            ClientPort(
                counters,
                lambda: address,
                new_session,
                handshakes(counters),
            ),
        )
        listening = Address("127.0.0.1", port_of(listeners))
        shell = RunningProxy(listening, connection_manager, traffic, counters, broker, changes)
        try:
            yield shell
        finally:
            for stream in shell.opened:
                await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Returns the two sockets of a TCP connection. It can be reset. Data arrives after a short delay."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    return ours, theirs


def reset(stream: trio.SocketStream) -> None:
    """Resets a connection (SO_LINGER of 0 seconds), so that the peer's next read fails."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def holds(condition: Callable[[], bool]) -> None:
    """Waits up to 10 seconds for a condition. Uses `time.monotonic`, because a test may replace trio's clock."""
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up, "the condition did not become true within 10 seconds"
        await trio.lowlevel.checkpoint()
