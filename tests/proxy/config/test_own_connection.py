"""Tests the settings of own_connection: which belong together, and the text of each fault."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from group_sidecar.proxy.config.loading import ConfigError, load_config
from group_sidecar.proxy.config.own_connection import Sasl, Tls
from group_sidecar.proxy.runtime.addresses import Address

USER, SECRET = "alice", "alice's secret, = and more"
LEAST = {"listen": "127.0.0.1:9092", "upstream": "broker:9092"}
SASL = {"mechanism": "PLAIN", "username": USER, "password": SECRET}
TOKEN = {"mechanism": "OAUTHBEARER", "token_file": "token"}
URL = "https://issuer.example/oauth2/token"
ENDPOINT = {"mechanism": "OAUTHBEARER", "token_endpoint_url": URL, "client_id": "sidecar", "client_secret": SECRET}

NOT_A_URL = "sasl.token_endpoint_url: must be a URL, for instance https://issuer.example/oauth2/token"
UNENCRYPTED = (
    "sasl.token_endpoint_url: must begin with https://, because the client secret would cross the network unencrypted"
)
FOR_PASSWORDS = "is for PLAIN and SCRAM, and the mechanism is OAUTHBEARER"


def without(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


@pytest.mark.parametrize(
    ("own", "line"),
    [
        (
            {"sasl": {**SASL, "mechanism": "GSSAPI"}},
            "sasl.mechanism: must be 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512' or 'OAUTHBEARER'",
        ),
        ({"sasl": {**SASL, "username": ""}}, "sasl.username: must not be empty"),
        ({"sasl": {**SASL, "password": 5}}, "sasl.password: must be text"),
        ({"sasl": {**SASL, "password_file": "p"}}, "sasl: needs either password or password_file"),
        ({"sasl": without(SASL, "password")}, "sasl: needs either password or password_file"),
        ({"sasl": without(SASL, "username")}, "sasl: username: is required for PLAIN"),
        ({"sasl": {**SASL, "passwort": "x"}}, "sasl.passwort: unknown key; did you mean password?"),
        ({"tls": {"key_file": "k"}}, "tls: key_file: needs a certificate_file"),
        ({"tls": {"verify": False}}, "tls.verify: unknown key"),
        ({"address": "broker:0"}, "address: the port must be at least 1"),
        ({"adress": "broker:1"}, "adress: unknown key; did you mean address?"),
    ],
)
def test_invalid_own_connection_is_reported(own: dict[str, Any], line: str) -> None:
    """An invalid setting of own_connection is one line with its path and without the password."""
    with pytest.raises(ConfigError) as refused:
        load_config(flags={**LEAST, "own_connection": own})
    assert refused.value.lines == [f"flags: own_connection.{line}"]
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("sasl", "line"),
    [
        ({**TOKEN, "username": USER}, f"sasl: username: {FOR_PASSWORDS}"),
        ({**TOKEN, "password": SECRET}, f"sasl: password: {FOR_PASSWORDS}"),
        ({**ENDPOINT, "password_file": "p"}, f"sasl: password_file: {FOR_PASSWORDS}"),
        ({"mechanism": "OAUTHBEARER"}, "sasl: needs either token_file or token_endpoint_url"),
        ({**ENDPOINT, "token_file": "token"}, "sasl: needs either token_file or token_endpoint_url"),
        *(
            ({**TOKEN, name: "x"}, f"sasl: {name}: needs a token_endpoint_url")
            for name in ("client_id", "client_secret", "client_secret_file", "scope", "ca_file")
        ),
        *(
            ({**SASL, name: value}, f"sasl: {name}: is for OAUTHBEARER, and the mechanism is PLAIN")
            for name, value in (without(ENDPOINT, "mechanism") | {"token_file": "token", "scope": "s"}).items()
        ),
        (without(ENDPOINT, "client_id"), "sasl: client_id: is required with token_endpoint_url"),
        (without(ENDPOINT, "client_secret"), "sasl: needs either client_secret or client_secret_file"),
        ({**ENDPOINT, "client_secret_file": "f"}, "sasl: needs either client_secret or client_secret_file"),
        ({**ENDPOINT, "client_id": ""}, "sasl.client_id: must not be empty"),
        ({**ENDPOINT, "scope": ""}, "sasl.scope: must not be empty"),
        *(
            ({**ENDPOINT, "token_endpoint_url": url}, NOT_A_URL)
            for url in (
                "issuer.example",
                "",
                "file:///token",
                "https://",
                "https://a:port",
                "https://a:0",
                "https://[::",
            )
        ),
        *(
            ({**ENDPOINT, "token_endpoint_url": url}, UNENCRYPTED)
            for url in ("http://issuer.example/token", "http://10.0.0.1", "http://localhost.example")
        ),
        *(
            (
                {**ENDPOINT, "token_endpoint_url": url},
                "sasl.token_endpoint_url: must have no user, password or fragment",
            )
            for url in ("https://user:word@issuer.example", "https://issuer.example/#token")
        ),
    ],
)
def test_settings_must_fit_mechanism(sasl: dict[str, Any], line: str) -> None:
    """A setting of another mechanism, or a missing one, is one line without the secret."""
    test_invalid_own_connection_is_reported({"sasl": sasl}, line)


@pytest.mark.parametrize("url", [URL, "http://127.0.0.1:8080/token", "http://[::1]/token", "http://localhost/token"])
def test_endpoint_is_encrypted_or_local(url: str) -> None:
    """The token endpoint is asked by https, or by http at a loopback address."""
    assert Sasl.model_validate({**ENDPOINT, "token_endpoint_url": url}).token_endpoint_url == url


def test_gateway_refuses_own_address() -> None:
    """The setting own_connection.address is refused in mode gateway."""
    with pytest.raises(ConfigError) as refused:
        load_config(flags={**LEAST, "mode": "gateway", "own_connection": {"address": "broker:9093"}})
    assert refused.value.lines == ["own_connection.address: is for mode sidecar"]


@pytest.mark.parametrize(("sasl", "name"), [(SASL, "password"), (ENDPOINT, "client_secret")])
def test_secret_is_not_shown(sasl: dict[str, Any], name: str) -> None:
    """No text form of the settings contains the password or the client secret."""
    config = load_config(flags={**LEAST, "own_connection": {"sasl": sasl}})
    assert getattr(config.own_connection.sasl, name).get_secret_value() == SECRET
    for shown in (repr(config), str(config), config.model_dump_json()):
        assert SECRET not in shown


def test_environment_sets_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables can set own_connection."""
    for key, value in {
        "ADDRESS": "broker:9093",
        "SASL__MECHANISM": "SCRAM-SHA-512",
        "SASL__USERNAME": USER,
        "SASL__PASSWORD_FILE": "/run/secrets/kafka",
        "TLS__CA_FILE": "/etc/kafka/ca.pem",
    }.items():
        monkeypatch.setenv(f"GROUP_SIDECAR__OWN_CONNECTION__{key}", value)
    own = load_config(flags=dict(LEAST)).own_connection
    assert own.address == Address("broker", 9093)
    assert own.sasl == Sasl(mechanism="SCRAM-SHA-512", username=USER, password_file=Path("/run/secrets/kafka"))
    assert own.tls == Tls(ca_file=Path("/etc/kafka/ca.pem"))


def test_environment_sets_token_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables can set the token endpoint and its credentials."""
    for key, value in {**ENDPOINT, "scope": "kafka", "ca_file": "ca.pem"}.items():
        monkeypatch.setenv(f"GROUP_SIDECAR__OWN_CONNECTION__SASL__{key.upper()}", value)
    sasl = load_config(flags=dict(LEAST)).own_connection.sasl
    assert sasl is not None
    assert (sasl.mechanism, sasl.token_endpoint_url, sasl.scope) == ("OAUTHBEARER", URL, "kafka")
    assert (sasl.client_id, sasl.client_secret, sasl.ca_file) == ("sidecar", SecretStr(SECRET), Path("ca.pem"))
