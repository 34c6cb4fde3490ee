"""Waits for the sockets of clients and their brokers, and calls who watches them.

Owns: the epoll of the data path, and how it and trio take turns. Must not know: what is read or sent.

What is slow or rare is ordinary trio. What moves bytes is called from here, without a task, a lock or a stream
object. There are two ways to run it:

- `host` is the process' own loop, and trio its guest (`trio.lowlevel.start_guest_run`): the process sleeps in this
  epoll, and trio's own waiting is done by a thread that rings a bell. A socket that is ready costs one system call,
  and no turn of trio's loop. This is how the command runs.
- `run` is a task of a trio program that somebody else has started, and waits on the epoll's descriptor.

Either way a round handles so many sockets, each once, and then trio's tasks have their turn.
"""

import os
from collections import deque
from collections.abc import Awaitable, Callable
from select import EPOLLIN, epoll
from typing import Any, TypeVar

import trio

T = TypeVar("T")
Callback = Callable[[int], None]
"""Called with epoll's events. It must not raise, and must bear being called for nothing: an earlier callback of the
same round may have closed a descriptor and opened another one of the same number."""

READY_AT_ONCE = 64
"""Sockets of one round. The kernel takes them in turn, so none is passed over."""


class Poller:
    """Calls who watches a descriptor when it is ready. Runs once, one way or the other.

    Attributes:
        now: when this round began, on trio's clock.
    """

    def __init__(self) -> None:
        self._epoll = epoll()
        self._callbacks: dict[int, Callback] = {}
        self._after: list[Callable[[], None]] = []
        self._time: Callable[[], float] = trio.current_time
        self._hosting = False
        self.now = 0.0

    def watch(self, fd: int, events: int, callback: Callback) -> None:
        """Calls back whenever a descriptor is ready for one of these events, or broken.

        Raises:
            OSError: it is none, or not one that can be waited for.
        """
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def change(self, fd: int, events: int) -> None:
        """Waits for other events of a descriptor that is watched; of none it still tells that it is broken."""
        self._epoll.modify(fd, events)

    def pause(self, fd: int) -> None:
        """Waits for nothing of a descriptor, not even for its end, until `resume`."""
        self._epoll.unregister(fd)

    def resume(self, fd: int, events: int) -> None:
        """Waits again."""
        self._epoll.register(fd, events)

    def after_rounds(self, call: Callable[[], None]) -> None:
        """Calls when the sockets of a round have been served. It must not raise."""
        self._after.append(call)

    def forget(self, fd: int) -> None:
        """Never calls again for a descriptor, which is to be closed: that is what takes it out of the epoll."""
        del self._callbacks[fd]

    async def run(self) -> None:
        """Calls back until cancelled."""
        if self._hosting:
            await trio.sleep_forever()
        try:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                self._turn(0)
        finally:
            self._epoll.close()

    def host(self, program: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Runs a trio program as `trio.run` does, and calls back meanwhile. Returns and raises what it does."""
        due: deque[Callable[[], object]] = deque()
        outcomes: list[Any] = []
        bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

        def ring(call: Callable[[], object]) -> None:
            due.append(call)
            os.eventfd_write(bell, 1)

        self._hosting = True
        self.watch(bell, EPOLLIN, lambda _: _hush(bell))
        try:
            trio.lowlevel.start_guest_run(
                program,
                *args,
                run_sync_soon_threadsafe=ring,
                run_sync_soon_not_threadsafe=due.append,
                done_callback=outcomes.append,
                host_uses_signal_set_wakeup_fd=False,
            )
            self._time = trio.lowlevel.current_clock().current_time  # Which it asks each time.
            while not outcomes:
                self._turn(0 if due else None)
                for _ in range(len(due)):
                    due.popleft()()
        finally:
            self._hosting = False
            os.close(bell)
            self._epoll.close()
        result: T = outcomes[0].unwrap()
        return result

    def _turn(self, seconds: float | None) -> None:
        callbacks = self._callbacks
        ready = self._epoll.poll(seconds, READY_AT_ONCE)
        self.now = self._time()
        for fd, events in ready:
            callback = callbacks.get(fd)
            if callback is not None:  # It may have been closed in this round.
                callback(events)
        for call in self._after:
            call()


def _hush(bell: int) -> None:
    try:
        os.eventfd_read(bell)
    except BlockingIOError:
        return  # Rung for nothing.
