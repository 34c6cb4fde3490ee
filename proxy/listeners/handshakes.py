"""What comes before Kafka's first request at one listener: the PROXY header and the TLS handshakes."""

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

import trio

from group_sidecar.metrics.listener_counters import ListenerCounters, TlsFailure, TlsSide
from group_sidecar.proxy.config.listener_sections import Listener
from group_sidecar.proxy.dataplane.endpoint_socket import EndpointSocket
from group_sidecar.proxy.dataplane.tls_endpoint import TlsEndpoint, TlsState
from group_sidecar.proxy.listeners.broker_certificates import BrokerCertificates
from group_sidecar.proxy.listeners.listener_certificates import ListenerCertificates
from group_sidecar.proxy.listeners.proxy_protocol import BadProxyHeader, ProxyHeader, ProxyHeaderReader
from group_sidecar.proxy.runtime.os_errors import reason_of
from group_sidecar.proxy.tls.handshake import HandshakeError, handshake, read_client_hello
from group_sidecar.proxy.tls.subject import subject_of

PROXY_HEADER_CHUNK = 4_096
"""The maximum number of bytes of one read of a PROXY header. Bytes after the header are kept."""
UNRECOGNIZED_NAME = bytes((21, 3, 3, 0, 2, 2, 112))
"""A TLS record with the fatal alert unrecognized_name (RFC 6066, 3)."""
MAX_LOGGED_NAME = 253
"""How many characters of the name that a client asks for are logged. No host name is longer."""
_Done = TypeVar("_Done")


class BrokerNotKnownYet(LookupError):
    """A client asks for a broker that the gateway does not know yet, for instance just after the gateway's start."""


LeadsToBroker: TypeAlias = Callable[[str | None], bool]
"""Returns whether a name leads to a broker. The name is in lower case; None if the client asks for none."""


class AcceptedEndpoint(NamedTuple):
    """A client's endpoint.

    Attributes:
        subject: the subject of the client's verified certificate; None if there is no certificate.
        server_name: the name that the client has asked for, in lower case; None if it asked for none.
    """

    endpoint: EndpointSocket
    subject: str | None = None
    server_name: str | None = None


class UpstreamEndpoint(NamedTuple):
    """The endpoint of a broker connection.

    Attributes:
        certificate: the number of the sidecar's certificate, as in `BrokerTls`; 0 without TLS.
    """

    endpoint: EndpointSocket
    certificate: int = 0


class ListenerHandshakes:
    """The handshakes of one listener. Without TLS on a side, the sockets of that side stay plain.

    Args:
        listener: the settings.
        counters: counts handshakes.
        seconds: how many seconds the PROXY header and each TLS handshake may take.

    Attributes:
        expects_proxy_header: whether each connection of a client begins with a PROXY header.

    Raises:
        UnusableFileError: a file of the settings cannot be used.
    """

    def __init__(self, listener: Listener, counters: ListenerCounters, seconds: float) -> None:
        self._counters = counters
        self._seconds = seconds
        self.expects_proxy_header = listener.proxy_protocol
        name, tls, upstream_tls = listener.name, listener.tls, listener.upstream_tls
        self._for_clients = None if tls is None else ListenerCertificates(name, tls)
        self._for_broker = None if upstream_tls is None else BrokerCertificates(name, upstream_tls)

    def certificates_expire_at(self) -> dict[TlsSide, float]:
        """Returns when the first certificate for each side expires, in seconds since the epoch."""
        sides = {TlsSide.CLIENT: self._for_clients, TlsSide.UPSTREAM: self._for_broker}
        found = {side: certificates.expire_at() for side, certificates in sides.items() if certificates is not None}
        return {side: at for side, at in found.items() if at is not None}

    async def read_proxy_header(self, descriptor: int) -> ProxyHeader:
        """Returns the PROXY header of a client that has connected.

        `descriptor`: the client's non-blocking socket, which the caller still owns.

        Raises:
            BadProxyHeader: the connection does not begin with a PROXY header.
        """
        client = socket.socket(fileno=descriptor)
        try:
            return await _read_proxy_header(client, self._seconds)
        finally:
            client.detach()

    async def accept(
        self, descriptor: int, host: str, received: bytes, leads_to_broker: LeadsToBroker | None = None
    ) -> AcceptedEndpoint:
        """Returns the endpoint of a client that has connected, after the TLS handshake if the listener has TLS.

        Args:
            descriptor: the client's non-blocking socket. If the function raises, the caller still owns the socket.
            host: the client's host.
            received: what the client has sent after its PROXY header.
            leads_to_broker: decides whether a client may ask for a name; None if clients may ask for any name. This
                function may raise BrokerNotKnownYet.

        Raises:
            HandshakeError: the client's TLS handshake failed.
        """
        if self._for_clients is None:
            return AcceptedEndpoint(EndpointSocket(descriptor, received))
        client = socket.socket(fileno=descriptor)
        try:
            attempt = partial(_serve_handshake, client, self._for_clients, host, received, leads_to_broker)
            state, name = await self._handshake(TlsSide.CLIENT, attempt)
        finally:
            client.detach()
        certificate = state.tls.getpeercert(binary_form=True)  # Resumed sessions keep their certificate.
        subject = subject_of(certificate) if certificate else None
        return AcceptedEndpoint(TlsEndpoint(descriptor, state), subject, name)

    async def connect(
        self, upstream: socket.socket, host: str, client_host: str, subject: str | None
    ) -> UpstreamEndpoint:
        """Returns the endpoint of an established connection to a broker, after the TLS handshake if there is one.

        Args:
            upstream: a non-blocking socket. If the function raises, the caller still owns the socket.
            host: the broker's host. If the settings have no `server_name`, the broker's certificate must contain this
                host.
            client_host: the host of the client for which the sidecar connects.
            subject: the subject of the client's certificate, or None.

        Raises:
            HandshakeError: the handshake with the broker failed.
        """
        if self._for_broker is None:
            return UpstreamEndpoint(EndpointSocket(upstream.detach()))
        attempt = partial(self._for_broker.choose(subject).handshake, upstream, host, client_host)
        state, certificate = await self._handshake(TlsSide.UPSTREAM, attempt)
        return UpstreamEndpoint(TlsEndpoint(upstream.detach(), state), certificate)

    async def _handshake(self, side: TlsSide, attempt: Callable[[], Awaitable[_Done]]) -> _Done:
        try:
            with trio.fail_after(self._seconds):
                done = await attempt()
        except HandshakeError as error:
            self._counters.handshake_failed(side, error.failure)
            raise
        except trio.TooSlowError:
            self._counters.handshake_failed(side, TlsFailure.TIMEOUT)
            reason = f"no handshake within {self._seconds:g} s (limits.handshake_seconds)"
            raise HandshakeError(TlsFailure.TIMEOUT, reason) from None
        self._counters.handshake_done(side)
        return done


