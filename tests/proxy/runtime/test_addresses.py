"""Tests HOST:PORT, and the address book of a gateway."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.proxy.runtime.addresses import Address, AddressBook, NodeNames, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("broker:9092", Address("broker", 9092)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("[::1]:9092", Address("::1", 9092)),
        (" kafka-0.kafka.svc:65535 ", Address("kafka-0.kafka.svc", 65535)),
    ],
)
def test_address_round_trips_as_text(text: str, address: Address) -> None:
    """HOST:PORT text parses to an address that formats as the same text."""
    assert parse_address(text) == address
    assert str(address) == text.strip()


@given(host=st.one_of(st.ip_addresses().map(str), st.just("broker.example")), port=st.integers(0, 0xFFFF))
def test_formatted_address_parses_again(host: str, port: int) -> None:
    """Any formatted address parses to the same address."""
    assert parse_address(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize("text", ["", "broker", ":9092", "broker:", "broker:x", "broker:-1", "broker:\uff19", "[]:1"])
def test_invalid_address_is_refused(text: str) -> None:
    """Text that is not HOST:PORT raises ValueError with an example."""
    with pytest.raises(ValueError, match="must be HOST:PORT, for instance"):
        parse_address(text)


def test_bare_ipv6_address_is_refused() -> None:
    """An IPv6 address without brackets raises ValueError that asks for brackets."""
    with pytest.raises(ValueError, match="must stand in brackets"):
        parse_address("::1:9092")


def test_port_above_65535_is_refused() -> None:
    """A port above 65535 raises ValueError."""
    with pytest.raises(ValueError, match="at most 65535"):
        parse_address("broker:65536")


@pytest.fixture
def opened() -> list[int]:
    """The nodes that were given a port, in order."""
    return []


@pytest.fixture
def book(opened: list[int]) -> AddressBook:
    """An address book whose nodes get the ports 9000 and up."""

    def open_node(node_id: int) -> int:
        opened.append(node_id)
        return 9000 + node_id

    return AddressBook(NodeNames("gateway"), open_node)


def test_node_keeps_its_first_port(book: AddressBook, opened: list[int]) -> None:
    """The address book opens a port for each new node once and returns the same port afterwards."""
    assert book.advertise(1, "broker-1", 9092) == ("gateway", 9001)
    assert book.advertise(2, "broker-2", 9092) == ("gateway", 9002)
    assert book.advertise(1, "broker-1", 9092) == ("gateway", 9001)
    assert opened == [1, 2]
    assert book.upstreams[2] == Address("broker-2", 9092)


def test_moved_node_keeps_its_port(book: AddressBook, opened: list[int]) -> None:
    """A node whose broker address changes keeps its port and leads to the new address."""
    book.advertise(1, "broker-1", 9092)
    assert book.advertise(1, "broker-1-again", 19092) == ("gateway", 9001)
    assert book.upstreams[1] == Address("broker-1-again", 19092)
    assert opened == [1]


def test_absent_node_is_unchanged(book: AddressBook, opened: list[int]) -> None:
    """The address book does not rewrite an absent node and opens no port for it."""
    assert book.advertise(-1, "", -1) == ("", -1)
    assert book.advertise(3, "", -1) == ("", -1)
    assert opened == []


def test_failed_node_port_is_retried() -> None:
    """A node whose port could not be opened gets one at the next attempt."""
    failures = [OSError("no port")]

    def open_node(node_id: int) -> int:
        if failures:
            raise failures.pop()
        return 9000

    book = AddressBook(NodeNames("gateway"), open_node)
    with pytest.raises(OSError, match="no port"):
        book.advertise(1, "broker", 9092)
    assert book.advertise(1, "broker", 9092) == ("gateway", 9000)


@pytest.mark.parametrize("template", ["broker-{node}.kafka.example", "{node}.b", "b{node}", "{node}"])
@pytest.mark.parametrize("node", [0, 7, 10, 2_147_483_647])
def test_name_leads_to_its_node(template: str, node: int) -> None:
    """Each node has a name of its own, and its name leads to this node."""
    names = NodeNames(template)
    assert names.is_template
    assert names.node_of(names.name(node)) == node


@pytest.mark.parametrize(
    "name",
    [
        "",
        "broker-.kafka.example",
        "broker-07.kafka.example",
        "broker-+7.kafka.example",
        "broker-7.kafka.example.",
        "broker-7.kafka.exampl",
        "broker-\u0667.kafka.example",
        "xbroker-7.kafka.example",
        "broker-7.7.kafka.example",
        "broker-99999999999999999999.kafka.example",
        "broker-" + "7" * 10_000 + ".kafka.example",
        "a." * 255,
        "kafka.example",
    ],
)
def test_other_name_leads_to_no_node(name: str) -> None:
    """A name that no node has leads to no node, even if it looks like a node's name."""
    assert NodeNames("broker-{node}.kafka.example").node_of(name) is None
    assert NodeNames("kafka.example").node_of(name) is None


def test_book_has_name_of_each_node() -> None:
    """With a template, each node is advertised under its own name."""
    book = AddressBook(NodeNames("b-{node}.example"), lambda node: 9093)
    assert 3 not in book
    assert book.advertise(3, "broker-3", 9092) == ("b-3.example", 9093)
    assert 3 in book
