"""Lets the poller and trio share one thread.

There are two modes:

- `host`: the poller is the main loop of the process, and trio is its guest (`trio.lowlevel.start_guest_run`). The
  process sleeps in the poller. A thread of trio waits for trio's own events and wakes the poller through an eventfd. A
  ready socket costs one system call and no iteration of trio's loop. The command line uses this mode.
- `run_in_task`: a task of a running trio program waits for the poller's descriptor.

In both modes trio's tasks run between rounds, after the deferred work of the data path.
"""

import os
from collections import deque
from collections.abc import Awaitable, Callable
from select import EPOLLIN
from time import perf_counter
from typing import Any, TypeVar

import trio

from group_sidecar.proxy.dataplane.poller import Poller

T = TypeVar("T")


async def run_in_task(poller: Poller) -> None:
    """Runs rounds of the poller until cancelled."""
    try:
        while True:
            if poller.has_waiting_work:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(poller.fileno())
            if not poller.run_round(0):
                poller.run_deferred()
    finally:
        poller.close()


def host(poller: Poller, program: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Runs a trio program as `trio.run` does, and rounds of the poller between trio's steps. Returns what the program
    returns, and raises what the program raises.
    """
    pending_calls: deque[Callable[[], object]] = deque()
    outcomes: list[Any] = []
    wakeup_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(call: Callable[[], object]) -> None:
        pending_calls.append(call)
        os.eventfd_write(wakeup_fd, 1)

    poller.watch(wakeup_fd, EPOLLIN, lambda _: _clear_wakeup(wakeup_fd))
    try:
        trio.lowlevel.start_guest_run(
            program,
            *args,
            run_sync_soon_threadsafe=wake,
            run_sync_soon_not_threadsafe=pending_calls.append,
            done_callback=outcomes.append,
            host_uses_signal_set_wakeup_fd=False,
            clock=_Clock(),
        )
        poller.time = perf_counter
        poller.host(pending_calls, outcomes)
    finally:
        os.close(wakeup_fd)
        poller.close()
    result: T = outcomes[0].unwrap()
    return result


class _Clock(trio.abc.Clock):
    """Trio's clock without its random offset, so that the poller can read the time with `perf_counter`."""

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - perf_counter()


def _clear_wakeup(wakeup_fd: int) -> None:
    try:
        os.eventfd_read(wakeup_fd)
    except BlockingIOError:
        return  # A spurious wakeup.
