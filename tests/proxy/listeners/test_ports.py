"""Passed sockets: which port gets which of them. tests/proxy/test_systemd.py passes them to a process."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from group_sidecar.proxy.listeners.passed_sockets import PassedSocket
from group_sidecar.proxy.listeners.ports import OpenPorts, listen, open_ports
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.fakes import ANY_PORT


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes the sockets of a test."""
    with ExitStack() as stack:
        yield stack


def passed(stack: ExitStack, name: str, host: str = "127.0.0.1") -> PassedSocket:
    """Returns a listening socket as a service manager passes it."""
    [sock] = listen(Address(host, 0))
    return PassedSocket(name, stack.enter_context(sock))


def address(each: PassedSocket, host: str = "127.0.0.1") -> Address:
    """Returns the address of a passed socket, under another host name."""
    return Address(host, each.socket.getsockname()[1])


def opened(stack: ExitStack, ports: OpenPorts) -> OpenPorts:
    """Closes all sockets at the end of the test."""
    for sockets in ports.listeners.values():
        for each in sockets:
            stack.enter_context(each)
    return ports


def test_name_counts_before_address(stack: ExitStack) -> None:
    """A socket with the name of a listener belongs to that listener, even if another one has its address."""
    one, two = passed(stack, "TWO"), passed(stack, "ONE")
    wanted = {"ONE": address(one), "TWO": address(two)}
    ports = opened(stack, open_ports(wanted, None, [one, two]))
    assert ports.listeners == {"ONE": [two.socket], "TWO": [one.socket]}
    assert ports.closed == ()


@pytest.mark.parametrize("name", ["", "group-sidecar.socket"])
def test_address_counts_without_name(name: str, stack: ExitStack) -> None:
    """A socket without the name of a listener belongs to the listener with its address, also by a host name."""
    one, two = passed(stack, name), passed(stack, name)
    wanted = {"ONE": address(one, "localhost"), "TWO": address(two)}
    ports = opened(stack, open_ports(wanted, None, [two, one]))
    assert ports.listeners == {"ONE": [one.socket], "TWO": [two.socket]}


@pytest.mark.parametrize(("bound", "configured"), [("::", "0.0.0.0"), ("0.0.0.0", "::")])
def test_wildcards_are_equal(bound: str, configured: str, stack: ExitStack) -> None:
    """A socket on all addresses belongs to a listener on all addresses of either kind."""
    sock = passed(stack, "", bound)
    ports = opened(stack, open_ports({"ONE": address(sock, configured)}, None, [sock]))
    assert ports.listeners == {"ONE": [sock.socket]}


def test_admin_socket(stack: ExitStack) -> None:
    """The admin port gets the socket with its name or its address, if the port is configured."""
    for name in ("admin", ""):
        sock = passed(stack, name)
        ports = opened(stack, open_ports({"ONE": ANY_PORT}, address(sock), [sock]))
        assert ports.admin is sock.socket
    sock = passed(stack, "admin")
    ports = opened(stack, open_ports({"ONE": ANY_PORT}, None, [sock]))
    assert (ports.admin, len(ports.closed)) == (None, 1)


def test_other_sockets_are_closed(stack: ExitStack) -> None:
    """A passed socket is closed and reported if it belongs to no port, or has a listener's name and does not listen."""
    other = passed(stack, "other")
    where = other.socket.getsockname()[1]
    datagrams = PassedSocket("ONE", stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
    idle = PassedSocket("ONE", stack.enter_context(socket.socket()))
    ports = opened(stack, open_ports({"ONE": ANY_PORT}, None, [other, datagrams, idle]))
    assert ports.closed == (f"other at 127.0.0.1:{where}", "ONE", "ONE at 0.0.0.0:0")
    assert {each.socket.fileno() for each in (other, datagrams, idle)} == {-1}
    assert ports.port("ONE") > 0


def test_shut_down_listener_is_unusable(stack: ExitStack) -> None:
    """A listener is unusable after its socket was shut down."""
    ports = opened(stack, open_ports({"ONE": ANY_PORT, "TWO": ANY_PORT}))
    assert ports.unusable() == []
    ports.listeners["TWO"][0].shutdown(socket.SHUT_RDWR)
    assert ports.unusable() == ["TWO"]
