"""Tests the ports that a gateway opens for its brokers, or takes over from a predecessor.

tests/proxy/test_hot_restart.py passes them to a process.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from group_sidecar.proxy.listeners.node_ports import NodePorts
from group_sidecar.proxy.listeners.ports import ListenError, listen, port_of
from tests.proxy.fakes import ANY_PORT

HOST = ANY_PORT.host


@pytest.fixture
def passed() -> Iterator[Callable[[], socket.socket]]:
    """Returns a function that opens a socket. The sockets are closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(listen(ANY_PORT)[0])


def test_passed_port_stays(passed: Callable[[], socket.socket]) -> None:
    """A port that the system has chosen stays the same if it is passed, and is used for its broker only."""
    one, two = passed(), passed()
    ports = NodePorts(HOST, 0, {1: [one], 2: [two]})
    assert ports.open(1) == [one]
    assert ports.opened == {1: [one]}
    assert two.fileno() != -1


def test_moved_port_is_opened_anew(passed: Callable[[], socket.socket]) -> None:
    """If the settings name another port, the passed socket is closed."""
    one, free = passed(), passed()
    wanted = port_of([free])
    free.close()
    ports = NodePorts(HOST, wanted - 1, {1: [one]})
    [opened] = ports.open(1)
    with opened:
        assert port_of([opened]) == wanted
    assert one.fileno() == -1


def test_taken_port_is_replaced(passed: Callable[[], socket.socket]) -> None:
    """If a port is taken, the broker gets another one."""
    taken = passed()
    [opened] = NodePorts(HOST, port_of([taken]) - 1, {}).open(1)
    with opened:
        assert port_of([opened]) != port_of([taken])


def test_unused_ports_are_closed(passed: Callable[[], socket.socket]) -> None:
    """The passed sockets of brokers that the cluster does not have are closed, and no others."""
    one, two = passed(), passed()
    ports = NodePorts(HOST, 0, {1: [one], 2: [two]})
    ports.open(1)
    ports.close_unused()
    assert two.fileno() == -1
    assert one.fileno() != -1


def test_strict_port_is_not_replaced(passed: Callable[[], socket.socket]) -> None:
    """If ports are strict and a port is taken, the broker gets none until its own port can be opened."""
    taken = passed()
    number = port_of([taken])
    ports = NodePorts(HOST, number - 1, {}, strict=True)
    with pytest.raises(ListenError, match="in use"):
        ports.open(1)
    assert list(ports.failed) == [1]
    assert not ports.opened
    taken.close()
    [opened] = ports.open(1)
    with opened:
        assert port_of([opened]) == number
    assert not ports.failed


def test_strict_port_above_the_last_one() -> None:
    """If ports are strict, a node id that leads beyond the last port is an error that names the setting."""
    ports = NodePorts(HOST, 65_000, {}, strict=True)
    with pytest.raises(ListenError, match=r"node 1000 needs port 66000 \(gateway.first_port\)"):
        ports.open(1000)


def test_two_gateways_do_not_share_a_port(passed: Callable[[], socket.socket]) -> None:
    """The second gateway of a machine with overlapping strict ports gets an error, and not the first one's clients."""
    free = passed()
    first_port = port_of([free]) - 1
    free.close()
    [opened] = NodePorts(HOST, first_port, {}, strict=True).open(1)
    with opened, pytest.raises(ListenError):
        NodePorts(HOST, first_port, {}, strict=True).open(1)


def test_failure_of_a_removed_broker_is_forgotten(passed: Callable[[], socket.socket]) -> None:
    """A broker that has left the cluster needs no port."""
    taken = port_of([passed()])
    ports = NodePorts(HOST, taken - 5, {}, strict=True)
    with pytest.raises(ListenError):
        ports.open(5)
    ports.forget_failed([4, 5])
    assert {*ports.failed} == {5}
    ports.forget_failed([4])
    assert not ports.failed
