"""Accepting and connecting with real sockets."""

import errno
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from select import POLLIN, poll

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.config.model import DEFAULT_LISTENER
from group_sidecar.proxy.dataplane.connections import ConnectionManager
from group_sidecar.proxy.dataplane.event_loop import run_in_task
from group_sidecar.proxy.dataplane.outcomes import Origin
from group_sidecar.proxy.dataplane.poller import Poller
from group_sidecar.proxy.dataplane.session import Session
from group_sidecar.proxy.listeners import server as server_module
from group_sidecar.proxy.listeners.acceptor import Acceptor, packed
from group_sidecar.proxy.listeners.admission import AdmissionLimits, ClientPort, NotServed
from group_sidecar.proxy.listeners.ports import ListenError, listen, port_of
from group_sidecar.proxy.listeners.server import Server, connect
from group_sidecar.proxy.runtime.addresses import Address, format_host
from group_sidecar.proxy.runtime.supervision import Task
from tests.proxy.fakes import (
    ANY_PORT,
    SESSION_LIMITS,
    FakeBroker,
    PassthroughDispatcher,
    echo,
    holds,
    read_frame,
    read_to_end,
    reply_frame,
    request_frame,
    running_proxy,
)

ACCEPTORS = list(dict.fromkeys((Acceptor, server_module.ACCEPTOR)))


@pytest.fixture(autouse=True, params=ACCEPTORS, ids=[each.__name__ for each in ACCEPTORS])
def _acceptor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test with both ways to accept connections."""
    monkeypatch.setattr(server_module, "ACCEPTOR", request.param)


class Shell:
    """A connection manager and a server.

    Attributes:
        seen: client host, broker address and socket address of each session.
        changes: the calls of `on_reachability_changed`.
    """

    def __init__(self, nursery: trio.Nursery, upstream: Address, host: str = "127.0.0.1") -> None:
        self.traffic = TrafficCounters()
        self.counters = self.traffic.add_listener(DEFAULT_LISTENER)
        poller = Poller()
        self.connection_manager = ConnectionManager(poller)
        self.changes: list[tuple[Address, bool]] = []
        self.server = Server(
            self.connection_manager,
            self.traffic,
            AdmissionLimits(100),
            on_reachability_changed=lambda address, is_reachable: self.changes.append((address, is_reachable)),
        )
        self.seen: list[tuple[str, Address, Address]] = []
        self.listeners = listen(Address(host, 0))
        self.upstream = upstream
        self.address = Address(host, port_of(self.listeners))
        nursery.start_soon(run_in_task, poller)
        nursery.start_soon(self.connection_manager.run)
        self.find_upstream: Callable[[], Address] = lambda: self.upstream
        port = ClientPort(self.counters, lambda: self.find_upstream(), self.new_session)
        nursery.start_soon(self.server.serve, self.listeners, port)

    def new_session(self, origin: Origin, address: Address, peer: Address) -> Session:
        self.seen.append((origin.client_host, address, peer))
        return Session(PassthroughDispatcher(), self.traffic, origin, SESSION_LIMITS)

    async def ask(self) -> bytes:
        """Sends one request from a new client. Returns all bytes that the client gets."""
        async with await trio.open_tcp_stream(*self.address) as client:
            try:
                await client.send_all(request_frame(1, b"x"))
                await client.send_eof()
            except trio.BrokenResourceError:
                return b""
            return await read_to_end(client)


async def test_bad_broker_name_fails_one_connection(nursery: trio.Nursery) -> None:
    """A broker name that cannot be encoded closes only the client's connection and counts as a failure."""
    shell = Shell(nursery, Address("a" * 64 + ".example", 9092))
    for times in (1, 2):
        assert await shell.ask() == b""
        assert shell.counters.connections_closed[CloseReason.UPSTREAM_UNREACHABLE] == times
    assert shell.server._supervisor.failures[Task.CONNECTIONS] == 2
    assert shell.changes == [(shell.upstream, False)] * 2
    nursery.cancel_scope.cancel()


