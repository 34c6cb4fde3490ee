"""Counts the open connections of each client address, and bounds their number."""

from group_sidecar.proxy.runtime.addresses import network_of


class ConnectionsPerAddress:
    """How many connections each client address has open. All addresses of an IPv6 network of 64 bits count as one.

    The table has an entry for each address with an open connection, so `limits.connections` bounds the table too.

    Args:
        max_connections: the maximum number of connections of one address, or 0 for no limit. Without a limit nothing is
            counted.
    """

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self._open: dict[str, int] = {}

    def try_add(self, host: str) -> bool:
        """Counts a connection of a host. Returns False, and counts nothing, if the host has too many connections."""
        if not self.max_connections:
            return True
        network = network_of(host)
        count = self._open.get(network, 0)
        if count >= self.max_connections:
            return False
        self._open[network] = count + 1
        return True

    def remove(self, host: str) -> None:
        """Stops counting one connection of a host for which `try_add` has returned True."""
        if not self.max_connections:
            return
        network = network_of(host)
        count = self._open[network] - 1
        if count:
            self._open[network] = count
        else:
            del self._open[network]

    def __len__(self) -> int:
        """Returns how many addresses have open connections."""
        return len(self._open)
