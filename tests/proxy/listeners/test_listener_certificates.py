"""Clients that ask a listener for a name (SNI), and the certificate that each of them gets."""

import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.config.listener_sections import ListenerTls
from group_sidecar.proxy.listeners.listener_certificates import ListenerCertificates, certificate_for
from group_sidecar.proxy.tls.reloading_contexts import UnusableFileError
from tests.certificates import Authority, Certificate
from tests.proxy.fakes import RunningProxy, read_frame, reply_frame, request_frame
from tests.proxy.listeners.tls_shell import VERSIONS, Memory, proxy
from tests.proxy.tls.test_client_hello import made_up, server_name

NAMED = {"a": ("a.example",), "wild": ("*.b.example", "C.Example"), "x": ("x.b.example",)}
"""The names of the further certificates."""


@dataclass(frozen=True)
class Pki:
    """The listener's own certificate, and the further ones by their names."""

    authority: Authority
    own: Certificate
    named: dict[str, Certificate]

    def settings(self, **more: Any) -> dict[str, Any]:
        certificates = [{"server_names": names, **self.named[name].settings} for name, names in NAMED.items()]
        return {"tls": {**self.own.settings, "certificates": certificates, **more}}

    def context(self, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
        """Returns the context of a client that accepts all names of trusted certificates."""
        context = ssl.create_default_context(cafile=self.authority.file)
        context.check_hostname = False
        context.minimum_version = context.maximum_version = version
        return context


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    authority = Authority(tmp_path_factory.mktemp("sni"))
    return Pki(
        authority, authority.issue("own.example"), {name: authority.issue(*names) for name, names in NAMED.items()}
    )


async def asking(
    shell: RunningProxy, context: ssl.SSLContext, name: str | None, session: ssl.SSLSession | None = None
) -> Memory:
    """Returns a client that has asked for a name, and whose first request was served."""
    stream = await shell.connect()
    shell.opened.append(stream)
    client = Memory(context, stream, name, session)
    await stream.send_all(await client.do_handshake() + client.encrypt(request_frame(1)))
    assert await read_frame(client) == reply_frame(1)  # type: ignore[arg-type]
    return client


def names_of(client: Memory) -> set[str]:
    """Returns the names of the certificate that a client has got."""
    certificate = client.tls.getpeercert()
    assert certificate
    names: Any = certificate["subjectAltName"]
    return {name for _, name in names}


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize(
    ("requested_name", "expected"),
    [
        (None, "own"),
        ("own.example", "own"),
        ("unknown.example", "own"),
        ("b.example", "own"),
        ("deep.a.b.example", "own"),
        ("a" * 60 + ".example", "own"),
        ("a.example", "a"),
        ("A.EXAMPLE", "a"),
        ("sub.a.example", "own"),
        ("a.b.example", "wild"),
        ("A.B.Example", "wild"),
        ("c.example", "wild"),
        ("x.b.example", "x"),
    ],
)
async def test_name_chooses_certificate(
    pki: Pki, version: ssl.TLSVersion, requested_name: str | None, expected: str
) -> None:
    """A whole name takes precedence over a wildcard for one label. All other clients get the listener's own one."""
    served = {"own": {"own.example"}, **{name: {each.lower() for each in names} for name, names in NAMED.items()}}
    async with proxy(pki.settings()) as shell:
        client = await asking(shell, pki.context(version), requested_name)
        assert {name.lower() for name in names_of(client)} == served[expected]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
async def test_sessions_belong_to_their_certificate(pki: Pki, version: ssl.TLSVersion) -> None:
    """A client resumes a session under the name that began it, and under no name that has another certificate."""
    context = pki.context(version)
    async with proxy(pki.settings()) as shell:
        sessions = {name: (await asking(shell, context, name)).tls.session for name in ("a.example", "own.example")}
        for began, session in sessions.items():
            for requested_name in ("a.example", "own.example", "c.b.example", "unknown.example"):
                client = await asking(shell, context, requested_name, session)
                same = {began, requested_name} <= {"own.example", "unknown.example"} or began == requested_name
                assert (began, requested_name, client.tls.session_reused) == (began, requested_name, same)
                assert requested_name != "a.example" or names_of(client) == {"a.example"}


@pytest.mark.parametrize("name", ["a.example", "own.example"])
async def test_client_authentication_applies_to_every_name(pki: Pki, name: str) -> None:
    """A listener that requires certificates of clients requires them whatever name a client asks for."""
    mutual = {"client_auth": "required", "client_ca_file": str(pki.authority.file)}
    async with proxy(pki.settings(**mutual)) as shell:
        with pytest.raises((trio.BrokenResourceError, EOFError, ssl.SSLError)):
            await asking(shell, pki.context(), name)
        await shell.closed(CloseReason.TLS_HANDSHAKE)
        context, known = pki.context(), pki.named["x"]
        context.load_cert_chain(known.certificate_file, known.key_file)
        await asking(shell, context, name)


@pytest.mark.parametrize("name", ["a.example", "own.example"])
async def test_version_applies_to_every_name(pki: Pki, name: str) -> None:
    """`min_version` applies whatever name a client asks for."""
    async with proxy(pki.settings(min_version="TLSv1.3")) as shell:
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            await asking(shell, pki.context(ssl.TLSVersion.TLSv1_2), name)
        await asking(shell, pki.context(), name)


@pytest.mark.parametrize("name", [b"\xff\x00", b"", b"*", b"*.b.example", b"a" * 255, b".", b"a..b.example"], ids=repr)
async def test_hostile_names_get_the_own_certificate(pki: Pki, name: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    """Strange names end at most their own handshake. Nothing is printed, and other clients are served."""
    async with proxy(pki.settings()) as shell:
        async with await shell.connect() as stream:
            await stream.send_all(made_up(server_name(name)))
            with suppress(trio.BrokenResourceError):
                await stream.receive_some()
        await shell.closed(CloseReason.TLS_HANDSHAKE)
        await asking(shell, pki.context(), "a.example")
    assert capfd.readouterr().err == ""


def expiring(authority: Authority, year: int, *names: str) -> Certificate:
    return authority.issue(*names, expires=datetime(year, 1, 1, tzinfo=UTC))


def install(certificate: Certificate, file: Path) -> None:
    file.write_bytes(certificate.key_file.read_bytes() + certificate.certificate_file.read_bytes())


def year_of(client: Memory) -> int:
    certificate = client.tls.getpeercert()
    assert certificate
    return int(str(certificate["notAfter"]).split()[-2])


async def test_each_certificate_is_read_again(pki: Pki, tmp_path: Path) -> None:
    """A changed file is used for new clients of its names. A file that is unusable holds no other one back."""
    own, named = tmp_path / "own.pem", tmp_path / "named.pem"
    install(expiring(pki.authority, 2090, "own.example"), own)
    install(expiring(pki.authority, 2091, "a.example"), named)
    further = {"server_names": ["a.example"], "certificate_file": str(named)}
    async with proxy({"tls": {"certificate_file": str(own), "certificates": [further]}}) as shell:

        async def years() -> list[int]:
            return [year_of(await asking(shell, pki.context(), name)) for name in ("own.example", "a.example")]

        before = await asking(shell, pki.context(), "a.example")
        assert await years() == [2090, 2091]
        install(expiring(pki.authority, 2092, "a.example"), named)
        assert await years() == [2090, 2092]
        named.write_text("half a file")
        install(expiring(pki.authority, 2093, "own.example"), own)
        assert await years() == [2093, 2092]
        install(expiring(pki.authority, 2094, "a.example"), named)
        assert await years() == [2093, 2094]
        await before.stream.send_all(before.encrypt(request_frame(2)))
        assert await read_frame(before) == reply_frame(2)  # type: ignore[arg-type]


def test_earliest_expiry_is_reported(pki: Pki, tmp_path: Path) -> None:
    """The reported time is that of the first certificate to expire, even if no client asks for a replaced one."""
    files = {name: tmp_path / name for name in ("own", "a", "b")}
    for name, file in files.items():
        install(expiring(pki.authority, 2090, f"{name}.example"), file)
    further = [{"server_names": [f"{name}.example"], "certificate_file": files[name]} for name in ("a", "b")]
    settings = ListenerTls.model_validate({"certificate_file": files["own"], "certificates": further})
    certificates = ListenerCertificates("x", settings)

    def reported() -> int:
        return datetime.fromtimestamp(certificates.expire_at() or 0, UTC).year

    assert reported() == 2090
    for year, (name, file) in enumerate(files.items(), 2091):
        install(expiring(pki.authority, year, f"{name}.example"), file)
        assert reported() == (2091 if year == 2093 else 2090)


def test_unusable_file_is_named_at_start(pki: Pki) -> None:
    """A further certificate that cannot be used is named at the start."""
    further = {"server_names": ["a.example"], "certificate_file": "/nowhere.pem"}
    settings = ListenerTls.model_validate({**pki.own.settings, "certificates": [further]})
    with pytest.raises(UnusableFileError, match=r"certificate_file: /nowhere\.pem cannot be used: no such file"):
        ListenerCertificates("x", settings)


def test_choice_without_names() -> None:
    """Without further certificates, every name leads to the default."""
    assert {certificate_for(name, {}, "default") for name in (None, "", "a", "a.example", "." * 100)} == {"default"}
