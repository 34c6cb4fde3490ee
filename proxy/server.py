"""Accepts clients, connects each to its broker, and hands both to the pump.

Owns: listening sockets, connecting, what is done where that fails. Must not know: what moves on a connection.
Everything here is slow compared with moving bytes, and so is ordinary trio.
"""

import errno
import os
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, ip_address
from typing import Any

import trio

from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.logs import Recurring, log
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
        for family, kind, protocol, _, target in await trio.socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            try:
                return await _connect_to(family, kind, protocol, target)
            except OSError as error:
                failure = error
        raise failure
    raise OSError(errno.ETIMEDOUT, f"no connection within {seconds:g} seconds")


async def _connect_to(family: int, kind: int, protocol: int, target: tuple[Any, ...]) -> socket.socket:
    peer = socket.socket(family, kind, protocol)
    try:
        peer.setblocking(False)
        failed = peer.connect_ex(target)
        if failed == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(peer)
            failed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            raise OSError(failed, os.strerror(failed))
    except BaseException:
        peer.close()
        raise
    return peer


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

    async def serve(
        self, listeners: list[socket.socket], upstream: Callable[[], Address], new_session: SessionFactory
    ) -> None:
        """Accepts until cancelled, then closes the listeners. `upstream`: where the broker is by now."""
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener, upstream, new_session, nursery)
        finally:
            for listener in listeners:
                listener.close()

    async def _accept(
        self,
        listener: socket.socket,
        upstream: Callable[[], Address],
        new_session: SessionFactory,
        nursery: trio.Nursery,
    ) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                for _ in range(ACCEPTED_AT_ONCE):
                    client, peer = listener.accept()
                    if self._admit(client):
                        nursery.start_soon(self._bring, client, shown_host(peer[0]), upstream(), new_session)
            except OSError as error:
                # What is not of the system is of that one client, who went before it was accepted.
                if error.errno in EXHAUSTED:
                    self._warn("no connection can be accepted", _reason(error))
                    await trio.sleep(EXHAUSTED_SECONDS)

    def _admit(self, client: socket.socket) -> bool:
        self._traffic.connection_opened()
        if self._traffic.client_connections <= self._most_connections:
            return True
        self._refuse(client, CloseReason.CONNECTION_LIMIT)
        self._warn("a client was turned away", f"{self._most_connections} connections are open")
        return False

    async def _bring(self, client: socket.socket, host: str, address: Address, new_session: SessionFactory) -> None:
        try:
            upstream = await connect(address)
        except OSError as error:
            # The client sees a connection closed at once, and tries again later, as where it is refused.
            self._traffic.upstream_connect_failures += 1
            self._refuse(client, CloseReason.UPSTREAM_UNREACHABLE)
            self._warn(f"{UNREACHABLE} at {address}", _reason(error))
            return
        except BaseException:
            self._refuse(client, CloseReason.SHUTDOWN)
            raise
        if self._recurring.ended(f"{UNREACHABLE} at {address}"):
            log.info(f"the broker is reachable again at {address}")
        try:
            self._pump.add(client, upstream, new_session(host, Address(*upstream.getpeername()[:2])))
        except Exception as error:  # noqa: BLE001  It must not reach the listener's nursery.
            upstream.close()
            if isinstance(error, OSError):
                self._refuse(client, CloseReason.CLIENT_CLOSED)
            else:
                self._refuse(client, CloseReason.ERROR)
                log.exception("a connection failed", client=host)

    def _refuse(self, client: socket.socket, reason: CloseReason) -> None:
        client.close()
        self._traffic.connection_closed(reason)

    def _warn(self, event: str, cause: str) -> None:
        if times := self._recurring.due(event):
            log.warning(event, cause=cause, times=times)


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
