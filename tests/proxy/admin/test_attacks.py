"""Hostile clients of the admin port. The port has to serve HTTP/1.1 and refuse all else, without harm to others."""

import errno
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from group_sidecar.proxy.admin import http_connection, http_server
from group_sidecar.proxy.admin.http_connection import HttpConnection
from group_sidecar.proxy.admin.http_server import _AdminListener, serve_admin
from group_sidecar.proxy.admin.tls import admin_context
from group_sidecar.proxy.config.sections import AdminAccess
from group_sidecar.proxy.listeners.ports import listen
from group_sidecar.proxy.runtime.supervision import Supervisor, Task
from tests.proxy.admin.attacks import ATTACKS, HOST, PREFACE
from tests.proxy.admin.fuzz import certificates, fuzz
from tests.proxy.admin.served_app import admin
from tests.proxy.fakes import ANY_PORT, read_to_end

HEALTHY = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
STATUSES = {
    "h2c upgrade with bad settings": b"200",
    "h2c upgrade and frames": b"200",
    "websocket upgrade and garbage": b"200",
    "http/2 resets": b"505",
    "zero bytes": b"400",
    "kafka frame": b"400",
    "endless head": b"431",
    "endless line": b"431",
    "no version": b"400",
    "later version": b"505",
    "bad target": b"400",
    "escaped target": b"404",
    "connect": b"404",
    "two lengths": b"400",
    "chunks": b"411",
    "long body": b"413",
    "expecting": b"100",
    "pipelined": b"200",
}


class Port:
    """An admin port, and the supervisor of its tasks."""

    def __init__(self) -> None:
        self.supervisor = Supervisor()
        self.address: tuple[str, int] = ("", 0)
        self.client: ssl.SSLContext | None = None

    async def start(self, nursery: trio.Nursery, folder: Path | None = None) -> None:
        """Starts the port, with TLS if a folder for certificates is given."""
        tls = None
        if folder is not None:
            settings, self.client = certificates(folder)
            tls = admin_context(AdminAccess.model_validate(settings))
        self.address = await nursery.start(serve_admin, admin(), listen(ANY_PORT)[0], tls, self.supervisor)

    async def connect(self, **options: Any) -> trio.abc.Stream:
        if self.client is None:
            return await trio.open_tcp_stream(*self.address)
        plain = await trio.open_tcp_stream(*self.address)
        return trio.SSLStream(plain, self.client, server_hostname="localhost", https_compatible=True)

    async def ask(self, payload: bytes) -> bytes:
        """Sends bytes. Returns all bytes of the port until the connection ends."""
        with trio.fail_after(20):
            async with await self.connect() as stream:
                try:
                    await stream.send_all(payload)
                    if isinstance(stream, trio.SocketStream):
                        await stream.send_eof()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass  # The port refused the request before its end.
                return await read_to_end(stream)

    async def assert_unharmed(self) -> None:
        assert self.supervisor.failures[Task.ADMIN] == 0
        async with await self.connect() as stream:
            for _ in range(2):
                await stream.send_all(HEALTHY)
                assert (await stream.receive_some(1_000)).startswith(b"HTTP/1.1 200")


@pytest.fixture(params=["plain", "tls"])
async def port(request: Any, nursery: trio.Nursery, tmp_path: Path) -> Port:
    served = Port()
    await served.start(nursery, tmp_path if request.param == "tls" else None)
    return served


@pytest.mark.parametrize("name", ATTACKS)
async def test_attack_is_refused_without_harm(name: str, nursery: trio.Nursery, tmp_path: Path) -> None:
    """Each attack gets its expected status, and the server still answers other clients."""
    served = Port()
    await served.start(nursery)
    answer = await served.ask(ATTACKS[name])
    assert answer[9:12] == STATUSES.get(name, b"400")
    await served.assert_unharmed()
    nursery.cancel_scope.cancel()


async def test_attacks_within_tls(nursery: trio.Nursery, tmp_path: Path) -> None:
    """The server still answers other clients after all attacks within TLS."""
    served = Port()
    await served.start(nursery, tmp_path)
    for attack in ATTACKS.values():
        async with await served.connect() as stream:
            try:
                await stream.send_all(attack)
                with trio.move_on_after(0.2):
                    await stream.receive_some(1_000)
            except trio.BrokenResourceError:
                pass
    await served.assert_unharmed()
    nursery.cancel_scope.cancel()


