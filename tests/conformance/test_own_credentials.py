"""The sidecar's own credentials with a real broker: TLS, PLAIN, SCRAM and OAUTHBEARER, and the text of refusals."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.proxy.broker.broker_errors import AuthenticationFailed, BrokerError, TlsFailed
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.own_credentials import OwnCredentials
from group_sidecar.proxy.config.own_connection import OwnConnection
from group_sidecar.proxy.runtime.addresses import Address
from tests.certificates import Authority
from tests.conformance.sasl_forms_broker import bearer_properties
from tests.kafka.broker import SASL_PASSWORD, SASL_USER, KafkaBroker
from tests.kafka.processes import host_port
from tests.kafka.sasl import unsecured_token
from tests.kafka.sidecar_process import SidecarProcess
from tests.proxy.broker.test_own_credentials import at
from tests.proxy.broker.test_token_endpoint import Endpoint

SESSION_MS = 2000
"""The lifetime in milliseconds of a session with PLAIN on the listener without TLS."""


class Secured(NamedTuple):
    """A broker with TLS listeners, and its certificates.

    CLIENT uses TLS and requires a certificate. SASL_CLIENT uses TLS with SASL, and also takes unsecured tokens by
    OAUTHBEARER. SASL_DIRECT uses only SASL.
    """

    broker: KafkaBroker
    ca_file: Path
    certificate_file: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "ca")
    ca_file, certificate_file, keystore = authority.file, folder / "own.pem", folder / "broker.pem"
    certificate_file.write_bytes(authority.issue("sidecar.example").java_keystore)
    keystore.write_bytes(authority.issue("127.0.0.1").java_keystore)
    names = {"CLIENT": "SSL", "DIRECT": "PLAINTEXT", "SASL_CLIENT": "SASL_SSL", "SASL_DIRECT": "SASL_PLAINTEXT"}
    protocols = ",".join(f"{name}:{how}" for name, how in {**names, "CONTROLLER": "PLAINTEXT"}.items())
    properties = {
        "listener.security.protocol.map": protocols,
        "listener.name.client.ssl.client.auth": "required",
        "listener.name.sasl_client.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        **bearer_properties("sasl_client"),
        "listener.name.sasl_direct.plain.connections.max.reauth.ms": str(SESSION_MS),
    }
    for listener in ("client", "sasl_client"):
        prefix = f"listener.name.{listener}.ssl"
        properties |= {f"{prefix}.keystore.type": "PEM", f"{prefix}.keystore.location": str(keystore)}
        properties |= {f"{prefix}.truststore.type": "PEM", f"{prefix}.truststore.location": str(ca_file)}
    with KafkaBroker(folder / "broker", properties=properties, sasl=True) as broker:
        broker.wait_for_coordinator()
        yield Secured(broker, ca_file, certificate_file)


def sasl(mechanism: str, **instead: Any) -> dict[str, Any]:
    return {"mechanism": mechanism, "username": SASL_USER, "password": SASL_PASSWORD, **instead}


async def groups_asked(address: tuple[str, int], own: dict[str, Any]) -> int:
    async with OwnCredentials(OwnConnection.model_validate(own)).connect(Address(*address)) as client:
        reply = await client.ask(ListGroupsRequest())
        return int(reply.error_code)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_sidecar_authenticates(secured: Secured, mechanism: str) -> None:
    """The sidecar authenticates by PLAIN and SCRAM, with and without TLS."""
    tls = {"ca_file": secured.ca_file}
    assert await groups_asked(secured.broker.sasl_direct, {"sasl": sasl(mechanism)}) == 0
    assert await groups_asked(secured.broker.sasl_client, {"sasl": sasl(mechanism), "tls": tls}) == 0


async def test_sidecar_sends_its_certificate(secured: Secured) -> None:
    """The sidecar authenticates with its TLS certificate."""
    tls = {"ca_file": secured.ca_file, "certificate_file": secured.certificate_file}
    assert await groups_asked(secured.broker.client, {"tls": tls}) == 0


async def refusal(address: tuple[str, int], own: dict[str, Any], kind: type[BrokerError]) -> str:
    with pytest.raises(kind) as raised:
        await groups_asked(address, own)
    return str(raised.value).removeprefix(f"{host_port(address)} ")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password(secured: Secured, mechanism: str) -> None:
    """A wrong password raises AuthenticationFailed with the user, the mechanism and the broker's error."""
    line = await refusal(secured.broker.sasl_direct, {"sasl": sasl(mechanism, password="wrong")}, AuthenticationFailed)
    assert line.startswith(f"refuses {SASL_USER}'s password by {mechanism}: SASL_AUTHENTICATION_FAILED (58): ")


