"""Waits for the sockets of clients and their brokers, and calls who watches them.

Owns: the epoll of the data path, what is called in a round, and what may be put off. Must not know: what is read or
sent, who else has a turn (`hosting`).

What is slow or rare is ordinary trio. What moves bytes is called from here, without a task, a lock or a stream
object. A round handles so many sockets, each once.
"""

from collections import deque
from collections.abc import Callable
from select import epoll

import trio

from group_sidecar.proxy.logs import log

Callback = Callable[[int], None]
"""Called with epoll's events. It must not raise, and must bear being called for nothing: an earlier callback of the
same round may have closed a descriptor and opened another one of the same number."""

READY_AT_ONCE = 64
"""Sockets of one round. The kernel takes them in turn, so none is passed over."""
LONE_ROUNDS = 8
"""Rounds of one socket each behind which what can be put off is put off no longer. The caches are cold after each
sleep, and eight of a kind in a row cost little more than one."""


class Poller:
    """Calls who watches a descriptor when it is ready.

    Attributes:
        now: when this round began, on trio's clock.
        owes: something of what was put off is not done yet: rounds go on, whether anybody is ready or not.
        time: gives that.
        failed: is told of an exception of what was put off.
    """

    def __init__(self) -> None:
        self._epoll = epoll()
        self._callbacks: dict[int, Callback] = {}
        self._after: list[Callable[[], None]] = []
        self._put_off: list[Callable[[], object]] = []
        self._lone_rounds = 0
        self.time: Callable[[], float] = trio.current_time
        self.failed: Callable[[Exception], None] = _unheard
        self.now = 0.0
        self.owes = False

    def watch(self, fd: int, events: int, callback: Callback) -> None:
        """Calls back whenever a descriptor is ready for one of these events, or broken; with EPOLLET among them, when
        it becomes so, and when it is so as this, `change` or `resume` is called.

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

    def before_others(self, call: Callable[[], object]) -> None:
        """Calls before anybody else has a turn, and where nobody has, after some rounds; where it returns True, again
        with the next round.
        """
        self._put_off.append(call)

    def forget(self, fd: int) -> None:
        """Never calls again for a descriptor, which is to be closed: that is what takes it out of the epoll."""
        del self._callbacks[fd]

    def fileno(self) -> int:
        """The descriptor that is readable when anything is ready."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Ends it."""
        self._epoll.close()

    def turn(self, seconds: float | None) -> bool:
        """A round: calls back who is ready within so long; None waits as long as it takes. Returns whether it has
        called what was put off: a job that is done in parts does one part in a round.
        """
        callbacks = self._callbacks
        ready = self._epoll.poll(0 if self.owes else seconds, READY_AT_ONCE)
        self.now = self.time()
        for fd, events in ready:
            callback = callbacks.get(fd)
            if callback is not None:  # It may have been closed in this round.
                callback(events)
        for call in self._after:
            call()
        self._lone_rounds += 1
        catches_up = len(ready) > 1 or self._lone_rounds >= LONE_ROUNDS or self.owes
        if catches_up:
            self.catch_up()
        return catches_up

    def catch_up(self) -> None:
        """Somebody else has a turn now: calls what was put off."""
        self._lone_rounds = 0
        self.owes = False
        for call in self._put_off:
            try:
                self.owes = call() is True or self.owes
            except Exception as error:  # noqa: BLE001  It must not end the loop that carries all connections.
                self.failed(error)

    def host(self, due: deque[Callable[[], object]], outcomes: list[object]) -> None:
        """Rounds, and what is due between them, until there are outcomes."""
        while not outcomes:
            caught_up = self.turn(0 if due else None)
            if due:
                if not caught_up:
                    self.catch_up()
                for _ in range(len(due)):
                    due.popleft()()


def _unheard(error: Exception) -> None:
    log.error("a background task failed", exc_info=error)