async def test_attacks_on_the_handshake(nursery: trio.Nursery, tmp_path: Path) -> None:
    """Attacks on the TLS handshake get no HTTP reply, and the server still answers other clients."""
    served = Port()
    await served.start(nursery, tmp_path)
    for attack in ATTACKS.values():
        async with await trio.open_tcp_stream(*served.address) as stream:
            try:
                await stream.send_all(attack)
                await stream.send_eof()
            except trio.BrokenResourceError:
                continue
            assert not (await read_to_end(stream)).startswith(b"HTTP")
    await served.assert_unharmed()
    nursery.cancel_scope.cancel()


async def test_http_2_is_not_negotiated(nursery: trio.Nursery, tmp_path: Path) -> None:
    """The TLS handshake selects HTTP/1.1 and the server answers an HTTP/2 preface with 505."""
    served = Port()
    await served.start(nursery, tmp_path)
    assert served.client is not None
    served.client.set_alpn_protocols(["h2", "http/1.1"])
    async with await served.connect() as stream:
        await stream.send_all(PREFACE)
        assert (await stream.receive_some(1_000)).startswith(b"HTTP/1.1 505")
        assert isinstance(stream, trio.SSLStream)
        assert stream.selected_alpn_protocol() == "http/1.1"
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
async def test_upgrade_is_ignored_and_closes(protocol: str, nursery: trio.Nursery) -> None:
    """The server ignores an upgrade header, answers once with 200 and closes the connection."""
    served = Port()
    await served.start(nursery)
    upgrade = f"connection: upgrade\r\nupgrade: {protocol}\r\n\r\n".encode()
    answer = await served.ask(b"GET /healthz HTTP/1.1\r\n" + HOST + upgrade + HEALTHY)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer.lower()
    nursery.cancel_scope.cancel()


# Limits of a connection, with the test's clock.


class Conversation:
    """A connection in memory, with the client's end."""

    def __init__(self, app: Any = None) -> None:
        self.client, self.server = memory_stream_pair()
        self.failures: list[Exception] = []
        self.connection = HttpConnection(
            app or admin(),
            self.server,
            client=("127.0.0.1", 1),
            server=("127.0.0.1", 2),
            scheme="http",
            stalled_seconds=10,
            failed=self.failures.append,
        )

    async def run(self) -> None:
        try:
            await self.connection.run()
        except trio.BrokenResourceError:
            pass
        await self.server.aclose()


async def answered(nursery: trio.Nursery, payload: bytes, seconds: float, app: Any = None) -> bytes:
    """Sends bytes and keeps the connection open. Returns the bytes that arrive within `seconds`."""
    conversation, answer = Conversation(app), bytearray()
    nursery.start_soon(conversation.run)
    await conversation.client.send_all(payload)
    with trio.move_on_after(seconds):
        while data := await conversation.client.receive_some(10_000):
            answer += data
        answer += b"END"
    return bytes(answer)


