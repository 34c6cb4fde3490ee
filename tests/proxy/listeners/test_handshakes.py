"""Clients and brokers with TLS."""

import os
import random
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters, TlsFailure, TlsSide
from group_sidecar.proxy.listeners.handshakes import handshakes_of
from tests.proxy.fakes import (
    RunningProxy,
    echo,
    holds,
    read_exactly,
    read_frame,
    read_to_end,
    reply_frame,
    request_frame,
)
from tests.proxy.listeners.tls_shell import (
    HOST,
    VERSIONS,
    Pki,
    client_context,
    listener,
    memory_client,
    over_tls,
    proxy,
    round_trip,
    secured,
    server_context,
    server_context_of_version,
)

WAYS = [(True, False), (False, True), (True, True)]
LONG = 1_000_000


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


async def test_request_with_end_of_handshake_is_served(pki: Pki) -> None:
    """A request that arrives together with the end of the handshake is served, although no more bytes arrive."""
    async with proxy(pki.listener) as shell, memory_client(pki, shell) as client:
        last = await client.do_handshake()
        await client.stream.send_all(last + client.encrypt(request_frame(1, b"early")))
        with trio.fail_after(10):
            assert await read_frame(client) == reply_frame(1, b"early")  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 100, 700])
async def test_records_arrive_in_pieces(pki: Pki, size: int) -> None:
    """Records that arrive in pieces are served when they are complete. One piece alone decrypts to nothing."""
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
    first.write_together(file)
    async with proxy({"tls": {"certificate_file": str(file)}}) as shell:
        before = await secured(shell, client_context(pki))
        assert expiry(before) == 2095
        second.write_together(file)
        after = await secured(shell, client_context(pki))
        assert expiry(after) == 2096
        file.write_text("half a file")
        assert expiry(await secured(shell, client_context(pki))) == 2096
        await round_trip(before)
        await round_trip(after)


def test_expiry_of_both_sides(pki: Pki, tmp_path: Path) -> None:
    """The certificates that clients and the broker see are reported, even if no connection was made with a new one."""
    first, second = (pki.authority.issue(HOST, expires=datetime(year, 1, 1, tzinfo=UTC)) for year in (2095, 2096))
    file = tmp_path / "replaced.pem"
    first.write_together(file)
    upstream = {**pki.upstream["upstream_tls"], **second.settings}
    settings = listener(tls={"certificate_file": str(file)}, upstream_tls=upstream)
    handshakes = handshakes_of(settings, ListenerCounters("default"), 1)
    assert handshakes
    times = [datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2095, 2096)]
    assert handshakes.certificates_expire_at() == dict(zip((TlsSide.CLIENT, TlsSide.UPSTREAM), times, strict=True))
    second.write_together(file)
    assert handshakes.certificates_expire_at() == dict.fromkeys(TlsSide, times[1])
    plain = handshakes_of(listener(proxy_protocol=True), ListenerCounters("default"), 1)
    assert plain
    assert plain.certificates_expire_at() == {}


def expiry(stream: Any) -> int:
    """Returns the year in which the server's certificate expires."""
    return int(stream._ssl_object.getpeercert()["notAfter"].split()[-2])


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
        await read_to_end(client)
        await trio.aclose_forcefully(client)
    assert shell.counters.connections_closed[CloseReason.SHUTDOWN] == 5
