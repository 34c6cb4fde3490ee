"""Clients and brokers with TLS, and what comes before Kafka's first request."""

import os
import random
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters, TlsFailure, TlsSide
from group_sidecar.proxy.config.listener_sections import Listener
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.listeners.handshakes import handshakes_of
from group_sidecar.proxy.tls.contexts import UnusableFileError
from tests.certificates import Authority, Certificate
from tests.proxy.fakes import (
    Behaviour,
    RunningProxy,
    echo,
    holds,
    read_exactly,
    read_frame,
    reply_frame,
    request_frame,
    running_proxy,
)

HOST = "127.0.0.1"
LONG = 1_000_000


@dataclass(frozen=True)
class Pki:
    """The certificates of all tests here. `other` is an authority that nobody trusts."""

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


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder = tmp_path_factory.mktemp("pki")
    authority = Authority(folder / "ca")
    server, client = authority.issue(HOST, "localhost"), authority.issue("client.example", common_name="alice")
    return Pki(authority, server, client, Authority(folder / "other"), folder)


def listener(**settings: Any) -> Listener:
    return Listener.model_validate({"name": "default", "listen": f"{HOST}:1", "upstream": f"{HOST}:2", **settings})


def server_context(pki: Pki, certificate: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chosen = certificate or pki.server
    context.load_cert_chain(chosen.certificate_file, chosen.key_file)
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
    """Opens a client connection with TLS, which ends with the proxy."""
    plain = await shell.connect()
    shell.opened.append(plain)
    stream = trio.SSLStream(plain, context, server_hostname=server_name, https_compatible=True)
    await stream.do_handshake()
    return stream


async def round_trip(stream: Any, payload: bytes = b"x", number: int = 1) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, request_frame(number, payload))
        assert await read_frame(stream) == reply_frame(number, payload)


WAYS = [(True, False), (False, True), (True, True)]
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize(("client_tls", "broker_tls"), WAYS, ids=["terminated", "begun", "both"])
async def test_bytes_arrive_through_tls(pki: Pki, client_tls: bool, broker_tls: bool, version: ssl.TLSVersion) -> None:
    """Small and long requests and replies arrive unchanged with TLS on either side, and on both."""
    behaviour = over_tls(server_context_of_version(pki, version), echo) if broker_tls else echo
    settings = {**(pki.listener if client_tls else {}), **(pki.upstream if broker_tls else {})}
    async with proxy(settings, behaviour) as shell:
        stream = await secured(shell, client_context(pki, version)) if client_tls else await shell.connect()
        async with stream:
            for number, size in enumerate((0, 1, 400, 16_384, 16_385, 70_000, LONG, 5)):
                await round_trip(stream, random.Random(size).randbytes(size), number)
        await shell.closed(CloseReason.CLIENT_CLOSED)
    assert shell.counters.tls_handshakes == {TlsSide.CLIENT: client_tls, TlsSide.UPSTREAM: broker_tls}
    assert sum(shell.counters.tls_failures.values()) == 0
    assert shell.counters.received_bytes == shell.counters.sent_bytes + 8 * 4  # A reply lacks key and version.


async def test_a_client_with_very_many_certificates_is_refused(pki: Pki) -> None:
    """A client cannot make the proxy parse and keep certificates that nobody needs."""
    chain = pki.folder / "long_chain.pem"
    chain.write_bytes(pki.client.certificate_file.read_bytes() + pki.authority.file.read_bytes() * 100)
    mutual = {"client_auth": "required", "client_ca_file": str(pki.authority.file)}
    async with proxy({"tls": {**pki.server.settings, **mutual}}) as shell:
        context = client_context(pki, ssl.TLSVersion.TLSv1_2)
        context.load_cert_chain(chain, pki.client.key_file)
        with pytest.raises(trio.BrokenResourceError):
            await secured(shell, context)
        await shell.closed(CloseReason.TLS_HANDSHAKE)
    assert shell.counters.tls_failures[TlsSide.CLIENT, TlsFailure.PROTOCOL] == 1


def sent_at_once(stream: Any, data: bytes) -> None:
    """Puts a few bytes into the socket of a TLS stream as they are. The proxy in this thread sees them together."""
    assert os.write(stream.transport_stream.socket.fileno(), data) == len(data)


