"""How connections end while the sidecar stops: in steps, between two frames, and without a reset."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.codecs.headers import REQUEST_HEAD
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane.delivered_closes import DELIVERY_SECONDS, DeliveredCloses
from group_sidecar.proxy.dataplane.draining import DRAIN_STEP_SECONDS, DRAIN_STEPS_SHARE
from group_sidecar.proxy.dataplane.endpoint_socket import EndpointSocket
from group_sidecar.proxy.dataplane.event_loop import run_in_task
from group_sidecar.proxy.dataplane.poller import Poller
from tests.proxy.fakes import (
    SILENT_API,
    RunningProxy,
    holds,
    read_exactly,
    read_frame,
    read_to_end,
    reply_frame,
    request_frame,
    running_proxy,
    tcp_pair,
)

CLIENTS = 10
PIECE = 4_096
"""The bytes of one read of a client. Small reads leave replies in the kernel's buffers."""
pytestmark = pytest.mark.usefixtures("each_way")


@dataclass
class PipeliningClient:
    """A client that sends requests without waiting for replies, until the connection ends.

    Attributes:
        sent: the number of requests that were sent, the last one perhaps in part.
        received: all bytes that were received.
    """

    number: int
    size: int
    sent: int = 0
    received: bytes = b""

    async def run(self, shell: RunningProxy) -> None:
        """Sends and receives until the end of the stream. Raises BrokenResourceError if the connection is reset."""
        async with await shell.connect() as stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._send, stream)
            chunks = []
            while chunk := await stream.receive_some(PIECE):
                chunks.append(chunk)
            self.received = b"".join(chunks)
            nursery.cancel_scope.cancel()

    async def _send(self, stream: trio.SocketStream) -> None:
        try:
            while True:
                await stream.send_all(request_frame(self.sent, self.payload))
                self.sent += 1
        except trio.BrokenResourceError:
            return  # The sidecar does not read any more. Only the receiving side must see an orderly end.

    @property
    def payload(self) -> bytes:
        """The payload of all requests. It begins with the number of the client."""
        return bytes([self.number]) * self.size


@pytest.mark.parametrize("size", [100, 100_000])
async def test_drain_completes_pipelined_requests(size: int) -> None:
    """Each request that reached the broker gets its whole reply, and no client sees a reset."""
    reached = [0] * CLIENTS

    async def behaviour(stream: trio.SocketStream) -> None:
        try:
            while True:
                frame = await read_frame(stream)
                reached[frame[REQUEST_HEAD.size]] += 1
                *_, correlation = REQUEST_HEAD.unpack_from(frame)
                await stream.send_all(reply_frame(correlation, frame[REQUEST_HEAD.size :]))
        except EOFError:
            return

    clients = [PipeliningClient(number, size) for number in range(CLIENTS)]
    async with running_proxy(behaviour) as shell, trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(client.run, shell)
        await holds(lambda: min(reached) > 20)
        with trio.fail_after(60):
            await shell.connection_manager.drain(30)
        await shell.closed(CloseReason.SHUTDOWN, CLIENTS)
    for client, count in zip(clients, reached, strict=True):
        assert client.sent > count
        assert client.received == b"".join(reply_frame(number, client.payload) for number in range(count))


def has_connections(shell: RunningProxy, count: int) -> bool:
    return shell.connection_manager.connections == count


async def at_most(shell: RunningProxy, count: int) -> None:
    """Waits until no more than `count` connections are open."""
    await holds(lambda: shell.connection_manager.connections <= count)


@asynccontextmanager
async def idle_clients(shell: RunningProxy, count: int) -> AsyncIterator[list[trio.SocketStream]]:
    """Opens idle client connections. The sidecar has accepted them in this order."""
    clients = []
    for number in range(count):
        clients.append(await shell.connect())
        await holds(partial(has_connections, shell, number + 1))
    yield clients
    for client in clients:
        await client.aclose()


@asynccontextmanager
async def draining(shell: RunningProxy, seconds: float, clock: MockClock) -> AsyncIterator[None]:
    """Drains while the block runs. After the block, time passes until the drain has ended."""
    ended = False

    async def drain() -> None:
        nonlocal ended
        await shell.connection_manager.drain(seconds)
        ended = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain)
        yield
        while not ended:
            clock.jump(DRAIN_STEP_SECONDS)
            await wait_all_tasks_blocked(0.01)


