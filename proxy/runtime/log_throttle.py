"""Limits how often a repeated line is logged."""

import time
from collections.abc import Callable

MAX_CAUSES = 1024
"""The default number of causes that are throttled at a time. The number is bounded because some causes contain
addresses, which clients choose."""


class LogThrottle:
    """Allows a repeated line at most once in `every` seconds for each cause, with the number of occurrences.

    Args:
        every: seconds of silence after a line.
        clock: returns seconds, and never goes back.
        max_causes: the maximum number of causes that are remembered. The oldest cause is evicted first.
    """

    def __init__(
        self, every: float = 30.0, clock: Callable[[], float] = time.monotonic, max_causes: int = MAX_CAUSES
    ) -> None:
        self._every = every
        self._clock = clock
        self._max_causes = max_causes
        self._seen: dict[tuple[str, ...], tuple[float, int]] = {}

    def due(self, *cause: str) -> int:
        """Counts an occurrence.

        Returns how many occurrences a line would stand for now, or 0 if it is too early for a line.
        """
        now = self._clock()
        logged_at, silent = self._seen.get(cause, (-self._every, 0))
        if now - logged_at < self._every:
            self._seen[cause] = (logged_at, silent + 1)
            return 0
        if len(self._seen) >= self._max_causes:
            self._seen.pop(next(iter(self._seen)))
        self._seen[cause] = (now, 0)
        return silent + 1

    def ended(self, *cause: str) -> bool:
        """Forgets a cause. Returns whether it had occurred."""
        return self._seen.pop(cause, None) is not None
