"""How a client comes in where its broker is next door: at once, and without a task.

Owns: who may come in, where the last connection to a broker went, joining the two. Must not know: how they have come
(`acceptor`), names, what takes time (`server`), what moves on a connection.
"""

import os
import socket
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from typing import NamedTuple

from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.acceptor import Arrival, Target
from group_sidecar.proxy.addresses import Address
from group_sidecar.proxy.logs import Recurring, log
from group_sidecar.proxy.pump import Pump
from group_sidecar.proxy.session import Session

SessionFactory = Callable[[str, Address], Session]
"""Makes the session of a client host whose broker's socket address is the second."""


class Waiting(NamedTuple):
    """A client whose broker cannot be had at once. `attempt`: a connection that is being made; None where none is."""

    client: int
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
        self._targets: dict[Address, Target] = {}

    def target(self, address: Address) -> Target | None:
        """Where the last connection to a broker went; None where there was none, or nobody more may come in."""
        if self._traffic.client_connections >= self._most_connections:
            return None
        return self._targets.get(address)

    def let_in(
        self, arrival: Arrival, address: Address, target: Target | None, new_session: SessionFactory
    ) -> Waiting | None:
        """Joins a client and its broker at `address`, who is at `target`. Gives it back where that takes time."""
        client, packed, upstream, connected = arrival
        self._traffic.connection_opened()
        if self._traffic.client_connections > self._most_connections:
            if upstream >= 0:
                os.close(upstream)
            self.refuse(client, CloseReason.CONNECTION_LIMIT)
            self.warn("a client was turned away", f"{self._most_connections} connections are open")
            return None
        host = shown_host(packed)
        if target is None or not connected:
            return Waiting(client, host, address, socket.socket(fileno=upstream) if upstream >= 0 else None)
        self.join(client, host, upstream, target, new_session)
        return None

    def connected(self, address: Address, upstream: socket.socket) -> Target:
        """Remembers where a connection to a broker went, and gives that. Raises OSError where it has gone already."""
        target = Target(upstream.family, upstream.getpeername())
        if self._targets.get(address) != target:
            self._targets[address] = target
        return target

    def forget(self, address: Address) -> None:
        """A broker may be elsewhere by now."""
        self._targets.pop(address, None)

    def join(self, client: int, host: str, upstream: int, target: Target, new_session: SessionFactory) -> None:
        """Has a client and its broker carried."""
        try:
            self._pump.add(client, upstream, new_session(host, Address(*target.address[:2])))
        except Exception as error:  # noqa: BLE001  It must not reach other connections.
            os.close(upstream)
            if isinstance(error, OSError):
                self.refuse(client, CloseReason.CLIENT_CLOSED)
            else:
                self.refuse(client, CloseReason.ERROR)
                log.exception("a connection failed", client=host)

    def refuse(self, client: int, reason: CloseReason) -> None:
        """Sends a client away."""
        os.close(client)
        self._traffic.connection_closed(reason)

    def warn(self, event: str, cause: str, **where: str) -> None:
        """Tells of trouble: once, and then how often."""
        if times := self.recurring.due(event, *where.values()):
            log.warning(event, **where, cause=cause, times=times)


@lru_cache(maxsize=4096)
def shown_host(packed: bytes) -> str:
    """An IP address as Java's InetAddress prints it: IPv4 in its own form, IPv6 with all its groups."""
    address = ip_address(packed)
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
