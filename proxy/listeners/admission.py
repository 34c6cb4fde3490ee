"""Admits accepted clients whose broker connection is established at once, without starting a task.

`Admission` checks the limits on connections, remembers the socket address of each broker, and hands both sockets to the
connection manager. `server` handles the clients whose connection to the broker takes time.
"""

import os
import socket
from collections.abc import Callable
from typing import NamedTuple

from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.dataplane.connections import ConnectionManager
from group_sidecar.proxy.dataplane.endpoint_socket import EndpointSocket
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.dataplane.session import Session
from group_sidecar.proxy.listeners.acceptor import AcceptedClient, Target
from group_sidecar.proxy.listeners.handshakes import ListenerHandshakes
from group_sidecar.proxy.runtime.addresses import Address, format_host
from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.token_bucket import TokenBucket

TURNED_AWAY = "a client was turned away"


class NotServed(Exception):
    """Raised by `ClientPort.new_session`: the client must try again, because it is not known which broker serves it."""


class ClientPort(NamedTuple):
    """A port at which clients connect. A gateway has several ports for its listener.

    Attributes:
        counters: the counters of the listener.
        upstream: returns the current address of the broker.
        new_session: makes a session. The arguments are the client, the broker's configured address, and the socket
            address of the broker connection. Raises NotServed if the client must be turned away.
        handshakes: the PROXY header and TLS handshakes of the listener; None if the listener has neither.
        by_name: maps the name that a client asks for when TLS begins (SNI) to the port of the named broker. Returns
            None if the client must be refused. `by_name` is None if names choose no broker.
    """

    counters: ListenerCounters
    upstream: Callable[[], Address]
    new_session: Callable[[Origin, Address, Address], Session]
    handshakes: ListenerHandshakes | None = None
    by_name: "Callable[[str | None], ClientPort | None] | None" = None


class AdmissionLimits(NamedTuple):
    """How many connections all listeners together may have, and how fast each listener accepts them.

    Attributes:
        connections: the maximum number of client connections at a time.
        accept_rate: connections per second of one listener, or 0 for no limit.
    """

    connections: int
    accept_rate: int = 0


class PendingClient(NamedTuple):
    """A client whose broker connection or handshakes are not complete yet.

    Attributes:
        client: the client's descriptor.
        host: the client's host. Before the PROXY header, the host of the load balancer.
        address: the configured address of the broker.
        attempt: the socket that has begun to connect, or None.
        counted_host: the host whose number of connections includes this connection; None before the PROXY header.
        received: what the client has sent after its PROXY header.
    """

    client: int
    host: str
    address: Address
    attempt: socket.socket | None
    counted_host: str | None
    received: bytes = b""


