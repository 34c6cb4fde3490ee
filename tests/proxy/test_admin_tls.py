"""TLS of the admin port, with certificates of an authority that lives as long as a test."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from starlette.types import ASGIApp

from group_sidecar.proxy.admin.access import Guard
from group_sidecar.proxy.admin.live import start_admin
from group_sidecar.proxy.admin.serving import serve_admin
from group_sidecar.proxy.admin.tls import ServerTls, is_certified
from group_sidecar.proxy.config import Config
from group_sidecar.proxy.sections import AdminAccess
from group_sidecar.proxy.server import ListenError
from tests.proxy.admin_stage import sources

TOKEN = "correct horse"
ALONE, SHOWN = b"let in", b"HTTP/1.1 403"


class Files:
    """Certificates in files. `ca`: who signed the server's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.clients = trustme.CA()
        self.clients.cert_pem.write_to_path(str(folder / "clients.pem"))
        self.renew()

    def renew(self) -> None:
        """The server gets another certificate."""
        issued = self.ca.issue_cert("localhost")
        self.certificate, self.key = self.folder / "server.pem", self.folder / "server.key"
        issued.private_key_pem.write_to_path(str(self.key))
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def access(self, *, clients: bool = False, **more: Any) -> AdminAccess:
        ca = self.folder / "clients.pem" if clients else None
        return AdminAccess(certificate_file=self.certificate, key_file=self.key, client_ca_file=ca, **more)

    def client(self, signed_by: trustme.CA | None = None) -> ssl.SSLContext:
        """A client that trusts the server, with a certificate of its own or without."""
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if signed_by is not None:
            signed_by.issue_cert("dashboard@example.org").configure_cert(context)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def everybody_from_elsewhere(access: AdminAccess) -> ASGIApp:
    """A guarded application that takes all its clients for ones of another machine."""

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
        await send({"type": "http.response.body", "body": ALONE})

    guard = Guard(inner, access, "localhost", is_certified)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await trio.sleep_forever()
        await guard({**scope, "client": ("10.0.0.9", 1)}, receive, send)

    return app


@asynccontextmanager
async def served(access: AdminAccess) -> AsyncIterator[int]:
    """The port that it is served on, until the block ends."""
    app: Any = everybody_from_elsewhere(access)
    async with trio.open_nursery() as nursery:
        _, port = await nursery.start(partial(serve_admin, app, "127.0.0.1", 0, ServerTls(access)))
        yield port
        nursery.cancel_scope.cancel()


async def connected(port: int, context: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
    return await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context, https_compatible=True)


def at_localhost(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same, which takes 127.0.0.1 for localhost."""
    context.check_hostname = False
    return context


async def ask(stream: trio.abc.Stream, *headers: str) -> bytes:
    """Asks once; the connection stays."""
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


async def test_who_shows_a_certificate_needs_no_token(files: Files) -> None:
    async with served(files.access(clients=True, token=TOKEN)) as port:
        with_one = await connected(port, at_localhost(files.client(files.clients)))
        without = await connected(port, at_localhost(files.client()))
        async with with_one, without:
            for _ in range(2):  # In turns: what one has shown is nothing of the other.
                assert ALONE in await ask(with_one)
                assert b"401" in await ask(without)
            assert ALONE in await ask(without, f"authorization: Bearer {TOKEN}")


async def test_without_a_token_only_a_certificate_lets_in(files: Files) -> None:
    async with served(files.access(clients=True)) as port:
        async with await connected(port, at_localhost(files.client())) as stream:
            assert (await ask(stream)).startswith(SHOWN)
        async with await connected(port, at_localhost(files.client(files.clients))) as stream:
            assert ALONE in await ask(stream)


async def test_a_certificate_of_somebody_else_is_refused(files: Files) -> None:
    async with served(files.access(clients=True, token=TOKEN)) as port:
        with pytest.raises((trio.BrokenResourceError, ConnectionError)):
            async with await connected(port, at_localhost(files.client(files.ca))) as stream:
                await ask(stream)


async def test_certificates_are_not_asked_for_where_none_would_do(files: Files) -> None:
    async with served(files.access(token=TOKEN)) as port:
        stream = await connected(port, at_localhost(files.client(files.clients)))
        async with stream:
            assert b"401" in await ask(stream)


async def serial(port: int, files: Files) -> int:
    async with await connected(port, at_localhost(files.client())) as stream:
        await ask(stream)
        certificate: Any = stream.getpeercert()
        return int(certificate["serialNumber"], 16)


async def test_a_renewed_certificate_is_shown_to_the_next_client(files: Files) -> None:
    async with served(files.access(token=TOKEN)) as port:
        first = await serial(port, files)
        assert await serial(port, files) == first
        files.renew()
        assert await serial(port, files) != first


async def test_while_the_files_are_of_no_use_the_last_good_ones_are(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    async with served(files.access(token=TOKEN)) as port:
        first = await serial(port, files)
        files.certificate.write_bytes(b"half of one")
        assert [await serial(port, files), await serial(port, files)] == [first, first]
        files.key.unlink()
        assert await serial(port, files) == first
        assert "".join(capfd.readouterr()).count("admin certificate not read again") == 1
        files.renew()
        assert await serial(port, files) != first


async def test_plain_http_is_not_answered(files: Files) -> None:
    async with served(files.access(token=TOKEN)) as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert not (await stream.receive_some(1000)).startswith(b"HTTP")


@pytest.mark.parametrize("broken", ["certificate", "key", "ca"])
async def test_files_that_cannot_be_used_are_said_at_the_start(files: Files, broken: str) -> None:
    file = {"certificate": files.certificate, "key": files.key, "ca": files.folder / "clients.pem"}[broken]
    file.write_text("nothing")
    config = Config.model_validate(
        {"listen": "127.0.0.1:0", "upstream": "127.0.0.1:1", "admin": "127.0.0.1:0", "admin_access": {}}
    ).model_copy(update={"admin_access": files.access(clients=True)})
    async with trio.open_nursery() as nursery:
        with pytest.raises(ListenError, match="admin_access: the certificate cannot be used: "):
            await start_admin(nursery, config, sources())


async def test_an_encrypted_key_is_not_asked_for_at_the_terminal(files: Files) -> None:
    encrypted = "PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC," + "0" * 32 + "\n\n"
    files.key.write_text(files.key.read_text().replace("PRIVATE KEY-----\n", encrypted, 1))
    with pytest.raises(OSError):
        ServerTls(files.access())
