"""What comes before Kafka's first request at one listener: the PROXY header and the TLS handshakes."""

import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from group_sidecar.metrics.listener_counters import ListenerCounters, TlsFailure, TlsSide
from group_sidecar.proxy.config.listener_sections import Listener, ListenerTls, UpstreamTls
from group_sidecar.proxy.dataplane.endpoint_socket import EndpointSocket
from group_sidecar.proxy.dataplane.tls_endpoint import TlsEndpoint, TlsState
from group_sidecar.proxy.listeners.proxy_protocol import BadProxyHeader, ProxyHeader, ProxyHeaderReader
from group_sidecar.proxy.runtime.os_errors import reason_of
from group_sidecar.proxy.tls.certificates import expires_at
from group_sidecar.proxy.tls.contexts import (
    ReloadingContext,
    listener_context,
    listener_files,
    upstream_context,
    upstream_files,
)
from group_sidecar.proxy.tls.handshake import HandshakeError, handshake

PROXY_HEADER_CHUNK = 4_096
"""Bytes of one read of a PROXY header. What follows the header is kept."""


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
        self._server_name = listener.upstream_tls and listener.upstream_tls.server_name
        self._client_context = self._context_for_clients(listener.name, listener.tls)
        self._upstream_context = self._context_for_broker(listener.name, listener.upstream_tls)
        self._last_upstreams: dict[str, ssl.SSLObject] = {}
        """The last TLS connection to each broker, whose session may be resumed."""

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

    async def accept(self, descriptor: int, received: bytes) -> EndpointSocket:
        """Returns the endpoint of a client that has connected.

        Args:
            descriptor: the client's non-blocking socket. If the function raises, the caller still owns it.
            received: what the client has sent after its PROXY header.

        Raises:
            HandshakeError: the client's TLS handshake failed.
        """
        if self._client_context is None:
            return EndpointSocket(descriptor, received)
        client = socket.socket(fileno=descriptor)
        try:
            attempt = partial(handshake, client, self._client_context.current(), received=received)
            return TlsEndpoint(descriptor, await self._handshake(TlsSide.CLIENT, attempt))
        finally:
            client.detach()

    async def connect(self, upstream: socket.socket, host: str) -> EndpointSocket:
        """Returns the endpoint of an established connection to a broker. Takes over the socket unless it raises.

        Args:
            upstream: a non-blocking socket.
            host: the broker's host, whose name the certificate must contain if the settings have no `server_name`.

        Raises:
            HandshakeError: the handshake with the broker failed.
        """
        if self._upstream_context is None:
            return EndpointSocket(upstream.detach())
        context, name = self._upstream_context.current(), self._server_name or host
        attempt = partial(handshake, upstream, context, server_name=name, session=self._session(name, context))
        state = await self._handshake(TlsSide.UPSTREAM, attempt)
        self._last_upstreams[name] = state.tls
        return TlsEndpoint(upstream.detach(), state)

    async def _handshake(self, side: TlsSide, attempt: Callable[[], Awaitable[TlsState]]) -> TlsState:
        try:
            with trio.fail_after(self._seconds):
                state = await attempt()
        except HandshakeError as error:
            self._counters.handshake_failed(side, error.failure)
            raise
        except trio.TooSlowError:
            self._counters.handshake_failed(side, TlsFailure.TIMEOUT)
            reason = f"no handshake within {self._seconds:g} s (limits.handshake_seconds)"
            raise HandshakeError(TlsFailure.TIMEOUT, reason) from None
        self._counters.handshake_done(side)
        return state

    def _session(self, server_name: str, context: ssl.SSLContext) -> ssl.SSLSession | None:
        """Returns the last session with a broker, which the broker may resume. A new context has no sessions."""
        last = self._last_upstreams.get(server_name)
        return last.session if last is not None and last.context is context else None

    def _context_for_clients(self, name: str, tls: ListenerTls | None) -> ReloadingContext | None:
        if tls is None:
            return None

        def make() -> ssl.SSLContext:
            context = listener_context(tls)
            self._counters.certificates_expire_at[TlsSide.CLIENT] = expires_at(tls.certificate_file)
            return context

        return ReloadingContext(f"{name}: tls", listener_files(tls), make)

    def _context_for_broker(self, name: str, tls: UpstreamTls | None) -> ReloadingContext | None:
        if tls is None:
            return None

        def make() -> ssl.SSLContext:
            context = upstream_context(tls)
            if tls.certificate_file is not None:
                self._counters.certificates_expire_at[TlsSide.UPSTREAM] = expires_at(tls.certificate_file)
            return context

        return ReloadingContext(f"{name}: upstream_tls", upstream_files(tls), make)


def handshakes_of(listener: Listener, counters: ListenerCounters, seconds: float) -> ListenerHandshakes | None:
    """Returns the handshakes of a listener, or None if its connections begin with Kafka's first request.

    `seconds`: see `ListenerHandshakes`.

    Raises:
        UnusableFileError: a file of the settings cannot be used.
    """
    if listener.tls is None and listener.upstream_tls is None and not listener.proxy_protocol:
        return None
    return ListenerHandshakes(listener, counters, seconds)


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