def handshakes_of(listener: Listener, counters: ListenerCounters, seconds: float) -> ListenerHandshakes | None:
    """Returns the handshakes of a listener, or None if its connections begin with Kafka's first request.

    `seconds`: see `ListenerHandshakes`.

    Raises:
        UnusableFileError: a file of the settings cannot be used.
    """
    if listener.tls is None and listener.upstream_tls is None and not listener.proxy_protocol:
        return None
    return ListenerHandshakes(listener, counters, seconds)


async def _serve_handshake(
    client: socket.socket,
    certificates: ListenerCertificates,
    host: str,
    received: bytes,
    leads_to_broker: LeadsToBroker | None,
) -> tuple[TlsState, str | None]:
    """Does the handshake of a client with the certificate for the name that the client asks for. Also returns the name.

    Raises:
        HandshakeError: the handshake failed.
    """
    hello = await read_client_hello(client, received)
    name = hello.server_name()
    asked = f"the name {name[:MAX_LOGGED_NAME]}" if name else "no name (SNI)"
    try:
        # Bytes that are no ClientHello are left to OpenSSL, whose error says more than a missing name.
        refused = leads_to_broker is not None and hello.is_client_hello and not leads_to_broker(name)
    except BrokerNotKnownYet:
        # No alert is sent: clients give up after an alert, but retry after a close.
        reason = f"the client asks for {asked}, and this broker is not known yet"
        raise HandshakeError(TlsFailure.SERVER_NAME, reason) from None
    if refused:
        with suppress(OSError):
            client.send(UNRECOGNIZED_NAME)
        raise HandshakeError(TlsFailure.SERVER_NAME, f"the client asks for {asked}, which leads to no broker")
    return await handshake(client, certificates.choose(name), host, received=bytes(hello.received)), name


async def _read_proxy_header(client: socket.socket, seconds: float) -> ProxyHeader:
    reader, stream = ProxyHeaderReader(), trio.socket.from_stdlib_socket(client)
    try:
        with trio.fail_after(seconds):
            while True:
                chunk = await stream.recv(PROXY_HEADER_CHUNK)
                if not chunk:
                    raise BadProxyHeader("the connection ended before the PROXY header")
                if header := reader.feed(chunk):
                    return header
    except trio.TooSlowError:
        raise BadProxyHeader(f"no PROXY header within {seconds:g} s (limits.handshake_seconds)") from None
    except OSError as error:
        raise BadProxyHeader(reason_of(error)) from None
