"""TCP proxies: one can be cut and frozen, one notes each OffsetFetch, and one returns old answers."""

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from tests.kafka.processes import Address
from tests.linearizability.history import now

_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with zero seconds: closing sends a reset, and discards what was not sent."""
_OFFSET_FETCH = 9


class Route:
    """One connection of a client and the connection to the server that belongs to it."""

    def __init__(self, proxy: "FaultProxy", client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self._proxy = proxy
        self._cuts = threading.Event()
        self._threads = [
            threading.Thread(target=self._copy, args=each, daemon=True)
            for each in ((client, server, True), (server, client, False))
        ]

    def start(self) -> None:
        """Starts to copy in both directions."""
        for each in self._threads:
            each.start()

    def cut(self) -> None:
        """Resets both connections, either at once or after half of the next chunk of bytes. The choice is random."""
        self._cuts.set()
        if self._proxy.random.random() < 0.5:
            self.end()

    def end(self) -> None:
        """Ends both connections with a reset, so that both threads end. `join` closes the sockets."""
        for each in (self.client, self.server):
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        """Waits until both threads have ended, and closes the sockets."""
        for each in self._threads:
            each.join()
        self.client.close()
        self.server.close()

    def ended(self) -> bool:
        """Whether both threads have ended."""
        return not any(each.is_alive() for each in self._threads)

    def _copy(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                self._proxy.thawed.wait()
                if self._cuts.is_set():
                    target.sendall(chunk[: len(chunk) // 2])
                    break
                target.sendall(self._proxy.passes(self, chunk, asks))
            else:
                self._proxy.thawed.wait()
        self.end()


class FaultProxy:
    """Listens on an address for the length of a with statement.

    Args:
        at: the address that it listens on.
        upstream: the server's address.
        random: decides where connections are cut.
    """

    def __init__(self, at: Address, upstream: Address, random: random.Random) -> None:
        self.random = random
        self.thawed = threading.Event()
        self.thawed.set()
        self._upstream = upstream
        self._listener = socket.create_server(at, backlog=256)
        self._routes: list[Route] = []
        self._lock = threading.Lock()
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def cut(self, share: float) -> None:
        """Cuts this share of the connections."""
        for route in self._present():
            if self.random.random() < share:
                route.cut()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Holds all bytes back while the block runs, and forwards them afterwards, like a network after a partition."""
        self.thawed.clear()
        try:
            yield
        finally:
            self.thawed.set()

    def passes(self, route: Route, chunk: bytes, asks: bool) -> bytes:
        """Returns the bytes to forward in place of a chunk. A subclass may change the chunk."""
        return chunk

    def _present(self) -> list[Route]:
        with self._lock:
            for route in [each for each in self._routes if each.ended()]:
                self._routes.remove(route)
                route.join()
            return [*self._routes]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.thawed.wait()
            try:
                server = socket.create_connection(self._upstream)
            except OSError:  # The server is down. A reset shows the client that nothing was sent.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            route = Route(self, client, server)
            self._present()
            with self._lock:  # A route whose threads do not run yet would count as ended, so other threads wait.
                route.start()
                self._routes.append(route)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thawed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for route in self._present():
            route.end()
            route.join()


class NotingProxy(FaultProxy):
    """A proxy that notes each OffsetFetch that passes to the server. It expects each chunk to begin with a message.

    Attributes:
        fetches: the client id and the time of each OffsetFetch, in nanoseconds as `history.now`.
    """

    def __init__(self, at: Address, upstream: Address, random: random.Random) -> None:
        super().__init__(at, upstream, random)
        self.fetches: list[tuple[str, int]] = []

    def passes(self, route: Route, chunk: bytes, asks: bool) -> bytes:
        """See FaultProxy."""
        if asks:
            at = now()
            self.fetches.extend((client_id, at) for client_id in _fetching_clients(chunk))
        return chunk


class StaleProxy(FaultProxy):
    """A proxy that replaces some replies to OffsetFetch with the first reply to the same request.

    It expects that clients wait for each reply and that a message is one chunk. Other messages pass unchanged.

    Attributes:
        replaced: how many replies were replaced by another one.
    """

    def __init__(self, at: Address, upstream: Address, random: random.Random, share: float = 0.05) -> None:
        super().__init__(at, upstream, random)
        self.replaced = 0
        self._share = share
        self._asked: dict[Route, bytes] = {}
        self._first: dict[bytes, bytes] = {}

    def passes(self, route: Route, chunk: bytes, asks: bool) -> bytes:
        """See FaultProxy."""
        if asks:
            self._asked.pop(route, None)
            if int.from_bytes(chunk[4:6], "big") == _OFFSET_FETCH and len(chunk) == 4 + int.from_bytes(
                chunk[:4], "big"
            ):
                self._asked[route] = chunk[4:8] + _without_client(chunk)
            return chunk
        request = self._asked.pop(route, None)
        if request is None or len(chunk) != 4 + int.from_bytes(chunk[:4], "big"):
            return chunk
        first = self._first.setdefault(request, chunk[8:])
        if first == chunk[8:] or self.random.random() >= self._share:
            return chunk
        self.replaced += 1
        return (4 + len(first)).to_bytes(4, "big") + chunk[4:8] + first


def _fetching_clients(chunk: bytes) -> Iterator[str]:
    """Yields the client id of each OffsetFetch that begins in a chunk of requests."""
    start = 0
    while start + 14 <= len(chunk):
        if int.from_bytes(chunk[start + 4 : start + 6], "big") == _OFFSET_FETCH:
            length = int.from_bytes(chunk[start + 12 : start + 14], "big")
            yield chunk[start + 14 : start + 14 + length].decode(errors="replace")
        start += 4 + int.from_bytes(chunk[start : start + 4], "big")


def _without_client(chunk: bytes) -> bytes:
    """Returns a request after its client id, so that equal requests of different clients are equal."""
    length = int.from_bytes(chunk[12:14], "big")
    return chunk[14 + length :]