@pytest.mark.parametrize(("count", "seconds"), [(40, 4.0), (400, 4.0), (5, 4.0)])
async def test_drain_closes_in_steps(count: int, seconds: float, mock_clock: MockClock) -> None:
    """Each step ends the oldest connections. The steps take at most the first half of the time."""
    steps = int(seconds * DRAIN_STEPS_SHARE / DRAIN_STEP_SECONDS)
    batch = -(-count // steps)
    async with (
        running_proxy() as shell,
        idle_clients(shell, count) as clients,
        draining(shell, seconds, mock_clock),
    ):
        for step in range(1, -(-count // batch) + 1):
            await at_most(shell, count - step * batch)
            await wait_all_tasks_blocked(0.01)
            assert shell.connection_manager.connections == max(0, count - step * batch)
            assert await read_to_end(clients[(step - 1) * batch]) == b""
            mock_clock.jump(DRAIN_STEP_SECONDS)
        await shell.closed(CloseReason.SHUTDOWN, count)


async def test_undrained_connection_is_served(mock_clock: MockClock) -> None:
    """A connection is served as usual until its step."""
    async with (
        running_proxy() as shell,
        idle_clients(shell, 2) as (first, second),
        draining(shell, 4, mock_clock),
    ):
        assert await read_to_end(first) == b""
        await second.send_all(request_frame(1, b"ping"))
        assert await read_frame(second) == reply_frame(1, b"ping")
        mock_clock.jump(DRAIN_STEP_SECONDS)
        assert await read_to_end(second) == b""


async def test_drain_cuts_endless_request_at_end(mock_clock: MockClock) -> None:
    """The drain waits until the end of its time for a reply that never comes."""
    async with running_proxy() as shell, shell_connection(shell) as client:
        await client.send_all(request_frame(1, api_key=SILENT_API))
        await holds(lambda: shell.counters.received_bytes > 0)
        async with draining(shell, 4, mock_clock):
            began = trio.current_time()
        assert trio.current_time() - began == pytest.approx(4, abs=2 * DRAIN_STEP_SECONDS)
        assert shell.connection_manager.connections == 1


@asynccontextmanager
async def shell_connection(shell: RunningProxy) -> AsyncIterator[trio.SocketStream]:
    """Opens a client connection."""
    async with await shell.connect() as client:
        await holds(lambda: shell.connection_manager.connections == 1)
        yield client


async def received_by(shell: RunningProxy, count: int) -> None:
    """Waits until the sidecar has received `count` bytes from clients."""
    await holds(lambda: shell.counters.received_bytes == count)


async def test_drain_sends_backlog_of_unanswered_requests() -> None:
    """Bytes that the broker has not accepted yet are sent before the connection ends, even if no reply is due.

    A Produce request with acks=0 has no reply.
    """
    read_on, sent, received = trio.Event(), 0, bytearray()
    produce = request_frame(1, b"\0\1c\0\0" + bytes(16_000), api_key=0)  # Produce v0 of client "c" with acks=0.

    async def behaviour(stream: trio.SocketStream) -> None:
        await read_on.wait()
        while chunk := await stream.receive_some(1 << 16):
            received.extend(chunk)

    async with running_proxy(behaviour) as shell, shell_connection(shell) as client:
        [connection] = shell.connection_manager._connections.values()
        while not connection.upstream.backlog:
            await client.send_all(produce)
            sent += len(produce)
            await received_by(shell, sent)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shell.connection_manager.drain, 30)
            await trio.sleep(3 * DRAIN_STEP_SECONDS)
            read_on.set()
        await holds(lambda: len(received) == sent)


# Closing without a reset.


@asynccontextmanager
async def closing() -> AsyncIterator[tuple[DeliveredCloses, socket.socket, EndpointSocket]]:
    """Yields the closes, a client's socket, and the sidecar's end of the same connection."""
    poller = Poller()
    ours, theirs = tcp_pair()
    theirs.setblocking(False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_in_task, poller)
        with ours:
            yield DeliveredCloses(poller), ours, EndpointSocket(theirs.detach())
        nursery.cancel_scope.cancel()


def fill(fd: int) -> int:
    """Sends until the peer accepts no more. Returns how many bytes were sent."""
    sent = 0
    try:
        while True:
            sent += os.write(fd, bytes(1 << 16))
    except BlockingIOError:
        return sent


async def all_closed(closes: DeliveredCloses) -> None:
    """Waits until no socket waits for an acknowledgement."""

    def swept() -> bool:
        closes.sweep(0)
        return not closes

    await holds(swept)


async def test_idle_socket_closes_at_once() -> None:
    """A socket whose peer has received everything closes at once, and the peer reads the end."""
    async with closing() as (closes, ours, endpoint):
        ours.sendall(b"unread")
        closes.close(endpoint, 0)
        await all_closed(closes)
        assert ours.recv(1) == b""


async def test_socket_waits_for_slow_reader() -> None:
    """A socket stays open until a slow client has received all bytes. What the client sends meanwhile is dropped."""
    async with closing() as (closes, ours, endpoint):
        sent = fill(endpoint.fd)
        ours.sendall(b"unread")
        closes.close(endpoint, 0)
        closes.sweep(DELIVERY_SECONDS)
        assert len(closes) == 1
        ours.sendall(b"more")
        async with trio.SocketStream(trio.socket.from_stdlib_socket(ours.dup())) as stream:
            assert await read_exactly(stream, sent) == bytes(sent)
            await all_closed(closes)
            assert await read_to_end(stream) == b""


async def test_socket_closes_at_deadline() -> None:
    """A socket whose peer receives nothing closes after DELIVERY_SECONDS."""
    async with closing() as (closes, _, endpoint):
        fill(endpoint.fd)
        closes.close(endpoint, 5)
        closes.sweep(5 + DELIVERY_SECONDS)
        assert len(closes) == 1
        closes.sweep(5.1 + DELIVERY_SECONDS)
        assert len(closes) == 0


async def test_deadline_moves_while_client_reads() -> None:
    """A client that goes on reading gets all bytes, however long it takes."""
    async with closing() as (closes, ours, endpoint):
        sent = fill(endpoint.fd)
        closes.close(endpoint, 0)
        ours.settimeout(10)
        ours.sendall(b"unread")  # If the socket closes while it contains unread bytes, the connection is reset.
        now, received = 0.0, 0
        while closes:
            before = endpoint.unacknowledged_bytes
            while endpoint.unacknowledged_bytes == before:
                received += len(ours.recv(1 << 16))
            now += DELIVERY_SECONDS + 0.1
            closes.sweep(now)
        while chunk := ours.recv(1 << 16):
            received += len(chunk)
        assert received == sent


async def test_socket_closes_with_its_client() -> None:
    """A socket closes when its client has closed, even if the client did not read everything."""
    async with closing() as (closes, ours, endpoint):
        fill(endpoint.fd)
        closes.close(endpoint, 0)
        ours.close()
        await holds(lambda: len(closes) == 0)
