"""Chooses the broker to which the bootstrap port of a gateway leads.

An address at which a gateway finds the cluster may lead to any broker, for instance at a load balancer. What a copy of
a coordinator shows is right only if all its clients are connected to the same broker. So clients are connected to a
broker at its own address as soon as the brokers' addresses are known.
"""

from collections.abc import Mapping, Sequence

from group_sidecar.proxy.runtime.addresses import Address


class BootstrapBroker:
    """The broker for clients that have just begun. The choice changes only if that broker cannot be reached.

    Args:
        servers: the addresses at which the gateway finds the cluster.
        nodes: the addresses of the cluster's brokers by node id. The caller adds brokers as it learns of them.
    """

    def __init__(self, servers: Sequence[Address], nodes: Mapping[int, Address]) -> None:
        self.servers = servers
        self._nodes = nodes
        self._skipped: dict[Address, int] = {}
        """By address, the number of the last failure there. The first failure of all has number 1."""
        self._failures = 0

    @property
    def address(self) -> Address:
        """The address of the broker. While no broker is known, one of `servers`."""
        return min(self._candidates(), key=lambda each: self._skipped.get(each, 0))

    def skip(self, address: Address) -> None:
        """Notes that an address cannot be reached. Of all addresses, it is now the last choice."""
        self._failures += 1
        candidates = self._candidates()
        self._skipped = {each: at for each, at in self._skipped.items() if each in candidates}
        if address in candidates:
            self._skipped[address] = self._failures

    def _candidates(self) -> Sequence[Address]:
        return [self._nodes[node_id] for node_id in sorted(self._nodes)] or self.servers
