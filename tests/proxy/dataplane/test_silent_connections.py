"""Connections without traffic: how long they may stay open with and without pending replies, and how they drain."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane.connection import InactivityTimeouts
from group_sidecar.proxy.dataplane.connections import SWEEP_SECONDS
from group_sidecar.proxy.handlers.observer import JOIN_SLACK_SECONDS
from tests.proxy.dataplane.playbook import (
    Line,
    ScriptedDispatcher,
    SessionDriver,
    broker_state,
    joining,
    reply,
    request,
    to_client,
)
from tests.proxy.fakes import (
    AnsweringDispatcher,
    PassthroughDispatcher,
    RunningProxy,
    holds,
    read_frame,
    read_to_end,
    reply_frame,
    request_frame,
    running_proxy,
)

SILENCE = InactivityTimeouts(idle=1000, stalled=30, reply=200)
PARKED_API = 11


class ParkingDispatcher(PassthroughDispatcher):
    """A dispatcher for which the broker may park requests of one API."""

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        return "parked" if api_key == PARKED_API else None

    def max_reply_seconds(self, note: Any) -> float:
        return 500.0 if note == "parked" else 0.0


async def accepts_and_never_answers(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


@asynccontextmanager
async def standing(sent: bytes, *, ends: bool = False) -> AsyncIterator[RunningProxy]:
    """Runs a client that has sent these bytes, in front of a broker that never answers."""
    dispatcher = ParkingDispatcher()
    async with (
        running_proxy(accepts_and_never_answers, dispatcher=dispatcher, timeouts=SILENCE) as shell,
        await shell.connect() as client,
    ):
        await client.send_all(sent)
        if ends:
            await client.send_eof()
        await holds(lambda: shell.counters.received_bytes == len(sent))
        await wait_all_tasks_blocked(0.05)
        yield shell


@pytest.mark.parametrize(
    ("sent", "ends", "seconds", "reason"),
    [
        (b"", False, 1000, CloseReason.IDLE),
        (request_frame(1, bytes(5000))[:50], False, 30, CloseReason.STALLED),
        (request_frame(1)[:3], False, 30, CloseReason.STALLED),
        (request_frame(1), True, 30, CloseReason.CLIENT_CLOSED),
        (request_frame(1, api_key=PARKED_API), True, 30, CloseReason.CLIENT_CLOSED),
        (request_frame(1), False, 200, CloseReason.NO_REPLY),
        (request_frame(1, api_key=PARKED_API), False, 500, CloseReason.NO_REPLY),
    ],
)
async def test_silent_connection_closes_after_timeout(
    mock_clock: MockClock, sent: bytes, ends: bool, seconds: float, reason: CloseReason
) -> None:
    """A silent connection closes after the timeout of its state (idle, stalled or pending reply), with the matching
    reason.
    """
    async with standing(sent, ends=ends) as shell:
        mock_clock.jump(seconds - 1 - SWEEP_SECONDS)
        await wait_all_tasks_blocked(0.05)
        assert shell.connection_manager.connections == 1
        mock_clock.jump(2 + 2 * SWEEP_SECONDS)
        await shell.closed(reason)
        assert shell.connection_manager.connections == 0


async def test_client_without_reads_is_closed(mock_clock: MockClock) -> None:
    """A connection whose client reads nothing closes after the reply timeout."""
    dispatcher = AnsweringDispatcher(answered=16, size=64 << 20)
    async with running_proxy(dispatcher=dispatcher, timeouts=SILENCE) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1, api_key=16))
        await holds(lambda: shell.connection_manager.held_bytes > 0)
        mock_clock.jump(199 - SWEEP_SECONDS)
        await wait_all_tasks_blocked(0.05)
        assert shell.connection_manager.connections == 1
        mock_clock.jump(2 + 2 * SWEEP_SECONDS)
        await shell.closed(CloseReason.NO_REPLY)
        assert shell.connection_manager.held_bytes == 0


async def test_unread_client_that_left_is_closed(mock_clock: MockClock) -> None:
    """A client that left while a parked request paused its reading is closed after the stalled timeout."""

    class Dispatcher(AnsweringDispatcher):
        def max_reply_seconds(self, note: Any) -> float:
            return 500.0

    dispatcher = Dispatcher(answered=16)
    async with (
        running_proxy(accepts_and_never_answers, dispatcher=dispatcher, timeouts=SILENCE) as shell,
        await shell.connect() as client,
    ):
        await client.send_all(request_frame(1, api_key=PARKED_API) + request_frame(2, bytes(100), api_key=16))
        await holds(lambda: shell.connection_manager.held_bytes >= 100)
        await client.send_eof()
        await wait_all_tasks_blocked(0.05)
        mock_clock.jump(29 - SWEEP_SECONDS)
        await wait_all_tasks_blocked(0.05)
        assert shell.connection_manager.connections == 1
        mock_clock.jump(2 + 2 * SWEEP_SECONDS)
        await shell.closed(CloseReason.CLIENT_CLOSED)
        assert shell.connection_manager.held_bytes == 0


async def test_no_timeouts_keep_silent_connection(mock_clock: MockClock) -> None:
    """Without timeouts, a silent connection stays open."""
    async with running_proxy(accepts_and_never_answers) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1))
        await holds(lambda: shell.counters.received_bytes > 0)
        mock_clock.jump(1e6)
        await wait_all_tasks_blocked(0.05)
        assert shell.connection_manager.connections == 1


def test_join_timeout_extends_reply_timeout() -> None:
    """A pending join may wait for its own rebalance or session timeout if this is longer than the reply timeout."""
    line = Line(broker_state())
    assert line.session.max_reply_seconds(7) == 7
    line.sends(joining(), 3)
    assert line.session.max_reply_seconds(7) == 60 + JOIN_SLACK_SECONDS
    assert line.session.max_reply_seconds(700) == 700
    line = Line(broker_state())
    first = JoinGroupRequest(group_id="g", session_timeout_ms=90_000, member_id="", protocol_type="", protocols=())
    line.sends(first, 0)
    assert line.session.max_reply_seconds(7) == 90 + JOIN_SLACK_SECONDS
    line = Line(broker_state())
    line.sends(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
    assert line.session.max_reply_seconds(7) == 7


# Draining.


async def test_drain_closes_busy_client_between_frames() -> None:
    """Draining closes a client that sends without pause, between two frames."""
    sent = answered = 0

    async with running_proxy() as shell, await shell.connect() as client, trio.open_nursery() as nursery:

        async def ask() -> None:
            nonlocal sent
            try:
                while True:
                    await client.send_all(request_frame(sent, bytes(100_000)))
                    sent += 1
            except trio.BrokenResourceError:
                pass

        async def listen() -> None:
            nonlocal answered
            try:
                while True:
                    assert await read_frame(client) == reply_frame(answered, bytes(100_000))
                    answered += 1
            except (EOFError, trio.BrokenResourceError):
                pass

        nursery.start_soon(ask)
        nursery.start_soon(listen)
        await holds(lambda: answered > 20)
        with trio.fail_after(20):
            await shell.connection_manager.drain(60)
        assert shell.connection_manager.connections == 0
        assert shell.counters.connections_closed[CloseReason.SHUTDOWN] == 1


async def test_drain_stops_reads_and_delivers_reply() -> None:
    """While draining, the client is not read, and its last pending reply arrives."""
    answer = trio.Event()

    async def behaviour(stream: trio.SocketStream) -> None:
        frame = await read_frame(stream)
        await answer.wait()
        await stream.send_all(reply_frame(1, frame[12:]))
        assert await read_to_end(stream) == b""

    async with running_proxy(behaviour) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1, b"first"))
        await holds(lambda: shell.counters.received_bytes > 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shell.connection_manager.drain, 60)
            await holds(
                lambda: (
                    not any(
                        connection.session.should_read_client
                        for connection in shell.connection_manager._connections.values()
                    )
                )
            )
            await client.send_all(request_frame(2, b"second"))
            for _ in range(100):
                await trio.lowlevel.checkpoint()
            answer.set()
            assert await read_frame(client) == reply_frame(1, b"first")
            await shell.closed(CloseReason.SHUTDOWN)


def test_drain_finishes_partly_forwarded_request() -> None:
    """While draining, a partly forwarded request is finished, and no other request is forwarded."""
    book = SessionDriver(ScriptedDispatcher())
    first, second = request(3, 1, body=bytes(1000)), request(3, 2)
    book.client(first[:100])
    assert (book.session.stop(), book.session.should_read_client) == (False, True)
    commands = book.client(first[100:], second)
    assert b"".join(command.data for command in commands) == first[100:]  # type: ignore[union-attr]
    assert (book.session.stop(), book.session.should_read_client) == (False, False)
    assert to_client(book.upstream(reply(1))) == reply(1)
    assert book.session.stop()


def test_drain_ignores_unforwarded_request() -> None:
    """Draining does not wait for a partial request if no byte of it was forwarded."""
    book = SessionDriver(ScriptedDispatcher())
    book.client(request(3, 1)[:7])
    assert book.session.stop()
