"""What `short_way.pyx` has."""

from group_sidecar.proxy.link import Link

class Outbox:
    """Frames that leave when the round is over, in one system call where the kernel allows that.

    Args:
        together: whether the kernel is asked; otherwise each leaves as it comes.

    Attributes:
        together: whether they do.
    """

    together: bool

    def __init__(self, together: bool) -> None: ...
    def leave(self) -> None:
        """All that waits leaves. Does not raise."""

class ShortWay:
    """Both directions of one connection, as the poller calls them. `outbox`: of its thread."""

    def __init__(self, link: Link, outbox: Outbox) -> None: ...
    def client_ready(self, events: int) -> None:
        """The client's socket is ready."""

    def upstream_ready(self, events: int) -> None:
        """The broker's socket is ready."""