async def test_slow_head(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A request head that does not arrive in time gets 408 and ends the connection."""
    assert await answered(nursery, HEALTHY[:-2], http_connection.REQUEST_SECONDS - 1) == b""
    late = await answered(nursery, HEALTHY[:-2], http_connection.REQUEST_SECONDS + 2)
    assert late.startswith(b"HTTP/1.1 408")
    assert late.endswith(b"END")


async def test_trickling_head(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Single bytes do not extend the deadline of a request head."""
    conversation = Conversation()
    nursery.start_soon(conversation.run)
    trickled = 0
    with suppress(trio.BrokenResourceError):
        for byte in HEALTHY:
            await conversation.client.send_all(bytes([byte]))
            trickled += 1
            await trio.sleep(1)
    assert trickled < len(HEALTHY)
    assert trio.current_time() < 2 * http_connection.REQUEST_SECONDS
    nursery.cancel_scope.cancel()


async def test_idle_connection_is_closed(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A connection without a further request is closed after the idle timeout and not before."""
    kept = await answered(nursery, HEALTHY, http_connection.IDLE_SECONDS - 1)
    ended = await answered(nursery, HEALTHY, http_connection.IDLE_SECONDS + 2)
    assert not kept.endswith(b"END")
    assert ended.endswith(b"END")


async def test_slow_body(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A request body that does not arrive in time gets 408."""
    started = b"POST /healthz HTTP/1.1\r\n" + HOST + b"content-length: 10\r\n\r\nabc"
    assert (await answered(nursery, started, 20)).startswith(b"HTTP/1.1 408")


async def test_hanging_application_gets_503(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A request gets 503 if the application does not answer."""

    async def hang(*_: Any) -> None:
        await trio.sleep_forever()

    assert (await answered(nursery, HEALTHY, 200, hang)).startswith(b"HTTP/1.1 503")


async def test_failing_application_gets_500(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A request gets 500 if the application raises an exception, which the connection reports."""

    async def fail(*_: Any) -> None:
        raise RuntimeError("no idea")

    conversation = Conversation(fail)
    nursery.start_soon(conversation.run)
    await conversation.client.send_all(HEALTHY)
    assert (await conversation.client.receive_some(1_000)).startswith(b"HTTP/1.1 500")
    assert [str(error) for error in conversation.failures] == ["no idea"]
    nursery.cancel_scope.cancel()


# Many connections.


async def test_longest_idle_connection_makes_room(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> None:
    """At the connection limit, the server closes the connection that has been idle longest."""
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 3)
    served = Port()
    await served.start(nursery)
    streams = []
    for _ in range(4):
        stream = await served.connect()
        await stream.send_all(HEALTHY)
        assert (await stream.receive_some(1_000)).startswith(b"HTTP/1.1 200")
        streams.append(stream)
    with trio.fail_after(10):
        assert await read_to_end(streams[0]) == b""
    for stream in streams[1:]:
        await stream.send_all(HEALTHY)
        assert (await stream.receive_some(1_000)).startswith(b"HTTP/1.1 200")
    for stream in streams:
        await stream.aclose()
    nursery.cancel_scope.cancel()


async def test_half_open_handshakes_make_room(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, tmp_path: Path
) -> None:
    """Connections without a finished TLS handshake do not block new clients at the connection limit."""
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 3)
    served = Port()
    await served.start(nursery, tmp_path)
    silent = [await trio.open_tcp_stream(*served.address) for _ in range(10)]
    await served.assert_unharmed()
    for stream in silent:
        await stream.aclose()
    nursery.cancel_scope.cancel()


async def test_accept_survives_lack_of_descriptors(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> None:
    """The server accepts again after accept failed for lack of file descriptors."""
    served = Port()
    with trio.socket.socket() as any_socket:
        concrete: Any = type(any_socket)
    accept, left = concrete.accept, [3]

    async def exhausted(self: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(24, "Too many open files")
        return await accept(self)

    monkeypatch.setattr(concrete, "accept", exhausted)
    await served.start(nursery)
    await served.assert_unharmed()
    assert left == [0]
    nursery.cancel_scope.cancel()


async def test_broken_listener_is_retried_slowly(autojump_clock: MockClock) -> None:
    """A broken listening socket counts as a failure at each attempt, with pauses between attempts."""
    supervisor, attempts = Supervisor(), 0

    class Broken:
        async def accept(self) -> Any:
            nonlocal attempts
            attempts += 1
            await trio.lowlevel.checkpoint()
            raise OSError(errno.EINVAL, "Invalid argument")

    listener: Any = Broken()
    with trio.move_on_after(40):
        await supervisor.keep_running(Task.ADMIN, _AdminListener(admin(), listener, None, supervisor).run)
    assert 5 < attempts == supervisor.failures[Task.ADMIN] < 20


# The fuzzer, in short; `python -m tests.proxy.admin.fuzz` is the long form.


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_fuzzing_leaves_other_clients_alone(tls: bool) -> None:
    """Fuzzed connections cause no failure, and a client is answered meanwhile."""
    outcome = await fuzz(count=400, seed=7, tls=tls)
    assert outcome.connections >= 400
    assert outcome.failures == 0
    assert outcome.delays
    assert b"refused" not in outcome.answers