async def test_mechanism_not_enabled(secured: Secured) -> None:
    """A mechanism that the broker lacks raises AuthenticationFailed with the offered mechanisms."""
    line = await refusal(secured.broker.sasl_direct, {"sasl": sasl("SCRAM-SHA-512")}, AuthenticationFailed)
    offered = "it offers PLAIN, SCRAM-SHA-256"
    assert line == f"does not support SCRAM-SHA-512: UNSUPPORTED_SASL_MECHANISM (33): {offered}"


async def test_listener_without_sasl(secured: Secured) -> None:
    """SASL at a listener without SASL raises AuthenticationFailed that names own_connection.sasl."""
    line = await refusal(secured.broker.direct, {"sasl": sasl("PLAIN")}, AuthenticationFailed)
    assert line == "does not support SASL, and own_connection.sasl is set"


async def test_plain_listener_with_tls_set(secured: Secured) -> None:
    """TLS at a plain listener raises TlsFailed with a hint at own_connection.tls."""
    line = await refusal(secured.broker.direct, {"tls": {"ca_file": secured.ca_file}}, TlsFailed)
    hint = "the listener may be plain, and own_connection.tls is set"
    assert line == f"cannot be reached by TLS: it closed the connection: {hint}"


async def test_untrusted_certificate(secured: Secured) -> None:
    """An untrusted broker certificate raises TlsFailed."""
    line = await refusal(secured.broker.sasl_client, {"tls": {}}, TlsFailed)
    assert line.startswith("cannot be reached by TLS: its certificate is not trusted: ")


async def test_missing_client_certificate(secured: Secured) -> None:
    """A missing client certificate raises TlsFailed."""
    line = await refusal(secured.broker.client, {"tls": {"ca_file": secured.ca_file}}, TlsFailed)
    assert line.startswith("ended TLS at ApiVersions: ")


@pytest.mark.parametrize("listener", ["client", "sasl_client"])
async def test_tls_listener_without_tls_set(secured: Secured, listener: str) -> None:
    """A TLS listener without own_connection.tls raises an error that mentions TLS."""
    with pytest.raises(Exception, match="TLS"):
        await groups_asked(getattr(secured.broker, listener), {})


async def test_session_outlives_authentication(secured: Secured) -> None:
    """The sidecar authenticates again before its session ends, so the broker does not close the connection."""
    own = OwnConnection.model_validate({"sasl": sasl("PLAIN")})
    async with OwnCredentials(own).connect(Address(*secured.broker.sasl_direct)) as client:
        await keep_asking(client, 2.5 * SESSION_MS / 1000)


async def keep_asking(client: KafkaClient, seconds: float) -> None:
    end = trio.current_time() + seconds
    while trio.current_time() < end:
        assert (await client.ask(ListGroupsRequest())).error_code == 0
        await trio.sleep(0.05)


async def test_changed_password_fails_at_session_end(secured: Secured, tmp_path: Path) -> None:
    """A password that is wrong by the end of the session raises AuthenticationFailed."""
    file = tmp_path / "password"
    file.write_text(SASL_PASSWORD)
    settings = sasl("PLAIN", password=None, password_file=file)
    async with OwnCredentials(OwnConnection.model_validate({"sasl": settings})).connect(
        Address(*secured.broker.sasl_direct)
    ) as client:
        file.write_text("another")
        with pytest.raises(AuthenticationFailed):
            await keep_asking(client, 15 * SESSION_MS / 1000)