class FailingDispatcher(PassthroughDispatcher):
    """Fails when it admits a client, and again when it is told that the client has gone."""

    def admit(self, origin: Origin) -> str:
        raise RuntimeError("not admitted")

    def gone(self, *_: object) -> None:
        raise RecursionError("nor closed")


async def test_failure_to_admit_ends_one_connection(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two exceptions while a client is admitted close only this client's connection."""
    broker = FakeBroker()
    await nursery.start(broker.run)
    shell = Shell(nursery, broker.address)
    async with await trio.open_tcp_stream(*shell.address) as other:
        await other.send_all(request_frame(1, b"x"))
        assert await read_frame(other) == reply_frame(1, b"x")
        with monkeypatch.context() as patch:
            patch.setattr(f"{__name__}.PassthroughDispatcher", FailingDispatcher)
            assert await shell.ask() == b""
        assert shell.counters.connections_closed[CloseReason.ERROR] == 1
        await other.send_all(request_frame(2, b"x"))
        assert await read_frame(other) == reply_frame(2, b"x")
    assert await shell.ask() == reply_frame(1, b"x")
    nursery.cancel_scope.cancel()


async def test_failure_to_accept_pauses_port(nursery: trio.Nursery) -> None:
    """An exception of the accept path is counted, and the port accepts clients again after a pause."""
    broker = FakeBroker()
    await nursery.start(broker.run)
    shell, failed = Shell(nursery, broker.address), trio.Event()

    def fail() -> Address:
        failed.set()
        shell.find_upstream = lambda: broker.address
        raise RuntimeError("not accepted")

    shell.find_upstream = fail
    async with await trio.open_tcp_stream(*shell.address):
        await failed.wait()
    assert shell.server._supervisor.failures[Task.CONNECTIONS] == 1
    assert await shell.ask() == reply_frame(1, b"x")
    nursery.cancel_scope.cancel()


async def test_unreachable_broker_closes_clients(nursery: trio.Nursery, capsys: pytest.CaptureFixture[str]) -> None:
    """Clients of an unreachable broker are closed until it listens, and the log has one line for each change."""
    broker = FakeBroker()
    async with trio.open_nursery() as life:
        await life.start(broker.run)
        life.cancel_scope.cancel()
    shell = Shell(nursery, broker.address)
    for times in (1, 2, 3):
        assert await shell.ask() == b""
        assert shell.counters.connections_closed[CloseReason.UPSTREAM_UNREACHABLE] == times
        assert shell.counters.upstream_connect_failures == times
    await nursery.start(broker.run)
    assert await shell.ask() == reply_frame(1, b"x")
    assert shell.changes == [*[(broker.address, False)] * 3, (broker.address, True)]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "the broker is unreachable" in lines[0]
    assert f"address={broker.address}" in lines[0]
    assert "connection refused" in lines[0]
    assert "the broker is reachable again" in lines[1]
    assert f"address={broker.address}" in lines[1]
    nursery.cancel_scope.cancel()


async def test_session_gets_client_and_broker(nursery: trio.Nursery) -> None:
    """A session gets the client's host, and the configured and the resolved address of the broker."""
    broker = FakeBroker()
    address = await nursery.start(broker.run)
    configured = Address("localhost", address.port)
    shell = Shell(nursery, configured)
    for _ in range(2):  # The second broker connection begins when the client is accepted.
        assert await shell.ask() == reply_frame(1, b"x")
    assert shell.seen == [("127.0.0.1", configured, address)] * 2
    nursery.cancel_scope.cancel()


async def test_ipv6_client_is_served(nursery: trio.Nursery) -> None:
    """A client over IPv6 is served, and its session gets the uncompressed address."""
    broker = FakeBroker()
    address = await nursery.start(broker.run)
    try:
        shell = Shell(nursery, address, "::1")
    except ListenError:
        return  # A machine without IPv6.
    assert await shell.ask() == reply_frame(1, b"x")
    assert shell.seen[0][0] == "0:0:0:0:0:0:0:1"
    nursery.cancel_scope.cancel()


async def test_ipv4_mapped_client_shown_as_ipv4(nursery: trio.Nursery) -> None:
    """The session of an IPv4 client of an IPv6 port gets the IPv4 address."""
    broker = FakeBroker()
    address = await nursery.start(broker.run)
    try:
        shell = Shell(nursery, address, "::")
    except ListenError:
        return
    shell.address = Address("127.0.0.1", shell.address.port)
    assert await shell.ask() == reply_frame(1, b"x")
    assert shell.seen[0][0] == "127.0.0.1"
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("error", "reason", "is_logged"),
    [
        (RuntimeError("no session today"), CloseReason.ERROR, True),
        (NotServed(), CloseReason.UPSTREAM_UNREACHABLE, False),
    ],
    ids=["failed", "not served"],
)
async def test_failed_session_closes_its_client(
    nursery: trio.Nursery, capsys: pytest.CaptureFixture[str], error: Exception, reason: CloseReason, is_logged: bool
) -> None:
    """If there is no session for a client, that client alone is closed, and the next client is served."""
    broker = FakeBroker()
    address = await nursery.start(broker.run)
    shell = Shell(nursery, address)
    real, failing = shell.new_session, [True]

    def fail_once(origin: Origin, address: Address, peer: Address) -> Session:
        if failing:
            failing.pop()
            raise error
        return real(origin, address, peer)

    listeners = listen(ANY_PORT)
    shell.address = Address("127.0.0.1", port_of(listeners))
    port = ClientPort(shell.counters, lambda: address, fail_once)
    nursery.start_soon(shell.server.serve, listeners, port)
    assert await shell.ask() == b""
    assert shell.counters.connections_closed[reason] == 1
    assert ("a connection failed" in capsys.readouterr().out) is is_logged
    assert await shell.ask() == reply_frame(1, b"x")
    nursery.cancel_scope.cancel()


