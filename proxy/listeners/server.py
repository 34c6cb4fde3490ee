"""Accepts clients, and serves the clients that cannot be connected to their broker at once.

Connecting takes time if the broker's name must be resolved, if the broker is far away or does not answer, or if the
listener has handshakes. `admission` admits all other clients at once.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from select import EPOLLIN

import trio

from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.dataplane.connections import ConnectionManager
from group_sidecar.proxy.dataplane.endpoint_socket import EndpointSocket
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.listeners.acceptor import ACCEPT_BATCH, AcceptedClient, Acceptor, Target, start_connect
from group_sidecar.proxy.listeners.admission import Admission, AdmissionLimits, ClientPort, PendingClient
from group_sidecar.proxy.listeners.handshakes import AcceptedEndpoint, UpstreamEndpoint
from group_sidecar.proxy.listeners.proxy_protocol import BadProxyHeader
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.os_errors import reason_of
from group_sidecar.proxy.runtime.supervision import Supervisor, Task
from group_sidecar.proxy.tls.handshake import HandshakeError

try:
    from group_sidecar.proxy.listeners.acceptor_thread import AcceptorThread

    ACCEPTOR: type[Acceptor | AcceptorThread] = AcceptorThread
except ImportError:  # There was no C compiler when the sidecar was installed.
    ACCEPTOR = Acceptor

CONNECT_SECONDS = 10.0
EXHAUSTED_SECONDS = 0.2
"""How many seconds a port is paused when the system has no descriptor or memory for another connection."""
THROTTLED_SECONDS = 0.05
"""The minimum number of seconds for which a port is paused when `limits.accept_rate` is reached. Without the minimum, a
high rate would wake the process for each client."""
UNREACHABLE = "the broker is unreachable"


async def connect(address: Address, seconds: float = CONNECT_SECONDS) -> socket.socket:
    """Returns a non-blocking connection to the first address of a host that accepts one.

    The name is resolved at each call.

    Raises:
        OSError: the name cannot be resolved, or no address has accepted a connection in time.
    """
    failure = OSError(errno.EHOSTUNREACH, "has no address")
    with trio.move_on_after(seconds):
        for family, _, _, _, target in await trio.socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            try:
                return await _connected(start_connect(Target(family, target)))
            except OSError as error:
                failure = error
        raise failure
    raise OSError(errno.ETIMEDOUT, f"no connection within {seconds:g} seconds")


async def _connected(peer: socket.socket) -> socket.socket:
    """Returns a socket when its connection is established. If the connection fails, closes it and raises OSError."""
    try:
        await trio.lowlevel.wait_writable(peer)
        if error_number := peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error_number, os.strerror(error_number))
    except BaseException:
        peer.close()
        raise
    return peer


class Server:
    """Accepts clients and connects them to their brokers.

    Args:
        connection_manager: carries the connections.
        traffic: knows how many connections are open.
        limits: how many connections may be open, and how fast they are accepted.
        supervisor: handles unexpected failures.
        on_reachability_changed: called with a broker's address and False after a failed connection or TLS handshake,
            and with True when the broker accepts connections again.
    """

    def __init__(
        self,
        connection_manager: ConnectionManager,
        traffic: TrafficCounters,
        limits: AdmissionLimits,
        supervisor: Supervisor | None = None,
        on_reachability_changed: Callable[[Address, bool], None] = lambda *_: None,
    ) -> None:
        self._poller = connection_manager.poller
        self._supervisor = supervisor or Supervisor()
        self._on_reachability_changed = on_reachability_changed
        self._admission = Admission(connection_manager, traffic, limits)
        self._accepts_no_more = trio.Event()

    def stop_accepting(self) -> None:
        """Accepts no more clients. `serve` still connects the clients that were accepted, and then returns."""
        self._accepts_no_more.set()

    async def serve(self, listeners: list[socket.socket], port: ClientPort) -> None:
        """Accepts clients until cancelled, then closes the sockets of the port.

        After `stop_accepting`, returns when the accepted clients are connected.
        """
        acceptors: list[Acceptor | AcceptorThread] = []
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    acceptor = ACCEPTOR(listener)
                    acceptors.append(acceptor)
                    ready = partial(self._accept_ready, acceptor, port, nursery)
                    self._poller.watch(acceptor.fileno(), EPOLLIN, ready)
                try:
                    await self._accepts_no_more.wait()
                finally:  # The nursery is still open here. A client accepted later could not be connected.
                    for acceptor in acceptors:
                        self._poller.unwatch(acceptor.fileno())
                for acceptor in acceptors:
                    self._admit(acceptor.take_remaining, port, nursery)
        finally:
            for acceptor in acceptors:
                acceptor.close()
            for listener in listeners:
                listener.close()

    def _accept_ready(
        self,
        acceptor: "Acceptor | AcceptorThread",
        port: ClientPort,
        nursery: trio.Nursery,
        events: int,
    ) -> None:
        """Admits the accepted clients. Pauses the port if it may not accept more clients now, or after a failure."""
        try:
            self._admit_accepted(acceptor, port, nursery)
        except Exception as error:  # noqa: BLE001  A port that cannot accept clients may not end other connections.
            self._supervisor.failed(Task.CONNECTIONS, error)
            self._pause(acceptor, EXHAUSTED_SECONDS, nursery)

    def _admit_accepted(self, acceptor: "Acceptor | AcceptorThread", port: ClientPort, nursery: trio.Nursery) -> None:
        bucket, max_clients = self._admission.accept_bucket(port), ACCEPT_BATCH
        if bucket:
            max_clients = min(max_clients, bucket.available(self._poller.now))
            if not max_clients:
                self._throttle(acceptor, port, max(bucket.seconds_to_next(), THROTTLED_SECONDS), nursery)
                return
        if not self._admit(partial(acceptor.take_accepted, max_clients=max_clients), port, nursery):
            self._pause(acceptor, EXHAUSTED_SECONDS, nursery)

    def _admit(
        self, take: Callable[[Target | None], Iterator[AcceptedClient]], port: ClientPort, nursery: trio.Nursery
    ) -> bool:
        """Admits clients. Returns False if the system has no descriptor or memory for another client.

        `take`: called with the broker's socket address or None, as in `Acceptor.take_accepted`. Returns the accepted
        clients.
        """
        address, bucket = port.upstream(), self._admission.accept_bucket(port)
        target = self._admission.target(address, port)
        try:
            for accepted in take(target):
                if bucket:
                    bucket.take()
                try:
                    pending_client = self._admission.admit(accepted, address, target, port)
                except OSError:
                    raise
                except Exception as error:  # noqa: BLE001  A client that fails may not end other connections.
                    self._supervisor.failed(Task.CONNECTIONS, error)
                    continue
                if pending_client is not None:
                    nursery.start_soon(self._connect_and_admit, pending_client, port)
        except OSError as error:
            self._admission.warn("no connection can be accepted", reason_of(error))
            return False
        return True

    def _throttle(
        self, acceptor: "Acceptor | AcceptorThread", port: ClientPort, seconds: float, nursery: trio.Nursery
    ) -> None:
        """Pauses a port whose listener has accepted as many clients as its rate allows."""
        port.counters.accept_throttled_seconds += seconds
        self._admission.warn("clients wait to be accepted", "limits.accept_rate", listener=port.counters.name)
        self._pause(acceptor, seconds, nursery)

    def _pause(self, acceptor: "Acceptor | AcceptorThread", seconds: float, nursery: trio.Nursery) -> None:
        async def rest() -> None:
            await trio.sleep(seconds)
            if not self._accepts_no_more.is_set():
                self._poller.resume(acceptor.fileno(), EPOLLIN)

        self._poller.pause(acceptor.fileno())
        nursery.start_soon(rest)

    async def _connect_and_admit(self, pending: PendingClient, port: ClientPort) -> None:
        """Does the handshakes of a client and of its broker connection, and hands both to the connection manager."""
        try:
            pending = await self._with_counted_host(pending, port)
            client, subject, server_name = await self._client_endpoint(pending, port)
            if port.by_name is not None:
                port, pending = _named(port.by_name(server_name), pending)
            upstream, target = await self._upstream_endpoint(pending, port, subject)
        except _Refused as refused:
            self._admission.refuse(pending.client, port, refused.reason, pending.counted_host)
        except Exception:  # noqa: BLE001  No exception of this connection may end other connections.
            self._admission.refuse(pending.client, port, CloseReason.ERROR, pending.counted_host)
            log.exception("a connection failed", client=pending.host)
        except BaseException:
            self._admission.refuse(pending.client, port, CloseReason.SHUTDOWN, pending.counted_host)
            raise
        else:
            origin = Origin(pending.host, subject=subject, certificate=upstream.certificate)
            self._admission.join(client, origin, upstream.endpoint, pending.address, target, port)

    async def _with_counted_host(self, pending: PendingClient, port: ClientPort) -> PendingClient:
        """Returns a client whose host is known and counted. Raises _Refused if the client must be turned away."""
        if pending.counted_host is not None or port.handshakes is None:
            return pending
        try:
            header = await port.handshakes.read_proxy_header(pending.client)
        except BadProxyHeader as error:
            where = {"client": pending.host, "listener": port.counters.name}
            self._admission.warn("a client sent no PROXY header", str(error), **where)
            raise _Refused(CloseReason.PROXY_HEADER) from None
        counted = self._admission.count_address(pending, header.source or pending.host, header.rest)
        if counted is None:
            raise _Refused(CloseReason.ADDRESS_LIMIT)
        return counted

    async def _client_endpoint(self, pending: PendingClient, port: ClientPort) -> AcceptedEndpoint:
        """Returns the client's endpoint. Raises _Refused if its handshake failed."""
        if port.handshakes is None:
            return AcceptedEndpoint(EndpointSocket(pending.client))
        try:
            by_name = port.by_name
            leads_to_broker = None if by_name is None else lambda name: by_name(name) is not None
            return await port.handshakes.accept(pending.client, pending.host, pending.received, leads_to_broker)
        except HandshakeError as error:
            where = {"client": pending.host, "listener": port.counters.name, "reason": error.failure.value}
            self._admission.warn("a client's TLS handshake failed", str(error), **where)
            raise _Refused(CloseReason.TLS_HANDSHAKE) from None

    async def _upstream_endpoint(
        self, pending: PendingClient, port: ClientPort, subject: str | None
    ) -> tuple[UpstreamEndpoint, Target]:
        """Returns the endpoint of the broker connection. Raises _Refused if there is no connection.

        `subject`: the subject of the client's certificate, or None.
        """
        admission, address = self._admission, pending.address
        # If the broker cannot be reached, the client's connection is closed at once. The client then retries later, as
        # after a refused connection.
        try:
            upstream = await self._connect(address, pending.attempt)
            target = admission.remember_target(address, upstream)
        except OSError as error:
            port.counters.upstream_connect_failures += 1
            admission.warn(UNREACHABLE, reason_of(error), address=str(address))
            self._on_reachability_changed(address, False)
            raise _Refused(CloseReason.UPSTREAM_UNREACHABLE) from None
        except Exception as error:  # noqa: BLE001  A broker may have advertised an invalid host name.
            port.counters.upstream_connect_failures += 1
            self._supervisor.failed(Task.CONNECTIONS, error, str(address))
            self._on_reachability_changed(address, False)
            raise _Refused(CloseReason.UPSTREAM_UNREACHABLE) from None
        if admission.log_throttle.ended(UNREACHABLE, str(address)):
            log.info("the broker is reachable again", address=str(address))
            self._on_reachability_changed(address, True)
        if port.handshakes is None:
            return UpstreamEndpoint(EndpointSocket(upstream.detach())), target
        try:
            return await port.handshakes.connect(upstream, address.host, pending.host, subject), target
        except HandshakeError as error:
            upstream.close()
            where = {"address": str(address), "reason": error.failure.value}
            if subject is not None:
                where["subject"] = subject
            admission.warn("the broker's TLS handshake failed", str(error), **where)
            self._on_reachability_changed(address, False)
            raise _Refused(CloseReason.UPSTREAM_TLS) from None

    async def _connect(self, address: Address, attempt: socket.socket | None) -> socket.socket:
        """Returns the socket of the attempt when it has connected, otherwise a new connection.

        After a failed attempt the name is resolved again, because the broker may have another address now.
        """
        if attempt is not None:
            with trio.move_on_after(CONNECT_SECONDS), suppress(OSError):
                return await _connected(attempt)
            self._admission.forget_target(address)
        return await connect(address)


def _named(port: ClientPort | None, pending: PendingClient) -> tuple[ClientPort, PendingClient]:
    """Returns the port to which a client's name leads, and the client with the address of that broker."""
    if port is None:
        raise _Refused(CloseReason.TLS_HANDSHAKE)
    return port, pending._replace(address=port.upstream())


class _Refused(Exception):
    """A client cannot be served. `reason`: why its connection is closed."""

    def __init__(self, reason: CloseReason) -> None:
        super().__init__(reason)
        self.reason = reason