class Admission:
    """Admits or refuses clients.

    Args:
        connection_manager: carries the admitted connections.
        traffic: knows how many connections are open.
        limits: how many connections may be open, and how fast they are accepted.

    Attributes:
        log_throttle: limits how often a warning is logged.
    """

    def __init__(
        self, connection_manager: ConnectionManager, traffic: TrafficCounters, limits: AdmissionLimits
    ) -> None:
        self._connection_manager = connection_manager
        self._per_address = connection_manager.per_address
        self._traffic = traffic
        self._max_connections = limits.connections
        self._accept_rate = limits.accept_rate
        self._accept_buckets: dict[str, TokenBucket] = {}
        self.log_throttle = LogThrottle()
        self._targets: dict[Address, Target] = {}

    def target(self, address: Address, port: ClientPort) -> Target | None:
        """Returns the socket address to which broker connections are begun as soon as a client is accepted.

        Returns None if the socket address is not known, if the connection limit is reached, or if clients have to do a
        handshake first. An earlier connection to the broker has shown the socket address.
        """
        if port.handshakes is not None or self._is_full:
            return None
        return self._targets.get(address)

    def accept_bucket(self, port: ClientPort) -> TokenBucket | None:
        """Returns the bucket of a port's listener, with a token for each client that may be accepted now.

        Returns None if the rate has no limit. All ports of a gateway's listener share one bucket.
        """
        name, rate = port.counters.name, self._accept_rate
        if not rate:
            return None
        if name not in self._accept_buckets:
            self._accept_buckets[name] = TokenBucket(rate, rate, self._connection_manager.poller.now)
        return self._accept_buckets[name]

    def admit(
        self, accepted: AcceptedClient, address: Address, target: Target | None, port: ClientPort
    ) -> PendingClient | None:
        """Hands a client and its broker connection to the connection manager if the broker connection is established.

        Args:
            accepted: the client and its broker connection.
            address: the configured address of the broker.
            target: the socket address to which the broker connection was begun.
            port: the port at which the client was accepted.

        Returns:
            The client if its broker connection is not established yet, or None if the client was handed over or
            refused.
        """
        client, packed, upstream, connected = accepted
        is_full = self._is_full
        port.counters.connection_opened()
        host = format_host(packed)
        counted_host = None if port.handshakes is not None and port.handshakes.expects_proxy_header else host
        if is_full:
            reason, cause = CloseReason.CONNECTION_LIMIT, self._connection_limit_cause
        elif counted_host is not None and not self._per_address.try_add(host):
            reason, cause = CloseReason.ADDRESS_LIMIT, self._address_limit_cause
        elif target is None or not connected:
            attempt = socket.socket(fileno=upstream) if upstream >= 0 else None
            return PendingClient(client, host, address, attempt, counted_host)
        else:
            self.join(EndpointSocket(client), Origin(host), EndpointSocket(upstream), address, target, port)
            return None
        if upstream >= 0:
            os.close(upstream)
        self.refuse(client, port, reason)
        self._warn_turned_away(reason, cause)
        return None

    @property
    def _is_full(self) -> bool:
        """Whether the connection limit is reached, so that the next client is turned away."""
        return self._traffic.client_connections >= self._max_connections

    @property
    def _connection_limit_cause(self) -> str:
        open_connections = f"{self._max_connections} connections are open"
        return f"{open_connections} (limits.connections, or the system's limit on descriptors)"

    @property
    def _address_limit_cause(self) -> str:
        return f"its address has {self._per_address.max_connections} connections (limits.connections_per_address)"

    def count_address(self, pending: PendingClient, host: str, received: bytes) -> PendingClient | None:
        """Counts a connection whose PROXY header has named the client's host. Returns the client with this host.

        Returns None if the host has too many connections.
        """
        if not self._per_address.try_add(host):
            self._warn_turned_away(CloseReason.ADDRESS_LIMIT, self._address_limit_cause)
            return None
        return pending._replace(host=host, counted_host=host, received=received)

    def remember_target(self, address: Address, upstream: socket.socket) -> Target:
        """Stores and returns the socket address of a broker connection. Raises OSError if the connection is closed."""
        target = Target(upstream.family, upstream.getpeername())
        if self._targets.get(address) != target:
            self._targets[address] = target
        return target

    def forget_target(self, address: Address) -> None:
        """Forgets the socket address of a broker, because the broker may have moved."""
        self._targets.pop(address, None)

    def join(
        self,
        client: EndpointSocket,
        origin: Origin,
        upstream: EndpointSocket,
        address: Address,
        target: Target,
        port: ClientPort,
    ) -> None:
        """Hands a client and its broker connection to the connection manager. The caller has counted the client's host.

        `address`: the configured address of the broker. `target`: where the broker connection leads.
        """
        session: Session | None = None
        try:
            session = port.new_session(origin, address, Address(*target.address[:2]))
            if cause := session.dispatcher.admit(origin):
                session.close(self._connection_manager.poller.now)
                self._turn_away(client, origin, upstream, port, cause)
            else:
                self._connection_manager.add(client, upstream, session, port.counters)
        except Exception as error:  # noqa: BLE001  No exception of this connection may end other connections.
            if session is not None:
                session.close(self._connection_manager.poller.now)
            os.close(upstream.fd)
            if isinstance(error, NotServed):
                self.refuse(client.fd, port, CloseReason.UPSTREAM_UNREACHABLE, origin.client_host)
            elif isinstance(error, OSError):
                self.refuse(client.fd, port, CloseReason.CLIENT_CLOSED, origin.client_host)
            else:
                self.refuse(client.fd, port, CloseReason.ERROR, origin.client_host)
                log.exception("a connection failed", client=origin.client_host)

    def _turn_away(
        self, client: EndpointSocket, origin: Origin, upstream: EndpointSocket, port: ClientPort, cause: str
    ) -> None:
        """Closes both connections of a client whose principal has too many connections."""
        os.close(upstream.fd)
        self.refuse(client.fd, port, CloseReason.PRINCIPAL_LIMIT, origin.client_host)
        where = {"client": origin.client_host, "subject": origin.subject or ""}
        self._warn_turned_away(CloseReason.PRINCIPAL_LIMIT, cause, **where)

    def refuse(self, client: int, port: ClientPort, reason: CloseReason, counted_host: str | None = None) -> None:
        """Closes a client's socket and counts the reason.

        `counted_host`: the host whose number of connections includes this connection, or None.
        """
        os.close(client)
        port.counters.connection_closed(reason)
        if counted_host is not None:
            self._per_address.remove(counted_host)

    def warn(self, event: str, cause: str, **where: str) -> None:
        """Logs a warning, unless it was logged recently. A later warning contains how often the problem occurred."""
        self._warn((event, *where.values()), event, cause, **where)

    def _warn_turned_away(self, reason: CloseReason, cause: str, **where: str) -> None:
        """Logs that a client was turned away. One limit does not silence the warnings of another limit."""
        self._warn((TURNED_AWAY, reason, *where.values()), TURNED_AWAY, cause, **where)

    def _warn(self, key: tuple[str, ...], event: str, cause: str, **where: str) -> None:
        if times := self.log_throttle.due(*key):
            log.warning(event, **where, cause=cause, times=times)