async def test_connection_limit_closes_extra_clients(capsys: pytest.CaptureFixture[str]) -> None:
    """Clients beyond the connection limit are closed at once, and the others are served."""
    async with running_proxy(admission=AdmissionLimits(2)) as shell:
        async with await shell.connect() as first, await shell.connect() as second:
            await holds(lambda: shell.connection_manager.connections == 2)
            for _ in range(3):
                async with await shell.connect() as third:
                    assert await read_to_end(third) == b""
            for client in (first, second):
                await client.send_all(request_frame(1))
                assert await read_frame(client) == reply_frame(1)
        await shell.closed(CloseReason.CLIENT_CLOSED, 2)
        await shell.round_trip()
        assert shell.traffic.connections_opened == 6
        assert shell.counters.connections_closed[CloseReason.CONNECTION_LIMIT] == 3
    assert capsys.readouterr().out.count("a client was turned away") == 1


@contextmanager
def one_descriptor_left() -> Iterator[None]:
    """Lets this process open only one more descriptor."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_accept_resumes_after_exhaustion(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server accepts clients again after it ran out of file descriptors, and logs this once."""
    monkeypatch.setattr(server_module, "EXHAUSTED_SECONDS", 0.001)
    broker = FakeBroker()
    address = await nursery.start(broker.run)
    shell = Shell(nursery, address)
    await wait_all_tasks_blocked()
    lines: list[str] = []
    with one_descriptor_left():
        client = await trio.open_tcp_stream(*shell.address)
        while not lines or "no connection can be accepted" not in lines[-1]:
            await trio.lowlevel.checkpoint()
            lines.append(capsys.readouterr().out)
    await client.aclose()  # The client may be accepted or not: a waiting thread has a descriptor ready.
    assert await shell.ask() == reply_frame(1, b"x")
    lines.append(capsys.readouterr().out)
    assert "".join(lines).count("no connection can be accepted") == 1
    nursery.cancel_scope.cancel()


