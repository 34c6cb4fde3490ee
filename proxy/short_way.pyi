"""What `short_way.pyx` has."""

from group_sidecar.proxy.link import Link

class ShortWay:
    """Both directions of one connection, as the poller calls them."""

    def __init__(self, link: Link) -> None: ...
    def client_ready(self, events: int) -> None:
        """The client's socket is ready."""

    def upstream_ready(self, events: int) -> None:
        """The broker's socket is ready."""
