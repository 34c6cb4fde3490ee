"""The connection manager on real sockets: order, back-pressure, ends and failures."""

import math
import os
import random
import resource
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.metrics.listener_counters import CloseReason, ListenerCounters
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.dataplane.commands import Close, Command, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.connection import FLUSH_SECONDS, InactivityTimeouts
from group_sidecar.proxy.dataplane.connections import SWEEP_SECONDS, ConnectionManager
from group_sidecar.proxy.dataplane.draining import DRAIN_STEP_SECONDS, SWEEP_BATCH
from group_sidecar.proxy.dataplane.endpoint_socket import (
    MAX_READ_BYTES,
    SMALL_READ_BYTES,
    YIELD_AFTER_BYTES,
    EndpointSocket,
)
from group_sidecar.proxy.dataplane.event_loop import run_in_task
from group_sidecar.proxy.dataplane.outcomes import AnswerInOrder, Forward, Origin, Pass
from group_sidecar.proxy.dataplane.poller import Poller
from group_sidecar.proxy.dataplane.session import WORK_PER_TURN, Session
from tests.proxy.fakes import (
    LARGEST_FRAME,
    SESSION_LIMITS,
    SILENT_API,
    AnsweringDispatcher,
    PassthroughDispatcher,
    holds,
    read_exactly,
    read_frame,
    read_to_end,
    reply_frame,
    request_frame,
    reset,
    running_proxy,
    tcp_pair,
)

KERNEL_BUFFERS = 32 << 20
"""More bytes than the kernel buffers for two loopback connections (tcp_wmem and tcp_rmem allow 4 and 6 MiB each)."""


pytestmark = pytest.mark.usefixtures("each_way")


