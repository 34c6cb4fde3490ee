"""Clients with certificates, and the certificate under which the broker sees each of them."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.config.listener_sections import UpstreamTls
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.listeners.broker_certificates import BrokerCertificates
from group_sidecar.proxy.tls.reloading_contexts import UnusableFileError
from tests.certificates import Authority, Certificate
from tests.proxy.fakes import PassthroughDispatcher, RunningProxy, echo, read_frame, reply_frame, request_frame
from tests.proxy.listeners.tls_shell import HOST, VERSIONS, Memory, over_tls, proxy

NAMES = ("alice", "bob", "carol")


@dataclass(frozen=True)
class Pki:
    """Certificates of a broker, of the sidecar towards clients, and of users on both sides of the sidecar."""

    authority: Authority
    server: Certificate
    clients: dict[str, Certificate]
    upstream: dict[str, Certificate]

    def context(self, side: int, certificate: Certificate, version: ssl.TLSVersion) -> ssl.SSLContext:
        """Returns the context of a client or server that has a certificate, and requires one of the peer."""
        context = ssl.SSLContext(side)
        context.load_cert_chain(certificate.certificate_file, certificate.key_file)
        context.load_verify_locations(self.authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = context.maximum_version = version
        return context

    def client(self, name: str, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
        return self.context(ssl.PROTOCOL_TLS_CLIENT, self.clients[name], version)

    def settings(self, *identities: tuple[str, str], auth: str = "required") -> dict[str, Any]:
        """Returns the settings of a listener with identities: patterns, and the users of the upstream certificates."""
        authority = str(self.authority.file)
        mapped = [{"subject": pattern, **self.upstream[name].settings} for pattern, name in identities]
        return {
            "tls": {**self.server.settings, "client_auth": auth, "client_ca_file": authority},
            "upstream_tls": {"ca_file": authority, **self.upstream["carol"].settings, "identities": mapped},
        }


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    authority = Authority(tmp_path_factory.mktemp("identities"))
    return Pki(
        authority,
        authority.issue(HOST),
        {name: authority.issue(f"{name}.example", common_name=name) for name in NAMES},
        {name: authority.issue("sidecar.example", common_name=f"upstream-{name}") for name in NAMES},
    )


@dataclass
class Stage:
    """A proxy before a broker that requires certificates.

    Attributes:
        shell: the proxy.
        origins: the clients, as the sessions know them.
        seen: the TLS state of each connection at the broker.
    """

    shell: RunningProxy
    origins: list[Origin]
    seen: list[ssl.SSLObject]

    async def visit(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLObject:
        """Sends one request over a new connection. Returns the client's TLS state."""
        async with await self.shell.connect() as stream:
            client = Memory(context, stream)
            if session is not None:
                client.tls.session = session
            await stream.send_all(await client.do_handshake() + client.encrypt(request_frame(1)))
            assert await read_frame(client) == reply_frame(1)  # type: ignore[arg-type]
            return client.tls

    @property
    def common_names(self) -> list[str]:
        """The first attributes of the clients' subjects."""
        return [(origin.subject or "").partition(",")[0] for origin in self.origins]

    @property
    def users(self) -> list[str]:
        """The names in the certificates that the broker has seen."""
        return [name_of(tls) for tls in self.seen]


def name_of(tls: ssl.SSLObject) -> str:
    subject: Any = (tls.getpeercert() or {})["subject"]
    return str({key: value for ((key, value),) in subject}["commonName"])


