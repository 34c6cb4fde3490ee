"""The events of the simulated world in the order of their virtual time."""

import hashlib
import heapq
import math
from collections import deque
from collections.abc import Callable
from itertools import count

import trio

KEPT_LINES = 40
"""The usual number of lines of a trace that a report of a violation shows."""


class Violation(Exception):
    """An invariant does not hold. The text is one sentence, with the values that show it."""


class Trace:
    """Lines that say what happened, as a hash of all of them and the text of the last ones.

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
    """Calls that are due at a virtual time. `kept_lines`: how many lines of the trace are kept.

    Attributes:
        trace: what happened so far.
    """

    def __init__(self, kept_lines: int = KEPT_LINES) -> None:
        self.trace = Trace(kept_lines)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._sleep: trio.CancelScope | None = None
        self._is_over = False

    @property
    def now(self) -> float:
        """Seconds since the start of the run."""
        return trio.current_time()

    def note(self, what: str) -> None:
        """Adds a line with the time to the trace."""
        self.trace.add(f"{trio.current_time():10.6f} {what}")

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Makes a call at a time."""
        heapq.heappush(self._due, (time, next(self._numbers), call))
        if self._sleep is not None and time < self._sleep.deadline:
            self._sleep.deadline = time

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Makes a call after some seconds."""
        self.at(trio.current_time() + seconds, call)

    def end(self) -> None:
        """Makes `run` return."""
        self._is_over = True
        if self._sleep is not None:
            self._sleep.cancel()

    async def run(self, settle: Callable[[], None]) -> None:
        """Makes the calls that are due, until `end`. Calls `settle` after each of them."""
        while not self._is_over:
            with trio.CancelScope(deadline=self._due[0][0] if self._due else math.inf) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None
            while self._due and self._due[0][0] <= trio.current_time() and not self._is_over:
                heapq.heappop(self._due)[2]()
                settle()
