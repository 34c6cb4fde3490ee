"""Runs the calls of the simulated world in the order of their virtual time, and keeps a trace of them."""

import hashlib
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

from trio._core._run import GLOBAL_RUN_CONTEXT
from trio.testing import MockClock

KEPT_LINES = 40
"""The usual number of lines of a trace that a report of a violation shows."""


class Violation(Exception):
    """Raised when an invariant does not hold. The text is one sentence with the values that violate the invariant."""


class Trace:
    """A log of a run: the hash of all lines, and the text of the last ones.

    `kept`: how many of the last lines are kept.
    """

    def __init__(self, kept: int) -> None:
        self._hash = hashlib.sha256()
        self.last: deque[str] = deque(maxlen=kept)
        self.lines = 0

    def add(self, line: str) -> None:
        """Adds a line."""
        self._hash.update(line.encode())
        self.last.append(line)
        self.lines += 1

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that two runs share only if all their lines are equal."""
        return self._hash.hexdigest()[:16]


class Timeline:
    """Calls that are due at a virtual time, and the clock that jumps to the next of them.

    Trio calls `jump` whenever all tasks wait. The timeline makes its calls between trio's steps. The product's event
    loop also runs between trio's steps.

    Args:
        kept_lines: how many lines of the trace are kept.

    Attributes:
        trace: the log of the run so far.
        clock: trio's clock.
        settle: called after each call that has touched a socket of the sidecar. It runs the sidecar's event loop until
            no socket is ready.
        is_touched: whether a socket of the sidecar may be ready since the last call of `settle`.
        failed: called when a call or `settle` has raised an exception. The attribute `error` then has the exception.
    """

    def __init__(self, kept_lines: int = KEPT_LINES) -> None:
        self.trace = Trace(kept_lines)
        self.clock = MockClock()
        self.clock._autojump = self.jump  # type: ignore[method-assign]
        self.clock.autojump_threshold = 0
        self.settle: Callable[[], None] = _nothing
        self.failed: Callable[[], None] = _nothing
        self.is_touched = False
        self.error: BaseException | None = None
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    @property
    def now(self) -> float:
        """Seconds since the start of the run."""
        return self.clock._virtual_base

    def note(self, what: str) -> None:
        """Adds a line with the time to the trace."""
        self.trace.add(f"{self.now:10.6f} {what}")

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Makes a call at a time."""
        heapq.heappush(self._due, (time, next(self._numbers), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Makes a call after some seconds."""
        self.at(self.now + seconds, call)

    def jump(self) -> None:
        """Makes the calls that are due before the next deadline of a task, until a task can run."""
        runner = GLOBAL_RUN_CONTEXT.runner
        try:
            if self.error is None:
                self.settle()
            while not runner.runq:
                deadline = runner.deadlines.next_deadline()
                if self._due and self._due[0][0] <= deadline and self.error is None:
                    due, _, call = heapq.heappop(self._due)
                    self.clock._virtual_base = max(self.now, due)
                    call()
                    if self.is_touched:
                        self.is_touched = False
                        self.settle()
                else:
                    self.clock._virtual_base = max(self.now, deadline)
                    runner.deadlines.expire(self.now)
        except Exception as error:  # noqa: BLE001  Raised again by the run. Trio must not see it here.
            self.error = error
            self.failed()


def _nothing() -> None:
    pass
