"""Takes clients from a port, and sets out for their broker.

Owns: accepting, and beginning a connection to where the last one to that broker went. Must not know: names, who may
come in, and what becomes of both (`entrance`).

Where there is a C compiler `acceptor_thread` does the same beside the loop.
"""

import errno
import os
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

AT_ONCE = 32
"""Clients of one burst before others have a turn."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""The system has no descriptor or memory for another connection."""


class Target(NamedTuple):
    """Where a socket of a broker's is: its family, and its address as the `socket` module has it."""

    family: int
    address: tuple[Any, ...]


class Arrival(NamedTuple):
    """A client who has come, and a connection to its broker; the descriptors do not block.

    Attributes:
        client: its descriptor.
        host: its IP address, in 4 bytes or 16.
        upstream: the descriptor of the connection; -1 where none was begun.
        connected: whether that stands already.
    """

    client: int
    host: bytes
    upstream: int
    connected: bool


class Acceptor:
    """Accepts when it is asked. `fileno` is readable when clients wait."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def fileno(self) -> int:
        """The descriptor to be watched."""
        return self._listener.fileno()

    def take(self, target: Target | None) -> Iterator[Arrival]:
        """Those who wait; some of them where they are many. `target`: where they are to be brought; None for nowhere.

        Raises:
            OSError: one of `EXHAUSTED`, behind those who could be accepted.
        """
        for _ in range(AT_ONCE):
            try:
                client, peer = self._listener.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    raise
                return  # Nobody waits, or one went before it was accepted.
            client.setblocking(False)
            upstream, connected = _set_out(target) if target else (-1, False)
            yield Arrival(client.detach(), packed(self._listener.family, peer[0]), upstream, connected)

    def close(self) -> None:
        """Ends it. The listener is its owner's still."""


def _set_out(target: Target) -> tuple[int, bool]:
    try:
        peer = connecting(target)
    except OSError:
        return -1, False
    try:
        peer.getpeername()
    except OSError:
        return peer.detach(), False
    return peer.detach(), True


def packed(family: int, host: str) -> bytes:
    """An IP address that the `socket` module tells, as the system has it: no zone."""
    return socket.inet_pton(family, host.partition("%")[0])


def connecting(target: Target) -> socket.socket:
    """A connection that is being made. Raises OSError where it cannot be."""
    peer = socket.socket(target.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    tune(peer)
    failed = peer.connect_ex(target.address)
    if failed and failed != errno.EINPROGRESS:
        peer.close()
        raise OSError(failed, os.strerror(failed))
    return peer


def tune(sock: socket.socket) -> None:
    """Sets what both sides of a connection have."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
