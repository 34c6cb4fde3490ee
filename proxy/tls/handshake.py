"""A TLS handshake over a non-blocking socket, before the data path takes over.

A worker thread does the arithmetic of a handshake, which takes about a millisecond. The thread of the data path
continues during this time, because the `ssl` module releases the GIL. At most HANDSHAKE_THREADS handshakes compute at a
time, so a flood of handshakes leaves the processors to the data path. Client addresses share the threads in turn, so
the flood of one address does not delay the handshakes of other addresses.

Until a client's ClientHello is complete, the sidecar keeps only the received bytes. The state of OpenSSL would take
more memory.
"""

import socket
import ssl

import trio

from group_sidecar.metrics.listener_counters import TlsFailure
from group_sidecar.proxy.dataplane.tls_endpoint import TlsState
from group_sidecar.proxy.dataplane.tls_records import RecordWalker
from group_sidecar.proxy.runtime.addresses import network_of
from group_sidecar.proxy.runtime.os_errors import reason_of
from group_sidecar.proxy.tls.client_hello import ClientHelloReader
from group_sidecar.proxy.tls.fair_threads import FairThreads

HANDSHAKE_THREADS = 2
MAX_HANDSHAKE_BYTES = 32_768
"""How many bytes a peer may send for its handshake. A chain of three certificates takes 6 KB. OpenSSL itself accepts
100 KB of certificates, and needs 50 ms to read them and ten times their size to keep them with the session."""
_CHUNK = 16_384
_threads = FairThreads(HANDSHAKE_THREADS)
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


async def read_client_hello(client: socket.socket, received: bytes) -> ClientHelloReader:
    """Returns a client's ClientHello, or its first bytes if they are something else.

    Args:
        client: a connected non-blocking socket. The caller keeps the socket.
        received: bytes of the client that were read before.

    Raises:
        HandshakeError: the client closed the connection, or its ClientHello is too long.
    """
    hello, stream = ClientHelloReader(), trio.socket.from_stdlib_socket(client)
    hello.feed(received)
    while not hello.is_complete:
        hello.feed(await _receive(stream, len(hello.received)))
    return hello


async def handshake(
    peer: socket.socket,
    context: ssl.SSLContext,
    client_host: str,
    *,
    server_name: str | None = None,
    session: ssl.SSLSession | None = None,
    received: bytes = b"",
) -> TlsState:
    """Does a handshake, and returns the state of TLS. The caller keeps the socket.

    Args:
        peer: a connected non-blocking socket.
        context: the context.
        client_host: the host of the client, even if the peer is the broker.
        server_name: the name of the server to which the socket leads; None if the peer is the client.
        session: an earlier session with the same server and context, which the server may resume.
        received: bytes of the peer that were read before.

    Raises:
        HandshakeError: the handshake failed.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    stream = trio.socket.from_stdlib_socket(peer)
    try:
        tls = context.wrap_bio(incoming, outgoing, server_name is None, server_name, session)
        unread, records = await _complete(tls, incoming, outgoing, stream, network_of(client_host), received)
        return TlsState(tls, incoming, outgoing, unread, records)
    except ssl.SSLError as error:
        await _send_alert(peer, outgoing)
        raise _explained(error) from None
    except OSError as error:
        raise HandshakeError(TlsFailure.CLOSED, reason_of(error)) from None


async def _complete(
    tls: ssl.SSLObject,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
    stream: trio.socket.SocketType,
    turn: str,
    received: bytes,
) -> tuple[bytes, RecordWalker]:
    """Runs the steps of a handshake until it is complete.

    Returns the bytes that arrived after the handshake's last record, and a walker at the end of this record. `turn` is
    the network of the client, by which the threads are shared.
    """
    records, arrived = RecordWalker(), RecordWalker()
    unread, received_bytes, has_work = received, len(received), True
    arrived.walk(received, 0, received_bytes)
    incoming.write(received)
    while True:
        # OpenSSL computes only when a record is complete. So a peer that sends a record byte by byte uses no thread.
        done = await _threads.run(turn, _step, tls) if has_work else _step(tls)
        await _send(stream, outgoing)
        read = len(unread) - incoming.pending
        records.walk(unread[:read], 0, read)
        unread = unread[read:]
        if done:
            incoming.read()  # The data path later gives these bytes (`unread`) to OpenSSL in turns.
            return unread, records
        chunk = await _receive(stream, received_bytes)
        incoming.write(chunk)
        unread += chunk
        received_bytes += len(chunk)
        arrived.walk(chunk, 0, len(chunk))
        has_work = bool(arrived.ended)


async def _receive(stream: trio.socket.SocketType, received_bytes: int) -> bytes:
    """Returns the next bytes of a peer that has sent `received_bytes` before. Raises HandshakeError."""
    if received_bytes > MAX_HANDSHAKE_BYTES:
        raise HandshakeError(TlsFailure.PROTOCOL, f"the peer's handshake is longer than {MAX_HANDSHAKE_BYTES} bytes")
    try:
        chunk = await stream.recv(_CHUNK)
    except OSError as error:
        raise HandshakeError(TlsFailure.CLOSED, reason_of(error)) from None
    if not chunk:
        raise HandshakeError(TlsFailure.CLOSED, "the peer closed the connection")
    return chunk


def _step(tls: ssl.SSLObject) -> bool:
    """Advances a handshake as far as the received bytes permit. Returns whether the handshake is complete."""
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
    """Sends the alert of a failed handshake to the peer, if the socket accepts the bytes at once."""
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