def payload(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@given(
    sizes=st.lists(st.one_of(st.integers(0, 40), st.integers(0, 300_000)), min_size=1, max_size=12),
    cuts=st.lists(st.one_of(st.integers(1, 30), st.integers(1, 200_000)), min_size=1, max_size=20),
)
@settings(max_examples=25, deadline=None)
async def test_bytes_arrive_in_order_for_any_chunking(sizes: list[int], cuts: list[int]) -> None:
    """However requests and replies are cut, all bytes arrive in order and are counted."""
    requests = b"".join(request_frame(i, payload(size)) for i, size in enumerate(sizes))
    replies = b"".join(reply_frame(i, payload(size)) for i, size in enumerate(sizes))
    reached_broker = bytearray()

    async def in_pieces(stream: trio.SocketStream, data: bytes) -> None:
        position = 0
        for cut in cycle(cuts):
            size = max(cut, len(data) // 500)  # Only short data is sent byte by byte.
            await stream.send_all(data[position : position + size])
            position += size
            if position >= len(data):
                return

    async def behaviour(stream: trio.SocketStream) -> None:
        reached_broker.extend(await read_exactly(stream, len(requests)))
        await in_pieces(stream, replies)
        await read_to_end(stream)

    async with running_proxy(behaviour) as shell, await shell.connect() as client, trio.open_nursery() as nursery:
        nursery.start_soon(in_pieces, client, requests)
        assert await read_exactly(client, len(replies)) == replies
        assert reached_broker == requests
        assert shell.counters.received_bytes == len(requests)
        assert shell.counters.sent_bytes == len(replies)


@pytest.mark.parametrize("ends", [True, False], ids=["and then its end", "and no end"])
@pytest.mark.parametrize(
    "size", [20, SMALL_READ_BYTES - 1, SMALL_READ_BYTES, SMALL_READ_BYTES + 1, 8 * SMALL_READ_BYTES]
)
async def test_pending_bytes_are_read_without_new_event(size: int, ends: bool) -> None:
    """Bytes that arrive together, even with the end of the stream, are all read without a further event."""
    requests = b"".join(request_frame(i, bytes(size - len(request_frame(i)))) for i in range(3))
    replies = b"".join(reply_frame(i, bytes(size - len(reply_frame(i)))) for i in range(3))

    def all_at_once(stream: trio.SocketStream, data: bytes) -> None:
        assert os.write(stream.socket.fileno(), data) == len(data)
        if ends:
            stream.socket.shutdown(socket.SHUT_WR)

    async def all_of(stream: trio.SocketStream, data: bytes) -> bytes:
        return await (read_to_end(stream) if ends else read_exactly(stream, len(data)))

    async def behaviour(stream: trio.SocketStream) -> None:
        assert await all_of(stream, requests) == requests
        all_at_once(stream, replies)
        await read_to_end(stream)

    async with running_proxy(behaviour) as shell, await shell.connect() as client:
        with trio.fail_after(10):
            all_at_once(client, requests)
            assert await all_of(client, replies) == replies


async def test_pipelined_requests_do_not_mix() -> None:
    """Each of many clients with pipelined requests gets its own replies in order."""

    async def ask(shell_address: tuple[str, int], number: int) -> None:
        async with await trio.open_tcp_stream(*shell_address) as client:
            bodies = [payload(number * 997 + i) for i in range(20)]
            await client.send_all(b"".join(request_frame(i, body) for i, body in enumerate(bodies)))
            for i, body in enumerate(bodies):
                assert await read_frame(client) == reply_frame(i, body)

    async with running_proxy() as shell:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, shell.address, number)
        await shell.closed(CloseReason.CLIENT_CLOSED, 20)


async def test_slow_client_stops_only_its_broker() -> None:
    """A client that does not read stops the reads from its broker connection. Other clients continue."""
    reply = reply_frame(1, bytes(2 * KERNEL_BUFFERS))
    sent = 0

    async def behaviour(stream: trio.SocketStream) -> None:
        nonlocal sent
        frame = await read_frame(stream)
        if frame != request_frame(1, b"much"):
            await stream.send_all(reply_frame(1, b"ping"))
            return
        for start in range(0, len(reply), 1 << 16):
            await stream.send_all(reply[start : start + (1 << 16)])
            sent += 1 << 16

    async with running_proxy(behaviour) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1, b"much"))
        await holds(lambda: shell.connection_manager.held_bytes > 0)
        for _ in range(20):
            await shell.round_trip()
        assert 0 < sent < KERNEL_BUFFERS
        assert shell.connection_manager.held_bytes <= MAX_READ_BYTES
        assert await read_exactly(client, len(reply)) == reply
        assert shell.connection_manager.held_bytes == 0


async def test_slow_broker_stops_its_client() -> None:
    """A broker that does not read stops the reads from its client."""
    proceed = trio.Event()
    request = request_frame(1, bytes(LARGEST_FRAME - 8))
    count = 2 * KERNEL_BUFFERS // len(request)
    sent = 0

    async def behaviour(stream: trio.SocketStream) -> None:
        await proceed.wait()
        for _ in range(count):
            assert await read_frame(stream) == request
        await stream.send_all(reply_frame(1))

    async with running_proxy(behaviour) as shell, await shell.connect() as client, trio.open_nursery() as nursery:

        async def write() -> None:
            nonlocal sent
            for _ in range(count):
                await client.send_all(request)
                sent += len(request)

        nursery.start_soon(write)
        await holds(lambda: shell.connection_manager.held_bytes > 0)
        await wait_all_tasks_blocked(0.05)
        assert sent < KERNEL_BUFFERS
        assert shell.connection_manager.held_bytes <= MAX_READ_BYTES
        proceed.set()
        assert await read_frame(client) == reply_frame(1)