class ExhaustedListener(socket.socket):
    """Fails twice without free descriptors, and then because a client has ended its connection before the accept."""

    def prepare(self) -> None:
        self.failures = [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED]

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            number = self.failures.pop(0)
            raise OSError(number, "as if")
        return super().accept()


async def test_accept_errors_do_not_end_loop(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The accept loop continues after errors of the listening socket."""
    monkeypatch.setattr(server_module, "ACCEPTOR", Acceptor)
    monkeypatch.setattr(server_module, "EXHAUSTED_SECONDS", 0.001)
    broker = FakeBroker()
    address = await nursery.start(broker.run)
    shell = Shell(nursery, address)
    [plain] = listen(ANY_PORT)
    listener = ExhaustedListener(plain.family, plain.type, plain.proto, plain.detach())
    listener.setblocking(False)
    listener.prepare()
    listeners: list[socket.socket] = [listener]
    port = ClientPort(shell.counters, lambda: address, shell.new_session)
    nursery.start_soon(shell.server.serve, listeners, port)
    shell.address = Address("127.0.0.1", port_of(listeners))
    assert await shell.ask() == reply_frame(1, b"x")
    assert listener.failures == []
    assert capsys.readouterr().out.count("no connection can be accepted") == 1
    nursery.cancel_scope.cancel()


async def test_new_clients_use_current_upstream(nursery: trio.Nursery) -> None:
    """Each new client is connected to the upstream address at that time."""

    async def otherwise(stream: trio.SocketStream) -> None:
        with suppress(EOFError):  # No frame comes if another upstream is used.
            await read_frame(stream)
            await stream.send_all(reply_frame(1, b"otherwise"))

    first, second = [await nursery.start(FakeBroker(each).run) for each in (echo, otherwise)]
    shell = Shell(nursery, first)
    for shell.upstream, expected in [(first, b"x")] * 3 + [(second, b"otherwise")] * 3 + [(first, b"x")] * 2:
        assert await shell.ask() == reply_frame(1, expected)
    assert [peer for _, _, peer in shell.seen] == [first] * 3 + [second] * 3 + [first] * 2
    nursery.cancel_scope.cancel()


def test_close_disconnects_unaccepted_clients() -> None:
    """A closed acceptor disconnects the clients that it has not handed over."""
    [listener] = listen(ANY_PORT)
    with listener:
        acceptor = server_module.ACCEPTOR(listener)
        clients = [socket.create_connection(("127.0.0.1", port_of([listener]))) for _ in range(200)]
        poller = poll()
        poller.register(acceptor.fileno(), POLLIN)
        assert poller.poll(10_000)
        acceptor.close()
    for client in clients:
        with client, suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_stopped_acceptor_hands_over_clients() -> None:
    """A stopped acceptor hands over the clients that it has accepted. The others wait for another process."""
    [listener] = listen(ANY_PORT)
    with listener, ExitStack() as stack:
        acceptor = server_module.ACCEPTOR(listener)
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port_of([listener]))))
        poller = poll()
        poller.register(acceptor.fileno(), POLLIN)
        assert poller.poll(10_000)
        taken = [each.client for each in acceptor.take_remaining(None)]
        waiting = 0
        with suppress(BlockingIOError):
            while True:
                stack.enter_context(listener.accept()[0])
                waiting += 1
        acceptor.close()
        for client in taken:
            os.close(client)
    assert len(taken) + waiting == 200
    assert bool(taken) is (server_module.ACCEPTOR is not Acceptor)


async def test_accepted_client_is_served_after_stop_of_accepting(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was accepted before the server stopped accepting is connected and served.

    Meanwhile the event loop sleeps, although another client waits to be accepted.
    """
    begun, goes_on = trio.Event(), trio.Event()

    async def slow(address: Address) -> socket.socket:
        begun.set()
        await goes_on.wait()
        return await connect(address)

    monkeypatch.setattr(server_module, "connect", slow)
    broker = FakeBroker()
    shell = Shell(nursery, await nursery.start(broker.run))
    async with await trio.open_tcp_stream(*shell.address) as client:
        await begun.wait()
        shell.server.stop_accepting()
        with socket.create_connection(shell.address):
            await wait_all_tasks_blocked()
        goes_on.set()
        await client.send_all(request_frame(1, b"x"))
        assert await read_frame(client) == reply_frame(1, b"x")
    nursery.cancel_scope.cancel()


async def test_stop_closes_connecting_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop closes clients whose connection to the broker is not yet established."""
    start_connect = trio.Event()

    async def never(address: Address) -> socket.socket:
        start_connect.set()
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(server_module, "connect", never)
    async with trio.open_nursery() as nursery:
        shell = Shell(nursery, ANY_PORT)
        client = await trio.open_tcp_stream(*shell.address)
        await start_connect.wait()
        nursery.cancel_scope.cancel()
    async with client:
        assert await read_to_end(client) == b""
    assert shell.counters.connections_closed[CloseReason.SHUTDOWN] == 1
    assert shell.traffic.client_connections == 0


def test_address_in_use_is_one_line() -> None:
    """An address in use raises ListenError with one line."""
    [taken] = listen(ANY_PORT)
    port = port_of([taken])
    with taken, pytest.raises(ListenError, match=f"^cannot listen on 127.0.0.1:{port}: address already in use$"):
        listen(Address("127.0.0.1", port))


def test_foreign_address_is_one_line() -> None:
    """An address that this machine does not have raises ListenError with one line."""
    with pytest.raises(ListenError, match=r"^cannot listen on 192\.0\.2\.1:0: cannot assign requested address$"):
        listen(Address("192.0.2.1", 0))


def test_hostname_listens_on_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name with two addresses listens on both at the same port."""
    hosts = ["127.0.0.1", "127.0.0.2"]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    listeners = listen(Address("both", 0))
    try:
        assert [listener.getsockname() for listener in listeners] == [(host, port_of(listeners)) for host in hosts]
    finally:
        for listener in listeners:
            listener.close()


async def test_connect_tries_all_addresses(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection attempt tries each address of a name and raises OSError if none works."""
    address = await nursery.start(FakeBroker().run)
    [closed] = listen(ANY_PORT)
    nobody = closed.getsockname()
    closed.close()
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", where) for where in (nobody, tuple(address))]

    async def resolve(*_: object, **__: object) -> list[object]:
        await trio.lowlevel.checkpoint()
        return list(found)

    monkeypatch.setattr(trio.socket, "getaddrinfo", resolve)
    with await connect(Address("broker", 9092)) as peer:
        assert peer.getpeername() == tuple(address)
    found.pop()
    with pytest.raises(ConnectionRefusedError):
        await connect(Address("broker", 9092))
    found.clear()
    with pytest.raises(OSError, match="has no address"):
        await connect(Address("broker", 9092))
    nursery.cancel_scope.cancel()


async def test_connect_times_out(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection attempt raises OSError after 10 seconds."""

    async def resolve(*_: object, **__: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(trio.socket, "getaddrinfo", resolve)
    started = trio.current_time()
    with pytest.raises(OSError, match="no connection within 10 seconds"):
        await connect(Address("broker", 9092))
    assert trio.current_time() - started == 10


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::1c:0:2%eth0", "fe80:0:0:0:0:1c:0:2"),
    ],
)
def test_host_format_matches_java(peer: str, shown: str) -> None:
    """A peer's host is formatted like Java's InetAddress."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    assert format_host(packed(family, peer)) == shown


async def test_passed_listener_stays_open(nursery: trio.Nursery) -> None:
    """When a server stops, it closes its own descriptor only. The same socket in another process still listens."""
    broker = FakeBroker()
    shell = Shell(nursery, await nursery.start(broker.run))
    kept = [each.dup() for each in shell.listeners]
    assert await shell.ask() == reply_frame(1, b"x")
    nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True), trio.fail_after(10):
        while any(each.fileno() != -1 for each in shell.listeners):
            await trio.lowlevel.checkpoint()
    for each in kept:
        with each, socket.create_connection(each.getsockname()):
            assert each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
