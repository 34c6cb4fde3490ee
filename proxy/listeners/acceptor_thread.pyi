"""The types of `acceptor_thread.pyx`."""

import socket
from collections.abc import Iterator

from group_sidecar.proxy.listeners.acceptor import AcceptedClient, Target

class AcceptorThread:
    """Does the same as `Acceptor` in a thread."""

    def __init__(self, listener: socket.socket) -> None: ...
    def fileno(self) -> int:
        """Returns the descriptor that is readable when clients were accepted."""

    def take_accepted(self, target: Target | None, max_clients: int = ...) -> Iterator[AcceptedClient]:
        """Does the same as `Acceptor.take_accepted`. Closes broker connections that were begun to another target."""

    def take_remaining(self, target: Target | None) -> Iterator[AcceptedClient]:
        """Stops accepting, and returns the clients that were accepted before. Otherwise like `take_accepted`."""

    def close(self) -> None:
        """Ends the thread, and closes the clients that were not taken. The listener stays open."""