async def test_local_answers_wait_for_slow_client() -> None:
    """Local answers for a client that does not read are bounded, and arrive once the client reads."""
    answer = 1 << 20
    async with (
        running_proxy(dispatcher=AnsweringDispatcher(answered=16, size=answer)) as shell,
        await shell.connect() as client,
    ):
        count = 64
        sent = 0

        async def ask() -> None:
            nonlocal sent
            for i in range(count):
                # One request per segment, because all requests of one read are answered together.
                await client.send_all(request_frame(i, bytes(MAX_READ_BYTES), api_key=16))
                sent += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await holds(lambda: shell.connection_manager.held_bytes > 0)
            await wait_all_tasks_blocked(0.05)
            assert shell.connection_manager.held_bytes <= 2 * (answer + MAX_READ_BYTES)
            for i in range(count):
                assert await read_frame(client) == reply_frame(i, bytes(answer))
        assert sent == count


async def test_gateway_classifies_each_fetch() -> None:
    """A gateway checks the version of every Fetch, even while it skips the inspection of Fetch replies."""
    ended = trio.Event()

    async def behaviour(stream: trio.SocketStream) -> None:
        frame = await read_frame(stream)
        assert await stream.receive_some(1) == b""
        ended.set()
        await stream.send_all(reply_frame(7, frame[12:]))

    async with running_proxy(behaviour) as shell, await shell.connect() as client:
        await client.send_all(request_frame(7, payload(100_000)))
        await client.send_eof()
        await ended.wait()
        assert await read_to_end(client) == reply_frame(7, payload(100_000))
        await shell.closed(CloseReason.CLIENT_CLOSED)


async def test_end_of_stream_follows_queued_bytes() -> None:
    """The broker gets the client's end of stream after all queued bytes."""
    proceed = trio.Event()
    requests = request_frame(1, bytes(LARGEST_FRAME - 8)) * 24

    async def behaviour(stream: trio.SocketStream) -> None:
        await proceed.wait()
        assert await read_to_end(stream) == requests

    async with running_proxy(behaviour) as shell, await shell.connect() as client, trio.open_nursery() as nursery:

        async def write() -> None:
            await client.send_all(requests)
            await client.send_eof()

        nursery.start_soon(write)
        await holds(lambda: shell.connection_manager.held_bytes > 0)
        proceed.set()
        assert await read_to_end(client) == b""


async def test_broker_close_closes_client() -> None:
    """A broker that closes the connection closes its client's connection."""

    async def behaviour(stream: trio.SocketStream) -> None:
        await stream.aclose()

    async with running_proxy(behaviour) as shell, await shell.connect() as client:
        assert await read_to_end(client) == b""
        await shell.closed(CloseReason.BROKER_CLOSED)


async def test_bytes_before_broker_close_arrive() -> None:
    """All bytes that the broker sent before its close reach the client."""
    reply = reply_frame(1, payload(KERNEL_BUFFERS))

    async def behaviour(stream: trio.SocketStream) -> None:
        await read_frame(stream)
        await stream.send_all(reply)

    async with running_proxy(behaviour) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1))
        await holds(lambda: shell.connection_manager.held_bytes > 0)
        assert await read_to_end(client) == reply
        await shell.closed(CloseReason.BROKER_CLOSED)


async def test_broker_reset_closes_client() -> None:
    """A broker that resets the connection closes its client's connection."""

    async def behaviour(stream: trio.SocketStream) -> None:
        await read_frame(stream)
        reset(stream)

    async with running_proxy(behaviour) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1))
        assert await read_to_end(client) == b""
        await shell.closed(CloseReason.BROKER_CLOSED)


async def test_broker_reset_during_write_closes_client() -> None:
    """A broker that resets the connection during a write closes its client's connection."""

    async def behaviour(stream: trio.SocketStream) -> None:
        await read_exactly(stream, 1)
        reset(stream)

    async with running_proxy(behaviour) as shell, await shell.connect() as client:
        with pytest.raises(trio.BrokenResourceError):
            await client.send_all(request_frame(1, bytes(LARGEST_FRAME - 8)) * 64)
        await shell.closed(CloseReason.BROKER_CLOSED)


