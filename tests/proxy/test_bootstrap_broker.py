"""The choice of a gateway's bootstrap broker. test_gateway_routes.py runs whole gateways."""

from collections.abc import Iterator

from group_sidecar.proxy.bootstrap_broker import BootstrapBroker
from group_sidecar.proxy.runtime.addresses import Address

FIRST, SECOND = Address("balancer", 9092), Address("other", 9092)
ONE, TWO, THREE = (Address(f"broker-{number}", 9092) for number in (1, 2, 3))


def test_servers_until_nodes_are_known() -> None:
    """While no broker is known, the configured addresses are tried in turn. Then they are not used any more."""
    nodes: dict[int, Address] = {}
    chosen = BootstrapBroker((FIRST, SECOND), nodes)
    assert chosen.address == FIRST
    chosen.skip(FIRST)
    assert chosen.address == SECOND
    chosen.skip(SECOND)
    assert chosen.address == FIRST
    nodes[2] = TWO
    assert chosen.address == TWO


def test_choice_changes_after_failure() -> None:
    """The broker with the lowest id is chosen. After its failure, one follows that never failed, or failed first."""
    nodes = {3: THREE, 1: ONE, 2: TWO}
    chosen = BootstrapBroker((FIRST,), nodes)
    assert chosen.address == ONE
    chosen.skip(THREE)
    assert chosen.address == ONE
    chosen.skip(ONE)
    assert chosen.address == TWO
    chosen.skip(TWO)
    assert chosen.address == THREE
    chosen.skip(THREE)
    assert chosen.address == ONE


def test_new_broker_with_lowest_id_is_chosen() -> None:
    """A broker that appears, and has a lower id than the chosen one, is chosen from then on."""
    nodes = {2: TWO, 3: THREE}
    chosen = BootstrapBroker((FIRST,), nodes)
    chosen.skip(TWO)
    assert chosen.address == THREE
    nodes[1] = ONE
    assert chosen.address == ONE


def test_failures_of_vanished_addresses_are_forgotten() -> None:
    """A broker that moves is tried at its new address. Its old addresses take no memory."""
    nodes = {1: ONE, 2: TWO}
    chosen = BootstrapBroker((FIRST,), nodes)
    for port in range(1000):
        chosen.skip(nodes[1])
        nodes[1] = Address("moved", port)
        assert chosen.address == nodes[1]
    chosen.skip(FIRST)
    assert chosen._skipped == {}


def test_choice_among_many_nodes_is_kept() -> None:
    """The choice is made once, and not for each client: a cluster may have a thousand nodes."""

    class Counted(dict[int, Address]):
        walks = 0

        def __iter__(self) -> Iterator[int]:
            self.walks += 1
            return super().__iter__()

    nodes = Counted({1: ONE, 2: TWO, 3: THREE})
    chosen = BootstrapBroker((FIRST,), nodes)
    assert [chosen.address for _ in range(5)] == [ONE] * 5
    assert nodes.walks == 1
    chosen.skip(ONE)
    assert [chosen.address for _ in range(5)] == [TWO] * 5
    assert nodes.walks == 2


def test_servers_are_asked_after_chosen_broker() -> None:
    """The gateway asks the chosen broker first, and then at each configured address."""
    nodes: dict[int, Address] = {}
    chosen = BootstrapBroker((FIRST, SECOND), nodes)
    chosen.skip(FIRST)
    assert chosen.to_ask() == [SECOND, FIRST]
    nodes[1] = ONE
    assert chosen.to_ask() == [ONE, FIRST, SECOND]
