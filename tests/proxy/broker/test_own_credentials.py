"""Tests the sidecar's own credentials against a scripted broker with TLS and SASL, and the text of each failure."""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import scramp
import trio
import trustme
from pydantic import SecretStr

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.codecs.schema import Struct
from group_sidecar.proxy.broker.broker_errors import AuthenticationFailed, BrokerClosed, TlsFailed
from group_sidecar.proxy.broker.kafka_client import KafkaClient
from group_sidecar.proxy.broker.own_credentials import OwnCredentials
from group_sidecar.proxy.config.own_connection import OwnConnection, Sasl, Tls
from group_sidecar.proxy.runtime.addresses import Address
from tests.proxy.fakes import FakeBroker, echo
from tests.proxy.scripted_broker import HangUp, ScriptedBroker

USER, PASSWORD = "alice", "alice's secret, = and more"
GROUPS = ListGroupsResponse(error_code=0, groups=())
PLAIN_TOKEN = f"\0{USER}\0{PASSWORD}".encode()
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM)


class SaslBroker(ScriptedBroker):
    """Serves only the user USER, one connection at a time.

    Attributes:
        lifetime_ms: the session lifetime that the broker reports.
        handshakes: how often a client named a mechanism.
        knows_itself: whether the broker can prove that it knows the password too.
    """

    def __init__(self, newest_handshake: int = 1) -> None:
        answers: dict[type[Struct], Any] = {
            SaslHandshakeRequest: self._shake,
            SaslAuthenticateRequest: self._authenticate,
            ListGroupsRequest: self._list,
        }
        super().__init__(answers, {SaslHandshakeRequest: (0, newest_handshake)})
        self.lifetime_ms = 0
        self.handshakes = 0
        self.knows_itself = True
        self._raw = False
        self._authenticated = False
        self._scram: scramp.ScramServer | None = None

    def _shake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        self.handshakes += 1
        self._authenticated = False
        self._raw = version == 0
        if request.mechanism != "PLAIN":
            known = scramp.ScramMechanism(request.mechanism)
            secret = known.make_auth_info(PASSWORD)
            if not self.knows_itself:
                secret = (*secret[:2], b"not the server key", secret[3])
            self._scram = known.make_server({USER: secret}.__getitem__)
        return SaslHandshakeResponse(error_code=0, mechanisms=MECHANISMS)

    def _authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        token = self._token(request.auth_bytes)
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED if token is None else 0,
            error_message="Authentication failed" if token is None else None,
            auth_bytes=token or b"",
            session_lifetime_ms=self.lifetime_ms,
        )

    def _token(self, token: bytes) -> bytes | None:
        """Returns the broker's answer to a token; None to a wrong one."""
        if self._scram is None:
            self._authenticated = token == PLAIN_TOKEN
            return b"" if self._authenticated else None
        try:
            if self._scram.stage is None:
                self._scram.set_client_first(token.decode())
                return bytes(self._scram.get_server_first(), "utf-8")
            self._scram.set_client_final(token.decode())
        except scramp.ScramException:
            return None
        self._authenticated = True
        return bytes(self._scram.get_server_final(), "utf-8")

    def _list(self, request: ListGroupsRequest, version: int) -> ListGroupsResponse:
        if not self._authenticated:
            raise HangUp
        return GROUPS

    async def _reply(self, frame: bytes) -> bytes:
        if not self._raw or self._authenticated:
            return await super()._reply(frame)
        token = self._token(frame)
        if token is None:
            raise HangUp
        return len(token).to_bytes(4, "big") + token


def sasl(mechanism: str = "PLAIN", **instead: Any) -> Sasl:
    return Sasl(**{"mechanism": mechanism, "username": USER, "password": SecretStr(PASSWORD), **instead})


async def at(nursery: trio.Nursery, behaviour: Callable[[trio.SocketStream], Awaitable[None]]) -> Address:
    """Listens with a handler for each connection, and returns the address."""
    address: Address = await nursery.start(FakeBroker(behaviour).run)
    return address


async def groups_asked(address: Address, own: OwnConnection) -> ListGroupsResponse:
    async with OwnCredentials(own).connect(address, timeout=5) as client:
        reply: ListGroupsResponse = await client.ask(ListGroupsRequest())
        return reply


async def refusal(address: Address, own: OwnConnection, kind: type[Exception] = AuthenticationFailed) -> str:
    """Returns the text of the failure, after a check that it names the broker and no password."""
    with pytest.raises(kind) as raised:
        await groups_asked(address, own)
    line = str(raised.value)
    assert line.startswith(f"{address} ")
    assert "\n" not in line
    assert PASSWORD not in line
    return line.removeprefix(f"{address} ")