# OAUTHBEARER.


def own_token(secured: Secured, **source: str | Path) -> dict[str, Any]:
    return {"sasl": {"mechanism": "OAUTHBEARER", **source}, "tls": {"ca_file": secured.ca_file}}


async def test_token_from_file(secured: Secured, tmp_path: Path) -> None:
    """The broker accepts a token that the sidecar reads from a file, and refuses an expired token with a status."""
    file = tmp_path / "token"
    own = own_token(secured, token_file=file)
    file.write_text(unsecured_token("sidecar"))
    assert await groups_asked(secured.broker.sasl_client, own) == 0
    file.write_text(unsecured_token("sidecar", -60))
    line = await refusal(secured.broker.sasl_client, own, AuthenticationFailed)
    assert line == f"refuses the token in {file} by OAUTHBEARER: invalid_token"


async def test_token_from_endpoint(secured: Secured, nursery: trio.Nursery) -> None:
    """The broker accepts a token that the sidecar gets from an endpoint by client credentials."""
    endpoint = Endpoint({"access_token": unsecured_token("sidecar"), "token_type": "Bearer", "expires_in": 3600})
    url = f"http://{await at(nursery, endpoint.serve)}/token"
    own = own_token(secured, token_endpoint_url=url, client_id="sidecar", client_secret="secret")
    assert await groups_asked(secured.broker.sasl_client, own) == 0
    assert len(endpoint.requests) == 1


async def test_session_outlives_token(secured: Secured, nursery: trio.Nursery, tmp_path: Path) -> None:
    """The sidecar authenticates again with a new token before its token expires, so the broker does not end the
    session.
    """
    file, seconds = tmp_path / "token", 3

    def refresh() -> None:
        fresh = file.with_suffix(".new")
        fresh.write_text(unsecured_token("sidecar", seconds))
        fresh.rename(file)

    async def keep_fresh() -> None:
        while True:
            await trio.sleep(seconds / 4)
            refresh()

    refresh()
    nursery.start_soon(keep_fresh)
    own = OwnConnection.model_validate(own_token(secured, token_file=file))
    async with OwnCredentials(own).connect(Address(*secured.broker.sasl_client)) as client:
        await keep_asking(client, 2 * seconds)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["upstream", "another listener"])
def test_sidecar_uses_its_credentials(secured: Secured, tmp_path: Path, elsewhere: bool) -> None:
    """A sidecar with credentials reaches the broker at its upstream address or at another listener."""
    password_file = tmp_path / "password"
    password_file.write_text(SASL_PASSWORD)
    own: dict[str, Any] = {"sasl": sasl("SCRAM-SHA-256", password_file=str(password_file))}
    del own["sasl"]["password"]
    if elsewhere:
        own |= {"address": host_port(secured.broker.sasl_client), "tls": {"ca_file": str(secured.ca_file)}}
    with sidecar(secured, tmp_path, own) as running:
        running.process.wait_until(lambda: "broker reachable" in running.process.tail())


def test_refused_sidecar_is_ready(secured: Secured, tmp_path: Path) -> None:
    """A sidecar with a wrong password is ready, logs the reason and does not log the password."""
    with sidecar(secured, tmp_path, {"sasl": sasl("PLAIN", password="not-the-password")}) as running:
        running.process.wait_until(lambda: "SASL_AUTHENTICATION_FAILED (58)" in running.process.tail())
        assert "broker refuses the sidecar's credentials" in running.process.tail()
        assert "not-the-password" not in running.process.tail()
        assert running.get("/readyz")[0] == 200


def sidecar(secured: Secured, folder: Path, own: dict[str, Any]) -> SidecarProcess:
    return SidecarProcess(
        folder,
        listen=secured.broker.sasl_sidecar,
        upstream=secured.broker.sasl_direct,
        settings={"own_connection": own},
    )
