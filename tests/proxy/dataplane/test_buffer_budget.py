"""What all connections hold together, and which of them are not read beyond the budget."""

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from group_sidecar.codecs.headers import REQUEST_HEAD
from group_sidecar.metrics.listener_counters import CloseReason, ReadPause
from group_sidecar.proxy.dataplane.buffer_budget import FREE_BYTES, RESUMED_PER_TURN, BufferBudget
from group_sidecar.proxy.dataplane.endpoint_socket import MAX_READ_BYTES
from group_sidecar.proxy.dataplane.framing import FrameAction
from group_sidecar.proxy.dataplane.outcomes import UNCHANGED, Origin, Reply
from group_sidecar.proxy.dataplane.poller import Poller
from tests.proxy.fakes import (
    Named,
    PassthroughDispatcher,
    holds,
    read_exactly,
    read_frame,
    reply_frame,
    request_frame,
    running_proxy,
)

LARGE = 4 << 20
"""A reply that is larger than the buffers of the kernel."""
MANY = FREE_BYTES + 1


class Connections:
    """A budget and the connections that it resumes. `resumed`: their numbers in order."""

    def __init__(self, most: int) -> None:
        self.poller, ticks = Poller(), count()
        self.poller.time = lambda: float(next(ticks))  # Each call of `take_turns` takes one turn.
        self.budget = BufferBudget(most, self.poller)
        self.resumed: list[int] = []

    def pauses(self, number: int, held: int) -> bool:
        return self.budget.must_pause(number, held, lambda: self.resumed.append(number))

    def waits(self, number: int) -> bool:
        return self.budget.must_wait_for_reply(number, lambda: self.resumed.append(number))

    def take_turns(self) -> Sequence[int]:
        """Takes all turns. Returns the connections that were resumed."""
        self.resumed.clear()
        while self.poller.has_waiting_work:
            self.poller.take_turns()
        return self.resumed


def test_large_holders_are_paused_until_the_budget_suffices() -> None:
    """Beyond the budget, connections that hold much are paused, and resumed in order when the budget suffices."""
    every = Connections(100_000)
    every.budget.add(100_000)
    seen = [every.budget.exceeded]
    every.budget.add(1)
    assert [*seen, every.budget.exceeded] == [False, True]
    assert [every.pauses(number, held) for number, held in ((1, MANY), (2, FREE_BYTES), (3, MANY))] == [
        True,
        False,
        True,
    ]
    assert every.take_turns() == []
    every.budget.add(-1)
    assert every.take_turns() == [1, 3]


def test_many_connections_are_resumed_in_several_turns() -> None:
    """If the budget is exceeded again meanwhile, the other connections stay paused."""
    every = Connections(10)
    every.budget.add(11)
    for number in range(3 * RESUMED_PER_TURN):
        assert every.pauses(number, MANY)
    every.budget.add(-1)
    every.poller.take_turns()
    first = list(every.resumed)
    assert first == list(range(len(first)))
    assert len(first) % RESUMED_PER_TURN == 0
    every.budget.add(1)
    every.take_turns()
    every.budget.add(-1)
    assert every.take_turns() == list(range(len(first), 3 * RESUMED_PER_TURN))


def test_one_partial_reply_at_a_time() -> None:
    """Replies that have arrived in part wait for their turn. The end of one begins the turn of the next."""
    every = Connections(10)
    every.budget.add(11)
    assert [every.waits(number) for number in (1, 2, 3)] == [False, True, True]
    every.budget.end_reply(1)
    assert every.take_turns() == [2]
    assert not every.waits(2)
    every.budget.forget(2, 0)
    assert every.take_turns() == [3]
    assert not every.waits(3)
    every.budget.end_reply(3)
    assert every.take_turns() == []


def test_ended_connection_no_longer_counts() -> None:
    """A connection that ends gives its bytes back, and is not resumed."""
    every = Connections(10)
    every.budget.add(11)
    assert every.pauses(1, MANY)
    assert every.pauses(2, MANY)
    every.budget.forget(1, 11)
    assert every.budget.held == 0
    assert every.take_turns() == [2]


async def sends_large_replies(stream: trio.SocketStream) -> None:
    """A broker whose replies to requests with a payload are large."""
    with suppress(EOFError, trio.BrokenResourceError):
        while True:
            frame = await read_frame(stream)
            size = LARGE if len(frame) > REQUEST_HEAD.size else 0
            await stream.send_all(reply_frame(correlation_of(frame), bytes(size)))


def correlation_of(frame: bytes) -> int:
    """The correlation id of a request."""
    correlation: int = REQUEST_HEAD.unpack_from(frame)[3]
    return correlation


