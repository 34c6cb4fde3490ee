"""Runs the product: the real `Sidecar`, on the simulated network and the virtual clock."""

import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import structlog
import trio

from group_sidecar.proxy.broker.broker_errors import BrokerUnreachable
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.dataplane.poller import Poller
from group_sidecar.proxy.listeners.acceptor import Acceptor
from group_sidecar.proxy.listeners.ports import OpenPorts
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.sidecar import Sidecar
from tests.simulation.kafka import Kafka
from tests.simulation.network import Network, OwnStream
from tests.simulation.timeline import Violation

LISTEN, UPSTREAM = Address("10.0.0.2", 9092), Address("10.0.0.1", 9092)
DIFFERENCE = "an answer differs from the broker's"
"""The log line of a difference that the sidecar's own verification has found."""
DRAIN_SECONDS = 4.0
"""Seconds in which a sidecar that stops in order must not lose a reply. Less than the default limits.drain_seconds."""
MAX_ROUNDS = 20_000
"""The event loop counts as spinning after this many rounds at the same virtual time."""


class ShuffledEpoll:
    """An epoll that reports the sockets that are ready in a seeded order."""

    def __init__(self, epoll: select.epoll, rng: Random) -> None:
        self._epoll, self._rng = epoll, rng
        self.reported = 0
        """The number of reported events."""
        self.register, self.modify, self.unregister = epoll.register, epoll.modify, epoll.unregister
        self.fileno, self.close = epoll.fileno, epoll.close

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """See `select.epoll`."""
        ready = self._epoll.poll(timeout, maxevents)
        self.reported += len(ready)
        self._rng.shuffle(ready)
        return ready


class Listener:
    """The sidecar's listening socket."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self._waiting: deque[tuple[socket.socket, str]] = deque()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        self.is_open = True

    def add(self, client: socket.socket, address: str) -> None:
        """Queues a client's connection for `accept`."""
        self._waiting.append((client, address))
        os.eventfd_write(self._fd, 1)

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """See `socket.socket`."""
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, "no client waits")
        os.eventfd_read(self._fd)
        client, address = self._waiting.popleft()
        return client, (address, 40_000)

    def fileno(self) -> int:
        """See `socket.socket`."""
        return self._fd

    def getsockname(self) -> tuple[str, int]:
        """See `socket.socket`."""
        return LISTEN

    def close(self) -> None:
        """See `socket.socket`."""
        if self.is_open:
            self.is_open = False
            os.close(self._fd)
            for client, _ in self._waiting:
                client.close()


class UpstreamSocket(socket.socket):
    """The sidecar's end of a connection to the broker."""

    def getpeername(self) -> Any:
        """See `socket.socket`."""
        return UPSTREAM


class SidecarHost:
    """Starts, stops and crashes sidecars.

    Args:
        network: their network.
        kafka: their broker.
        rng: chooses the order of ready sockets.
        read_config: returns the settings.

    Attributes:
        sidecar: the sidecar that runs, or None.
        errors: the lines with level error that the sidecars have logged.
        on_change: called whenever a sidecar has started or ended.
    """

    def __init__(self, network: Network, kafka: Kafka, rng: Random, read_config: Callable[[], Config]) -> None:
        self._network, self._kafka, self._rng, self._read_config = network, kafka, rng, read_config
        self.sidecar: Sidecar | None = None
        self.errors: list[str] = []
        self.on_change: Callable[[], None] = lambda: None
        self.listener: Listener | None = None
        self._poller: Poller
        self._epoll: ShuffledEpoll
        self._drains_until = 0.0
        self._stop = trio.Event()
        self._scope = trio.CancelScope()
        self._has_ended = trio.Event()

    @contextmanager
    def patched(self) -> Iterator[None]:
        """While the block runs, the product uses the simulated network, and its errors are kept in `errors`."""
        with ExitStack() as patches:
            for target, replacement in (
                ("group_sidecar.proxy.listeners.server.ACCEPTOR", Acceptor),
                ("group_sidecar.proxy.listeners.server.start_connect", self._start_connect),
                ("group_sidecar.proxy.listeners.acceptor.start_connect", self._start_connect),
                ("group_sidecar.proxy.broker.kafka_client._open", self._open),
            ):
                patches.enter_context(patch(target, replacement))
            before = structlog.get_config()
            structlog.configure(processors=[self._keep_line], wrapper_class=structlog.make_filtering_bound_logger(10))
            try:
                yield
            finally:
                structlog.configure(**before)

    def _keep_line(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        differs = event.get("event") == DIFFERENCE and not self._kafka.history.ignores_errors
        if method in ("error", "exception", "critical") or differs:
            self.errors.append(f"{event}")
        self._network.timeline.note(f"log {method}: {event}")
        raise structlog.DropEvent

    # Connections.

    def _start_connect(self, target: Any) -> socket.socket:
        if not self._kafka.is_up:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        link, end = self._network.pair()
        connection = self._kafka.connect(link)
        link.peer, link.on_ended = connection, connection.lost
        return UpstreamSocket(fileno=end.detach())

    async def _open(self, address: Address, timeout: float) -> trio.abc.Stream:  # noqa: ASYNC109 - as the original
        await trio.sleep(self._network.weather.delay())
        if not self._kafka.is_up:
            raise BrokerUnreachable(f"{address} cannot be reached: refused")
        stream = OwnStream(self._network)
        stream.peer = self._kafka.connect(stream)
        return stream

    # Life.

    async def start(self, nursery: trio.Nursery) -> None:
        """Starts a sidecar. Returns when it accepts clients."""
        self._stop, self._scope, self._has_ended = trio.Event(), trio.CancelScope(), trio.Event()
        await nursery.start(self._run)
        self.on_change()

    async def _run(self, *, task_status: "trio.TaskStatus[Any]") -> None:
        self._poller, listener = Poller(), Listener()
        self._epoll = ShuffledEpoll(self._poller._epoll, self._rng)
        self._poller._epoll = self._epoll  # type: ignore[assignment]
        ports = OpenPorts({"default": [listener]}, None, {}, ())  # type: ignore[list-item]
        self.sidecar = Sidecar(self._read_config(), self._read_config, self._poller, None, ports)
        self.listener = listener
        try:
            with self._scope:
                await self.sidecar.run(self._stop, task_status)
        finally:
            self.sidecar = self.listener = None
            listener.close()
            self._poller.close()
            self._has_ended.set()
            self.on_change()

    @property
    def is_draining(self) -> bool:
        """Whether the sidecar is stopping in order and must not lose a reply yet."""
        return self._network.timeline.now < self._drains_until

    async def stop(self) -> None:
        """Ends the sidecar as SIGTERM does. Returns when it has ended."""
        self._drains_until = self._network.timeline.now + DRAIN_SECONDS
        self._stop.set()
        await self._has_ended.wait()
        self._drains_until = 0.0

    async def crash(self) -> None:
        """Ends the sidecar at once. Its connections close."""
        self._scope.cancel()
        await self._has_ended.wait()

    def settle(self) -> None:
        """Runs the event loop until nothing is ready. Raises Violation if it spins."""
        for _ in range(MAX_ROUNDS):
            moved = False
            if self.sidecar is not None:
                reported = self._epoll.reported
                if not self._poller.run_round(0):
                    self._poller.run_deferred()
                moved = self._epoll.reported > reported or self._poller.has_waiting_work
            if not (self._network.collect() or moved):
                return
        raise Violation("the event loop does not come to rest")
