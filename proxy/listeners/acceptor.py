"""Accepts clients on a port and begins a connection to the broker for each client. The caller supplies the broker's
address, so this module resolves no name. `acceptor_thread` does the same in a thread, if it could be compiled.
"""

import errno
import os
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

ACCEPT_BATCH = 32
"""The maximum number of clients that are accepted before other sockets are served."""
EXHAUSTION_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""The errors of a system that has no descriptor or memory for another connection."""


class Target(NamedTuple):
    """The socket address of a broker: its family, and its address as the `socket` module represents it."""

    family: int
    address: tuple[Any, ...]


class AcceptedClient(NamedTuple):
    """An accepted client and the connection to its broker. The descriptors are non-blocking.

    Attributes:
        client: the client's descriptor.
        host: the client's IP address, in 4 or 16 bytes.
        upstream: the descriptor of the broker connection, or -1 if none was begun.
        connected: whether the broker connection is established.
    """

    client: int
    host: bytes
    upstream: int
    connected: bool


class Acceptor:
    """Accepts clients when `take_accepted` is called."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def fileno(self) -> int:
        """Returns the descriptor that is readable when clients wait."""
        return self._listener.fileno()

    def take_accepted(self, target: Target | None, max_clients: int = ACCEPT_BATCH) -> Iterator[AcceptedClient]:
        """Accepts waiting clients.

        Args:
            target: the broker's address, or None to begin no connection to the broker.
            max_clients: the maximum number of clients, at most `ACCEPT_BATCH`.

        Raises:
            OSError: one of `EXHAUSTION_ERRNOS`, after the iterator has yielded the clients that could be accepted.
        """
        for _ in range(max_clients):
            try:
                client, peer = self._listener.accept()
            except OSError as error:
                if error.errno in EXHAUSTION_ERRNOS:
                    raise
                return  # No client waits, or a client has closed before it was accepted.
            client.setblocking(False)
            upstream, connected = _start_connect(target) if target else (-1, False)
            yield AcceptedClient(client.detach(), packed(self._listener.family, peer[0]), upstream, connected)

    def take_remaining(self, target: Target | None) -> Iterator[AcceptedClient]:
        """Returns no clients, because this class never accepts a client before the caller takes it."""
        return iter(())

    def close(self) -> None:
        """Does nothing, because the owner of the listener closes the listener."""


def _start_connect(target: Target) -> tuple[int, bool]:
    try:
        peer = start_connect(target)
    except OSError:
        return -1, False
    try:
        peer.getpeername()
    except OSError:
        return peer.detach(), False
    return peer.detach(), True


def packed(family: int, host: str) -> bytes:
    """Returns the binary form of an IP address from the `socket` module, without its zone."""
    return socket.inet_pton(family, host.partition("%")[0])


def start_connect(target: Target) -> socket.socket:
    """Returns a socket that has begun to connect. Raises OSError if the connection fails at once."""
    peer = socket.socket(target.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    tune(peer)
    error_number = peer.connect_ex(target.address)
    if error_number and error_number != errno.EINPROGRESS:
        peer.close()
        raise OSError(error_number, os.strerror(error_number))
    return peer


def tune(sock: socket.socket) -> None:
    """Sets the socket options that client and broker connections have."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
