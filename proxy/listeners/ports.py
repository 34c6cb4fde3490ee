"""The listening sockets of all ports. This module opens the sockets, or uses sockets that a service manager or a
predecessor has passed.

The command line opens the ports before it imports the rest of the sidecar. Clients that connect during the import wait
in the kernel. So this module imports little.
"""

import re
import socket
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from group_sidecar.proxy.listeners.acceptor import tune
from group_sidecar.proxy.listeners.passed_sockets import PassedSocket, is_listening
from group_sidecar.proxy.runtime.addresses import WILDCARDS, Address
from group_sidecar.proxy.runtime.os_errors import reason_of

BACKLOG = 1024
"""The maximum number of clients that wait in the kernel. The kernel reduces the number to `net.core.somaxconn`."""
ADMIN = "admin"
"""The name of the passed socket of the admin port."""
NODE = re.compile(r"node-([0-9]{1,10})")
"""The names of the passed sockets of the ports that a gateway opens for its brokers, with the broker's node id."""


class ListenError(Exception):
    """The sidecar cannot listen on an address. The text is one line for people."""


class OpenPorts(NamedTuple):
    """The listening sockets.

    Attributes:
        listeners: the sockets of each listener, by the listener's name.
        admin: the socket of the admin port, or None if no admin port is configured.
        nodes: the passed sockets of a gateway's ports for its brokers, by node id.
        closed: the passed sockets that belonged to no port and were closed, as text.
    """

    listeners: Mapping[str, list[socket.socket]]
    admin: socket.socket | None
    nodes: Mapping[int, list[socket.socket]]
    closed: tuple[str, ...]

    def port(self, name: str) -> int:
        """Returns the port number of a listener."""
        return port_of(self.listeners[name])

    def close(self) -> None:
        """Closes all sockets."""
        admin = [] if self.admin is None else [self.admin]
        for each in chain(*self.listeners.values(), *self.nodes.values(), admin):
            each.close()

    def unusable(self) -> list[str]:
        """Returns the names of the listeners that have a socket which no longer listens."""
        return [name for name, sockets in self.listeners.items() if not all(map(is_listening, sockets))]


def open_ports(
    listeners: Mapping[str, Address],
    admin: Address | None = None,
    passed: Iterable[PassedSocket] = (),
    *,
    is_gateway: bool = False,
) -> OpenPorts:
    """Opens the ports of all listeners and the admin port, or uses the sockets that were passed for them.

    A passed socket belongs to the listener with its name, otherwise to the listener with its address.

    Args:
        listeners: the address of each listener, by the listener's name.
        admin: the address of the admin port. If its host has several addresses, the first one is used.
        passed: the passed sockets.
        is_gateway: whether the sidecar is a gateway, which has ports for its brokers too.

    Raises:
        ListenError: an address cannot be listened on.
    """
    unused = list(passed)
    wanted = {**listeners} if admin is None else {**listeners, ADMIN: admin}
    taken = {name: _take(unused, [each for each in unused if each.name == name]) for name in wanted}
    for name, address in wanted.items():
        taken[name] = taken[name] or _take(unused, [each for each in unused if is_bound_to(each.socket, address)])
    nodes = _take_nodes(unused) if is_gateway else {}
    opened: dict[str, list[socket.socket]] = {}
    admin_sockets: list[socket.socket] = []
    try:
        for name, address in listeners.items():
            opened[name] = taken[name] or listen(address)
        if admin is not None:
            admin_sockets = (taken[ADMIN] if ADMIN not in listeners else []) or listen(admin)
    except ListenError:
        OpenPorts(opened, None, nodes, ()).close()
        raise
    for each in admin_sockets[1:]:
        each.close()
    closed = tuple(_describe(each) for each in unused)
    for passed_socket in unused:
        passed_socket.socket.close()
    return OpenPorts(opened, admin_sockets[0] if admin_sockets else None, nodes, closed)


def sockets_to_pass(
    ports: OpenPorts, listeners: Mapping[str, Address], admin: Address | None, nodes: Mapping[int, list[socket.socket]]
) -> list[PassedSocket]:
    """Returns the listening sockets under the names by which `open_ports` of a successor finds them.

    A socket that is bound to its configured address gets no name. The successor finds such a socket by its address, and
    does not use the socket if the settings contain another address by then. The function may block, because it resolves
    names.

    Args:
        ports: the open ports.
        listeners: the configured address of each listener.
        admin: the configured address of the admin port.
        nodes: the sockets of a gateway's ports for its brokers.
    """
    found = [(name, each, listeners[name]) for name, sockets in ports.listeners.items() for each in sockets]
    if ports.admin is not None and admin is not None:
        found.append((ADMIN, ports.admin, admin))
    named = [PassedSocket("" if is_bound_to(sock, at) else name, sock) for name, sock, at in found]
    return named + [PassedSocket(f"node-{number}", each) for number, sockets in nodes.items() for each in sockets]


def listen(address: Address) -> list[socket.socket]:
    """Opens a port on all addresses of a host name. Port 0 picks a free port.

    After this call, clients can connect and wait in the kernel until they are accepted.

    Raises:
        ListenError: the address is in use, or does not belong to this machine.
    """
    sockets: list[socket.socket] = []
    port = address.port
    try:
        found = socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, (host, *_) in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            sockets.append(listener)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tune(listener)  # Accepted sockets inherit the options.
            listener.bind((host, port))
            listener.listen(BACKLOG)
            port = listener.getsockname()[1]
    except OSError as error:
        for listener in sockets:
            listener.close()
        raise ListenError(f"cannot listen on {address}: {reason_of(error)}") from error
    return sockets


def port_of(listeners: list[socket.socket]) -> int:
    """Returns the port of the sockets that `listen` opened."""
    port: int = listeners[0].getsockname()[1]
    return port


def _take_nodes(unused: list[PassedSocket]) -> dict[int, list[socket.socket]]:
    """Removes the listening sockets of a gateway's ports for its brokers from `unused`. Returns them by node id."""
    numbers = {int(found[1]) for each in unused if (found := NODE.fullmatch(each.name))}
    nodes = {each: _take(unused, [one for one in unused if one.name == f"node-{each}"]) for each in numbers}
    return {number: sockets for number, sockets in nodes.items() if sockets}


def _take(unused: list[PassedSocket], chosen: list[PassedSocket]) -> list[socket.socket]:
    """Removes the chosen sockets that listen for TCP connections from `unused`, and returns them."""
    chosen = [each for each in chosen if is_listening(each.socket)]
    unused[:] = [each for each in unused if each not in chosen]
    return [each.socket for each in chosen]


def is_bound_to(sock: socket.socket, address: Address) -> bool:
    """Whether a socket listens on an address. All wildcard addresses count as equal, because systemd listens on `[::]`
    if its settings name only a port.
    """
    if not is_listening(sock):
        return False
    host, port = sock.getsockname()[:2]
    if port != address.port:
        return False
    if host in WILDCARDS and address.host in WILDCARDS:
        return True
    try:
        found = socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return any(family == sock.family and where[0] == host for family, _, _, _, where in found)


def _describe(passed: PassedSocket) -> str:
    name, sock = passed
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return name or "no name"
    return f"{name or 'no name'} at {Address(*sock.getsockname()[:2])}"
