"""How a client comes in where its broker is next door: at once, and without a task.

Owns: who may come in, connecting to where the last connection to a broker went, joining the two. Must not know:
listening, names, what takes time (`server`), what moves on a connection.
"""

import errno
import os
import socket
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from typing import Any, NamedTuple

from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.logs import Recurring, log
from group_sidecar.proxy.pump import Pump
from group_sidecar.proxy.session import Session

SessionFactory = Callable[[str, Address], Session]
"""Makes the session of a client host whose broker's socket address is the second."""


class Waiting(NamedTuple):
    """A client whose broker cannot be had at once. `attempt`: a connection that is being made; None where none is."""

    client: socket.socket
    host: str
    address: Address
    attempt: socket.socket | None


class Entrance:
    """Lets clients in.

    Args:
        pump: carries the connections.
        traffic: is told of connections, and of those that were not to be.
        most_connections: client connections at a time.

    Attributes:
        recurring: what is said of troubles, and how often.
    """

    def __init__(self, pump: Pump, traffic: Traffic, most_connections: int) -> None:
        self._pump = pump
        self._traffic = traffic
        self._most_connections = most_connections
        self.recurring = Recurring()
        self._targets: dict[Address, tuple[int, tuple[Any, ...]]] = {}
        """Where the last connection to a broker went: the address family, and the socket's address."""

    def take(self, listener: socket.socket, address: Address, new_session: SessionFactory) -> Waiting | None:
        """Takes the next client. Gives it back where its broker, at `address`, takes time.

        Raises:
            OSError: BlockingIOError where none waits.
        """
        client, peer = listener.accept()
        if not self._admit(client):
            return None
        host = shown_host(peer[0])
        attempt = self._attempt(address)
        if attempt is None or (target := _peer_of(attempt)) is None:
            return Waiting(client, host, address, attempt)
        self.join(client, host, attempt, target, new_session)
        return None

    def _admit(self, client: socket.socket) -> bool:
        self._traffic.connection_opened()
        if self._traffic.client_connections <= self._most_connections:
            return True
        self.refuse(client, CloseReason.CONNECTION_LIMIT)
        self.warn("a client was turned away", f"{self._most_connections} connections are open")
        return False

    def _attempt(self, address: Address) -> socket.socket | None:
        """A connection that is being made to where the last one went; None where there was none."""
        if address not in self._targets:
            return None
        try:
            return connecting(*self._targets[address])
        except OSError:
            return None

    def connected(self, address: Address, upstream: socket.socket) -> tuple[Any, ...]:
        """Remembers where a connection to a broker went, and gives that. Raises OSError where it has gone already."""
        target: tuple[Any, ...] = upstream.getpeername()
        self._targets[address] = upstream.family, target
        return target

    def forget(self, address: Address) -> None:
        """A broker may be elsewhere by now."""
        self._targets.pop(address, None)

    def join(
        self,
        client: socket.socket,
        host: str,
        upstream: socket.socket,
        target: tuple[Any, ...],
        new_session: SessionFactory,
    ) -> None:
        """Has a client and its broker carried; `target`: where that is."""
        try:
            self._pump.add(client, upstream, new_session(host, Address(*target[:2])))
        except Exception as error:  # noqa: BLE001  It must not reach other connections.
            upstream.close()
            if isinstance(error, OSError):
                self.refuse(client, CloseReason.CLIENT_CLOSED)
            else:
                self.refuse(client, CloseReason.ERROR)
                log.exception("a connection failed", client=host)

    def refuse(self, client: socket.socket, reason: CloseReason) -> None:
        """Sends a client away."""
        client.close()
        self._traffic.connection_closed(reason)

    def warn(self, event: str, cause: str, **where: str) -> None:
        """Tells of trouble: once, and then how often."""
        if times := self.recurring.due(event, *where.values()):
            log.warning(event, **where, cause=cause, times=times)


def connecting(family: int, target: tuple[Any, ...]) -> socket.socket:
    """A connection that is being made. Raises OSError where it cannot be."""
    peer = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    tune(peer)
    failed = peer.connect_ex(target)
    if failed and failed != errno.EINPROGRESS:
        peer.close()
        raise OSError(failed, os.strerror(failed))
    return peer


def _peer_of(sock: socket.socket) -> tuple[Any, ...] | None:
    """Where a socket is connected to; None where it is not yet."""
    try:
        peer: tuple[Any, ...] = sock.getpeername()
    except OSError:
        return None
    return peer


def tune(sock: socket.socket) -> None:
    """Sets what both sides of a connection have."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


@lru_cache(maxsize=4096)
def shown_host(host: str) -> str:
    """A peer's address as Java's InetAddress prints it: no zone, IPv4 in its own form, IPv6 with all its groups."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
