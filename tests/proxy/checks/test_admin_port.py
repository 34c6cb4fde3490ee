"""Checks of who can use the admin port."""

from typing import Any

import pytest

from group_sidecar.proxy.checks.addresses import Resolution
from group_sidecar.proxy.checks.admin_port import check_admin_port
from tests.proxy.checks.checked_settings import lines, settings

TLS = {"certificate_file": "a.pem"}
OPEN = (
    "warning admin_access.open: everybody who reaches 0.0.0.0:9464 may see the groups and have the settings read again"
)
CLOSED = (
    "warning admin: nobody but clients on this machine may see the groups: admin_access has neither a token, nor a "
    "client_ca_file, nor open: true"
)


def found(admin: str | None, *addresses: str, **access: Any) -> list[str]:
    config = settings(admin=admin, admin_access=access)
    host = admin.rpartition(":")[0] if admin else ""
    return lines(check_admin_port(config, {host: Resolution(addresses or (host,))}))


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        ({}, [CLOSED]),
        ({"metrics": "guarded"}, [CLOSED]),
        (TLS, [CLOSED]),
        ({"open": True}, [OPEN]),
        ({"open": True, **TLS}, [OPEN]),
        ({**TLS, "client_ca_file": "ca.pem"}, []),
        ({**TLS, "token": "t"}, []),
        ({**TLS, "token_file": "t"}, []),
        ({"token": "t"}, ["warning admin_access.token: crosses the network unencrypted, without a certificate_file"]),
        (
            {"token_file": "t"},
            ["warning admin_access.token_file: crosses the network unencrypted, without a certificate_file"],
        ),
    ],
)
def test_port_of_all_interfaces(access: dict[str, Any], expected: list[str]) -> None:
    """A port that other machines reach causes a warning if it is open, closed to all of them, or not encrypted."""
    assert found("0.0.0.0:9464", **access) == expected


def test_port_of_the_loopback() -> None:
    """A port of the loopback interface causes no warning, and neither does a missing port."""
    for access in ({}, {"open": True}, {"token": "t"}):
        assert found("127.0.0.1:9464", **access) == found("localhost:9464", "127.0.0.1", "::1", **access) == []
        assert found(None, **access) == []


def test_name_with_an_address_of_the_network() -> None:
    """A name counts as a port of the network if one of its addresses is not a loopback address."""
    assert found("here:9464", "127.0.0.1", "10.0.0.1") == [CLOSED]
