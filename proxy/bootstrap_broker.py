"""Chooses the bootstrap broker: the broker to which a gateway connects clients that come to its bootstrap address.

An address at which a gateway finds the cluster may lead to any broker, for instance if it belongs to a load balancer.
The gateway keeps one copy of the coordinator for each broker, so it must know to which broker a client is connected.
Therefore the gateway connects clients to a broker's own address as soon as it knows the brokers.
"""

from collections.abc import Mapping, Sequence

from group_sidecar.proxy.runtime.addresses import Address


class BootstrapBroker:
    """The broker with the lowest id among those that never failed. If all have failed: the one that failed longest ago.

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
        self._chosen = 0
        """The id of the chosen node."""
        self._chosen_among = 0, 0
        """The number of nodes and of failures when that node was chosen."""

    @property
    def address(self) -> Address:
        """The address of the bootstrap broker. While no broker is known, one of `servers`."""
        if not self._nodes:
            return min(self.servers, key=self._skipped_at)
        among = len(self._nodes), self._failures
        if among != self._chosen_among:  # This runs for each client, and a cluster may have a thousand nodes.
            self._chosen = min(sorted(self._nodes), key=lambda node_id: self._skipped_at(self._nodes[node_id]))
            self._chosen_among = among
        return self._nodes[self._chosen]

    def to_ask(self) -> Sequence[Address]:
        """Returns the addresses at which the gateway asks for the brokers: the bootstrap broker, then the servers."""
        return list(dict.fromkeys((self.address, *self.servers)))

    def skip(self, address: Address) -> None:
        """Notes that an address cannot be reached. The address becomes the last choice."""
        self._failures += 1
        candidates = set(self._nodes.values() or self.servers)
        self._skipped = {each: at for each, at in self._skipped.items() if each in candidates}
        if address in candidates:
            self._skipped[address] = self._failures

    def _skipped_at(self, address: Address) -> int:
        return self._skipped.get(address, 0)
