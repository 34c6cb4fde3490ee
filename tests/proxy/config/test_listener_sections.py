"""Tests the settings of listeners, and the lines for invalid ones."""

from typing import Any

import pytest
from pydantic import ValidationError

from group_sidecar.proxy.config.errors import error_lines
from group_sidecar.proxy.config.model import DEFAULT_LISTENER, Config
from group_sidecar.proxy.runtime.addresses import Address

CLIENT = {"name": "CLIENT", "listen": "0.0.0.0:9092", "upstream": "10.0.0.1:19092"}
SECURE = {"name": "SECURE", "listen": "0.0.0.0:9093", "upstream": "10.0.0.1:19093"}
TLS = {"certificate_file": "/cert.pem"}
MUTUAL = {**TLS, "client_auth": "requested", "client_ca_file": "/ca.pem"}
UNFINISHED = "missing ), unterminated subpattern at position 0"
IDENTITY = {"subject": "CN=alice,.*", "certificate_file": "/alice.pem"}
NAME_FAULT = "must be a host name in ASCII, or *. and a host name, for instance *.b.example"


def named(*names: str) -> dict[str, Any]:
    """Returns a further certificate of a listener."""
    return {"server_names": names, "certificate_file": "/named.pem"}


def clients(**tls: Any) -> dict[str, Any]:
    """Returns settings with one listener that terminates TLS."""
    return {"listeners": [{**CLIENT, "tls": {**TLS, **tls}}]}


def faults(**settings: Any) -> list[str]:
    """Returns the lines for invalid settings."""
    with pytest.raises(ValidationError) as error:
        Config.model_validate(settings)
    return error_lines(error.value, Config, {"": settings})


def test_short_form_is_one_listener() -> None:
    """The keys `listen` and `upstream` describe one listener without TLS."""
    config = Config.model_validate({"listen": "127.0.0.1:9092", "upstream": "broker:9092"})
    [listener] = config.client_listeners
    assert (listener.name, listener.listen, listener.upstream) == (
        DEFAULT_LISTENER,
        Address("127.0.0.1", 9092),
        Address("broker", 9092),
    )
    assert (listener.tls, listener.upstream_tls) == (None, None)


def test_server_names_are_in_lower_case() -> None:
    """Names are compared without regard to case."""
    config = Config.model_validate(clients(certificates=[named("A.Example", "*.B-1.example", "x_1")]))
    [listener] = config.client_listeners
    assert listener.tls is not None
    assert listener.tls.certificates[0].server_names == ("a.example", "*.b-1.example", "x_1")


