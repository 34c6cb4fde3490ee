"""A TLS handshake over a non-blocking socket, before the data path takes over.

A worker thread does the arithmetic of a handshake, which takes about a millisecond. The thread of the data path goes on
meanwhile, because OpenSSL releases Python's lock. At most HANDSHAKE_THREADS handshakes compute at a time, so a flood of
handshakes leaves the processors to the data path.
"""

import socket
import ssl

import trio

from group_sidecar.metrics.listener_counters import TlsFailure
from group_sidecar.proxy.dataplane.tls_endpoint import TlsState
from group_sidecar.proxy.dataplane.tls_records import RecordWalker
from group_sidecar.proxy.runtime.os_errors import reason_of

HANDSHAKE_THREADS = 2
MAX_HANDSHAKE_BYTES = 32_768
"""How many bytes a peer may send for its handshake. A chain of three certificates takes 6 KB. OpenSSL itself accepts
100 KB of certificates, and needs 50 ms to read them and ten times their size to keep them with the session."""
_CHUNK = 16_384
_limiter = trio.CapacityLimiter(HANDSHAKE_THREADS)
_PLAINTEXT_REASONS = frozenset({"HTTP_REQUEST", "WRONG_VERSION_NUMBER", "HTTPS_PROXY_REQUEST"})
"""OpenSSL's reasons for bytes that are not TLS."""
_CERTIFICATE_WORDS = ("CERTIFICATE", "UNKNOWN_CA")


class HandshakeError(Exception):
    """A handshake failed. The text is one clause.

    Attributes:
        failure: the kind of failure, for the metric.
    """

    def __init__(self, failure: TlsFailure, reason: str) -> None:
        super().__init__(reason)
        self.failure = failure


async def handshake(
    peer: socket.socket,
    context: ssl.SSLContext,
    *,
    server_name: str | None = None,
    session: ssl.SSLSession | None = None,
    received: bytes = b"",
) -> TlsState:
    """Does a handshake, and returns the state of TLS. The caller keeps the socket.

    Args:
        peer: a connected non-blocking socket.
        context: the context.
        server_name: the name of the server to which the socket leads; None if the peer is the client.
        session: an earlier session with the same server and context, which the server may resume.
        received: bytes of the peer that were read before.

    Raises:
        HandshakeError: the handshake failed.
    """
    incoming, outgoing, records = ssl.MemoryBIO(), ssl.MemoryBIO(), RecordWalker()
    unread, received_bytes = received, len(received)
    try:
        tls = context.wrap_bio(incoming, outgoing, server_name is None, server_name, session)
        incoming.write(received)
        stream = trio.socket.from_stdlib_socket(peer)
        while True:
            done = await trio.to_thread.run_sync(_step, tls, limiter=_limiter)
            await _send(stream, outgoing)
            read = len(unread) - incoming.pending
            records.walk(unread[:read], 0, read)
            unread = unread[read:]
            if done:
                incoming.read()  # The data path decides when OpenSSL gets the rest.
                return TlsState(tls, incoming, outgoing, unread, records)
            if received_bytes > MAX_HANDSHAKE_BYTES:
                reason = f"the peer's handshake is longer than {MAX_HANDSHAKE_BYTES} bytes"
                raise HandshakeError(TlsFailure.PROTOCOL, reason)
            chunk = await stream.recv(_CHUNK)
            if not chunk:
                raise HandshakeError(TlsFailure.CLOSED, "the peer closed the connection")
            incoming.write(chunk)
            unread += chunk
            received_bytes += len(chunk)
    except ssl.SSLError as error:
        await _send_alert(peer, outgoing)
        raise _explained(error) from None
    except OSError as error:
        raise HandshakeError(TlsFailure.CLOSED, reason_of(error)) from None


def _step(tls: ssl.SSLObject) -> bool:
    """Advances a handshake as far as the bytes permit. Returns whether it is complete."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


async def _send(stream: trio.socket.SocketType, outgoing: ssl.MemoryBIO) -> None:
    data = outgoing.read()
    while data:
        data = data[await stream.send(data) :]


async def _send_alert(peer: socket.socket, outgoing: ssl.MemoryBIO) -> None:
    """Tells the peer why the handshake failed, if the socket accepts the bytes at once."""
    try:
        peer.send(outgoing.read())
    except OSError:
        return


def _explained(error: ssl.SSLError) -> HandshakeError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return HandshakeError(TlsFailure.CERTIFICATE, error.verify_message.lower())
    name = error.reason or ""
    reason = name.replace("_", " ").lower() or str(error)
    if name in _PLAINTEXT_REASONS:
        return HandshakeError(TlsFailure.PLAINTEXT, f"the peer does not speak TLS ({reason})")
    if any(word in name for word in _CERTIFICATE_WORDS):
        return HandshakeError(TlsFailure.CERTIFICATE, reason)
    return HandshakeError(TlsFailure.PROTOCOL, reason)
