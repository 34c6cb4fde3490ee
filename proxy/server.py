"""Accepts clients, connects each to its broker, and hands both to the pump.

Owns: listening sockets, connecting, what is done where that fails. Must not know: what moves on a connection.

A broker next door is connected to at once, to where the last connection went, and no task is needed. What takes time
is ordinary trio: looking up names, a broker that is far away, one that does not answer.
"""

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from select import EPOLLIN
from typing import Any

import trio

from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.logs import Recurring, log
from group_sidecar.proxy.poller import Poller
from group_sidecar.proxy.pump import Pump
from group_sidecar.proxy.session import Session

BACKLOG = 1024
"""Clients the kernel keeps waiting; it cuts it to `net.core.somaxconn`."""
CONNECT_SECONDS = 10.0
ACCEPTED_AT_ONCE = 32
"""Clients of one burst before other tasks have a turn."""
EXHAUSTED_SECONDS = 0.2
"""How long to wait where the system has no descriptor or memory for another connection."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
UNREACHABLE = "the broker is unreachable"

SessionFactory = Callable[[str, Address], Session]
"""Makes the session of a client host whose broker's socket address is the second."""


class ListenError(Exception):
    """An address cannot be listened on. The text is one line for people."""


def listen(address: Address) -> list[socket.socket]:
    """Opens a port on all addresses that a host name has; port 0 picks one that is free.

    Clients can connect, and wait, from here on.

    Raises:
        ListenError: the address is in use, or not one of this machine.
    """
    sockets: list[socket.socket] = []
    port = address.port
    try:
        found = socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, (host, *_) in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            sockets.append(listener)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _tune(listener)  # What it accepts inherits that.
            listener.bind((host, port))
            listener.listen(BACKLOG)
            port = listener.getsockname()[1]
    except OSError as error:
        for listener in sockets:
            listener.close()
        raise ListenError(f"cannot listen on {address}: {_reason(error)}") from error
    return sockets


def port_of(listeners: list[socket.socket]) -> int:
    """The port of what `listen` opened."""
    port: int = listeners[0].getsockname()[1]
    return port


async def connect(address: Address, seconds: float = CONNECT_SECONDS) -> socket.socket:
    """A non-blocking connection to the first address of a host that takes one; the name is resolved each time.

    Raises:
        OSError: there is none to be had, or not in time.
    """
    failure = OSError(errno.EHOSTUNREACH, "has no address")
    with trio.move_on_after(seconds):
        for family, _, _, _, target in await trio.socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            try:
                return await _connected(_connecting(family, target))
            except OSError as error:
                failure = error
        raise failure
    raise OSError(errno.ETIMEDOUT, f"no connection within {seconds:g} seconds")


def _connecting(family: int, target: tuple[Any, ...]) -> socket.socket:
    """A connection that is being made. Raises OSError where it cannot be."""
    peer = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    _tune(peer)
    failed = peer.connect_ex(target)
    if failed and failed != errno.EINPROGRESS:
        peer.close()
        raise OSError(failed, os.strerror(failed))
    return peer


async def _connected(peer: socket.socket) -> socket.socket:
    """The same when it has been made. Raises OSError where it has not, and closes it."""
    try:
        await trio.lowlevel.wait_writable(peer)
        if failed := peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(failed, os.strerror(failed))
    except BaseException:
        peer.close()
        raise
    return peer


