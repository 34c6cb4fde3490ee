"""The poller, as the host of trio and as a task in trio."""

import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from itertools import count
from select import EPOLLIN

import pytest
import trio

from group_sidecar.proxy.dataplane import poller as poller_module
from group_sidecar.proxy.dataplane.event_loop import host, run_in_task
from group_sidecar.proxy.dataplane.poller import MAX_DEFERRING_ROUNDS, TURNS_SECONDS, Poller


class Echo:
    """Echoes bytes on one end of a socket pair. The test uses `far`, the other end."""

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


async def ask(echo: Echo, word: bytes) -> bytes:
    echo.far.send(word)
    await trio.lowlevel.wait_readable(echo.far)
    return echo.far.recv(100)


def test_hosted_program_and_sockets_take_turns() -> None:
    """A hosted trio program runs while the poller serves sockets, timers and threads."""
    poller = Poller()
    echo = Echo(poller)

    async def program(word: bytes) -> list[bytes]:
        async with trio.open_nursery() as nursery:
            heard = [await ask(echo, word) for _ in range(20)]
            await trio.sleep(0.01)
            heard.append(await trio.to_thread.run_sync(lambda: b"from a thread"))
            nursery.cancel_scope.cancel()
        return heard

    assert host(poller, program, b"hello") == [b"hello"] * 20 + [b"from a thread"]
    assert echo.served == 20
    echo.close()


def test_hosted_program_exception_propagates() -> None:
    """An exception of a hosted program propagates to the caller of host."""

    async def program() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError("of the program")

    with pytest.raises(LookupError, match="of the program"):
        host(Poller(), program)


def test_hosted_program_receives_signals() -> None:
    """A hosted program receives signals while no socket is ready."""

    async def program() -> int:
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            await trio.to_thread.run_sync(partial(os.kill, os.getpid(), signal.SIGUSR1))
            async for number in signals:
                return number
        return 0

    assert host(Poller(), program) == signal.SIGUSR1


def test_a_callback_may_wake_a_task() -> None:
    """A poller callback can wake a trio task and start another one."""
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


