"""TLS of the admin port, with certificates of a temporary authority."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from starlette.types import ASGIApp

from group_sidecar.proxy.admin.access import AccessGuard
from group_sidecar.proxy.admin.http_server import serve_admin
from group_sidecar.proxy.admin.live_sources import start_admin
from group_sidecar.proxy.admin.tls import admin_context, has_client_certificate
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.config.sections import AdminAccess
from group_sidecar.proxy.listeners.ports import ListenError, listen
from group_sidecar.proxy.tls.reloading_contexts import UnusableFileError
from tests.proxy.admin.served_app import sources
from tests.proxy.fakes import ANY_PORT

TOKEN = "correct horse"
ALONE, SHOWN = b"let in", b"HTTP/1.1 403"


class Files:
    """Certificates in files. `ca` signs the server's certificates, and `clients` those of clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.clients = trustme.CA()
        self.clients.cert_pem.write_to_path(str(folder / "clients.pem"))
        self.renew()

    def renew(self) -> None:
        """Replaces the server's certificate."""
        issued = self.ca.issue_cert("localhost")
        self.certificate, self.key = self.folder / "server.pem", self.folder / "server.key"
        issued.private_key_pem.write_to_path(str(self.key))
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def access(self, *, clients: bool = False, **more: Any) -> AdminAccess:
        ca = self.folder / "clients.pem" if clients else None
        return AdminAccess(certificate_file=self.certificate, key_file=self.key, client_ca_file=ca, **more)

    def client(self, signed_by: trustme.CA | None = None) -> ssl.SSLContext:
        """Returns the context of a client that trusts the server. With `signed_by`, the client has a certificate."""
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if signed_by is not None:
            signed_by.issue_cert("dashboard@example.org").configure_cert(context)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def everybody_from_elsewhere(access: AdminAccess) -> ASGIApp:
    """Returns a guarded application for which all clients are on another machine."""

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
        await send({"type": "http.response.body", "body": ALONE})

    guard = AccessGuard(inner, access, "localhost", has_client_certificate)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await trio.sleep_forever()
        await guard({**scope, "client": ("10.0.0.9", 1)}, receive, send)

    return app


@asynccontextmanager
async def served(access: AdminAccess) -> AsyncIterator[int]:
    """Serves the application until the block ends. Yields the port."""
    app: Any = everybody_from_elsewhere(access)
    async with trio.open_nursery() as nursery:
        _, port = await nursery.start(serve_admin, app, listen(ANY_PORT)[0], admin_context(access))
        yield port
        nursery.cancel_scope.cancel()


async def connected(port: int, context: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
    return await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context, https_compatible=True)


def at_localhost(context: ssl.SSLContext) -> ssl.SSLContext:
    """Returns the context, which now accepts the certificate of localhost for 127.0.0.1."""
    context.check_hostname = False
    return context


async def ask(stream: trio.abc.Stream, *headers: str) -> bytes:
    """Sends one request and keeps the connection open. Returns status line and body."""
    lines = ["GET / HTTP/1.1", "host: localhost", *headers, "", ""]
    await stream.send_all("\r\n".join(lines).encode())
    reply = b""
    while b"\r\n\r\n" not in reply:
        reply += await stream.receive_some(65_536)
    head, _, body = reply.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += await stream.receive_some(65_536)
    return head.split(b"\r\n")[0] + b" " + body


async def test_client_certificate_needs_no_token(files: Files) -> None:
    """A client with a certificate needs no token. The certificate counts only for its own connection."""
    async with served(files.access(clients=True, token=TOKEN)) as port:
        with_one = await connected(port, at_localhost(files.client(files.clients)))
        without = await connected(port, at_localhost(files.client()))
        async with with_one, without:
            for _ in range(2):  # The clients take turns. The certificate of one must not count for the other.
                assert ALONE in await ask(with_one)
                assert b"401" in await ask(without)
            assert ALONE in await ask(without, f"authorization: Bearer {TOKEN}")


async def test_certificate_required_without_token(files: Files) -> None:
    """Without a configured token, only a client with a certificate gets access."""
    async with served(files.access(clients=True)) as port:
        async with await connected(port, at_localhost(files.client())) as stream:
            assert (await ask(stream)).startswith(SHOWN)
        async with await connected(port, at_localhost(files.client(files.clients))) as stream:
            assert ALONE in await ask(stream)


async def test_foreign_certificate_fails_handshake(files: Files) -> None:
    """A client certificate of another authority breaks the connection."""
    async with served(files.access(clients=True, token=TOKEN)) as port:
        with pytest.raises((trio.BrokenResourceError, ConnectionError)):
            async with await connected(port, at_localhost(files.client(files.ca))) as stream:
                await ask(stream)


async def test_certificate_ignored_without_client_ca(files: Files) -> None:
    """Without client_ca_file, the server ignores a client certificate and asks for the token."""
    async with served(files.access(token=TOKEN)) as port:
        stream = await connected(port, at_localhost(files.client(files.clients)))
        async with stream:
            assert b"401" in await ask(stream)


async def serial(port: int, files: Files) -> int:
    async with await connected(port, at_localhost(files.client())) as stream:
        await ask(stream)
        certificate: Any = stream.getpeercert()
        return int(certificate["serialNumber"], 16)


async def test_renewed_certificate_is_served(files: Files) -> None:
    """A new connection gets the renewed certificate without a restart."""
    async with served(files.access(token=TOKEN)) as port:
        first = await serial(port, files)
        assert await serial(port, files) == first
        files.renew()
        assert await serial(port, files) != first


async def test_unreadable_files_keep_last_certificate(files: Files, capfd: pytest.CaptureFixture[str]) -> None:
    """While the files are unusable, the server keeps the last certificate and logs the failure once."""
    async with served(files.access(token=TOKEN)) as port:
        first = await serial(port, files)
        files.certificate.write_bytes(b"half of one")
        assert [await serial(port, files), await serial(port, files)] == [first, first]
        files.key.unlink()
        assert await serial(port, files) == first
        assert "".join(capfd.readouterr()).count("certificates not read again") == 1
        files.renew()
        assert await serial(port, files) != first


async def test_plain_http_gets_no_http_reply(files: Files) -> None:
    """A plain HTTP request to the TLS port gets no HTTP reply."""
    async with served(files.access(token=TOKEN)) as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert not (await stream.receive_some(1000)).startswith(b"HTTP")


@pytest.mark.parametrize("broken", ["certificate", "key", "ca"])
async def test_unusable_tls_files_fail_the_start(files: Files, broken: str) -> None:
    """An unusable certificate, key or client authority file fails the start with a ListenError."""
    file = {"certificate": files.certificate, "key": files.key, "ca": files.folder / "clients.pem"}[broken]
    file.write_text("nothing")
    config = Config.model_validate(
        {"listen": "127.0.0.1:0", "upstream": "127.0.0.1:1", "admin": "127.0.0.1:0", "admin_access": {}}
    ).model_copy(update={"admin_access": files.access(clients=True)})
    [listener] = listen(ANY_PORT)
    with listener:
        async with trio.open_nursery() as nursery:
            with pytest.raises(ListenError, match=r"admin_access\..*_file: .* cannot be used: "):
                await start_admin(nursery, config, sources(), listener)


async def test_encrypted_key_raises_without_prompt(files: Files) -> None:
    """An encrypted private key raises UnusableFileError instead of a prompt for its password."""
    encrypted = "PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC," + "0" * 32 + "\n\n"
    files.key.write_text(files.key.read_text().replace("PRIVATE KEY-----\n", encrypted, 1))
    with pytest.raises(UnusableFileError):
        admin_context(files.access())
