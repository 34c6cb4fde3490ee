"""What comes before Kafka's first request at one listener: the PROXY header and the TLS handshakes."""

import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import trio

from group_sidecar.metrics.listener_counters import ListenerCounters, TlsFailure, TlsSide
from group_sidecar.proxy.config.listener_sections import Listener, ListenerTls, UpstreamTls
from group_sidecar.proxy.dataplane.endpoint_socket import EndpointSocket
from group_sidecar.proxy.dataplane.tls_endpoint import TlsEndpoint, TlsState
from group_sidecar.proxy.listeners.proxy_protocol import BadProxyHeader, ProxyHeader, ProxyHeaderReader
from group_sidecar.proxy.tls.certificates import expires_at
from group_sidecar.proxy.tls.contexts import (
    ReloadingContext,
    listener_context,
    listener_files,
    upstream_context,
    upstream_files,
)
from group_sidecar.proxy.tls.handshake import HandshakeError, handshake

HANDSHAKE_SECONDS = 10.0
"""Seconds that each handshake may take. Kafka itself has no such limit before its idle timeout of ten minutes."""
PROXY_HEADER_CHUNK = 4_096
"""Bytes of one read of a PROXY header. What follows the header is kept."""


class ClientEndpoint(NamedTuple):
    """A client's socket, and the client's host."""

    endpoint: EndpointSocket
    host: str


class ListenerHandshakes:
    """The handshakes of one listener. Without TLS on a side, the sockets of that side stay plain.

    Args:
        listener: the settings.
        counters: counts handshakes.

    Raises:
        UnusableFileError: a file of the settings cannot be used.
    """

    def __init__(self, listener: Listener, counters: ListenerCounters) -> None:
        self._counters = counters
        self._expects_proxy_header = listener.proxy_protocol
        self._server_name = listener.upstream_tls and listener.upstream_tls.server_name
        self._client_context = self._context_for_clients(listener.name, listener.tls)
        self._upstream_context = self._context_for_broker(listener.name, listener.upstream_tls)
        self._last_upstreams: dict[str, ssl.SSLObject] = {}
        """The last TLS connection to each broker, whose session may be resumed."""

    async def accept(self, descriptor: int, host: str) -> ClientEndpoint:
        """Returns the endpoint of a client that has connected, and the client's host.

        Args:
            descriptor: the client's non-blocking socket. If the function raises, the caller still owns it.
            host: the host from which the connection comes.

        Raises:
            HandshakeError: the client's TLS handshake failed.
            BadProxyHeader: the connection does not begin with a PROXY header.
        """
        received = b""
        client = socket.socket(fileno=descriptor)
        try:
            if self._expects_proxy_header:
                header = await _read_proxy_header(client)
                host, received = header.source or host, header.rest
            if self._client_context is None:
                return ClientEndpoint(EndpointSocket(descriptor, received), host)
            attempt = partial(handshake, client, self._client_context.current(), received=received)
            return ClientEndpoint(TlsEndpoint(descriptor, await self._handshake(TlsSide.CLIENT, attempt)), host)
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
            with trio.fail_after(HANDSHAKE_SECONDS):
                state = await attempt()
        except HandshakeError as error:
            self._counters.handshake_failed(side, error.failure)
            raise
        except trio.TooSlowError:
            self._counters.handshake_failed(side, TlsFailure.TIMEOUT)
            raise HandshakeError(TlsFailure.TIMEOUT, f"no handshake within {HANDSHAKE_SECONDS:g} s") from None
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


def handshakes_of(listener: Listener, counters: ListenerCounters) -> ListenerHandshakes | None:
    """Returns the handshakes of a listener, or None if its connections begin with Kafka's first request.

    Raises:
        UnusableFileError: a file of the settings cannot be used.
    """
    if listener.tls is None and listener.upstream_tls is None and not listener.proxy_protocol:
        return None
    return ListenerHandshakes(listener, counters)


async def _read_proxy_header(client: socket.socket) -> ProxyHeader:
    reader, stream = ProxyHeaderReader(), trio.socket.from_stdlib_socket(client)
    try:
        with trio.fail_after(HANDSHAKE_SECONDS):
            while True:
                chunk = await stream.recv(PROXY_HEADER_CHUNK)
                if not chunk:
                    raise BadProxyHeader("the connection ended before the PROXY header")
                if header := reader.feed(chunk):
                    return header
    except trio.TooSlowError:
        raise BadProxyHeader(f"no PROXY header within {HANDSHAKE_SECONDS:g} s") from None
    except OSError as error:
        raise BadProxyHeader((error.strerror or str(error)).lower()) from None
