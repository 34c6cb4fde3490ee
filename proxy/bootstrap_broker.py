"""Chooses the bootstrap broker: the broker to which a gateway connects clients that come to its bootstrap address.

An address at which a gateway finds the cluster may lead to any broker, for instance if it belongs to a load balancer.
The copy of a coordinator is right only if all its clients are connected to the same broker. So the gateway connects
clients to a broker's own address as soon as it knows the brokers.
"""

from collections.abc import Mapping, Sequence

from group_sidecar.proxy.runtime.addresses import Address


class BootstrapBroker:
    """The broker with the lowest id of those that never failed, or else the one whose last failure was first.

    The choice changes if that broker fails, or if a broker with a lower id appears at an address that never failed.

    Args:
        servers: the addresses at which the gateway finds the cluster.
        nodes: the addresses of the cluster's brokers by node id. The caller adds brokers as it learns of them.
    """

    def __init__(self, servers: Sequence[Address], nodes: Mapping[int, Address]) -> None:
        self.servers = servers
        self._nodes = nodes
        self._skipped: dict[Address, int] = {}
        """By address, the number of its last failure. Failures are counted from 1, over all addresses."""
        self._failures = 0

    @property
    def address(self) -> Address:
        """The address of the bootstrap broker. While no broker is known, one of `servers`."""
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
