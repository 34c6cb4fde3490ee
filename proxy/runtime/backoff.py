"""Computes the pauses between attempts at something that may fail for a long time."""

import random
from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

import trio

Key = TypeVar("Key", bound=Hashable)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""The first and the longest pause between two attempts, in seconds. The pause doubles with each failure. Random jitter
shortens each pause by up to a half, so that the sidecars of a fleet do not all retry at the same moment."""


class Backoff:
    """Counts failed attempts at one thing, and computes the pauses between attempts.

    Attributes:
        failures: how many attempts failed in a row.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._condition = ""

    def pause(self) -> float:
        """Returns the seconds until the next attempt."""
        full_pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.failures - 1, 16))
        return full_pause * random.uniform(0.5, 1.0)

    def enters_condition(self, condition: str) -> bool:
        """Stores a condition. Returns whether the condition has changed. A changed condition is worth a log line."""
        previous, self._condition = self._condition, condition
        return condition != previous


class _Attempt(NamedTuple):
    """When the last attempt was made, and the number of seconds until the next attempt."""

    at: float
    pause: float


class RetrySchedule(Generic[Key]):
    """Decides when each of many things may be attempted again.

    Args:
        limit: the maximum number of things that are due at a time.
        first: seconds until the second attempt at a thing.
        longest: the maximum number of seconds between two attempts. The pause doubles with each attempt.
        memory: how many seconds after the last attempt a thing is remembered although it is no longer wanted.
    """

    def __init__(self, limit: int, first: float, longest: float, memory: float = 0.0) -> None:
        self._at_once, self._first, self._longest, self._memory = limit, first, longest, memory
        self._last: dict[Key, _Attempt] = {}

    def due(self, wanted: Iterable[Key]) -> list[Key]:
        """Returns the wanted things that may be attempted now, in the given order."""
        now, wanted = trio.current_time(), dict.fromkeys(wanted)
        last = {key: each for key, each in self._last.items() if key in wanted or now < each.at + self._memory}
        self._last = last
        due = (key for key in wanted if key not in last or last[key].at + last[key].pause <= now)
        return list(islice(due, self._at_once))

    def record_attempt(self, keys: Iterable[Key]) -> None:
        """Records an attempt at each of these things."""
        now = trio.current_time()
        for key in keys:
            pause = min(2 * self._last[key].pause, self._longest) if key in self._last else self._first
            self._last[key] = _Attempt(now, pause)