def records(stream: Any, *parts: bytes) -> bytes:
    """Returns a record of TLS for each of the parts, which the caller must send after all bytes of `send_all`."""
    for part in parts:
        stream._ssl_object.write(part)
    sent: bytes = stream._outgoing.read()
    return sent


async def answer(stream: Any) -> None:
    """Answers one request with its own payload."""
    frame = await read_frame(stream)
    await stream.send_all(reply_frame(int.from_bytes(frame[8:12], "big"), frame[12:]))


@pytest.mark.parametrize("broker_closes", [False, True], ids=["client", "broker"])
async def test_a_close_within_a_record_is_noticed(pki: Pki, broker_closes: bool) -> None:
    """If a peer goes away in the middle of a record, the connection ends, and the other peer does not wait."""

    async def cut(stream: Any) -> None:
        await answer(stream)
        await read_frame(stream)
        sent_at_once(stream, records(stream, reply_frame(2, b"never complete"))[:-1])
        stream.transport_stream.socket.shutdown(socket.SHUT_WR)
        await trio.sleep_forever()

    settings = {**pki.listener, **(pki.upstream if broker_closes else {})}
    behaviour = over_tls(server_context(pki), cut) if broker_closes else echo
    async with proxy(settings, behaviour) as shell:
        stream = await secured(shell, client_context(pki))
        await round_trip(stream)
        if broker_closes:
            await stream.send_all(request_frame(2, b"x"))
            await shell.closed(CloseReason.BROKER_CLOSED)
        else:
            sent_at_once(stream, records(stream, request_frame(2, b"never complete"))[:-1])
            stream.transport_stream.socket.shutdown(socket.SHUT_WR)
            await shell.closed(CloseReason.CLIENT_CLOSED)


async def test_the_end_of_tls_behind_a_request_is_noticed(pki: Pki) -> None:
    """A client that ends TLS together with its last request, and then waits for the proxy's end, gets both."""
    async with proxy(pki.listener) as shell:
        stream = await secured(shell, client_context(pki))
        await round_trip(stream)
        last = records(stream, request_frame(2, b"last"))
        with suppress(ssl.SSLWantReadError):
            stream._ssl_object.unwrap()
        sent_at_once(stream, last + stream._outgoing.read())
        await shell.closed(CloseReason.CLIENT_CLOSED)


async def test_many_small_records_arrive(pki: Pki) -> None:
    """Requests and replies in records of one byte each arrive, although a read decrypts only some of the records."""

    async def crumble(stream: Any) -> None:
        await answer(stream)
        while True:
            reply = reply_frame(int.from_bytes((await read_frame(stream))[8:12], "big"), b"small")
            await stream.transport_stream.send_all(records(stream, *(bytes([byte]) for byte in reply)))

    async with proxy({**pki.listener, **pki.upstream}, over_tls(server_context(pki), crumble)) as shell:
        stream = await secured(shell, client_context(pki))
        await round_trip(stream)
        for number in range(3):
            request = request_frame(number, random.Random(number).randbytes(3_000))
            await stream.transport_stream.send_all(records(stream, *(bytes([byte]) for byte in request)))
            assert await read_frame(stream) == reply_frame(number, b"small")


