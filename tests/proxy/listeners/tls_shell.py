"""A proxy whose listener has TLS or PROXY headers, its certificates, and clients and brokers that speak TLS."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from group_sidecar.proxy.config.listener_sections import Listener
from group_sidecar.proxy.listeners.handshakes import handshakes_of
from tests.certificates import Authority, Certificate
from tests.proxy.fakes import Behaviour, RunningProxy, echo, read_frame, reply_frame, request_frame, running_proxy

HOST = "127.0.0.1"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@dataclass(frozen=True)
class Pki:
    """The certificates of the tests of one module. `other` is an authority that nobody trusts."""

    authority: Authority
    server: Certificate
    client: Certificate
    other: Authority
    folder: Path

    @property
    def listener(self) -> dict[str, Any]:
        return {"tls": self.server.settings}

    @property
    def upstream(self) -> dict[str, Any]:
        return {"upstream_tls": {"ca_file": str(self.authority.file)}}


def listener(**settings: Any) -> Listener:
    return Listener.model_validate({"name": "default", "listen": f"{HOST}:1", "upstream": f"{HOST}:2", **settings})


def server_context(pki: Pki, certificate: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chosen = certificate or pki.server
    context.load_cert_chain(chosen.certificate_file, chosen.key_file)
    return context


def server_context_of_version(pki: Pki, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = server_context(pki)
    context.minimum_version = context.maximum_version = version
    return context


def client_context(pki: Pki, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pki.authority.file)
    context.minimum_version = context.maximum_version = version
    return context


def over_tls(context: ssl.SSLContext, behaviour: Behaviour, seen: list[ssl.SSLObject] | None = None) -> Behaviour:
    """Returns the behaviour of a broker whose listener speaks TLS. `seen` gets the TLS state of each connection."""

    async def secured(stream: Any) -> None:
        tls = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        with suppress(trio.BrokenResourceError):
            await tls.do_handshake()
            if seen is not None:
                seen.append(tls._ssl_object)
            await behaviour(tls)  # type: ignore[arg-type]

    return secured


@asynccontextmanager
async def proxy(
    settings: dict[str, Any], behaviour: Behaviour = echo, *, seconds: float = 10, **options: Any
) -> AsyncIterator[RunningProxy]:
    """Runs a proxy whose listener has these settings."""
    with_handshakes = lambda counters: handshakes_of(listener(**settings), counters, seconds)  # noqa: E731
    async with running_proxy(behaviour, handshakes=with_handshakes, **options) as shell:
        yield shell


async def secured(shell: RunningProxy, context: ssl.SSLContext, server_name: str = HOST) -> Any:
    """Opens a client connection with TLS. The proxy's end also closes the connection."""
    plain = await shell.connect()
    shell.opened.append(plain)
    stream = trio.SSLStream(plain, context, server_hostname=server_name, https_compatible=True)
    await stream.do_handshake()
    return stream


async def round_trip(stream: Any, payload: bytes = b"x", number: int = 1) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, request_frame(number, payload))
        assert await read_frame(stream) == reply_frame(number, payload)


class Memory:
    """A TLS client whose bytes the test sends itself.

    So the client can send its first request together with the end of its handshake, or send only parts of a record.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        stream: trio.SocketStream,
        server_name: str | None = HOST,
        session: ssl.SSLSession | None = None,
    ) -> None:
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self.outgoing, server_hostname=server_name, session=session)
        self.stream = stream

    async def do_handshake(self) -> bytes:
        """Does the handshake up to the client's last message. Returns the message, which is not sent."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.stream.send_all(self.outgoing.read())
                self._incoming.write(await self.stream.receive_some())
            else:
                return self.outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    async def receive_some(self, max_bytes: int) -> bytes:
        """Returns the next decrypted bytes, like `trio.SSLStream.receive_some`."""
        while True:
            try:
                return self.tls.read(max_bytes)
            except ssl.SSLWantReadError:
                chunk = await self.stream.receive_some()
                if not chunk:
                    return b""
                self._incoming.write(chunk)


@asynccontextmanager
async def memory_client(pki: Pki, shell: RunningProxy) -> AsyncIterator[Memory]:
    async with await shell.connect() as stream:
        yield Memory(client_context(pki), stream)