# SASL.


@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_mechanism_authenticates(nursery: trio.Nursery, mechanism: str, handshake: int) -> None:
    """Each mechanism authenticates in both handshake versions before the first request."""
    broker = SaslBroker(handshake)
    address = await at(nursery, broker.serve)
    assert await groups_asked(address, OwnConnection(sasl=sasl(mechanism))) == GROUPS
    assert [version for request, version in broker.asked if isinstance(request, SaslHandshakeRequest)] == [handshake]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_wrong_password_reports_broker_error(nursery: trio.Nursery, mechanism: str) -> None:
    """A wrong password raises an error with the broker's text."""
    address = await at(nursery, SaslBroker().serve)
    line = await refusal(address, OwnConnection(sasl=sasl(mechanism, password=SecretStr("wrong"))))
    cause = "SASL_AUTHENTICATION_FAILED (58): Authentication failed"
    assert line == f"refuses {USER}'s password by {mechanism}: {cause}"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_wrong_password_closes_old_connection(nursery: trio.Nursery, mechanism: str) -> None:
    """An old broker closes the connection at a wrong password, and the error says so."""
    address = await at(nursery, SaslBroker(newest_handshake=0).serve)
    line = await refusal(address, OwnConnection(sasl=sasl(mechanism, password=SecretStr("wrong"))))
    assert line == f"closed the connection at a SASL token: it may have refused {USER}'s password by {mechanism}"


@pytest.mark.parametrize("mechanism", SCRAM)
async def test_impostor_broker_fails_scram(nursery: trio.Nursery, mechanism: str) -> None:
    """A broker that cannot prove that it knows the password gets no requests."""
    broker = SaslBroker()
    broker.knows_itself = False
    line = await refusal(await at(nursery, broker.serve), OwnConnection(sasl=sasl(mechanism)))
    assert line.startswith(f"cannot prove that it knows {USER}'s password by {mechanism}: ")
    assert broker.requests(ListGroupsRequest) == []


@pytest.mark.parametrize("token", [b"junk", b"\xff", b""])
async def test_invalid_scram_message_is_no_proof(nursery: trio.Nursery, token: bytes) -> None:
    """An invalid SCRAM message of the broker counts as a failed proof."""
    broker = SaslBroker()
    broker.answers[SaslAuthenticateRequest] = SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=token
    )
    line = await refusal(await at(nursery, broker.serve), OwnConnection(sasl=sasl("SCRAM-SHA-256")))
    assert line.startswith(f"cannot prove that it knows {USER}'s password by SCRAM-SHA-256: ")


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        (
            SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=SCRAM),
            "does not support PLAIN: UNSUPPORTED_SASL_MECHANISM (33): it offers SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (
            SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=()),
            "does not support PLAIN: UNSUPPORTED_SASL_MECHANISM (33): it offers none",
        ),
        (
            SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=()),
            "does not support SASL, and own_connection.sasl is set",
        ),
        (
            HangUp(),
            f"closed the connection at SaslHandshake: it may have refused {USER}'s password by PLAIN",
        ),
    ],
)
async def test_failed_handshake_sends_no_password(nursery: trio.Nursery, reply: Any, line: str) -> None:
    """After a failed handshake, the error contains its reason and no password is sent."""
    broker = SaslBroker()
    broker.answers[SaslHandshakeRequest] = reply
    assert await refusal(await at(nursery, broker.serve), OwnConnection(sasl=sasl())) == line
    assert broker.requests(SaslAuthenticateRequest) == [], "a password was sent after the failed handshake"


async def test_password_file_is_read_per_connection(nursery: trio.Nursery, tmp_path: Path) -> None:
    """The password file is read again for each connection, and an unusable file is named in the error."""
    file = tmp_path / "password"
    own = OwnConnection(sasl=sasl(password=None, password_file=file))
    address = await at(nursery, SaslBroker().serve)
    key = "is not sent a password: own_connection.sasl.password_file"
    assert await refusal(address, own) == f"{key}: {file} cannot be used: no such file or directory"
    file.write_bytes(b"\xff")
    assert await refusal(address, own) == f"{key}: {file} is not UTF-8"
    file.write_text("old")
    assert "SASL_AUTHENTICATION_FAILED" in await refusal(address, own)
    file.write_text(PASSWORD + "\n")
    assert await groups_asked(address, own) == GROUPS


