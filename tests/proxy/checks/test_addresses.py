"""Checks of host names, of addresses on which the sidecar listens, and of ports that not every user may bind."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from group_sidecar.proxy.checks import addresses
from group_sidecar.proxy.checks.addresses import (
    Resolution,
    check_addresses,
    check_loops,
    check_overlaps,
    first_open_port,
    is_own_address,
    resolve,
)
from group_sidecar.proxy.config.model import Config
from tests.proxy.checks.checked_settings import lines, listening, settings

FOREIGN = "192.0.2.1"
"""An address for documentation (RFC 5737), which no machine has."""
GONE = Resolution(reason="name or service not known")


def found(config: Config, **resolutions: Resolution) -> list[str]:
    known = {
        "127.0.0.1": Resolution(("127.0.0.1",)),
        FOREIGN: Resolution((FOREIGN,)),
        "0.0.0.0": Resolution(("0.0.0.0",)),
    }
    return lines(check_addresses(config, {**known, **resolutions}))


@pytest.fixture(autouse=True)
def all_ports_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "first_open_port", lambda: 0)


def test_good_addresses() -> None:
    """Addresses of this machine, wildcards and names that can be resolved cause no finding."""
    config = settings(listen="0.0.0.0:9092", upstream="broker:9092", admin="here:9464")
    assert found(config, broker=Resolution((FOREIGN,)), here=Resolution(("127.0.0.1",))) == []


def test_names_without_address() -> None:
    """Each name that cannot be resolved causes a warning."""
    config = listening(listen="a:1", upstream="b:2")
    own = config.own_connection.model_copy(update={"address": config.listeners[0].upstream._replace(host="d")})
    config = config.model_copy(update={"admin": config.listeners[0].listen._replace(host="c"), "own_connection": own})
    keys = {"listeners.0 (A).listen": "a", "admin": "c", "listeners.0 (A).upstream": "b", "own_connection.address": "d"}
    assert found(config, **dict.fromkeys("abcd", GONE)) == [
        f"warning {key}: {host} cannot be resolved: name or service not known" for key, host in keys.items()
    ]


def test_token_endpoint_without_address() -> None:
    """A token endpoint whose host cannot be resolved causes a warning."""
    endpoint = {"token_endpoint_url": "https://issuer:8443/token", "client_id": "c", "client_secret": "s"}
    config = settings(own_connection={"sasl": {"mechanism": "OAUTHBEARER", **endpoint}})
    assert found(config, issuer=GONE) == [
        "warning own_connection.sasl.token_endpoint_url: issuer cannot be resolved: name or service not known"
    ]


def test_addresses_of_other_machines() -> None:
    """An address of another machine causes a warning where the sidecar listens."""
    config = settings(listen=f"{FOREIGN}:9092", admin="there:9464", upstream=f"{FOREIGN}:19092")
    assert found(config, there=Resolution((FOREIGN,))) == [
        f"warning listen: {FOREIGN} is not an address of this machine",
        f"warning admin: there is {FOREIGN}, which is not an address of this machine",
    ]


def test_overlapping_addresses() -> None:
    """A port on a wildcard and on one of its addresses is a fault, and so are two names of one address."""
    listeners = [
        {"name": name, "listen": listen, "upstream": "127.0.0.1:19092"}
        for name, listen in (("A", "0.0.0.0:9092"), ("B", "127.0.0.1:9092"), ("C", "[::1]:9092"), ("D", "here:9093"))
    ]
    config = Config.model_validate({"listeners": listeners, "admin": "127.0.0.1:9093", "sidecar_id": "a"})
    numbers = {"0.0.0.0", "127.0.0.1", "::1", "::"}
    known = {**{number: Resolution((number,)) for number in numbers}, "here": Resolution(("::1", "127.0.0.1"))}
    assert lines(check_overlaps(config, known)) == [
        "FAULT listeners.1 (B).listen: 127.0.0.1:9092 overlaps with listeners.0 (A).listen, 0.0.0.0:9092",
        "FAULT admin: 127.0.0.1:9093 overlaps with listeners.3 (D).listen, here:9093",
    ]
    assert lines(check_overlaps(settings(listen="127.0.0.1:9092", admin="[::]:9092"), known)) == [
        "FAULT admin: [::]:9092 overlaps with listen, 127.0.0.1:9092"
    ]
    assert lines(check_overlaps(settings(listen="0.0.0.0:0", admin="127.0.0.1:0"), known)) == []


def test_sidecar_that_would_connect_to_itself() -> None:
    """An address of the broker that is one of the sidecar's own ports is a fault, also by name or on a wildcard."""
    known = {number: Resolution((number,)) for number in ("0.0.0.0", "127.0.0.1", FOREIGN)}
    known["here"] = Resolution(("127.0.0.1",))
    own = {"own_connection": {"address": "here:9464"}}
    config = settings(listen="0.0.0.0:9092", upstream="127.0.0.1:9092", admin="127.0.0.1:9464", **own)
    assert lines(check_loops(config, known)) == [
        "FAULT upstream: 127.0.0.1:9092 is the address of listen, so the sidecar would connect to itself",
        "FAULT own_connection.address: here:9464 is the address of admin, so the sidecar would connect to itself",
    ]
    for upstream in (f"{FOREIGN}:9092", "127.0.0.1:19092"):
        assert lines(check_loops(settings(listen="0.0.0.0:9092", upstream=upstream), known)) == []


def test_ports_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that the user may not bind causes a warning. Port 0 does not."""
    monkeypatch.setattr(addresses, "first_open_port", lambda: 1024)
    config = settings(listen="127.0.0.1:443", admin="127.0.0.1:1024")
    assert found(config) == ["warning listen: this user may listen on ports from 1024 on, and not on 443"]
    assert found(settings(listen="127.0.0.1:0")) == []


@pytest.mark.parametrize(("capabilities", "first"), [("0000000000000400", 0), ("0000000000000000", 80), ("x", 0)])
def test_first_open_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capabilities: str, first: int) -> None:
    """The first open port is the system's setting, and 0 with CAP_NET_BIND_SERVICE or on an unknown system."""
    status, start = tmp_path / "status", tmp_path / "start"
    status.write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    start.write_text("80\n")
    monkeypatch.setattr(addresses, "_STATUS", status)
    monkeypatch.setattr(addresses, "_FIRST_OPEN_PORT", start)
    assert first_open_port() == first


def test_own_addresses() -> None:
    """The loopback address and the wildcard belong to this machine, and an address for documentation does not."""
    assert is_own_address("127.0.0.1")
    assert is_own_address("0.0.0.0")
    assert not is_own_address(FOREIGN)
    assert not is_own_address("2001:db8::1")


def test_resolve_asks_for_each_name_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name is resolved once. A failure and a late answer have a reason."""
    names: list[str] = []
    release = threading.Event()

    def answer(host: str, *_: Any, **__: Any) -> list[Any]:
        names.append(host)
        if host == "late":
            release.wait(10)
        if host == "gone":
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, 0, 0, "", ("10.0.0.1", 0)), (socket.AF_INET, 0, 0, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(addresses, "RESOLVE_SECONDS", 0.2)
    try:
        assert resolve(["there", "gone", "there", "late"]) == {
            "there": Resolution(("10.0.0.1",)),
            "gone": GONE,
            "late": Resolution(reason="no answer within 0.2 s"),
        }
    finally:
        release.set()
    assert sorted(names) == ["gone", "late", "there"]
