"""Limits on clients that connect: connections of one address, and the rate at which they are accepted."""

from contextlib import AsyncExitStack, suppress

import pytest
import trio

from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.listeners import server as server_module
from group_sidecar.proxy.listeners.acceptor import Acceptor
from group_sidecar.proxy.listeners.admission import AdmissionLimits
from group_sidecar.proxy.listeners.handshakes import AcceptedEndpoint, LeadsToBroker, ListenerHandshakes
from tests.proxy.fakes import RunningProxy, holds, read_frame, read_to_end, reply_frame, request_frame, running_proxy
from tests.proxy.listeners.tls_shell import listener, proxy

ACCEPTORS = list(dict.fromkeys((Acceptor, server_module.ACCEPTOR)))
RATE = 20


@pytest.fixture(autouse=True, params=ACCEPTORS, ids=[each.__name__ for each in ACCEPTORS])
def _acceptor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test with both ways to accept connections."""
    monkeypatch.setattr(server_module, "ACCEPTOR", request.param)


async def asks(client: trio.SocketStream, first: bytes = b"") -> None:
    """Makes a request, after `first`."""
    await client.send_all(first + request_frame(1))
    assert await read_frame(client) == reply_frame(1)


async def is_closed(client: trio.SocketStream) -> None:
    """Waits until the proxy has closed a connection without sending anything."""
    with suppress(trio.BrokenResourceError):
        assert await read_to_end(client) == b""


async def open_from(shell: RunningProxy, host: str) -> trio.SocketStream:
    """Opens a client connection from a local address."""
    return await trio.open_tcp_stream(*shell.address, local_address=host)


async def test_address_with_too_many_connections_is_turned_away(capsys: pytest.CaptureFixture[str]) -> None:
    """Further connections of one address are closed and counted. Other addresses and later connections are served."""
    async with running_proxy(max_per_address=2) as shell, AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(await open_from(shell, "127.0.0.2")) for _ in range(2)]
        for client in (first, second):
            await asks(client)
        for _ in range(3):
            async with await open_from(shell, "127.0.0.2") as third:
                await is_closed(third)
        await shell.closed(CloseReason.ADDRESS_LIMIT, 3)
        async with await open_from(shell, "127.0.0.3") as other:
            await asks(other)
        await first.aclose()
        await shell.closed(CloseReason.CLIENT_CLOSED, 2)
        async with await open_from(shell, "127.0.0.2") as later:
            await asks(later)
        await asks(second)
    output = capsys.readouterr().out
    assert output.count("a client was turned away") == 1
    assert "limits.connections_per_address" in output


async def test_each_limit_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A client that one limit has turned away does not silence the warning of another limit."""
    admission = AdmissionLimits(connections=2)
    async with running_proxy(max_per_address=1, admission=admission) as shell, AsyncExitStack() as stack:
        for host, reason in (("127.0.0.2", CloseReason.ADDRESS_LIMIT), ("127.0.0.3", CloseReason.CONNECTION_LIMIT)):
            await asks(await stack.enter_async_context(await open_from(shell, host)))
            async with await open_from(shell, host) as refused:
                await is_closed(refused)
            await shell.closed(reason)
    output = capsys.readouterr().out
    assert output.count("a client was turned away") == 2
    assert "limits.connections_per_address" in output
    assert "limits.connections," in output


async def test_connections_that_fail_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that ends before it is joined with a broker connection no longer counts."""
    async with running_proxy(max_per_address=1) as shell:
        real, failing = shell.connection_manager.add, [OSError("as if"), RuntimeError("as if")]

        def add(*arguments: object) -> None:
            if failing:
                raise failing.pop()
            real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(shell.connection_manager, "add", add)
        for _ in range(2):
            async with await shell.connect() as client:
                await is_closed(client)
        await shell.round_trip()
        await holds(lambda: len(shell.connection_manager.per_address) == 0)


def header(host: str) -> bytes:
    return f"PROXY TCP4 {host} 10.9.9.9 1000 9092\r\n".encode()


async def test_host_of_proxy_header_counts() -> None:
    """Behind a load balancer, the host in the PROXY header has the limit, and not the load balancer."""
    async with proxy({"proxy_protocol": True}, max_per_address=1) as shell, AsyncExitStack() as stack:
        for number in range(3):
            client = await stack.enter_async_context(await shell.connect())
            await asks(client, header(f"10.0.0.{number}"))
        async with await shell.connect() as twice:
            await twice.send_all(header("10.0.0.1"))
            await is_closed(twice)
        await shell.closed(CloseReason.ADDRESS_LIMIT)
        async with await shell.connect() as nameless:
            await nameless.send_all(b"GET / HTTP/1.1\r\n\r\n")
            await is_closed(nameless)
        await shell.closed(CloseReason.PROXY_HEADER)
    assert len(shell.connection_manager.per_address) == 0


async def test_clients_beyond_the_rate_wait(capsys: pytest.CaptureFixture[str]) -> None:
    """Clients beyond the rate are served later, and none is refused. Connected clients are served meanwhile."""
    admission = AdmissionLimits(10_000, accept_rate=RATE)
    async with running_proxy(admission=admission) as shell, AsyncExitStack() as stack:
        bystander = await stack.enter_async_context(await shell.connect())
        await asks(bystander)
        burst_at = trio.current_time()
        clients = [await stack.enter_async_context(await shell.connect()) for _ in range(2 * RATE - 1)]
        await holds(lambda: shell.traffic.connections_opened > RATE + RATE // 2)
        assert trio.current_time() - burst_at > 0.45, "beyond a burst of RATE clients, clients must wait for the rate"
        await asks(bystander)
        for client in clients:
            await asks(client)
        assert shell.traffic.connections_opened == 2 * RATE
        assert sum(shell.counters.connections_closed.values()) == 0
        assert 0 < shell.counters.accept_throttled_seconds < trio.current_time() - burst_at + 0.1
    assert capsys.readouterr().out.count("clients wait to be accepted") == 1


async def test_low_rate_never_exceeds_burst() -> None:
    """A rate of one connection per second accepts one client, and the next one a second later."""
    async with running_proxy(admission=AdmissionLimits(10_000, accept_rate=1)) as shell, AsyncExitStack() as stack:
        began = trio.current_time()
        clients = [await stack.enter_async_context(await shell.connect()) for _ in range(3)]
        await asks(clients[0])
        await holds(lambda: shell.traffic.connections_opened == 2)
        assert trio.current_time() - began > 0.9


async def test_failed_handshake_ends_one_connection(capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected exception in a handshake closes its connection only, and the connection no longer counts."""

    class Failing(ListenerHandshakes):
        async def accept(
            self, descriptor: int, host: str, received: bytes, leads_to_broker: LeadsToBroker | None = None
        ) -> AcceptedEndpoint:
            if failures:
                raise failures.pop()
            return await super().accept(descriptor, host, received, leads_to_broker)

    failures: list[Exception] = [TypeError("as if")]
    with_handshakes = lambda counters: Failing(listener(), counters, 10)  # noqa: E731
    async with running_proxy(max_per_address=1, handshakes=with_handshakes) as shell:
        async with await shell.connect() as client:
            await is_closed(client)
        await shell.closed(CloseReason.ERROR)
        await shell.round_trip()
    assert "as if" in capsys.readouterr().out