def server_context_of_version(pki: Pki, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = server_context(pki)
    context.minimum_version = context.maximum_version = version
    return context


class Memory:
    """A TLS client whose bytes the test sends itself.

    The client can so send its first request together with the end of its handshake, and only parts of a record.
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

    async def receive_some(self, most: int) -> bytes:
        """Reads as a stream does."""
        while True:
            try:
                return self.tls.read(most)
            except ssl.SSLWantReadError:
                chunk = await self.stream.receive_some()
                if not chunk:
                    return b""
                self._incoming.write(chunk)


@asynccontextmanager
async def memory_client(pki: Pki, shell: RunningProxy) -> AsyncIterator[Memory]:
    async with await shell.connect() as stream:
        yield Memory(client_context(pki), stream)


async def test_request_with_end_of_handshake_is_served(pki: Pki) -> None:
    """A request that arrives together with the end of the handshake is served, although no more bytes arrive."""
    async with proxy(pki.listener) as shell, memory_client(pki, shell) as client:
        last = await client.do_handshake()
        await client.stream.send_all(last + client.encrypt(request_frame(1, b"early")))
        with trio.fail_after(10):
            assert await read_frame(client) == reply_frame(1, b"early")  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 100, 700])
async def test_records_arrive_in_pieces(pki: Pki, size: int) -> None:
    """Records that arrive in pieces, of which one alone decrypts to nothing, are served when they are complete."""
    async with proxy(pki.listener) as shell, memory_client(pki, shell) as client:
        await client.stream.send_all(await client.do_handshake())
        for number in range(3):
            data = client.encrypt(request_frame(number, bytes(1000)))
            for start in range(0, len(data), size):
                await client.stream.send_all(data[start : start + size])
                await trio.lowlevel.checkpoint()
            with trio.fail_after(10):
                assert await read_frame(client) == reply_frame(number, bytes(1000))  # type: ignore[arg-type]


async def test_pipelined_requests_in_one_read(pki: Pki) -> None:
    """Many records that arrive together, more than one read takes, are all served without a further event."""
    count = 400
    async with proxy(pki.listener) as shell, memory_client(pki, shell) as client:
        await client.stream.send_all(await client.do_handshake())
        data = b"".join(client.encrypt(request_frame(number, bytes(5_000))) for number in range(count))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.stream.send_all, data)
            with trio.fail_after(20):
                for number in range(count):
                    assert await read_frame(client) == reply_frame(number, bytes(5_000))  # type: ignore[arg-type]


@pytest.mark.parametrize("ends_tls", [True, False], ids=["close_notify", "FIN only"])
async def test_client_end_closes_broker_connection(pki: Pki, ends_tls: bool) -> None:
    """A client that ends its connection, with or without ending TLS first, ends its broker connection."""
    ended = trio.Event()

    async def behaviour(stream: trio.SocketStream) -> None:
        await echo(stream)
        ended.set()

    async with proxy(pki.listener, behaviour) as shell:
        async with memory_client(pki, shell) as client:
            await client.stream.send_all(await client.do_handshake() + client.encrypt(request_frame(1)))
            await read_frame(client)  # type: ignore[arg-type]
            if ends_tls:
                with suppress(ssl.SSLWantReadError):
                    client.tls.unwrap()
                await client.stream.send_all(client.outgoing.read())
        with trio.fail_after(10):
            await ended.wait()
        await shell.closed(CloseReason.CLIENT_CLOSED)


async def test_broker_end_reaches_client_as_end_of_tls(pki: Pki) -> None:
    """When the broker closes, the client gets all bytes and then the end of TLS, so it knows that it has all bytes."""
    reply = reply_frame(1, bytes(LONG))

    async def behaviour(stream: trio.SocketStream) -> None:
        await read_frame(stream)
        await stream.send_all(reply)

    async with proxy({**pki.listener, **pki.upstream}, over_tls(server_context(pki), behaviour)) as shell:
        stream = await shell.connect()
        shell.opened.append(stream)
        tls = trio.SSLStream(stream, client_context(pki), server_hostname=HOST, https_compatible=False)
        await tls.send_all(request_frame(1))
        assert await read_exactly(tls, len(reply)) == reply
        assert await tls.receive_some() == b""  # Without https_compatible, a missing end of TLS raises an error.
        await shell.closed(CloseReason.BROKER_CLOSED)


async def test_garbage_after_handshake_closes_one_connection(pki: Pki) -> None:
    """Bytes that are not TLS after the handshake close their connection alone."""
    async with proxy(pki.listener) as shell, memory_client(pki, shell) as client:
        other = await secured(shell, client_context(pki))
        await client.stream.send_all(await client.do_handshake() + b"garbage" * 50)
        await shell.closed(CloseReason.TLS_FAILED)
        await round_trip(other)


async def test_slow_tls_reader_is_not_read_ahead(pki: Pki) -> None:
    """While a client does not accept bytes, the broker is not read, and little is held. Then all bytes arrive."""
    total = 64 << 20

    async def behaviour(stream: trio.SocketStream) -> None:
        await read_frame(stream)
        await stream.send_all(reply_frame(1, bytes(total)))

    async with proxy(pki.listener, behaviour) as shell:
        client = await secured(shell, client_context(pki))
        await client.send_all(request_frame(1))
        await holds(lambda: shell.connection_manager.held_bytes > 0)
        held = 0
        for _ in range(2_000):
            held = max(held, shell.connection_manager.held_bytes)
            await trio.lowlevel.checkpoint()
        assert 0 < held < 2 << 20
        reply = await read_exactly(client, total + 8)
        assert len(reply) == total + 8


# Failed handshakes.


@dataclass(frozen=True)
class Fault:
    """A handshake that must fail: what clients and broker do, and how the sidecar counts and explains it."""

    closed: CloseReason
    side: TlsSide
    failure: TlsFailure
    words: str


async def fails(shell: RunningProxy, fault: Fault, capsys: pytest.CaptureFixture[str]) -> None:
    await shell.closed(fault.closed)
    counted = {key: count for key, count in shell.counters.tls_failures.items() if count}
    assert counted == {(fault.side, fault.failure): 1}
    assert fault.words in capsys.readouterr().out.lower()


@pytest.mark.parametrize("sent", [request_frame(1, bytes(100)), b"GET / HTTP/1.1\r\n\r\n"], ids=["kafka", "http"])
async def test_plaintext_on_tls_port_is_refused(pki: Pki, sent: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """A client that speaks no TLS is closed, counted and explained."""
    async with proxy(pki.listener) as shell, await shell.connect() as client:
        await client.send_all(sent)
        await read_until_closed(client)
        fault = Fault(CloseReason.TLS_HANDSHAKE, TlsSide.CLIENT, TlsFailure.PLAINTEXT, "does not speak tls")
        await fails(shell, fault, capsys)
        assert shell.broker.connections == 0


async def read_until_closed(stream: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError), trio.fail_after(10):
        while await stream.receive_some():
            pass


async def test_client_that_distrusts_certificate(pki: Pki, capsys: pytest.CaptureFixture[str]) -> None:
    """A client that does not trust the listener's certificate is counted as such."""
    async with proxy(pki.listener) as shell:
        async with await shell.connect() as stream:
            client = Memory(ssl.create_default_context(cafile=pki.other.file), stream)
            with pytest.raises(ssl.SSLCertVerificationError):
                await client.do_handshake()
            await stream.send_all(client.outgoing.read())
        fault = Fault(CloseReason.TLS_HANDSHAKE, TlsSide.CLIENT, TlsFailure.CERTIFICATE, "unknown ca")
        await fails(shell, fault, capsys)


@pytest.mark.parametrize("given", ["none", "untrusted", "trusted"])
@pytest.mark.parametrize("client_auth", ["requested", "required"])
async def test_client_certificates(pki: Pki, client_auth: str, given: str) -> None:
    """A client needs a trusted certificate where one is required. An untrusted one is refused in any case."""
    tls = {**pki.server.settings, "client_auth": client_auth, "client_ca_file": str(pki.authority.file)}
    context = client_context(pki)
    certificates = {"untrusted": pki.other.issue("client.example"), "trusted": pki.client}
    if given != "none":
        context.load_cert_chain(certificates[given].certificate_file, certificates[given].key_file)
    served = given == "trusted" or (given == "none" and client_auth == "requested")
    async with proxy({"tls": tls}) as shell:
        stream = await secured(shell, context)  # In TLS 1.3 the client's handshake ends before the server's.
        if served:
            await round_trip(stream)
        else:
            with pytest.raises((trio.BrokenResourceError, EOFError, BaseExceptionGroup)):
                await round_trip(stream)
            await shell.closed(CloseReason.TLS_HANDSHAKE)
            assert shell.counters.tls_failures[TlsSide.CLIENT, TlsFailure.CERTIFICATE] == 1


async def test_silent_client_is_closed_in_time(pki: Pki, capsys: pytest.CaptureFixture[str]) -> None:
    """A client that does not finish its handshake is closed after `limits.handshake_seconds`."""
    async with proxy(pki.listener, seconds=0.2) as shell, await shell.connect() as client:
        await client.send_all(b"\x16\x03\x01")
        await read_until_closed(client)
        fault = Fault(CloseReason.TLS_HANDSHAKE, TlsSide.CLIENT, TlsFailure.TIMEOUT, "no handshake within 0.2 s")
        await fails(shell, fault, capsys)


async def test_handshake_byte_by_byte(pki: Pki) -> None:
    """A handshake whose bytes arrive one by one is done, on both sides."""

    async def send_slowly(data: bytes) -> None:
        for byte in data:
            await client.stream.send_all(bytes([byte]))
            await trio.lowlevel.checkpoint()

    async with proxy(pki.listener) as shell, memory_client(pki, shell) as client:
        client.stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(ssl.SSLWantReadError):
            client.tls.do_handshake()
        await send_slowly(client.outgoing.read())
        await send_slowly(await client.do_handshake() + client.encrypt(request_frame(1)))
        assert await read_frame(client) == reply_frame(1)  # type: ignore[arg-type]


async def test_client_that_leaves_during_handshake(pki: Pki, capsys: pytest.CaptureFixture[str]) -> None:
    """A client that closes its connection during the handshake is counted as closed."""
    async with proxy(pki.listener) as shell:
        async with await shell.connect() as client:
            await client.send_all(b"\x16\x03\x01")
        fault = Fault(CloseReason.TLS_HANDSHAKE, TlsSide.CLIENT, TlsFailure.CLOSED, "the peer closed the connection")
        await fails(shell, fault, capsys)


def broker_faults(pki: Pki) -> dict[str, tuple[Behaviour, dict[str, Any], TlsFailure, str]]:
    """Returns brokers to which no TLS connection is made: behaviour, settings, kind of failure, words of the log."""
    past, trusted = datetime(2020, 1, 1, tzinfo=UTC), {"ca_file": str(pki.authority.file)}
    expired, elsewhere = pki.authority.issue(HOST, expires=past), pki.authority.issue("elsewhere.example")
    misnamed = {**trusted, "server_name": "a.example"}
    secure = {
        name: over_tls(server_context(pki, made), echo)
        for name, made in {"good": pki.server, "expired": expired, "elsewhere": elsewhere}.items()
    }

    async def plain(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def closing(stream: trio.SocketStream) -> None:
        await stream.receive_some()

    untrusting = {"ca_file": str(pki.other.file)}
    return {
        "expired": (secure["expired"], trusted, TlsFailure.CERTIFICATE, "certificate has expired"),
        "wrong name": (secure["elsewhere"], trusted, TlsFailure.CERTIFICATE, "is not valid for '127.0.0.1'"),
        "wrong server_name": (
            secure["good"],
            misnamed,
            TlsFailure.CERTIFICATE,
            "is not valid for 'a.example'",
        ),
        "self-signed": (secure["good"], untrusting, TlsFailure.CERTIFICATE, "unable to get local issuer certificate"),
        "plaintext": (plain, trusted, TlsFailure.PLAINTEXT, "does not speak tls"),
        "closing": (closing, trusted, TlsFailure.CLOSED, "the peer closed the connection"),
    }


FAULTS = ["expired", "wrong name", "wrong server_name", "self-signed", "plaintext", "closing"]


@pytest.mark.parametrize("name", FAULTS)
async def test_broker_without_good_certificate_is_not_used(
    pki: Pki, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No byte of a client goes to a broker whose handshake fails. The client is closed, and the log says why."""
    behaviour, settings, failure, words = broker_faults(pki)[name]
    async with proxy({"upstream_tls": settings}, behaviour) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1))
        await read_until_closed(client)
        await fails(shell, Fault(CloseReason.UPSTREAM_TLS, TlsSide.UPSTREAM, failure, words), capsys)


async def test_hostname_check_can_be_switched_off(pki: Pki) -> None:
    """With verify_hostname off, any certificate of a trusted authority is accepted."""
    behaviour = over_tls(server_context(pki, pki.authority.issue("elsewhere.example")), echo)
    settings = {"ca_file": str(pki.authority.file), "verify_hostname": False}
    async with proxy({"upstream_tls": settings}, behaviour) as shell, await shell.connect() as client:
        await round_trip(client)


async def test_server_name_is_sent_and_checked(pki: Pki) -> None:
    """`server_name` is what the broker's certificate must contain, and what the sidecar asks for (SNI)."""
    names: list[str | None] = []
    context = server_context(pki, pki.authority.issue("broker-1.example"))
    context.sni_callback = lambda tls, name, _: names.append(name)
    settings = {"ca_file": str(pki.authority.file), "server_name": "broker-1.example"}
    async with proxy({"upstream_tls": settings}, over_tls(context, echo)) as shell, await shell.connect() as client:
        await round_trip(client)
    assert names == ["broker-1.example"]


async def test_upstream_certificate_is_presented(pki: Pki) -> None:
    """A broker that requires a certificate gets the one of `upstream_tls`."""
    context, seen = server_context(pki), list[ssl.SSLObject]()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(pki.authority.file)
    settings = {"ca_file": str(pki.authority.file), **pki.client.settings}
    async with (
        proxy({"upstream_tls": settings}, over_tls(context, echo, seen)) as shell,
        await shell.connect() as client,
    ):
        await round_trip(client)
    certificate = seen[0].getpeercert()
    assert certificate
    assert (("commonName", "alice"),) in certificate["subject"]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
async def test_broker_sessions_are_resumed(pki: Pki, version: ssl.TLSVersion) -> None:
    """The second connection to a broker resumes the session of the first, which saves both sides work."""
    seen: list[ssl.SSLObject] = []
    context = server_context_of_version(pki, version)
    async with proxy(pki.upstream, over_tls(context, echo, seen)) as shell:
        for _ in range(3):
            async with await shell.connect() as client:
                await round_trip(client)
    assert [tls.session_reused for tls in seen] == [False, True, True]


# Certificates that change.


async def test_changed_certificate_is_used_for_new_connections(pki: Pki, tmp_path: Path) -> None:
    """New files are used for new connections. Open connections stay open."""
    first, second = (pki.authority.issue(HOST, expires=datetime(year, 1, 1, tzinfo=UTC)) for year in (2095, 2096))
    file = tmp_path / "both.pem"

    def install(certificate: Certificate) -> None:
        file.write_bytes(certificate.key_file.read_bytes() + certificate.certificate_file.read_bytes())

    install(first)
    async with proxy({"tls": {"certificate_file": str(file)}}) as shell:
        before = await secured(shell, client_context(pki))
        assert expiry(before) == 2095
        assert shell.counters.certificates_expire_at == {TlsSide.CLIENT: datetime(2095, 1, 1, tzinfo=UTC).timestamp()}
        install(second)
        after = await secured(shell, client_context(pki))
        assert expiry(after) == 2096
        assert shell.counters.certificates_expire_at == {TlsSide.CLIENT: datetime(2096, 1, 1, tzinfo=UTC).timestamp()}
        file.write_text("half a file")
        assert expiry(await secured(shell, client_context(pki))) == 2096
        await round_trip(before)
        await round_trip(after)


def expiry(stream: Any) -> int:
    """Returns the year in which the server's certificate expires."""
    return int(stream._ssl_object.getpeercert()["notAfter"].split()[-2])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tls": {"certificate_file": "/nowhere.pem"}}, "certificate_file: /nowhere.pem cannot be used: no such file"),
        ({"upstream_tls": {"ca_file": "/nowhere.pem"}}, "ca_file: /nowhere.pem cannot be used: no such file"),
    ],
)
def test_unusable_files_are_named_at_start(settings: dict[str, Any], words: str) -> None:
    """A file that cannot be used is named with its key at the start."""
    with pytest.raises(UnusableFileError, match=words):
        handshakes_of(listener(**settings), ListenerCounters("x"), 10)


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"key_file": "client's"}, r"^key_file: .*\.key cannot be used: key values mismatch"),
        ({"key_file": "absent"}, r"^key_file: .*/absent cannot be used: no such file"),
        ({"certificate_file": "absent"}, r"^certificate_file: .*/absent cannot be used: no such file"),
    ],
)
def test_unusable_file_is_named(pki: Pki, changed: dict[str, str], cause: str) -> None:
    """A file that is missing, and a key that does not belong to the certificate, are named at the start."""
    files = {"client's": pki.client.key_file, "absent": pki.folder / "absent"}
    tls = {**pki.server.settings, **{key: str(files[file]) for key, file in changed.items()}}
    with pytest.raises(UnusableFileError, match=cause):
        handshakes_of(listener(tls=tls), ListenerCounters("x"), 10)