async def test_ready_sockets_do_not_starve_tasks(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets that are always ready do not starve other tasks."""
    monkeypatch.setattr(poller_module, "MAX_EVENTS_PER_ROUND", 1)
    poller, (near, far) = Poller(), socket.socketpair()
    turns = 0

    def busy(events: int) -> None:
        nonlocal turns
        turns += 1

    poller.watch(near.fileno(), EPOLLIN, busy)
    far.send(b"never read")
    nursery.start_soon(run_in_task, poller)
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    assert turns > 0
    nursery.cancel_scope.cancel()
    near.close()
    far.close()


def test_ready_sockets_do_not_starve_host() -> None:
    """Sockets that are always ready do not starve a hosted program."""
    poller, (near, far) = Poller(), socket.socketpair()
    poller.watch(near.fileno(), EPOLLIN, lambda _: None)
    far.send(b"never read")

    async def program() -> int:
        await trio.sleep(0.01)
        return await trio.to_thread.run_sync(lambda: 7)

    assert host(poller, program) == 7
    near.close()
    far.close()


def test_round_serves_bounded_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round serves at most MAX_EVENTS_PER_ROUND events, and the next round serves the others."""
    monkeypatch.setattr(poller_module, "MAX_EVENTS_PER_ROUND", 2)
    poller = Poller()
    poller.time = lambda: 7.0
    echoes = [Echo(poller) for _ in range(3)]
    for echo in echoes:
        echo.far.send(b"hello")
    poller.run_round(None)
    assert sum(echo.served for echo in echoes) == 2
    assert poller.now == 7.0
    poller.run_round(None)
    assert [echo.served for echo in echoes] == [1, 1, 1]
    poller.close()
    for echo in echoes:
        echo.close()


@pytest.mark.parametrize("wanted", [1, 3])
def test_signal_does_not_end_a_sleep(wanted: int) -> None:
    """A signal handler runs during a sleep without ending the sleep. The handler's exception propagates."""
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
        poller.run_round(None)

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


async def test_forgotten_socket_is_not_called(nursery: trio.Nursery) -> None:
    """The poller does not call the callback of a forgotten socket."""
    poller = Poller()
    first, second = Echo(poller), Echo(poller)
    nursery.start_soon(run_in_task, poller)
    poller.forget(first.near.fileno())
    first.far.send(b"lost")
    assert await ask(second, b"heard") == b"heard"
    assert first.served == 0
    nursery.cancel_scope.cancel()
    first.close()
    second.close()


async def test_paused_socket_is_called_after_resume(nursery: trio.Nursery) -> None:
    """The poller calls the callback of a paused socket only after it is resumed."""
    poller = Poller()
    echo, other = Echo(poller), Echo(poller)
    nursery.start_soon(run_in_task, poller)
    poller.pause(echo.near.fileno())
    echo.far.send(b"later")
    assert await ask(other, b"now") == b"now"
    assert echo.served == 0
    poller.resume(echo.near.fileno(), EPOLLIN)
    await trio.lowlevel.wait_readable(echo.far)
    assert echo.far.recv(100) == b"later"
    nursery.cancel_scope.cancel()
    echo.close()
    other.close()


async def test_deferred_work_continues_when_idle() -> None:
    """Deferred work continues in further rounds while no socket is ready."""
    poller = Poller()
    left = [3]

    def some() -> bool:
        left[0] -= 1
        return left[0] > 0

    poller.add_deferred_call(some)
    poller.add_deferred_call(lambda: False)
    poller.run_deferred()
    while poller.has_waiting_work:
        poller.run_round(None)
    assert left == [0]
    poller.close()


async def test_deferred_work_continues_in_a_task(nursery: trio.Nursery) -> None:
    """A poller that runs as a task continues deferred work while no socket is ready."""
    poller = Poller()
    echo, done, turns = Echo(poller), trio.Event(), iter(range(5))

    def some() -> bool:
        if next(turns, None) is None:
            done.set()
            return False
        return True

    nursery.start_soon(run_in_task, poller)
    poller.add_deferred_call(some)
    assert await ask(echo, b"begin") == b"begin"
    await done.wait()
    nursery.cancel_scope.cancel()
    echo.close()


async def test_deferred_call_waits_for_busy_round() -> None:
    """A deferred call runs after MAX_DEFERRING_ROUNDS rounds with one event, or at once in a round with several."""
    poller = Poller()
    first, second = Echo(poller), Echo(poller)
    served: list[int] = []
    poller.add_deferred_call(lambda: served.append(first.served))
    for _ in range(2):
        for _ in range(MAX_DEFERRING_ROUNDS):
            assert served in ([], [MAX_DEFERRING_ROUNDS])
            first.far.send(b"alone")
            poller.run_round(0)
    assert served == [MAX_DEFERRING_ROUNDS, 2 * MAX_DEFERRING_ROUNDS]
    for _ in range(2):
        first.far.send(b"with")
        second.far.send(b"another")
        poller.run_round(0)
    assert served[2:] == [2 * MAX_DEFERRING_ROUNDS + 1, 2 * MAX_DEFERRING_ROUNDS + 2]
    poller.close()
    first.close()
    second.close()


async def _served_in_time(echo: Echo, served_counts: list[int]) -> None:
    for _ in range(3 * MAX_DEFERRING_ROUNDS):
        await ask(echo, b"hello")
        assert served_counts[-1] == echo.served


def test_deferred_call_precedes_hosted_program() -> None:
    """A deferred call runs before the hosted program gets its turn."""
    poller = Poller()
    echo, served_counts = Echo(poller), [0]
    poller.add_deferred_call(lambda: served_counts.append(echo.served))
    host(poller, _served_in_time, echo, served_counts)
    echo.close()


async def test_deferred_call_precedes_other_task(nursery: trio.Nursery) -> None:
    """A deferred call runs before another task gets its turn."""
    poller = Poller()
    echo, served_counts = Echo(poller), [0]
    poller.add_deferred_call(lambda: served_counts.append(echo.served))
    nursery.start_soon(run_in_task, poller)
    await _served_in_time(echo, served_counts)
    nursery.cancel_scope.cancel()
    echo.close()


def _parts(poller: Poller, parts: int, done: Callable[[], None]) -> list[float]:
    """Adds a job of `parts` parts. Returns the times of the rounds in which a part ran."""
    rounds: list[float] = []

    def some() -> bool:
        rounds.append(poller.now)
        if len(rounds) == parts:
            done()
        return len(rounds) < parts

    poller.add_deferred_call(some)
    return rounds


async def _rounds_of_parts(echo: Echo, poller: Poller) -> list[float]:
    done = trio.Event()
    poller.time = count().__next__
    rounds = _parts(poller, 5, done.set)
    await ask(echo, b"begin")
    await done.wait()
    return rounds


async def test_one_deferred_part_per_round(nursery: trio.Nursery) -> None:
    """A round runs only one part of deferred work, because two parts would delay clients twice as long."""
    poller = Poller()
    echo = Echo(poller)
    nursery.start_soon(run_in_task, poller)
    rounds = await _rounds_of_parts(echo, poller)
    assert len(set(rounds)) == len(rounds)
    nursery.cancel_scope.cancel()
    echo.close()


def test_one_deferred_part_per_hosted_round() -> None:
    """A round of a hosting poller runs only one part of deferred work."""
    poller = Poller()
    echo = Echo(poller)
    rounds = host(poller, _rounds_of_parts, echo, poller)
    assert len(set(rounds)) == len(rounds)
    echo.close()


async def test_failing_deferred_call_stops_nothing() -> None:
    """A failing deferred call is reported, and other deferred calls continue."""
    poller = Poller()
    echo, done = Echo(poller), [0]
    failures: list[Exception] = []

    def fail() -> None:
        raise RuntimeError("no idea")

    poller.add_deferred_call(fail)
    poller.add_deferred_call(lambda: done.append(echo.served))
    poller.deferred_call_failed = failures.append
    for _ in range(MAX_DEFERRING_ROUNDS):
        echo.far.send(b"alone")
        poller.run_round(0)
    assert done == [0, MAX_DEFERRING_ROUNDS]
    assert [str(error) for error in failures] == ["no idea"]
    poller.close()
    echo.close()


async def test_failing_calls_stop_nothing() -> None:
    """A callback, a call after rounds and a turn that fail are reported, and the other calls are still made."""
    poller = Poller()
    echo, done, failures = Echo(poller), list[str](), list[Exception]()

    def fail(*_: object) -> None:
        raise RuntimeError("no idea")

    near, far = socket.socketpair()
    with near, far:
        poller.watch(near.fileno(), EPOLLIN, fail)
        poller.after_rounds(fail)
        poller.after_rounds(lambda: done.append("after"))
        poller.add_turn(fail)
        poller.add_turn(lambda: done.append("turn"))
        poller.callback_failed = failures.append
        far.send(b"x")
        echo.far.send(b"x")
        poller.run_round(0)
        poller.run_round(0)  # The failed callback is not called again.
    assert (done, echo.served) == (["after", "turn", "after"], 1)
    assert [str(error) for error in failures] == ["no idea"] * 4
    poller.close()
    echo.close()


@pytest.mark.parametrize("paused", [False, True])
def test_unwatched_descriptor_is_not_reported(paused: bool) -> None:
    """A descriptor that is not watched any longer is not reported, although its socket stays open elsewhere."""
    poller = Poller()
    poller.time = float
    near, far = socket.socketpair()
    with near, far, near.dup():
        poller.watch(near.fileno(), EPOLLIN, lambda _: None)
        if paused:
            poller.pause(near.fileno())
        far.send(b"x")
        poller.unwatch(near.fileno())
        near.close()
        assert poller._epoll.poll(0) == []
    poller.close()


async def test_turns_share_a_part_of_each_round() -> None:
    """Turns are taken in order. A round begins no further turn after TURNS_SECONDS, and then does not wait."""
    poller = Poller()
    clock, taken = [0.0], list[int]()
    poller.time = lambda: clock[0]

    def turn(number: int) -> None:
        taken.append(number)
        clock[0] += TURNS_SECONDS / 2

    for number in range(5):
        poller.add_turn(partial(turn, number))
    rounds = []
    while poller.has_waiting_work:
        poller.run_round(None)
        rounds.append(len(taken))
    assert taken == [0, 1, 2, 3, 4]
    assert rounds == [2, 4, 5]
    poller.close()


async def test_turns_include_what_they_defer() -> None:
    """A turn's time includes the deferred calls, which are made after it."""
    poller = Poller()
    clock, deferred, taken = [0.0], list[int](), list[int]()
    poller.time = lambda: clock[0]

    def apply() -> None:
        clock[0] += TURNS_SECONDS * len(deferred)
        deferred.clear()

    def turn(number: int) -> None:
        taken.append(number)
        deferred.append(number)

    poller.add_deferred_call(apply)
    for number in range(3):
        poller.add_turn(partial(turn, number))
    for turns in (1, 2, 3):
        poller.run_round(None)
        assert (taken, deferred) == ([*range(turns)], [])
    poller.close()


async def test_waiting_turns_do_not_keep_sockets_waiting(nursery: trio.Nursery) -> None:
    """A socket is served between turns, although turns wait without end."""
    poller = Poller()
    echo = Echo(poller)

    def again() -> None:
        poller.add_turn(again)

    poller.add_turn(again)
    nursery.start_soon(run_in_task, poller)
    assert await ask(echo, b"now") == b"now"
    nursery.cancel_scope.cancel()
    echo.close()