async def test_client_reset_is_counted() -> None:
    """A client that resets its connection is counted as closed by the client."""
    async with running_proxy() as shell:
        client = await shell.connect()
        await client.send_all(request_frame(1, api_key=SILENT_API))
        await holds(lambda: shell.counters.received_bytes > 0)
        reset(client)
        await shell.closed(CloseReason.CLIENT_CLOSED)


async def test_unread_client_reset_is_noticed() -> None:
    """A client is not read while its answer waits, but its reset is noticed."""
    async with running_proxy(dispatcher=AnsweringDispatcher(answered=16)) as shell:
        client = await shell.connect()
        waiting = request_frame(1, api_key=SILENT_API) + request_frame(2, api_key=16)
        await client.send_all(waiting)
        await holds(lambda: shell.counters.received_bytes == len(waiting))
        await client.send_all(request_frame(3))
        await wait_all_tasks_blocked(0.05)
        assert shell.counters.received_bytes == len(waiting)
        reset(client)
        await shell.closed(CloseReason.CLIENT_CLOSED)


@pytest.mark.parametrize("length", [-1, 0, 7, LARGEST_FRAME + 1, 0x7FFFFFFF, 0x16040100])
async def test_bad_length_closes_one_connection(length: int) -> None:
    """An impossible frame length closes its connection only."""
    async with running_proxy() as shell, await shell.connect() as other, await shell.connect() as client:
        await other.send_all(request_frame(1, b"before"))
        assert await read_frame(other) == reply_frame(1, b"before")
        await client.send_all(length.to_bytes(4, "big", signed=True) + bytes(20))
        assert await read_to_end(client) == b""
        await shell.closed(CloseReason.BAD_FRAME_LENGTH)
        await other.send_all(request_frame(2, b"after"))
        assert await read_frame(other) == reply_frame(2, b"after")


@pytest.mark.parametrize("length", [3, 500])
async def test_truncated_frame_closes_one_connection(length: int) -> None:
    """A truncated frame closes its connection only."""
    async with running_proxy() as shell, await shell.connect() as other:
        async with await shell.connect() as client:
            await client.send_all(request_frame(1, bytes(1000))[:length])
            await client.send_eof()
            await shell.closed(CloseReason.TRUNCATED_FRAME)
            assert await read_to_end(client) == b""
        await other.send_all(request_frame(2))
        assert await read_frame(other) == reply_frame(2)


async def test_failing_session_closes_one_connection(capsys: pytest.CaptureFixture[str]) -> None:
    """An exception in a session is logged once and closes its connection only."""
    async with running_proxy(dispatcher=AnsweringDispatcher(failing=66)) as shell, await shell.connect() as other:
        async with await shell.connect() as client:
            await client.send_all(request_frame(1, api_key=66))
            assert await read_to_end(client) == b""
        await shell.closed(CloseReason.ERROR)
        await other.send_all(request_frame(2))
        assert await read_frame(other) == reply_frame(2)
        await shell.round_trip()
    assert capsys.readouterr().out.count("a connection failed") == 1


class FailingAtTheEnd(PassthroughDispatcher):
    """A dispatcher that fails at the end of a connection."""

    def gone(self, notes: object, origin: Origin, now: float) -> None:
        raise RuntimeError("a dispatcher that fails")


