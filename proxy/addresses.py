"""Addresses, and which local port stands for which broker.

Owns: how HOST:PORT is read and written; the book of a gateway. Must not know: frames, how a port is opened.
"""

from collections.abc import Callable
from typing import NamedTuple


class Address(NamedTuple):
    """A host, by name or number and without brackets, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Reads HOST:PORT; an IPv6 address stands in brackets. Raises ValueError with one clause for the user."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address must stand in brackets, for instance [::1]:9092")
    if not colon or not host or not (port.isascii() and port.isdigit()):
        raise ValueError("must be HOST:PORT, for instance 127.0.0.1:9092")
    if int(port) > 0xFFFF:
        raise ValueError("the port must be at most 65535")
    return Address(host, int(port))


class AddressBook:
    """What a gateway tells its clients instead of the brokers' own addresses.

    A node gets its port when it is first heard of and keeps it. Where the node moves, the port follows.

    Args:
        advertised_host: the host that clients reach the gateway by.
        open_node: opens the port for a node that is new, and gives its number.
    """

    def __init__(self, advertised_host: str, open_node: Callable[[int], int]) -> None:
        self._advertised_host = advertised_host
        self._open_node = open_node
        self._ports: dict[int, int] = {}
        self._upstreams: dict[int, Address] = {}

    def advertise(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """The address under which clients reach a node whose broker advertises `host` and `port`.

        A negative id or an empty host stands for no node (a coordinator that is not available) and stays as it is.
        """
        if node_id < 0 or not host:
            return host, port
        self._upstreams[node_id] = Address(host, port)
        if node_id not in self._ports:
            self._ports[node_id] = self._open_node(node_id)
        return self._advertised_host, self._ports[node_id]

    def upstream(self, node_id: int) -> Address:
        """Where a node's broker is now. Raises KeyError for a node never heard of."""
        return self._upstreams[node_id]
