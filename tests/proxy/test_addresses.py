"""HOST:PORT, and the book of a gateway."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.proxy.addresses import Address, AddressBook, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("broker:9092", Address("broker", 9092)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("[::1]:9092", Address("::1", 9092)),
        (" kafka-0.kafka.svc:65535 ", Address("kafka-0.kafka.svc", 65535)),
    ],
)
def test_an_address_is_read_and_written(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text.strip()


@given(host=st.one_of(st.ip_addresses().map(str), st.just("broker.example")), port=st.integers(0, 0xFFFF))
def test_what_is_written_is_read_again(host: str, port: int) -> None:
    assert parse_address(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize("text", ["", "broker", ":9092", "broker:", "broker:x", "broker:-1", "broker:\uff19", "[]:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT, for instance"):
        parse_address(text)


def test_an_ipv6_address_without_brackets_is_refused() -> None:
    with pytest.raises(ValueError, match="must stand in brackets"):
        parse_address("::1:9092")


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 65535"):
        parse_address("broker:65536")


@pytest.fixture
def opened() -> list[int]:
    """The nodes that were given a port, in order."""
    return []


@pytest.fixture
def book(opened: list[int]) -> AddressBook:
    """A book whose nodes get the ports 9000 and up."""

    def open_node(node_id: int) -> int:
        opened.append(node_id)
        return 9000 + node_id

    return AddressBook("gateway", open_node)


def test_a_node_gets_a_port_at_first_sight_and_keeps_it(book: AddressBook, opened: list[int]) -> None:
    assert book.advertise(1, "broker-1", 9092) == ("gateway", 9001)
    assert book.advertise(2, "broker-2", 9092) == ("gateway", 9002)
    assert book.advertise(1, "broker-1", 9092) == ("gateway", 9001)
    assert opened == [1, 2]
    assert book.upstream(2) == Address("broker-2", 9092)


def test_a_node_that_moves_keeps_its_port(book: AddressBook, opened: list[int]) -> None:
    book.advertise(1, "broker-1", 9092)
    assert book.advertise(1, "broker-1-again", 19092) == ("gateway", 9001)
    assert book.upstream(1) == Address("broker-1-again", 19092)
    assert opened == [1]


def test_what_stands_for_no_node_stays(book: AddressBook, opened: list[int]) -> None:
    assert book.advertise(-1, "", -1) == ("", -1)
    assert book.advertise(3, "", -1) == ("", -1)
    assert opened == []


def test_a_node_that_cannot_be_opened_is_tried_again() -> None:
    failures = [OSError("no port")]

    def open_node(node_id: int) -> int:
        if failures:
            raise failures.pop()
        return 9000

    book = AddressBook("gateway", open_node)
    with pytest.raises(OSError, match="no port"):
        book.advertise(1, "broker", 9092)
    assert book.advertise(1, "broker", 9092) == ("gateway", 9000)


def test_a_node_never_heard_of_has_no_address(book: AddressBook) -> None:
    with pytest.raises(KeyError):
        book.upstream(1)