async def test_failing_close_affects_no_other() -> None:
    """An exception while a session closes does not affect later connections."""
    async with running_proxy(dispatcher=FailingAtTheEnd()) as shell:
        await shell.round_trip()
        await shell.closed(CloseReason.CLIENT_CLOSED)
        await shell.round_trip()
        await shell.closed(CloseReason.CLIENT_CLOSED, 2)
        assert shell.connection_manager.connections == 0


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    """Raises the limit of open files as far as possible. Yields how many connections of four files it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else 1 << 16
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    yield most // 4 - 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_drain_survives_failing_close() -> None:
    """Draining continues when a session fails while it closes."""
    async with running_proxy(dispatcher=FailingAtTheEnd()) as shell, await shell.connect():
        await holds(lambda: shell.connection_manager.connections == 1)
        await shell.connection_manager.drain(30)
        await shell.closed(CloseReason.SHUTDOWN)


async def test_thousand_idle_connections_still_work(many_descriptors: int) -> None:
    """A thousand idle connections stay open, and each of them still works afterwards."""
    count = min(1_000, many_descriptors)
    async with running_proxy() as shell, trio.open_nursery() as nursery:
        clients: list[trio.SocketStream] = []

        async def open_some() -> None:
            for _ in range(count // 10):
                clients.append(await shell.connect())

        async with trio.open_nursery() as opening:
            for _ in range(10):
                opening.start_soon(open_some)
        await holds(lambda: shell.connection_manager.connections == count)
        await shell.round_trip()
        for i, client in enumerate(clients):
            await client.send_all(request_frame(i))
        for i, client in enumerate(clients):
            assert await read_frame(client) == reply_frame(i)
        for client in clients:
            nursery.start_soon(client.aclose)
        await shell.closed(CloseReason.CLIENT_CLOSED, count + 1)


class Quiet:
    """A connection without traffic. Calls `looked` at each check."""

    close_reason = None
    authentication_due = math.inf
    counted_bytes = 0
    session = SimpleNamespace(kept_bytes=0)

    def __init__(self, looked: Callable[[], None]) -> None:
        self._looked = looked

    def overdue(self, now: float, timeouts: InactivityTimeouts) -> None:
        self._looked()

    def drain(self, now: float, quiet: float) -> None:
        self._looked()

    def finish(self, reason: CloseReason) -> None:
        pass


@pytest.mark.parametrize("draining", [False, True])
async def test_sweep_yields_to_other_tasks(draining: bool, autojump_clock: MockClock) -> None:
    """A sweep or drain over all connections yields to other tasks after a bounded number of connections."""
    looked: Counter[int] = Counter()
    turn = 0

    def look() -> None:
        looked[turn] += 1

    connection_manager = ConnectionManager(Poller())
    links: dict[int, Any] = {number: Quiet(look) for number in range(4 * SWEEP_BATCH)}
    connection_manager._connections.update(links)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            *((connection_manager.drain, 2 * DRAIN_STEP_SECONDS) if draining else (connection_manager.run,))
        )
        await trio.sleep(0 if draining else SWEEP_SECONDS)
        while looked.total() < len(links):
            turn += 1
            assert turn < 1_000, "the sweep did not reach all connections"
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert max(looked.values()) <= 2 * SWEEP_BATCH  # Trio runs ready tasks in any order.


async def test_busy_connection_leaves_others_turns() -> None:
    """Other connections make progress while one connection sends without pause."""

    async def flood(stream: trio.SocketStream) -> None:
        while True:
            await stream.send_all(request_frame(1, bytes(LARGEST_FRAME - 8), api_key=SILENT_API))

    async with running_proxy() as shell, await shell.connect() as busy, trio.open_nursery() as nursery:
        nursery.start_soon(flood, busy)
        await holds(lambda: shell.counters.received_bytes > MAX_READ_BYTES)
        for _ in range(50):
            await shell.round_trip()
        nursery.cancel_scope.cancel()


async def test_long_transfer_yields_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long transfer yields the processor at most once per YIELD_AFTER_BYTES. Short transfers do not yield."""
    many, work, yielded = 8, "", Counter[str]()
    reply = reply_frame(1, bytes(many * YIELD_AFTER_BYTES))

    async def behaviour(stream: trio.SocketStream) -> None:
        while frame := await read_frame(stream):
            await stream.send_all(reply if frame == request_frame(1, b"much") else reply_frame(1, b"ping"))

    async with running_proxy(behaviour) as shell, await shell.connect() as client:
        monkeypatch.setattr(os, "sched_yield", lambda: yielded.update([work]))
        for work in ("ping", "much", "ping again"):
            await client.send_all(request_frame(1, work.encode()))
            await read_frame(client)
    assert yielded.keys() == {"much"}
    assert 1 <= yielded["much"] <= many


