"""The types of `fast_path.pyx`."""

from group_sidecar.proxy.dataplane.connection import Connection

class Outbox:
    """Collects the frames of a round and sends them in one system call when the round is over.

    Args:
        batched: whether to use io_uring. Without io_uring each frame is sent when it is read.

    Attributes:
        batched: whether frames are collected. False if the kernel does not allow io_uring.
    """

    batched: bool

    def __init__(self, batched: bool) -> None: ...
    def flush(self) -> None:
        """Sends all frames that were collected. Does not raise."""

class FastPath:
    """Serves both sockets of one connection. The poller calls `client_ready` and `upstream_ready`.

    Args:
        connection: the connection that owns the sockets.
        outbox: the outbox of the thread that runs the poller.
    """

    def __init__(self, connection: Connection, outbox: Outbox) -> None: ...
    def client_ready(self, events: int) -> None:
        """Serves the client's socket, which is ready or broken."""

    def upstream_ready(self, events: int) -> None:
        """Serves the broker's socket, which is ready or broken."""
