"""The poller: hosting trio, and being a task of it."""

import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from itertools import count
from select import EPOLLIN

import pytest
import trio

from group_sidecar.proxy import poller as poller_module
from group_sidecar.proxy.hosting import carry, host
from group_sidecar.proxy.poller import LONE_ROUNDS, Poller


class Echo:
    """Sends back what comes on one end of a socket pair; `far` is the other."""

    def __init__(self, poller: Poller) -> None:
        self.near, self.far = socket.socketpair()
        self.served = 0
        poller.watch(self.near.fileno(), EPOLLIN, self._ready)

    def _ready(self, events: int) -> None:
        self.served += 1
        self.near.send(self.near.recv(100))

    def close(self) -> None:
        self.near.close()
        self.far.close()


async def asked(echo: Echo, word: bytes) -> bytes:
    echo.far.send(word)
    await trio.lowlevel.wait_readable(echo.far)
    return echo.far.recv(100)


def test_a_hosted_program_and_sockets_have_their_turns_beside_each_other() -> None:
    poller = Poller()
    echo = Echo(poller)

    async def program(word: bytes) -> list[bytes]:
        async with trio.open_nursery() as nursery:
            heard = [await asked(echo, word) for _ in range(20)]
            await trio.sleep(0.01)
            heard.append(await trio.to_thread.run_sync(lambda: b"from a thread"))
            nursery.cancel_scope.cancel()
        return heard

    assert host(poller, program, b"hello") == [b"hello"] * 20 + [b"from a thread"]
    assert echo.served == 20
    echo.close()


def test_what_a_hosted_program_raises_comes_out() -> None:
    async def program() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError("of the program")

    with pytest.raises(LookupError, match="of the program"):
        host(Poller(), program)


def test_a_hosted_program_hears_of_signals_while_nothing_else_happens() -> None:
    async def program() -> int:
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            await trio.to_thread.run_sync(partial(os.kill, os.getpid(), signal.SIGUSR1))
            async for number in signals:
                return number
        return 0

    assert host(Poller(), program) == signal.SIGUSR1


def test_a_callback_may_wake_a_task() -> None:
    poller = Poller()
    near, far = socket.socketpair()

    async def program() -> bytes:
        woken = trio.Event()
        poller.watch(near.fileno(), EPOLLIN, lambda _: woken.set() if near.recv(1) else None)
        far.send(b"!")
        await woken.wait()
        async with trio.open_nursery() as nursery:
            poller.watch(far.fileno(), EPOLLIN, lambda _: nursery.start_soon(read.send, far.recv(1)))
            read, heard = trio.open_memory_channel[bytes](1)
            near.send(b"?")
            return await heard.receive()

    assert host(poller, program) == b"?"
    near.close()
    far.close()


async def test_sockets_that_are_always_ready_leave_tasks_their_turn(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller_module, "READY_AT_ONCE", 1)
    poller, (near, far) = Poller(), socket.socketpair()
    turns = 0

    def busy(events: int) -> None:
        nonlocal turns
        turns += 1

    poller.watch(near.fileno(), EPOLLIN, busy)
    far.send(b"never read")
    nursery.start_soon(carry, poller)
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    assert turns > 0
    nursery.cancel_scope.cancel()
    near.close()
    far.close()


def test_sockets_that_are_always_ready_leave_a_hosted_program_its_turn() -> None:
    poller, (near, far) = Poller(), socket.socketpair()
    poller.watch(near.fileno(), EPOLLIN, lambda _: None)
    far.send(b"never read")

    async def program() -> int:
        await trio.sleep(0.01)
        return await trio.to_thread.run_sync(lambda: 7)

    assert host(poller, program) == 7
    near.close()
    far.close()


def test_a_round_serves_so_many_and_the_next_one_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller_module, "READY_AT_ONCE", 2)
    poller = Poller()
    poller.time = lambda: 7.0
    echoes = [Echo(poller) for _ in range(3)]
    for echo in echoes:
        echo.far.send(b"hello")
    poller.turn(None)
    assert sum(echo.served for echo in echoes) == 2
    assert poller.now == 7.0
    poller.turn(None)
    assert [echo.served for echo in echoes] == [1, 1, 1]
    poller.close()
    for echo in echoes:
        echo.close()


@pytest.mark.parametrize("wanted", [1, 3])
def test_a_signal_does_not_end_a_sleep(wanted: int) -> None:
    """Its handler runs meanwhile; what it raises comes out."""
    poller = Poller()
    echo = Echo(poller)
    heard: list[int] = []

    def handler(number: int, _: object) -> None:
        heard.append(number)
        if len(heard) == wanted:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise InterruptedError("of the handler")

    def sleep() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        poller.turn(None)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(InterruptedError, match="of the handler"):
            sleep()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(heard) == wanted
    assert echo.served == 0
    poller.close()
    echo.close()


async def test_what_is_forgotten_is_not_called(nursery: trio.Nursery) -> None:
    poller = Poller()
    first, second = Echo(poller), Echo(poller)
    nursery.start_soon(carry, poller)
    poller.forget(first.near.fileno())
    first.far.send(b"lost")
    assert await asked(second, b"heard") == b"heard"
    assert first.served == 0
    nursery.cancel_scope.cancel()
    first.close()
    second.close()