def _peer_of(sock: socket.socket) -> tuple[Any, ...] | None:
    """Where a socket is connected to; None where it is not yet."""
    try:
        peer: tuple[Any, ...] = sock.getpeername()
    except OSError:
        return None
    return peer


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class Server:
    """Brings clients to their brokers.

    Args:
        pump: carries the connections.
        traffic: is told of connections, and of those that were not to be.
        most_connections: client connections at a time.
    """

    def __init__(self, pump: Pump, traffic: Traffic, most_connections: int) -> None:
        self._pump = pump
        self._traffic = traffic
        self._most_connections = most_connections
        self._recurring = Recurring()
        self._targets: dict[Address, tuple[int, tuple[Any, ...]]] = {}
        """Where the last connection to a broker went: the address family, and the socket's address."""

    async def serve(
        self, listeners: list[socket.socket], upstream: Callable[[], Address], new_session: SessionFactory
    ) -> None:
        """Accepts until cancelled, then closes the listeners. `upstream`: where the broker is by now."""
        poller = self._pump.poller
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    door = _Door(self, poller, listener, upstream, new_session, nursery)
                    poller.watch(listener.fileno(), EPOLLIN, door.ready)
                try:
                    await trio.sleep_forever()
                finally:  # Here the nursery is open still: no door may be called when it is not.
                    for listener in listeners:
                        poller.forget(listener.fileno())
        finally:
            for listener in listeners:
                listener.close()

    def accept(self, door: "_Door") -> None:
        """Takes the next client. Raises OSError: BlockingIOError where none waits."""
        client, peer = door.listener.accept()
        if not self._admit(client):
            return
        host, address = shown_host(peer[0]), door.upstream()
        attempt = self._attempt(address)
        if attempt is not None and (target := _peer_of(attempt)):
            self._join(client, host, attempt, target, door.new_session)
        else:
            door.nursery.start_soon(self._bring, client, host, address, attempt, door.new_session)

    def exhausted(self, error: OSError) -> None:
        """The system has no room for another connection."""
        self._warn("no connection can be accepted", _reason(error))

    def _admit(self, client: socket.socket) -> bool:
        self._traffic.connection_opened()
        if self._traffic.client_connections <= self._most_connections:
            return True
        self._refuse(client, CloseReason.CONNECTION_LIMIT)
        self._warn("a client was turned away", f"{self._most_connections} connections are open")
        return False

    def _attempt(self, address: Address) -> socket.socket | None:
        """A connection that is being made to where the last one went; None where there was none."""
        if address not in self._targets:
            return None
        try:
            return _connecting(*self._targets[address])
        except OSError:
            return None

    async def _bring(
        self,
        client: socket.socket,
        host: str,
        address: Address,
        attempt: socket.socket | None,
        new_session: SessionFactory,
    ) -> None:
        try:
            upstream = await self._connect(address, attempt)
            target = upstream.getpeername()
        except OSError as error:
            # The client sees a connection closed at once, and tries again later, as where it is refused.
            self._traffic.upstream_connect_failures += 1
            self._refuse(client, CloseReason.UPSTREAM_UNREACHABLE)
            self._warn(UNREACHABLE, _reason(error), address=str(address))
            return
        except BaseException:
            self._refuse(client, CloseReason.SHUTDOWN)
            raise
        if self._recurring.ended(UNREACHABLE, str(address)):
            log.info("the broker is reachable again", address=str(address))
        self._targets[address] = upstream.family, target
        self._join(client, host, upstream, target, new_session)

    async def _connect(self, address: Address, attempt: socket.socket | None) -> socket.socket:
        """The attempt, when it is made; where it fails the name may have another address by now."""
        if attempt is not None:
            with trio.move_on_after(CONNECT_SECONDS), suppress(OSError):
                return await _connected(attempt)
            self._targets.pop(address, None)
        return await connect(address)

    def _join(
        self,
        client: socket.socket,
        host: str,
        upstream: socket.socket,
        target: tuple[Any, ...],
        new_session: SessionFactory,
    ) -> None:
        try:
            self._pump.add(client, upstream, new_session(host, Address(*target[:2])))
        except Exception as error:  # noqa: BLE001  It must not reach other connections.
            upstream.close()
            if isinstance(error, OSError):
                self._refuse(client, CloseReason.CLIENT_CLOSED)
            else:
                self._refuse(client, CloseReason.ERROR)
                log.exception("a connection failed", client=host)

    def _refuse(self, client: socket.socket, reason: CloseReason) -> None:
        client.close()
        self._traffic.connection_closed(reason)

    def _warn(self, event: str, cause: str, **where: str) -> None:
        if times := self._recurring.due(event, *where.values()):
            log.warning(event, **where, cause=cause, times=times)


class _Door:
    """A listening socket, and where its clients go."""

    def __init__(
        self,
        server: Server,
        poller: Poller,
        listener: socket.socket,
        upstream: Callable[[], Address],
        new_session: SessionFactory,
        nursery: trio.Nursery,
    ) -> None:
        self._server = server
        self._poller = poller
        self.listener = listener
        self.upstream = upstream
        self.new_session = new_session
        self.nursery = nursery

    def ready(self, events: int) -> None:
        """Takes the clients who wait; some of them where they are many."""
        try:
            for _ in range(ACCEPTED_AT_ONCE):
                self._server.accept(self)
        except BlockingIOError:
            return
        except OSError as error:
            # What is not of the system is of that one client, who went before it was accepted.
            if error.errno in EXHAUSTED:
                self._server.exhausted(error)
                self._poller.pause(self.listener.fileno())
                self.nursery.start_soon(self._rest)

    async def _rest(self) -> None:
        await trio.sleep(EXHAUSTED_SECONDS)
        self._poller.resume(self.listener.fileno(), EPOLLIN)


@lru_cache(maxsize=4096)
def shown_host(host: str) -> str:
    """A peer's address as Java's InetAddress prints it: no zone, IPv4 in its own form, IPv6 with all its groups."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
