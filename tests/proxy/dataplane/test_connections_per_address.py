"""How many connections each client address may have."""

import pytest

from group_sidecar.proxy.dataplane.connections_per_address import ConnectionsPerAddress
from group_sidecar.proxy.runtime.addresses import format_host


def test_each_address_has_its_own_limit() -> None:
    """An address gets a further connection when one of its own connections has ended."""
    counts = ConnectionsPerAddress(2)
    assert [counts.try_add("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert counts.try_add("10.0.0.2")
    counts.remove("10.0.0.2")
    assert not counts.try_add("10.0.0.1")
    counts.remove("10.0.0.1")
    assert counts.try_add("10.0.0.1")


def test_table_forgets_addresses_without_connections() -> None:
    """The table has no entry for an address whose connections have all ended."""
    counts = ConnectionsPerAddress(2)
    for _ in range(3):
        for number in range(100):
            assert counts.try_add(f"10.0.0.{number}")
        for number in range(100):
            counts.remove(f"10.0.0.{number}")
    assert len(counts) == 0


@pytest.mark.parametrize(
    ("other", "same"), [("20010db8000000010000000000000002", True), ("20010db8000000020000000000000001", False)]
)
def test_ipv6_network_counts_as_one_address(other: str, same: bool) -> None:
    """All addresses of an IPv6 network of 64 bits share one limit."""
    counts = ConnectionsPerAddress(1)
    assert counts.try_add(format_host(bytes.fromhex("20010db8000000010000000000000001")))
    assert counts.try_add(format_host(bytes.fromhex(other))) is not same


def test_without_limit_nothing_is_counted() -> None:
    """With 0, every connection is admitted."""
    counts = ConnectionsPerAddress(0)
    assert all(counts.try_add("10.0.0.1") for _ in range(1000))
    assert len(counts) == 0
    counts.remove("10.0.0.1")