async def test_clients_that_do_not_read_keep_to_the_budget() -> None:
    """Clients that do not read hold little beyond the budget. A bystander is served. Later all get their bytes."""
    budget, most = 1_000_000, 40
    async with running_proxy(sends_large_replies, max_bytes=budget) as shell, AsyncExitStack() as stack:
        bystander = await stack.enter_async_context(await shell.connect())
        clients = [await stack.enter_async_context(await shell.connect()) for _ in range(most)]
        for client in clients:
            await client.send_all(request_frame(1, b"large"))
        manager = shell.connection_manager
        await holds(lambda: manager.held_bytes > budget)
        for number in range(200):
            await bystander.send_all(request_frame(number))
            assert await read_frame(bystander) == reply_frame(number)
        await wait_all_tasks_blocked()
        assert manager.held_bytes < budget + MAX_READ_BYTES + most * FREE_BYTES
        async with trio.open_nursery() as reading:
            for client in clients:
                reading.start_soon(read_exactly, client, len(reply_frame(1, bytes(LARGE))))
        await holds(lambda: manager.held_bytes == 0)
    assert manager._budget.held == 0


class HoldingDispatcher(PassthroughDispatcher):
    """Holds all requests with a payload until their replies, and all replies until they are complete."""

    def classify(self, api_key: int, api_version: int, size: int) -> Any:
        return FrameAction.DEFER if size > 8 else None

    def classify_reply(self, note: Any, size: int, now: float) -> FrameAction:
        return FrameAction.HOLD

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        return UNCHANGED


async def test_partial_replies_complete_one_by_one() -> None:
    """Replies that are held until they are complete reach their clients, although all together exceed the budget."""
    clients = 6

    class Dispatcher(HoldingDispatcher):
        def classify(self, api_key: int, api_version: int, size: int) -> Any:
            return Named("held")

    done: list[int] = []
    all_in_part: list[bool] = []

    async def sends_in_halves(stream: trio.SocketStream) -> None:
        """Sends the second half of a reply when all replies are held in part."""
        frame = reply_frame(correlation_of(await read_frame(stream)), bytes(LARGE))
        async with trio.open_nursery() as sending:
            sending.start_soon(stream.send_all, frame[: LARGE // 2])
            await holds(lambda: bool(all_in_part) or len(shell.connection_manager._budget._partial_replies) == clients)
            all_in_part.append(True)
        await stream.send_all(frame[LARGE // 2 :])

    async def ask(client: trio.SocketStream) -> None:
        await client.send_all(request_frame(1, b"large"))
        done.append(len(await read_exactly(client, len(reply_frame(1, bytes(LARGE))))))

    async with running_proxy(sends_in_halves, dispatcher=Dispatcher(), max_bytes=1_000_000) as shell:
        manager, most = shell.connection_manager, 0
        async with trio.open_nursery() as asking:
            for _ in range(clients):
                client = await shell.connect()
                shell.opened.append(client)
                asking.start_soon(ask, client)
            while len(done) < clients:
                most = max(most, manager.held_bytes)
                await trio.lowlevel.checkpoint()
        assert most < 1_000_000 + 2 * LARGE
        await holds(lambda: manager._budget.held == 0)


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one read"])
async def test_kept_requests_pause_their_client(together: bool) -> None:
    """A client whose requests are kept is not read beyond the budget. It is counted, and its requests are not lost.

    Requests that arrive in one read wait for turns first. So the client is not read already before that.
    """
    release = trio.Event()

    async def answers_later(stream: trio.SocketStream) -> None:
        await release.wait()
        with suppress(EOFError):
            while True:
                await stream.send_all(reply_frame(correlation_of(await read_frame(stream))))

    async with (
        running_proxy(answers_later, dispatcher=HoldingDispatcher(), max_bytes=20_000) as shell,
        await shell.connect() as client,
    ):
        requests = [request_frame(number, bytes(1_000)) for number in range(30)]
        for sent in [b"".join(requests)] if together else requests:
            await client.send_all(sent)
        await holds(lambda: shell.counters.read_pauses[ReadPause.BUFFERED_BYTES] > 0)
        before = shell.counters.received_bytes
        await client.send_all(request_frame(30, bytes(1_000)))
        await wait_all_tasks_blocked()
        assert shell.counters.received_bytes == before
        release.set()
        for number in range(31):
            assert await read_frame(client) == reply_frame(number)
        await holds(lambda: shell.connection_manager._budget.held == 0)
    assert shell.counters.connections_closed[CloseReason.ERROR] == 0