@asynccontextmanager
async def staged(
    pki: Pki, settings: dict[str, Any], version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> AsyncIterator[Stage]:
    origins, seen = list[Origin](), list[ssl.SSLObject]()
    broker = pki.context(ssl.PROTOCOL_TLS_SERVER, pki.server, version)
    async with proxy(settings, over_tls(broker, echo, seen), origins=origins) as shell:
        yield Stage(shell, origins, seen)


async def test_first_match_chooses_the_certificate(pki: Pki) -> None:
    """The first pattern that matches the whole subject applies. Without a match, the listener's own one does."""
    patterns = [("CN=bo", "alice"), ("CN=bob,OU=.*", "bob"), ("CN=(alice|bob),.*", "alice")]
    async with staged(pki, pki.settings(*patterns)) as stage:
        for name in ("bob", "alice", "carol"):
            await stage.visit(pki.client(name))
    assert stage.users == ["upstream-bob", "upstream-alice", "upstream-carol"]
    assert stage.common_names == ["CN=bob", "CN=alice", "CN=carol"]
    assert len({origin.certificate for origin in stage.origins}) == 3


async def test_client_without_certificate_has_no_identity(pki: Pki) -> None:
    """A client that presents no requested certificate matches no pattern, not even one that matches everything."""
    anonymous = ssl.create_default_context(cafile=pki.authority.file)
    async with staged(pki, pki.settings((".*", "alice"), auth="requested")) as stage:
        await stage.visit(anonymous)
        await stage.visit(pki.client("bob"))
    assert stage.users == ["upstream-carol", "upstream-alice"]
    assert [origin.subject is None for origin in stage.origins] == [True, False]


@pytest.mark.parametrize(("pattern", "user"), [("()", "alice"), (".*", "alice"), (".+", "carol")])
async def test_empty_subject_is_a_subject(pki: Pki, pattern: str, user: str) -> None:
    """A certificate with an empty subject is a user like any other. To a broker it is `User:`."""
    nameless = pki.authority.issue_without_subject("nameless.example")
    context = pki.context(ssl.PROTOCOL_TLS_CLIENT, nameless, ssl.TLSVersion.TLSv1_3)
    async with staged(pki, pki.settings((pattern, "alice"))) as stage:
        await stage.visit(context)
    assert stage.users == [f"upstream-{user}"]
    assert [origin.subject for origin in stage.origins] == [""]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
async def test_sessions_with_the_broker_stay_with_their_certificate(pki: Pki, version: ssl.TLSVersion) -> None:
    """A connection resumes only a session of its own certificate, so the broker never takes one user for another."""
    order = ["alice", "bob", "carol", "bob", "alice", "alice", "carol", "bob"]
    async with staged(pki, pki.settings(("CN=alice,.*", "alice"), ("CN=bob,.*", "bob")), version) as stage:
        for name in order:
            await stage.visit(pki.client(name))
    assert stage.users == [f"upstream-{name}" for name in order]
    assert [tls.session_reused for tls in stage.seen] == [False] * 3 + [True] * 5


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
async def test_resumed_client_keeps_its_certificate(pki: Pki, version: ssl.TLSVersion) -> None:
    """A client that resumes its session with the sidecar presents no certificate again, and has the same identity."""
    contexts = {name: pki.client(name, version) for name in ("alice", "bob")}
    async with staged(pki, pki.settings(("CN=alice,.*", "alice"), ("CN=bob,.*", "bob"))) as stage:
        sessions = {name: (await stage.visit(context)).session for name, context in contexts.items()}
        resumed = [(await stage.visit(contexts[name], sessions[name])).session_reused for name in ("bob", "alice")]
    assert resumed == [True, True]
    assert stage.users == ["upstream-alice", "upstream-bob", "upstream-bob", "upstream-alice"]
    assert stage.common_names == [
        "CN=alice",
        "CN=bob",
        "CN=bob",
        "CN=alice",
    ]


async def test_replaced_certificate_is_another_user(pki: Pki, tmp_path: Path) -> None:
    """A certificate that was replaced is used for new connections. It has a new number, and resumes no old session."""
    file = tmp_path / "both.pem"
    settings = pki.settings()
    settings["upstream_tls"]["identities"] = [{"subject": ".*", "certificate_file": str(file)}]
    pki.upstream["alice"].write_together(file)
    async with staged(pki, settings) as stage:
        await stage.visit(pki.client("alice"))
        await stage.visit(pki.client("alice"))
        pki.upstream["bob"].write_together(file)
        await stage.visit(pki.client("alice"))
    assert stage.users == ["upstream-alice", "upstream-alice", "upstream-bob"]
    assert [tls.session_reused for tls in stage.seen] == [False, True, False]
    first, second, third = (origin.certificate for origin in stage.origins)
    assert first == second != third


async def test_refused_principal_is_turned_away(pki: Pki, capsys: pytest.CaptureFixture[str]) -> None:
    """A client whose certificate has too many connections is closed, and the log has its subject."""

    class Full(PassthroughDispatcher):
        def admit(self, origin: Origin) -> str | None:
            return "too many" if (origin.subject or "").startswith("CN=bob,") else None

    broker = pki.context(ssl.PROTOCOL_TLS_SERVER, pki.server, ssl.TLSVersion.TLSv1_3)
    async with proxy(pki.settings(), over_tls(broker, echo), dispatcher=Full()) as shell:
        stage = Stage(shell, [], [])
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            await stage.visit(pki.client("bob"))
        await shell.closed(CloseReason.PRINCIPAL_LIMIT)
        await stage.visit(pki.client("alice"))
        await shell.closed(CloseReason.CLIENT_CLOSED)
        assert shell.counters.open_connections == 0
    logged = capsys.readouterr().out
    assert "too many" in logged
    assert "CN=bob," in logged


def test_first_expiry_counts(pki: Pki) -> None:
    """The metric of the upstream side is the time at which the first of all certificates expires."""
    soon = pki.authority.issue("x.example", expires=datetime(2095, 1, 1, tzinfo=UTC))
    later = pki.authority.issue("x.example", expires=datetime(2096, 1, 1, tzinfo=UTC))
    identities = [{"subject": "a", **soon.settings}, {"subject": "b", **later.settings}]
    given = {"ca_file": str(pki.authority.file), **later.settings, "identities": identities}
    certificates = BrokerCertificates("A", UpstreamTls.model_validate(given))
    assert certificates.expire_at() == datetime(2095, 1, 1, tzinfo=UTC).timestamp()


def test_unusable_file_of_an_identity_is_named(pki: Pki) -> None:
    """A file of an identity that cannot be used is named at the start."""
    given = {"ca_file": str(pki.authority.file), "identities": [{"subject": "a", "certificate_file": "/nowhere.pem"}]}
    with pytest.raises(UnusableFileError, match=r"certificate_file: /nowhere.pem cannot be used: no such file"):
        BrokerCertificates("A", UpstreamTls.model_validate(given))