async def test_drain_closes_idle_and_waits_for_replies() -> None:
    """Draining closes idle connections at once and waits for pending replies of others."""
    answer = trio.Event()

    async def behaviour(stream: trio.SocketStream) -> None:
        frame = await read_frame(stream)
        if frame == request_frame(1, b"slow"):
            await answer.wait()
        await stream.send_all(reply_frame(1, b"done"))
        await read_to_end(stream)

    async with running_proxy(behaviour) as shell, await shell.connect() as idle, await shell.connect() as busy:
        await idle.send_all(request_frame(1))
        await read_frame(idle)
        await busy.send_all(request_frame(1, b"slow"))
        await holds(lambda: len(shell.broker.streams) == 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shell.connection_manager.drain, 30)
            assert await read_to_end(idle) == b""
            await shell.closed(CloseReason.SHUTDOWN)
            answer.set()
            assert await read_to_end(busy) == reply_frame(1, b"done")
        await shell.closed(CloseReason.SHUTDOWN, 2)


async def test_drain_skips_closed_clients() -> None:
    """Draining does not wait for a client that has shut down its sending side."""

    async def behaviour(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with running_proxy(behaviour) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1))
        await client.send_eof()
        await holds(lambda: shell.counters.received_bytes > 0)
        await shell.connection_manager.drain(30)
        assert shell.connection_manager.connections == 0


async def test_drain_ends_after_timeout() -> None:
    """Draining ends after its timeout, even if connections remain."""
    async with running_proxy() as shell, await shell.connect() as client:
        await client.send_all(request_frame(1, api_key=SILENT_API))
        await holds(lambda: shell.counters.received_bytes > 0)
        await shell.connection_manager.drain(0.1)
        assert shell.connection_manager.connections == 1


async def test_cancelled_manager_closes_connections() -> None:
    """Cancelling the connection manager closes all connections as a shutdown."""
    async with running_proxy() as shell:
        client = await shell.connect()
        await holds(lambda: shell.connection_manager.connections == 1)
    async with client:
        assert shell.counters.connections_closed[CloseReason.SHUTDOWN] == 1
        assert await read_to_end(client) == b""


async def test_idle_timeout_spares_waiting_connections(mock_clock: MockClock) -> None:
    """The idle timeout closes idle connections, but not connections that wait for a reply."""
    async with (
        running_proxy(timeouts=InactivityTimeouts(idle=60)) as shell,
        await shell.connect() as idle,
        await shell.connect() as waiting,
    ):
        await idle.send_all(request_frame(1))
        await read_frame(idle)
        await waiting.send_all(request_frame(1, api_key=SILENT_API))
        await holds(lambda: shell.counters.received_bytes == 2 * len(request_frame(1)))
        mock_clock.jump(59)
        await wait_all_tasks_blocked(0.05)
        assert shell.connection_manager.connections == 2
        mock_clock.jump(2 + SWEEP_SECONDS)
        assert await read_to_end(idle) == b""
        assert shell.counters.connections_closed[CloseReason.IDLE] == 1
        assert shell.connection_manager.connections == 1


ANSWER_AND_END = request_frame(1, api_key=16) + bytes.fromhex("ffffffff") + bytes(8)
"""A request, followed by bytes that end the connection."""


async def test_last_bytes_arrive_before_close() -> None:
    """The client gets all pending bytes before its connection closes."""
    async with running_proxy(dispatcher=AnsweringDispatcher(answered=16, size=KERNEL_BUFFERS)) as shell:
        async with await shell.connect() as client:
            await client.send_all(ANSWER_AND_END)
            await holds(lambda: shell.connection_manager.held_bytes > 0)
            assert await read_to_end(client) == reply_frame(1, bytes(KERNEL_BUFFERS))
        await shell.closed(CloseReason.BAD_FRAME_LENGTH)


