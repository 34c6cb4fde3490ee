"""Addresses, and the local port of each broker of a gateway."""

from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from typing import NamedTuple

WILDCARDS = ("0.0.0.0", "::")
"""The hosts that stand for all addresses of the machine."""
IPV6_NETWORK = 4
"""The number of leading 16-bit groups of an IPv6 address that identify a client: a client may use all addresses of its
/64 network."""


class Address(NamedTuple):
    """A host and a port. The host is a name or a number, without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parses HOST:PORT, with an IPv6 address in brackets. Raises ValueError with one clause for the user."""
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


@lru_cache(maxsize=4096)
def format_host(packed: bytes) -> str:
    """Returns an IP address as Java's InetAddress prints it: IPv4 with dots, IPv6 with all groups."""
    address = ip_address(packed)
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def network_of(host: str) -> str:
    """Returns the part of an address that its client cannot choose. `host`: an address as `format_host` returns it."""
    return ":".join(host.split(":")[:IPV6_NETWORK]) if ":" in host else host


NODE = "{node}"
"""Stands for a node id in the template of the brokers' names."""
LARGEST_NODE_ID = 0x7FFFFFFF


class NodeNames:
    """The names under which a gateway's clients reach the brokers.

    `template`: one host for all brokers, or a host name with `NODE` in place of the node id, in lower case.
    """

    def __init__(self, template: str) -> None:
        self._start, self._mark, self._end = template.partition(NODE)

    @property
    def is_template(self) -> bool:
        """Whether each broker has a name of its own."""
        return bool(self._mark)

    def name(self, node_id: int) -> str:
        """Returns the name of a node."""
        return f"{self._start}{node_id}{self._end}" if self._mark else self._start

    def node_of(self, name: str) -> int | None:
        """Returns the id of the node that has a name, in lower case. Returns None for any other name."""
        digits = name[len(self._start) : len(name) - len(self._end)]
        if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(LARGEST_NODE_ID))):
            return None
        return int(digits) if self._mark and self.name(int(digits)) == name else None


class AddressBook:
    """The addresses that a gateway's clients use instead of the brokers' addresses.

    A node gets a port when it first appears, and keeps this port. When the node's address changes, the port leads to
    the new address.

    Args:
        names: the names under which clients reach the nodes.
        open_node: opens the port for a new node, and returns the port's number.

    Attributes:
        upstreams: the current address of each node's broker, by node id.
    """

    def __init__(self, names: NodeNames, open_node: Callable[[int], int]) -> None:
        self._names = names
        self._open_node = open_node
        self._ports: dict[int, int] = {}
        self.upstreams: dict[int, Address] = {}

    def advertise(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """Returns the address under which clients reach a node whose broker advertises `host` and `port`.

        A negative id or an empty host means that there is no node, such as an unavailable coordinator. The address is
        then returned unchanged.
        """
        if node_id < 0 or not host:
            return host, port
        self.upstreams[node_id] = Address(host, port)
        if node_id not in self._ports:
            self._ports[node_id] = self._open_node(node_id)
        return self._names.name(node_id), self._ports[node_id]

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._ports
