"""What `acceptor_thread.pyx` has."""

import socket
from collections.abc import Iterator

from group_sidecar.proxy.acceptor import Arrival, Target

class AcceptorThread:
    """As `Acceptor`, and beside the loop."""

    def __init__(self, listener: socket.socket) -> None: ...
    def fileno(self) -> int:
        """The descriptor to be watched."""

    def take(self, target: Target | None) -> Iterator[Arrival]:
        """Those who have come."""

    def close(self) -> None:
        """Ends it."""