# The PROXY header.


HEADER = b"PROXY TCP4 203.0.113.7 10.0.0.1 5555 9092\r\n"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("cut", [0, 1, 20, len(HEADER)])
async def test_proxy_header_gives_the_clients_host(pki: Pki, tls: bool, cut: int) -> None:
    """The host of the PROXY header is the client's host. What follows the header is served, however it is cut."""
    origins: list[Origin] = []
    settings = {"proxy_protocol": True, **(pki.listener if tls else {})}
    async with proxy(settings, origins=origins) as shell, memory_client(pki, shell) as client:
        await client.stream.send_all(HEADER[:cut])
        if tls:
            await client.stream.send_all(HEADER[cut:])
            await client.stream.send_all(await client.do_handshake())
            await client.stream.send_all(client.encrypt(request_frame(1)))
            assert await read_frame(client) == reply_frame(1)  # type: ignore[arg-type]
        else:
            await trio.lowlevel.checkpoint()
            await client.stream.send_all(HEADER[cut:] + request_frame(1))
            assert await read_frame(client.stream) == reply_frame(1)
    assert [origin.client_host for origin in origins] == ["203.0.113.7"]


@pytest.mark.parametrize("sent", [request_frame(1), b"\x16\x03\x01\x02\x00", b"PROXY TCP9 "], ids=str)
async def test_connection_without_proxy_header_is_closed(
    pki: Pki, sent: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """A connection that does not begin with a PROXY header is closed, because its host would be wrong."""
    async with proxy({"proxy_protocol": True}) as shell, await shell.connect() as client:
        await client.send_all(sent)
        await read_until_closed(client)
        await shell.closed(CloseReason.PROXY_HEADER)
        assert shell.broker.connections == 0
    assert "a client sent no PROXY header" in capsys.readouterr().out


async def test_endless_proxy_header_is_closed_in_time() -> None:
    """A connection that does not finish its PROXY header is closed after `limits.handshake_seconds`."""
    async with proxy({"proxy_protocol": True}, seconds=0.2) as shell, await shell.connect() as client:
        await client.send_all(b"PROXY ")
        await read_until_closed(client)
        await shell.closed(CloseReason.PROXY_HEADER)


# Load.


async def test_handshakes_of_many_clients_at_once(pki: Pki) -> None:
    """Many clients that connect at once are all served."""

    async def ask(shell: RunningProxy, number: int) -> None:
        async with await secured(shell, client_context(pki)) as stream:
            await round_trip(stream, number=number)

    async with proxy({**pki.listener, **pki.upstream}, over_tls(server_context(pki), echo)) as shell:
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ask, shell, number)
        await shell.closed(CloseReason.CLIENT_CLOSED, 50)
    assert shell.counters.tls_handshakes == {TlsSide.CLIENT: 50, TlsSide.UPSTREAM: 50}