async def test_unread_last_bytes_are_dropped(mock_clock: MockClock) -> None:
    """A connection whose client does not read the last bytes closes after FLUSH_SECONDS."""
    async with running_proxy() as shell:
        async with await shell.connect() as client:
            await holds(lambda: shell.connection_manager.connections == 1)
            apply_commands(
                shell.connection_manager, ToClient(bytes(KERNEL_BUFFERS)), Close(CloseReason.BAD_FRAME_LENGTH)
            )
            mock_clock.jump(FLUSH_SECONDS - 1)
            await wait_all_tasks_blocked(0.05)
            assert shell.connection_manager.connections == 1
            mock_clock.jump(1 + SWEEP_SECONDS)
            await holds(lambda: shell.connection_manager.connections == 0)
            assert len(await read_to_end(client)) < KERNEL_BUFFERS
        assert shell.counters.connections_closed[CloseReason.BAD_FRAME_LENGTH] == 1


def handed(sock: socket.socket) -> EndpointSocket:
    """Returns the descriptor of a socket, as the connection manager takes it."""
    sock.setblocking(False)
    return EndpointSocket(sock.detach())


async def test_broker_reset_before_first_event(nursery: trio.Nursery) -> None:
    """A broker that reset its connection before the first event closes its client's connection."""
    (client, at_pump), (to_broker, broker) = tcp_pair(), tcp_pair()
    client.sendall(request_frame(1))
    broker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    broker.close()
    # Both sockets are ready from the start. The client is served first, so its bytes cannot be passed on.
    traffic, counters = TrafficCounters(), ListenerCounters("clients")
    poller = Poller()
    connection_manager = ConnectionManager(poller)
    connection_manager.add(
        handed(at_pump),
        handed(to_broker),
        Session(PassthroughDispatcher(), traffic, Origin("127.0.0.1"), SESSION_LIMITS),
        counters,
    )
    nursery.start_soon(run_in_task, poller)
    nursery.start_soon(connection_manager.run)
    await holds(lambda: connection_manager.connections == 0)
    assert counters.connections_closed[CloseReason.BROKER_CLOSED] == 1
    with client:
        assert client.recv(1) == b""
    nursery.cancel_scope.cancel()


def apply_commands(connection_manager: ConnectionManager, *commands: Command) -> None:
    """Makes the only connection execute commands of a session."""
    [connection] = connection_manager._connections.values()
    connection.execute([*commands])


def quiet(traffic: TrafficCounters) -> Session:
    return Session(PassthroughDispatcher(), traffic, Origin("127.0.0.1"), SESSION_LIMITS)


async def test_shutdown_follows_queued_bytes(nursery: trio.Nursery) -> None:
    """A shutdown of the broker side that is queued together with bytes follows these bytes."""
    (client, at_pump), (to_broker, broker) = tcp_pair(), tcp_pair()
    traffic, counters = TrafficCounters(), ListenerCounters("clients")
    poller = Poller()
    connection_manager = ConnectionManager(poller)
    connection_manager.add(handed(at_pump), handed(to_broker), quiet(traffic), counters)
    nursery.start_soon(run_in_task, poller)
    nursery.start_soon(connection_manager.run)
    with client:
        apply_commands(connection_manager, ToUpstream(bytes(KERNEL_BUFFERS)), ShutUpstream())
        assert connection_manager.held_bytes > 0
        async with trio.SocketStream(trio.socket.from_stdlib_socket(broker)) as stream:
            assert len(await read_to_end(stream)) == KERNEL_BUFFERS
    nursery.cancel_scope.cancel()


