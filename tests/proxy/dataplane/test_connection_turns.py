"""How long a client waits while other clients ask for much."""

import os
import socket
from collections import Counter
from contextlib import AsyncExitStack
from itertools import cycle
from select import select
from typing import Any

import pytest
import trio

from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane import poller
from group_sidecar.proxy.dataplane.connection import InactivityTimeouts
from group_sidecar.proxy.dataplane.outcomes import AnswerInOrder, Origin
from group_sidecar.proxy.dataplane.session import REQUEST_COST, WORK_PER_TURN
from tests.proxy.fakes import (
    AnsweringDispatcher,
    RunningProxy,
    holds,
    read_frame,
    reply_frame,
    request_frame,
    running_proxy,
)

QUESTION = 16
FLOODING = 20
"""Clients that send many questions and read no answer."""
QUESTIONS = 400
"""Questions of each client that floods."""
REQUESTS_PER_TURN = WORK_PER_TURN // REQUEST_COST


pytestmark = pytest.mark.usefixtures("each_way")


@pytest.fixture(autouse=True)
def _one_turn_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the poller take one turn in each round."""
    monkeypatch.setattr(poller, "TURNS_SECONDS", 0.0)


def peer_address(fd: int) -> object:
    """Returns the address of the other end of a connection."""
    with socket.socket(fileno=os.dup(fd)) as duplicate:
        return duplicate.getpeername()


class FloodDispatcher(AnsweringDispatcher):
    """Answers questions, whose correlation id is the number of their client.

    A client sends its next batch of questions when the last one of a batch is answered. When half of all questions are
    answered, another client sends a request.

    Args:
        batches: how many questions the batches have, again and again.

    Attributes:
        clients: the clients that flood.
        accepted: the descriptors of the sidecar for these clients.
        other: the other client.
        asked: how many questions of each client were answered.
        most_ahead: by how many questions one client was ahead of another.
        waited: how many questions were answered while the other client's request waited.
    """

    def __init__(self, *batches: int) -> None:
        super().__init__(answered=QUESTION)
        self._batches = [cycle(batches) for _ in range(FLOODING)]
        self._unanswered = [0] * FLOODING
        self.clients: list[trio.SocketStream] = []
        self.accepted: list[int] = []
        self.other: trio.SocketStream | None = None
        self.asked = Counter[int]()
        self.most_ahead = 0
        self.waited: int | None = None

    async def connect(self, shell: RunningProxy, stack: AsyncExitStack) -> None:
        """Connects all clients, and waits until the sidecar serves them, so that none begins later than another."""
        self.other = await stack.enter_async_context(await shell.connect())
        for _ in range(FLOODING):
            self.clients.append(await stack.enter_async_context(await shell.connect()))
        connections = shell.connection_manager._connections
        await holds(lambda: len(connections) == FLOODING + 1)
        descriptors = {peer_address(each.client.fd): each.client.fd for each in connections.values()}
        self.accepted = [descriptors[client.socket.getsockname()] for client in self.clients]

    def send(self, number: int) -> None:
        """Sends the next questions of a client. Returns when they have arrived, because a busy kernel delivers late."""
        self._unanswered[number] = batch = next(self._batches[number])
        data = request_frame(number, api_key=QUESTION) * batch
        assert os.write(self.clients[number].socket.fileno(), data) == len(data)
        assert select([self.accepted[number]], [], [], 10)[0]

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        if api_key != QUESTION and self.waited is None:
            self.waited = self.asked.total() - FLOODING * QUESTIONS // 2
        return super().classify(api_key, api_version, size)

    def request(self, frame: bytes, origin: Origin, now: float) -> AnswerInOrder:
        number = int.from_bytes(frame[4:8], "big")
        self.asked[number] += 1
        if len(self.asked) == FLOODING:
            self.most_ahead = max(self.most_ahead, max(self.asked.values()) - min(self.asked.values()))
        self._unanswered[number] -= 1
        if not self._unanswered[number] and self.asked[number] < QUESTIONS:
            self.send(number)
        if self.asked.total() == FLOODING * QUESTIONS // 2:
            assert self.other is not None
            os.write(self.other.socket.fileno(), request_frame(1, b"small"))
        return AnswerInOrder(lambda _: reply_frame(number))


@pytest.mark.parametrize(
    "batches", [(QUESTIONS,), (8,), (3,), (8, 1)], ids=["in one chunk", "eight", "three", "eight, then one"]
)
async def test_small_request_overtakes_floods(batches: tuple[int, ...]) -> None:
    """A request waits for a few turns of clients that flood, not for a turn of each. Floods get equal turns."""
    dispatcher = FloodDispatcher(*batches)
    async with running_proxy(dispatcher=dispatcher) as shell, AsyncExitStack() as stack:
        await dispatcher.connect(shell, stack)
        for number in range(FLOODING):
            dispatcher.send(number)
        assert dispatcher.other is not None
        assert await read_frame(dispatcher.other) == reply_frame(1, b"small")
    one_turn = min(max(batches), REQUESTS_PER_TURN)
    assert dispatcher.waited is not None
    assert dispatcher.waited <= 4 * one_turn < FLOODING * one_turn
    assert dispatcher.most_ahead <= 4 * one_turn


async def test_waiting_connection_is_not_silent() -> None:
    """A connection that waits for its turn is neither idle, stalled nor slow, because the sidecar makes it wait."""
    timeouts = InactivityTimeouts(idle=1, stalled=1, reply=1)
    async with running_proxy() as shell, await shell.connect() as client:
        await client.send_all(request_frame(1)[:6])
        await holds(lambda: shell.counters.received_bytes == 6)
        [connection] = shell.connection_manager._connections.values()
        late = trio.current_time() + 1_000
        assert connection.overdue(late, timeouts) is CloseReason.STALLED
        connection.waits_for_turn = True
        assert connection.overdue(late, timeouts) is None
        connection.session._held_since = connection.last_active
        assert not connection.is_too_slow(late, 1)
        connection.waits_for_turn = False
        assert connection.is_too_slow(2 * late, 1)