def test_first_listener_leads_to_the_broker() -> None:
    """The sidecar's own address of the broker, and its default id, come from the first listener."""
    config = Config.model_validate({"listeners": [CLIENT, SECURE]})
    assert [listener.name for listener in config.client_listeners] == ["CLIENT", "SECURE"]
    assert config.broker_address == Address("10.0.0.1", 19092)
    assert config.sidecar_id.endswith(":9092")


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({"listeners": []}, ["listen: is required", "upstream: is required"]),
        ({"listeners": [CLIENT], "listen": "a:1"}, ["listen: is not allowed beside listeners"]),
        ({"listeners": [CLIENT], "upstream": "a:1"}, ["upstream: is not allowed beside listeners"]),
        ({"listeners": [CLIENT, {**SECURE, "name": "CLIENT"}]}, ["listeners: two listeners have the name CLIENT"]),
        (
            {"listeners": [CLIENT, {**SECURE, "listen": "0.0.0.0:9092"}]},
            ["listeners: two listeners have the listen 0.0.0.0:9092"],
        ),
        (
            {"listeners": [CLIENT, {**SECURE, "upstream": "0.0.0.0:9092"}]},
            ["listeners: SECURE: upstream is the address of the listener CLIENT"],
        ),
        ({"listeners": [{"name": "X", "listen": "a:1"}]}, ["listeners.0.upstream: is required"]),
        ({"listeners": [{**CLIENT, "upstream": "a:0"}]}, ["listeners.0.upstream: the port must be at least 1"]),
        ({"listeners": [{**CLIENT, "tls": {}}]}, ["listeners.0.tls.certificate_file: is required"]),
        (
            {"listeners": [{**CLIENT, "tls": {**TLS, "client_auth": "required"}}]},
            ["listeners.0.tls: client_auth and client_ca_file need each other"],
        ),
        (
            {"listeners": [{**CLIENT, "tls": {**TLS, "client_ca_file": "/ca.pem"}}]},
            ["listeners.0.tls: client_auth and client_ca_file need each other"],
        ),
        (clients(certificates=[named()]), ["listeners.0.tls.certificates.0.server_names: must not be empty"]),
        (
            clients(certificates=[{"server_names": ["a"]}]),
            ["listeners.0.tls.certificates.0.certificate_file: is required"],
        ),
        (
            clients(certificates=[named("a.example", "*.b"), named("c", "A.Example")]),
            ["listeners.0.tls: certificates: the server name a.example is there twice"],
        ),
        *(
            (clients(certificates=[named("a", name)]), [f"listeners.0.tls.certificates.0.server_names.1: {NAME_FAULT}"])
            for name in ("*", "*.", "a.*.b", "*a.b", "", ".", "a.", "a..b", "ümlaut.example", "a b", "a\n", "a" * 256)
        ),
        (clients(ciphers="none such"), ["listeners.0.tls.ciphers: OpenSSL knows no cipher of this list"]),
        (clients(ciphers="a\0b"), ["listeners.0.tls.ciphers: OpenSSL knows no cipher of this list"]),
        (
            {"listeners": [{**CLIENT, "tls": TLS, "upstream_tls": {"identities": [IDENTITY]}}]},
            ["listeners.0: upstream_tls.identities: needs tls.client_auth, so that clients have certificates"],
        ),
        (
            {"listeners": [{**CLIENT, "upstream_tls": {"identities": [IDENTITY]}}]},
            ["listeners.0: upstream_tls.identities: needs tls.client_auth, so that clients have certificates"],
        ),
        (
            {"listeners": [{**CLIENT, "tls": MUTUAL, "upstream_tls": {"identities": [{**IDENTITY, "subject": "("}]}}]},
            [f"listeners.0.upstream_tls.identities.0.subject: is no regular expression: {UNFINISHED}"],
        ),
        (
            {"listeners": [{**CLIENT, "tls": MUTUAL, "upstream_tls": {"identities": [{"subject": "a"}]}}]},
            ["listeners.0.upstream_tls.identities.0.certificate_file: is required"],
        ),
        (
            {
                "listeners": [
                    {**CLIENT, "tls": MUTUAL, "upstream_tls": {"identities": [{**IDENTITY, "subject": "User:CN=a"}]}}
                ]
            },
            ["listeners.0.upstream_tls.identities.0.subject: must be the subject alone, without User:"],
        ),
        (
            {"listeners": [{**CLIENT, "tls": MUTUAL, "identities": [IDENTITY]}]},
            ["listeners.0.identities: unknown key; did you mean upstream_tls.identities?"],
        ),
        ({"listeners": [CLIENT], "admin": "0.0.0.0:9092"}, ["admin: is the sidecar's own listen address"]),
        ({"listeners": [CLIENT, SECURE], "mode": "gateway"}, ["listeners: mode gateway has one listener"]),
        ({"listeners": [CLIENT], "mode": "gateway"}, ["gateway.advertise: is required where listen is 0.0.0.0:9092"]),
    ],
)
def test_invalid_listeners_are_named(settings: dict[str, Any], lines: list[str]) -> None:
    """Each fault of a listener is one line that names the key."""
    assert faults(**settings) == lines


def test_invalid_name_is_refused() -> None:
    """A name has only characters that are safe in metrics and logs."""
    for name in ("", "a b", "ä", "x" * 65):
        [line] = faults(listeners=[{**CLIENT, "name": name}])
        assert line.startswith("listeners.0.name: ")


def test_several_listeners_may_have_port_zero() -> None:
    """Port 0 stands for any free port, so several listeners may have it."""
    listeners = [{**each, "listen": "127.0.0.1:0"} for each in (CLIENT, SECURE)]
    assert len(Config.model_validate({"listeners": listeners}).client_listeners) == 2


@pytest.mark.parametrize(
    ("own", "upstream_tls", "alike"),
    [
        ({}, None, [True, False]),
        ({"address": "10.0.0.1:19093"}, None, [False, True]),
        ({"address": "10.0.0.9:1"}, None, [False, False]),
        ({"sasl": {"mechanism": "PLAIN", "username": "u", "password": "p"}}, None, [False, False]),
        ({"tls": {}}, None, [False, False]),
        ({"tls": {}}, {}, [True, False]),
    ],
)
def test_own_connection_may_be_like_a_clients(
    own: dict[str, Any], upstream_tls: dict[str, Any] | None, alike: list[bool]
) -> None:
    """The own connection shows what a listener of the broker requires only if it uses that listener without SASL."""
    listeners = [{**CLIENT, "upstream_tls": upstream_tls}, SECURE]
    config = Config.model_validate({"listeners": listeners, "own_connection": own})
    assert [config.sidecar_connects_like_clients_of(each) for each in config.client_listeners] == alike