async def test_shutdown_during_handshakes(pki: Pki) -> None:
    """A proxy that stops during handshakes closes all sockets."""
    async with proxy(pki.listener) as shell:
        clients = [await shell.connect() for _ in range(5)]
        for client in clients:
            await client.send_all(b"\x16\x03\x01")
        await holds(lambda: shell.counters.open_connections == 5)
    for client in clients:
        await read_until_closed(client)
        await trio.aclose_forcefully(client)
    assert shell.counters.connections_closed[CloseReason.SHUTDOWN] == 5


@pytest.mark.parametrize("seed", range(20))
async def test_random_bytes_at_a_tls_port(pki: Pki, seed: int) -> None:
    """Random bytes, and handshakes with a changed byte, close their connection alone and leave nothing behind."""
    chance = random.Random(seed)
    async with proxy(pki.listener) as shell:
        for _ in range(5):
            async with await shell.connect() as client:
                hello = bytearray(hello_of(pki)) if chance.random() < 0.7 else bytearray(chance.randbytes(200))
                hello[chance.randrange(len(hello))] ^= 1 << chance.randrange(8)
                with suppress(trio.BrokenResourceError):
                    await client.send_all(hello[: chance.randrange(1, len(hello) + 1)])
                    await client.send_eof()
                await read_until_closed(client)
        await holds(lambda: shell.counters.open_connections == 0)
        await round_trip(await secured(shell, client_context(pki)))


def hello_of(pki: Pki) -> bytes:
    client = Memory(client_context(pki), None)  # type: ignore[arg-type]
    with suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    return client.outgoing.read()