async def asked_at(client: KafkaClient, clock: trio.testing.MockClock, second: float) -> None:
    clock.jump(second - trio.current_time())
    assert await client.ask(ListGroupsRequest()) == GROUPS


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_session_reauthenticates_before_end(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock, mechanism: str
) -> None:
    """A session is authenticated again before its lifetime ends, on the same connection."""
    broker = SaslBroker()
    broker.lifetime_ms = 100_000
    address = await at(nursery, broker.serve)
    handshakes = []
    async with OwnCredentials(OwnConnection(sasl=sasl(mechanism))).connect(address) as client:
        start = trio.current_time()
        for second in (0, 84, 86, 169, 172, 1000):
            await asked_at(client, mock_clock, start + second)
            handshakes.append(broker.handshakes)
    assert handshakes == [1, 1, 2, 2, 3, 4]
    assert len(broker.streams) == 1


async def test_endless_session_stays_authenticated(nursery: trio.Nursery, mock_clock: trio.testing.MockClock) -> None:
    """A session without a lifetime is not authenticated again."""
    broker = SaslBroker()
    async with OwnCredentials(OwnConnection(sasl=sasl())).connect(await at(nursery, broker.serve)) as client:
        await asked_at(client, mock_clock, 1e9)
    assert broker.handshakes == 1


async def test_failed_reauthentication_ends_session(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    """A failed reauthentication raises an error and leaves the connection unusable."""
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    broker = SaslBroker()
    broker.lifetime_ms = 100_000
    own = OwnConnection(sasl=sasl(password=None, password_file=file))
    async with OwnCredentials(own).connect(await at(nursery, broker.serve)) as client:
        file.write_text("another")
        mock_clock.jump(90)
        with pytest.raises(AuthenticationFailed, match="SASL_AUTHENTICATION_FAILED"):
            await client.ask(ListGroupsRequest())
        with pytest.raises(BrokerClosed, match="has failed before ListGroups"):
            await client.ask(ListGroupsRequest())


# TLS.


NAME = "broker.example"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    return file


def by_tls(
    authority: trustme.CA, broker: ScriptedBroker, *names: str, wants_certificate: bool = False
) -> Callable[[trio.SocketStream], Awaitable[None]]:
    """Has a broker serve with TLS and a certificate for these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    if wants_certificate:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED

    async def serve(stream: trio.SocketStream) -> None:
        await broker.serve(trio.SSLStream(stream, context, server_side=True, https_compatible=True))

    return serve


def lister() -> ScriptedBroker:
    return ScriptedBroker({ListGroupsRequest: GROUPS})


async def test_tls_connection_works(nursery: trio.Nursery, authority: trustme.CA, ca_file: Path) -> None:
    """A request over TLS gets its reply."""
    address = await at(nursery, by_tls(authority, lister(), "127.0.0.1"))
    assert await groups_asked(address, OwnConnection(tls=Tls(ca_file=ca_file))) == GROUPS


async def test_sasl_works_over_tls(nursery: trio.Nursery, authority: trustme.CA, ca_file: Path) -> None:
    """SASL authentication works over TLS."""
    address = await at(nursery, by_tls(authority, SaslBroker(), "127.0.0.1"))
    own = OwnConnection(tls=Tls(ca_file=ca_file), sasl=sasl("SCRAM-SHA-512"))
    assert await groups_asked(address, own) == GROUPS


async def test_certificate_name_must_match(nursery: trio.Nursery, authority: trustme.CA, ca_file: Path) -> None:
    """The broker's certificate must name its address or the configured server name."""
    address = await at(nursery, by_tls(authority, lister(), NAME))
    line = await refusal(address, OwnConnection(tls=Tls(ca_file=ca_file)), TlsFailed)
    assert line.startswith("cannot be reached by TLS: its certificate is not trusted: IP address mismatch")
    assert await groups_asked(address, OwnConnection(tls=Tls(ca_file=ca_file, server_name=NAME))) == GROUPS


async def test_certificate_must_be_trusted(nursery: trio.Nursery, authority: trustme.CA, tmp_path: Path) -> None:
    """A certificate of an unknown authority raises TlsFailed."""
    address = await at(nursery, by_tls(authority, lister(), "127.0.0.1"))
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))
    for tls in (Tls(ca_file=stranger), Tls()):
        line = await refusal(address, OwnConnection(tls=tls), TlsFailed)
        assert line.startswith("cannot be reached by TLS: its certificate is not trusted: ")


