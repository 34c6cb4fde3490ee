"""The ports that a gateway opens for the brokers of its cluster."""

import socket
from collections.abc import Collection, Mapping
from itertools import chain

from group_sidecar.proxy.listeners.ports import ListenError, is_bound_to, listen, port_of
from group_sidecar.proxy.runtime.addresses import Address
from group_sidecar.proxy.runtime.logging import log


class NodePorts:
    """One port for each broker of the cluster. If another process has passed the port of a broker, this port is used
    again.

    Args:
        host: the address on which the ports listen.
        first_port: the port of the broker with id 0. The next brokers have the next ports. 0 picks free ports.
        strict: whether `open` fails if a broker's own port cannot be opened. Otherwise the broker gets a free port.
        passed: the sockets that a predecessor or a service manager has passed, by broker id.

    Attributes:
        opened: the sockets of the open ports, by broker id.
        failed: by broker id, why a port cannot be opened.
    """

    def __init__(
        self, host: str, first_port: int, passed: Mapping[int, list[socket.socket]], *, strict: bool = False
    ) -> None:
        self._host = host
        self._first_port = first_port
        self._strict = strict
        self._passed = dict(passed)
        self.opened: dict[int, list[socket.socket]] = {}
        self.failed: dict[int, str] = {}

    def open(self, node_id: int) -> list[socket.socket]:
        """Opens the port of a broker. Returns the listening sockets.

        If the port cannot be opened, opens any free port, unless the ports are strict.

        Raises:
            ListenError: no port can be opened.
        """
        try:
            opened = self._open(node_id)
        except ListenError as error:
            if self.failed.get(node_id) != str(error):
                log.error("the port of a node cannot be opened", node=node_id, cause=str(error))
            self.failed[node_id] = str(error)
            raise
        self.failed.pop(node_id, None)
        self.opened[node_id] = opened
        return opened

    def _open(self, node_id: int) -> list[socket.socket]:
        first = self._first_port
        fits = 0 < first <= 0xFFFF - node_id
        if self._strict and not fits:
            raise ListenError(f"node {node_id} needs port {first + node_id} (gateway.first_port)")
        wanted = Address(self._host, first + node_id if fits else 0)
        if passed := self._take_passed(node_id, wanted):
            return passed
        return listen(wanted) if self._strict else _listen_near(wanted, node_id)

    def forget_failed(self, node_ids: Collection[int]) -> None:
        """Forgets the failures of brokers that the cluster no longer has. `node_ids`: the brokers of the cluster."""
        for node_id in self.failed.keys() - set(node_ids):
            del self.failed[node_id]

    def close_unused(self) -> None:
        """Closes the passed sockets of brokers that the cluster does not have."""
        for each in chain(*self._passed.values()):
            each.close()
        self._passed.clear()

    def _take_passed(self, node_id: int, wanted: Address) -> list[socket.socket]:
        """Returns the passed sockets of a broker. If one of these listens elsewhere, closes all of them and returns
        none.
        """
        passed = self._passed.pop(node_id, [])
        if all(is_bound_to(each, wanted._replace(port=wanted.port or port_of([each]))) for each in passed):
            return passed
        for each in passed:
            each.close()
        return []


def _listen_near(wanted: Address, node_id: int) -> list[socket.socket]:
    """Opens the port of a broker, or any free port if the wanted port cannot be opened."""
    try:
        return listen(wanted)
    except ListenError as error:
        if wanted.port == 0:
            raise
        log.warning("a node gets another port", node=node_id, cause=str(error))
        return listen(wanted._replace(port=0))
