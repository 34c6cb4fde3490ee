"""How the data path and trio take turns.

Owns: whose turn it is. Must not know: what is waited for, and who is called (`poller`).

There are two ways:

- `host`: the poller is the process' own loop, and trio its guest (`trio.lowlevel.start_guest_run`). The process sleeps
  in the poller, and trio's own waiting is done by a thread that rings a bell. A socket that is ready costs one system
  call, and no turn of trio's loop. This is how the command runs.
- `carry`: a task of a trio program that somebody else has started waits on the poller's descriptor.

Either way trio's tasks have their turn after each round, and what the data path has put off is done before.
"""

import os
from collections import deque
from collections.abc import Awaitable, Callable
from select import EPOLLIN
from time import perf_counter
from typing import Any, TypeVar

import trio

from group_sidecar.proxy.poller import Poller

T = TypeVar("T")


async def carry(poller: Poller) -> None:
    """Has a poller turn until cancelled."""
    try:
        while True:
            if poller.owes:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(poller.fileno())
            if not poller.turn(0):
                poller.catch_up()
    finally:
        poller.close()


def host(poller: Poller, program: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Runs a trio program as `trio.run` does, and has a poller turn meanwhile. Returns and raises what it does."""
    due: deque[Callable[[], object]] = deque()
    outcomes: list[Any] = []
    bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(call: Callable[[], object]) -> None:
        due.append(call)
        os.eventfd_write(bell, 1)

    poller.watch(bell, EPOLLIN, lambda _: _hush(bell))
    try:
        trio.lowlevel.start_guest_run(
            program,
            *args,
            run_sync_soon_threadsafe=ring,
            run_sync_soon_not_threadsafe=due.append,
            done_callback=outcomes.append,
            host_uses_signal_set_wakeup_fd=False,
            clock=_Clock(),
        )
        poller.time = perf_counter
        poller.host(due, outcomes)
    finally:
        os.close(bell)
        poller.close()
    result: T = outcomes[0].unwrap()
    return result


class _Clock(trio.abc.Clock):
    """Trio's own, but for the offset: so the poller, which asks each round, can ask without it."""

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - perf_counter()


def _hush(bell: int) -> None:
    try:
        os.eventfd_read(bell)
    except BlockingIOError:
        return  # Rung for nothing.