async def test_what_is_paused_is_called_when_it_is_resumed(nursery: trio.Nursery) -> None:
    poller = Poller()
    echo, other = Echo(poller), Echo(poller)
    nursery.start_soon(carry, poller)
    poller.pause(echo.near.fileno())
    echo.far.send(b"later")
    assert await asked(other, b"now") == b"now"
    assert echo.served == 0
    poller.resume(echo.near.fileno(), EPOLLIN)
    await trio.lowlevel.wait_readable(echo.far)
    assert echo.far.recv(100) == b"later"
    nursery.cancel_scope.cancel()
    echo.close()
    other.close()


async def test_what_is_not_done_goes_on_while_nobody_is_ready() -> None:
    poller = Poller()
    left = [3]

    def some() -> bool:
        left[0] -= 1
        return left[0] > 0

    poller.before_others(some)
    poller.before_others(lambda: False)
    poller.catch_up()
    while poller.owes:
        poller.turn(None)
    assert left == [0]
    poller.close()


async def test_a_program_that_carries_a_poller_goes_on_with_what_is_not_done(nursery: trio.Nursery) -> None:
    poller = Poller()
    echo, done, turns = Echo(poller), trio.Event(), iter(range(5))

    def some() -> bool:
        if next(turns, None) is None:
            done.set()
            return False
        return True

    nursery.start_soon(carry, poller)
    poller.before_others(some)
    assert await asked(echo, b"begin") == b"begin"
    await done.wait()
    nursery.cancel_scope.cancel()
    echo.close()


async def test_what_is_put_off_waits_for_some_lone_rounds_or_for_company() -> None:
    poller = Poller()
    first, second = Echo(poller), Echo(poller)
    served: list[int] = []
    poller.before_others(lambda: served.append(first.served))
    for _ in range(2):
        for _ in range(LONE_ROUNDS):
            assert served in ([], [LONE_ROUNDS])
            first.far.send(b"alone")
            poller.turn(0)
    assert served == [LONE_ROUNDS, 2 * LONE_ROUNDS]
    for _ in range(2):
        first.far.send(b"with")
        second.far.send(b"another")
        poller.turn(0)
    assert served[2:] == [2 * LONE_ROUNDS + 1, 2 * LONE_ROUNDS + 2]
    poller.close()
    first.close()
    second.close()


async def _told_in_time(echo: Echo, told: list[int]) -> None:
    for _ in range(3 * LONE_ROUNDS):
        await asked(echo, b"hello")
        assert told[-1] == echo.served


def test_what_is_put_off_is_done_before_a_hosted_program_has_its_turn() -> None:
    poller = Poller()
    echo, told = Echo(poller), [0]
    poller.before_others(lambda: told.append(echo.served))
    host(poller, _told_in_time, echo, told)
    echo.close()


async def test_what_is_put_off_is_done_before_another_task_has_its_turn(nursery: trio.Nursery) -> None:
    poller = Poller()
    echo, told = Echo(poller), [0]
    poller.before_others(lambda: told.append(echo.served))
    nursery.start_soon(carry, poller)
    await _told_in_time(echo, told)
    nursery.cancel_scope.cancel()
    echo.close()


def _parts(poller: Poller, parts: int, done: Callable[[], None]) -> list[float]:
    """A job that is done in so many parts. Returns the times of the rounds in which it did one."""
    rounds: list[float] = []

    def some() -> bool:
        rounds.append(poller.now)
        if len(rounds) == parts:
            done()
        return len(rounds) < parts

    poller.before_others(some)
    return rounds


async def _rounds_of_parts(echo: Echo, poller: Poller) -> list[float]:
    done = trio.Event()
    poller.time = count().__next__
    rounds = _parts(poller, 5, done.set)
    await asked(echo, b"begin")
    await done.wait()
    return rounds


async def test_one_part_is_done_in_a_round(nursery: trio.Nursery) -> None:
    """Two parts in a row would hold clients up for twice as long."""
    poller = Poller()
    echo = Echo(poller)
    nursery.start_soon(carry, poller)
    rounds = await _rounds_of_parts(echo, poller)
    assert len(set(rounds)) == len(rounds)
    nursery.cancel_scope.cancel()
    echo.close()


def test_one_part_is_done_in_a_round_of_a_hosting_poller() -> None:
    poller = Poller()
    echo = Echo(poller)
    rounds = host(poller, _rounds_of_parts, echo, poller)
    assert len(set(rounds)) == len(rounds)
    echo.close()


async def test_failure_of_what_is_put_off_ends_nothing() -> None:
    poller = Poller()
    echo, done = Echo(poller), [0]
    failures: list[Exception] = []

    def fail() -> None:
        raise RuntimeError("no idea")

    poller.before_others(fail)
    poller.before_others(lambda: done.append(echo.served))
    poller.failed = failures.append
    for _ in range(LONE_ROUNDS):
        echo.far.send(b"alone")
        poller.turn(0)
    assert done == [0, LONE_ROUNDS]
    assert [str(error) for error in failures] == ["no idea"]
    poller.close()
    echo.close()