async def test_broker_reset_keeps_clients_bytes(
    nursery: trio.Nursery,
) -> None:
    """After a broker reset while both sides are blocked, the client still gets all its queued bytes."""
    (client, at_pump), (to_broker, broker) = tcp_pair(), tcp_pair()
    traffic, counters = TrafficCounters(), ListenerCounters("clients")
    poller = Poller()
    connection_manager = ConnectionManager(poller)
    kept = bytes(KERNEL_BUFFERS)
    connection_manager.add(handed(at_pump), handed(to_broker), quiet(traffic), counters)
    nursery.start_soon(run_in_task, poller)
    nursery.start_soon(connection_manager.run)
    apply_commands(connection_manager, ToClient(kept), ToUpstream(kept))
    assert connection_manager.held_bytes > KERNEL_BUFFERS
    broker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    broker.close()
    await holds(lambda: connection_manager.held_bytes < KERNEL_BUFFERS)
    async with trio.SocketStream(trio.socket.from_stdlib_socket(client)) as stream:
        assert len(await read_to_end(stream)) == KERNEL_BUFFERS
    assert counters.connections_closed[CloseReason.BROKER_CLOSED] == 1
    nursery.cancel_scope.cancel()


async def test_unconnected_sockets_are_refused() -> None:
    """Sockets that are not connected are refused with OSError."""
    connection_manager = ConnectionManager(Poller())
    left, right = socket.socketpair()
    gone = left.detach()
    os.close(gone)
    with right, pytest.raises(OSError):
        connection_manager.add(
            EndpointSocket(gone),
            EndpointSocket(right.fileno()),
            Session(PassthroughDispatcher(), TrafficCounters(), Origin("127.0.0.1"), SESSION_LIMITS),
            ListenerCounters("clients"),
        )
    assert connection_manager.connections == 0


async def test_pipelined_local_answers_are_bounded() -> None:
    """A client with many requests that reads nothing gets a bounded amount of answers. Others make progress."""
    size, count = 100_000, 2_000
    async with (
        running_proxy(dispatcher=AnsweringDispatcher(answered=16, size=size)) as shell,
        await shell.connect() as client,
    ):
        await client.send_all(b"".join(request_frame(i, api_key=16) for i in range(count)))
        await holds(lambda: shell.connection_manager.held_bytes > 0)
        for _ in range(20):
            await shell.round_trip()
        assert shell.connection_manager.held_bytes <= 2 * WORK_PER_TURN + size + MAX_READ_BYTES
        for i in range(count):
            assert await read_frame(client) == reply_frame(i, bytes(size))
        await client.send_all(request_frame(7, b"after"))
        assert await read_frame(client) == reply_frame(7, b"after")


class Payload(bytes):
    """Bytes that count their deletion in `gone`."""

    gone = 0

    def __del__(self) -> None:
        Payload.gone += 1


class PayloadDispatcher(AnsweringDispatcher):
    """Answers the first request of its API with `payload`."""

    def __init__(self, payload: Payload) -> None:
        super().__init__(answered=16)
        self.payload: Payload | None = payload

    def request(self, frame: bytes, origin: Origin, now: float) -> Pass | Forward | AnswerInOrder:
        payload, self.payload = self.payload, None
        assert payload is not None
        return AnswerInOrder(lambda _: payload)


async def test_unread_bytes_are_freed_with_connection(mock_clock: MockClock) -> None:
    """Bytes that a client did not read are freed when its connection closes."""
    payload = Payload(reply_frame(1, bytes(2 * KERNEL_BUFFERS)))
    dispatcher, gone = PayloadDispatcher(payload), Payload.gone
    del payload
    async with running_proxy(dispatcher=dispatcher) as shell:
        client = await shell.connect()
        await client.send_all(request_frame(1, api_key=16))
        await holds(lambda: shell.connection_manager.held_bytes > 0)
        mock_clock.jump(SWEEP_SECONDS)
        await wait_all_tasks_blocked(0.05)
        reset(client)
        await shell.closed(CloseReason.CLIENT_CLOSED)
        assert Payload.gone == gone + 1
