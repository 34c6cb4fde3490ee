"""Waits for the sockets of clients and brokers with one epoll, and calls their callbacks.

Callbacks move bytes without a task, a lock or a stream object. Slow and rare work runs in ordinary trio tasks. A round
serves at most `MAX_EVENTS_PER_ROUND` sockets, each once. A connection that causes much work asks for a turn, which is
one call in a later round. A round makes such calls for about `TURNS_SECONDS`, so that the other sockets do not wait.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from select import epoll

import trio

from group_sidecar.proxy.runtime.logging import log

Callback = Callable[[int], None]
"""Called with the epoll events of a descriptor. A callback must accept spurious calls: an earlier callback of the same
round may have closed the descriptor and opened another one with the same number."""

MAX_EVENTS_PER_ROUND = 64
"""The maximum number of sockets of one round. The kernel reports ready sockets in turn, so no socket starves."""
TURNS_SECONDS = 0.001
"""No further turn begins in a round after the turns of this round have taken this many seconds."""
MAX_DEFERRING_ROUNDS = 8
"""After this many rounds with at most one ready socket, the deferred calls are made. The processor's caches are cold
after each sleep, so eight deferred replies in a row cost little more than one."""


class Poller:
    """Calls the callback of each descriptor that is ready.

    Attributes:
        now: when this round began, on trio's clock.
        time: returns the current time on trio's clock.
        deferred_call_failed: is called with each exception of a deferred call.
        callback_failed: is called with each exception of any other call. No exception may end the loop that carries all
            connections, so this is the last resort: a callback handles the exceptions of its own connection itself.
            A descriptor whose callback has failed is not watched any longer.
    """

    def __init__(self) -> None:
        self._epoll = epoll()
        self._callbacks: dict[int, Callback] = {}
        self._after: list[Callable[[], None]] = []
        self._deferred_calls: list[Callable[[], object]] = []
        self._deferring_rounds = 0
        self._turns: deque[Callable[[], None]] = deque()
        self._has_deferred_work = False
        self.time: Callable[[], float] = trio.current_time
        self.deferred_call_failed: Callable[[Exception], None] = _log_failure
        self.callback_failed: Callable[[Exception], None] = _log_failure
        self.now = 0.0

    @property
    def has_waiting_work(self) -> bool:
        """Whether a turn waits, or a deferred call has more to do. If so, the next round does not wait for sockets."""
        return self._has_deferred_work or bool(self._turns)

    def watch(self, fd: int, events: int, callback: Callback) -> None:
        """Calls `callback` whenever a descriptor is ready for one of these events, or broken.

        With EPOLLET among the events, the callback is called once when the descriptor becomes ready. A descriptor that
        is already ready is reported once after `watch`, `change` or `resume`.

        Raises:
            OSError: the descriptor is invalid, or epoll does not support its type.
        """
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def change(self, fd: int, events: int) -> None:
        """Changes the events of a watched descriptor. If `events` is 0, a broken descriptor is still reported."""
        self._epoll.modify(fd, events)

    def pause(self, fd: int) -> None:
        """Reports nothing about a descriptor until `resume`, not even that it is broken."""
        self._epoll.unregister(fd)

    def resume(self, fd: int, events: int) -> None:
        """Reports events of a paused descriptor again."""
        self._epoll.register(fd, events)

    def after_rounds(self, call: Callable[[], None]) -> None:
        """Adds a call that is made after the sockets of each round."""
        self._after.append(call)

    def add_deferred_call(self, call: Callable[[], object]) -> None:
        """Adds a call that is made before trio's tasks run, and at the latest after `MAX_DEFERRING_ROUNDS` rounds.

        If the call returns True, it is made again in the next round.
        """
        self._deferred_calls.append(call)

    def add_turn(self, call: Callable[[], None]) -> None:
        """Adds a call that is made in one of the next rounds, after all calls added before."""
        self._turns.append(call)

    def forget(self, fd: int) -> None:
        """Removes the callback of a descriptor that the caller will close. Closing also removes the descriptor from the
        epoll.
        """
        del self._callbacks[fd]

    def unwatch(self, fd: int) -> None:
        """Stops watching a descriptor that stays open, or whose socket another process has too.

        Closing such a descriptor does not remove it from the epoll, which continues to report it (epoll(7)).
        """
        with suppress(FileNotFoundError, ValueError):  # The descriptor is paused, or the poller is closed.
            self._epoll.unregister(fd)
        self.forget(fd)

    def fileno(self) -> int:
        """Returns the epoll's descriptor, which is readable when a watched descriptor is ready."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Closes the epoll."""
        self._epoll.close()

    def run_round(self, seconds: float | None) -> bool:
        """Runs one round: waits for ready descriptors and calls their callbacks.

        A deferred call that returns True does one part of its work in each round.

        Args:
            seconds: the longest wait, or None for no limit.

        Returns:
            Whether the deferred calls were made.
        """
        callbacks = self._callbacks
        ready = self._epoll.poll(0 if self.has_waiting_work else seconds, MAX_EVENTS_PER_ROUND)
        self.now = self.time()
        for fd, events in ready:
            callback = callbacks.get(fd)
            if callback is not None:  # An earlier callback of this round may have closed the descriptor.
                try:
                    callback(events)
                except Exception as error:  # noqa: BLE001  See `callback_failed`.
                    self.callback_failed(error)
                    if self._callbacks.get(fd) is callback:  # Otherwise epoll would report the descriptor at once.
                        self.unwatch(fd)
        for call in self._after:
            self._call(call)
        self.take_turns()
        self._deferring_rounds += 1
        runs_deferred = len(ready) > 1 or self._deferring_rounds >= MAX_DEFERRING_ROUNDS or self._has_deferred_work
        if runs_deferred:
            self.run_deferred()
        return runs_deferred

    def take_turns(self) -> None:
        """Makes the calls of `add_turn` in order, until they have taken TURNS_SECONDS. Makes at least one call, if any
        waits.

        The time of each turn includes the deferred calls.
        """
        if not self._turns:
            return
        stop = self.time() + TURNS_SECONDS
        while self._turns:
            self._call(self._turns.popleft())
            self.run_deferred()
            if self.time() >= stop:
                return

    def run_deferred(self) -> None:
        """Makes the deferred calls. Must be called before trio's tasks run."""
        self._deferring_rounds = 0
        self._has_deferred_work = False
        for call in self._deferred_calls:
            try:
                self._has_deferred_work = call() is True or self._has_deferred_work
            except Exception as error:  # noqa: BLE001  No exception may end the loop that carries all connections.
                self.deferred_call_failed(error)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001  See `callback_failed`.
            self.callback_failed(error)

    def host(self, pending_calls: deque[Callable[[], object]], outcomes: list[object]) -> None:
        """Runs rounds, and the pending calls between them, until `outcomes` is not empty."""
        while not outcomes:
            ran_deferred = self.run_round(0 if pending_calls else None)
            if pending_calls:
                if not ran_deferred:
                    self.run_deferred()
                for _ in range(len(pending_calls)):
                    pending_calls.popleft()()


def _log_failure(error: Exception) -> None:
    log.error("a background task failed", exc_info=error)
