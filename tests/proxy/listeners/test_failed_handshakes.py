"""Tests which connections are closed after a failed handshake, and what is counted and logged."""

import random
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters, TlsFailure, TlsSide
from group_sidecar.proxy.listeners.handshakes import handshakes_of
from group_sidecar.proxy.tls.reloading_contexts import UnusableFileError
from tests.proxy.fakes import Behaviour, RunningProxy, echo, holds, read_to_end, request_frame
from tests.proxy.listeners.tls_shell import (
    HOST,
    Memory,
    Pki,
    client_context,
    listener,
    over_tls,
    proxy,
    round_trip,
    secured,
    server_context,
)


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
        await read_to_end(client)
        fault = Fault(CloseReason.TLS_HANDSHAKE, TlsSide.CLIENT, TlsFailure.PLAINTEXT, "does not speak tls")
        await fails(shell, fault, capsys)
        assert shell.broker.connections == 0


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
        await read_to_end(client)
        fault = Fault(CloseReason.TLS_HANDSHAKE, TlsSide.CLIENT, TlsFailure.TIMEOUT, "no handshake within 0.2 s")
        await fails(shell, fault, capsys)


async def test_client_that_leaves_during_handshake(pki: Pki, capsys: pytest.CaptureFixture[str]) -> None:
    """A client that closes its connection during the handshake is counted as closed."""
    async with proxy(pki.listener) as shell:
        async with await shell.connect() as client:
            await client.send_all(b"\x16\x03\x01")
        fault = Fault(CloseReason.TLS_HANDSHAKE, TlsSide.CLIENT, TlsFailure.CLOSED, "the peer closed the connection")
        await fails(shell, fault, capsys)


async def test_each_reason_is_logged(pki: Pki) -> None:
    """The log line has the reason of the metric. Failures for one reason do not hide those for another one."""
    with capture_logs() as lines:
        async with proxy(pki.listener) as shell:
            for sent in (b"\x16\x03\x01", request_frame(1), request_frame(1)):
                async with await shell.connect() as client:
                    await client.send_all(sent)
                    await client.send_eof()
                    await read_to_end(client)
            await holds(lambda: shell.counters.tls_failures[TlsSide.CLIENT, TlsFailure.PLAINTEXT] == 2)
    failed = [line for line in lines if line["event"] == "a client's TLS handshake failed"]
    assert [(line["reason"], line["times"]) for line in failed] == [("closed", 1), ("plaintext", 1)]


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
    """No byte of a client goes to a broker whose handshake fails. The client is closed, and the reason is logged."""
    behaviour, settings, failure, words = broker_faults(pki)[name]
    async with proxy({"upstream_tls": settings}, behaviour) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1))
        await read_to_end(client)
        await fails(shell, Fault(CloseReason.UPSTREAM_TLS, TlsSide.UPSTREAM, failure, words), capsys)
        assert shell.changes == [(shell.broker.address, False)]  # A gateway connects the next client elsewhere.


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
                await read_to_end(client)
        await holds(lambda: shell.counters.open_connections == 0)
        await round_trip(await secured(shell, client_context(pki)))


def hello_of(pki: Pki) -> bytes:
    client = Memory(client_context(pki), None)  # type: ignore[arg-type]
    with suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    return client.outgoing.read()