@pytest.mark.parametrize("one_file", [True, False])
async def test_client_certificate_is_presented(
    nursery: trio.Nursery, authority: trustme.CA, ca_file: Path, tmp_path: Path, one_file: bool
) -> None:
    """The sidecar presents its certificate from one file or from two."""
    address = await at(nursery, by_tls(authority, lister(), "127.0.0.1", wants_certificate=True))
    own, key = authority.issue_cert("sidecar.example"), None
    file = tmp_path / "own.pem"
    if one_file:
        own.private_key_and_cert_chain_pem.write_to_path(str(file))
    else:
        own.cert_chain_pems[0].write_to_path(str(file))
        key = tmp_path / "own.key"
        own.private_key_pem.write_to_path(str(key))
    tls = Tls(ca_file=ca_file, certificate_file=file, key_file=key)
    assert await groups_asked(address, OwnConnection(tls=tls)) == GROUPS


async def test_missing_client_certificate_is_hinted(
    nursery: trio.Nursery, authority: trustme.CA, ca_file: Path
) -> None:
    """A broker that requires a certificate closes the connection, and the error mentions a certificate."""
    address = await at(nursery, by_tls(authority, lister(), "127.0.0.1", wants_certificate=True))
    line = await refusal(address, OwnConnection(tls=Tls(ca_file=ca_file)), BrokerClosed)
    assert line == "closed the connection at ApiVersions: it may require a certificate, or be older than 0.9"


async def hang_up(stream: trio.SocketStream) -> None:
    await stream.receive_some()


async def say_no_tls(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(b"\0\0\0\4" + bytes(16))


async def test_plain_listener_is_hinted(nursery: trio.Nursery) -> None:
    """A plain listener that closes the connection causes an error with a hint."""
    line = await refusal(await at(nursery, hang_up), OwnConnection(tls=Tls()), TlsFailed)
    hint = "the listener may be plain, and own_connection.tls is set"
    assert line == f"cannot be reached by TLS: it closed the connection: {hint}"


async def test_non_tls_reply_raises(nursery: trio.Nursery) -> None:
    """A reply that is not TLS raises TlsFailed with the reason."""
    line = await refusal(await at(nursery, say_no_tls), OwnConnection(tls=Tls()), TlsFailed)
    assert line == "cannot be reached by TLS: wrong version number"


async def test_silent_listener_times_out(nursery: trio.Nursery) -> None:
    """A listener that does not answer TLS raises TlsFailed after the timeout."""

    async def wait(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    address = await at(nursery, wait)
    with pytest.raises(TlsFailed, match=r"did not answer to TLS within 0.01 s: the listener may be plain"):
        async with OwnCredentials(OwnConnection(tls=Tls())).connect(address, timeout=0.01):
            pass


async def test_unusable_tls_file_is_named(nursery: trio.Nursery, ca_file: Path, tmp_path: Path) -> None:
    """An unusable TLS file raises TlsFailed with its setting and path."""
    address = await at(nursery, echo)
    missing, junk = tmp_path / "missing.pem", tmp_path / "junk.pem"
    junk.write_text("junk")
    for tls, key, file in (
        (Tls(ca_file=missing), "ca_file", missing),
        (Tls(ca_file=junk), "ca_file", junk),
        (Tls(certificate_file=missing), "certificate_file", missing),
        (Tls(certificate_file=ca_file, key_file=missing), "key_file", missing),
        (Tls(certificate_file=ca_file, key_file=junk), "key_file", junk),
    ):
        line = await refusal(address, OwnConnection(tls=tls), TlsFailed)
        assert line.startswith(f"cannot be reached by TLS: own_connection.tls.{key}: {file} cannot be used: ")


async def test_encrypted_key_raises_without_prompt(
    nursery: trio.Nursery, authority: trustme.CA, tmp_path: Path
) -> None:
    """An encrypted private key raises TlsFailed instead of a prompt for its password."""
    from cryptography.hazmat.primitives import serialization as pem

    own = authority.issue_cert("sidecar.example")
    key = pem.load_pem_private_key(own.private_key_pem.bytes(), None)
    hidden = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"secret"))
    file = tmp_path / "own.pem"
    file.write_bytes(hidden + own.cert_chain_pems[0].bytes())
    line = await refusal(await at(nursery, echo), OwnConnection(tls=Tls(certificate_file=file)), TlsFailed)
    assert line.startswith(f"cannot be reached by TLS: own_connection.tls.certificate_file: {file} cannot be used: ")
