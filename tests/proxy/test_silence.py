"""Connections on which no byte moves: how long each may stand, by what it waits for; and how draining ends them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.learning import JOIN_SLACK_SECONDS
from group_sidecar.proxy.link import Silence
from group_sidecar.proxy.pump import SWEEP_SECONDS
from tests.proxy.fakes import (
    AnsweringDesk,
    Carried,
    PassingDesk,
    carried,
    holds,
    read_frame,
    read_to_end,
    reply_frame,
    request_frame,
)
from tests.proxy.playbook import Line, Playbook, ScriptedDesk, broker_copy, joining, reply, request, to_client

SILENCE = Silence(idle=1000, stalled=30, reply=200)
PARKED_API = 11


class ParkingDesk(PassingDesk):
    """Knows that the broker may park requests of one API."""

    def glance(self, api_key: int, api_version: int, size: int) -> Any:
        return "parked" if api_key == PARKED_API else None

    def longest_wait(self, note: Any) -> float:
        return 500.0 if note == "parked" else 0.0


async def accepts_and_never_answers(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


@asynccontextmanager
async def standing(sent: bytes, *, ends: bool = False) -> AsyncIterator[Carried]:
    """A client that has sent so much, before a broker that never answers."""
    desk = ParkingDesk()
    async with (
        carried(accepts_and_never_answers, desk=desk, silence=SILENCE) as shell,
        await shell.connect() as client,
    ):
        await client.send_all(sent)
        if ends:
            await client.send_eof()
        await holds(lambda: shell.traffic.received_bytes == len(sent))
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
async def test_a_silent_connection_is_closed_when_its_time_is_over(
    mock_clock: MockClock, sent: bytes, ends: bool, seconds: float, reason: CloseReason
) -> None:
    async with standing(sent, ends=ends) as shell:
        mock_clock.jump(seconds - 1 - SWEEP_SECONDS)
        await wait_all_tasks_blocked(0.05)
        assert shell.pump.connections == 1
        mock_clock.jump(2 + 2 * SWEEP_SECONDS)
        await shell.closed(reason)
        assert shell.pump.connections == 0


async def test_a_client_that_takes_nothing_is_given_up(mock_clock: MockClock) -> None:
    desk = AnsweringDesk(answered=16, size=64 << 20)
    async with carried(desk=desk, silence=SILENCE) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1, api_key=16))
        await holds(lambda: shell.pump.held_bytes > 0)
        mock_clock.jump(199 - SWEEP_SECONDS)
        await wait_all_tasks_blocked(0.05)
        assert shell.pump.connections == 1
        mock_clock.jump(2 + 2 * SWEEP_SECONDS)
        await shell.closed(CloseReason.NO_REPLY)
        assert shell.pump.held_bytes == 0


async def test_a_client_that_is_not_read_and_has_gone_is_given_up(mock_clock: MockClock) -> None:
    """Its question waits for a parked request. Nobody reads the client meanwhile, so nobody reads its end either."""

    class Desk(AnsweringDesk):
        def longest_wait(self, note: Any) -> float:
            return 500.0

    desk = Desk(answered=16)
    async with (
        carried(accepts_and_never_answers, desk=desk, silence=SILENCE) as shell,
        await shell.connect() as client,
    ):
        await client.send_all(request_frame(1, api_key=PARKED_API) + request_frame(2, bytes(100), api_key=16))
        await holds(lambda: shell.pump.held_bytes >= 100)
        await client.send_eof()
        await wait_all_tasks_blocked(0.05)
        mock_clock.jump(29 - SWEEP_SECONDS)
        await wait_all_tasks_blocked(0.05)
        assert shell.pump.connections == 1
        mock_clock.jump(2 + 2 * SWEEP_SECONDS)
        await shell.closed(CloseReason.CLIENT_CLOSED)
        assert shell.pump.held_bytes == 0


async def test_without_limits_silence_is_for_ever(mock_clock: MockClock) -> None:
    async with carried(accepts_and_never_answers) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1))
        await holds(lambda: shell.traffic.received_bytes > 0)
        mock_clock.jump(1e6)
        await wait_all_tasks_blocked(0.05)
        assert shell.pump.connections == 1


def test_a_join_may_wait_for_its_own_timeouts() -> None:
    line = Line(broker_copy())
    assert line.session.longest_wait(7) == 7
    line.says(joining(), 3)
    assert line.session.longest_wait(7) == 60 + JOIN_SLACK_SECONDS
    assert line.session.longest_wait(700) == 700
    line = Line(broker_copy())
    first = JoinGroupRequest(group_id="g", session_timeout_ms=90_000, member_id="", protocol_type="", protocols=())
    line.says(first, 0)
    assert line.session.longest_wait(7) == 90 + JOIN_SLACK_SECONDS
    line = Line(broker_copy())
    line.says(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
    assert line.session.longest_wait(7) == 7


# Draining.


async def test_draining_ends_a_client_that_is_always_busy_between_two_frames() -> None:
    sent = answered = 0

    async with carried() as shell, await shell.connect() as client, trio.open_nursery() as nursery:

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
            await shell.pump.drain(60)
        assert shell.pump.connections == 0
        assert shell.traffic.connections_closed[CloseReason.SHUTDOWN] == 1


async def test_while_draining_the_client_is_not_read_and_its_last_reply_arrives() -> None:
    answer = trio.Event()

    async def behaviour(stream: trio.SocketStream) -> None:
        frame = await read_frame(stream)
        await answer.wait()
        await stream.send_all(reply_frame(1, frame[12:]))
        assert await read_to_end(stream) == b""

    async with carried(behaviour) as shell, await shell.connect() as client:
        await client.send_all(request_frame(1, b"first"))
        await holds(lambda: shell.traffic.received_bytes > 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shell.pump.drain, 60)
            await holds(lambda: not any(link.session.wants_client for link in shell.pump._links.values()))
            await client.send_all(request_frame(2, b"second"))
            for _ in range(100):
                await trio.lowlevel.checkpoint()
            answer.set()
            assert await read_frame(client) == reply_frame(1, b"first")
            await shell.closed(CloseReason.SHUTDOWN)


def test_a_request_that_the_broker_has_a_part_of_is_finished_and_no_other_begun() -> None:
    book = Playbook(ScriptedDesk())
    first, second = request(3, 1, body=bytes(1000)), request(3, 2)
    book.client(first[:100])
    assert (book.session.stop(), book.session.wants_client) == (False, True)
    commands = book.client(first[100:], second)
    assert b"".join(command.data for command in commands) == first[100:]  # type: ignore[union-attr]
    assert (book.session.stop(), book.session.wants_client) == (False, False)
    assert to_client(book.upstream(reply(1))) == reply(1)
    assert book.session.stop()


def test_half_a_request_that_the_broker_has_nothing_of_is_not_waited_for() -> None:
    book = Playbook(ScriptedDesk())
    book.client(request(3, 1)[:7])
    assert book.session.stop()
