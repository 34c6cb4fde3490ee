"""Attempts at something that may fail for a long time: how long to wait between them, and what to say once.

Owns: the pauses, the condition that was last told, the setting that may help. Must not know: what is attempted.
"""

import random
from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

import trio

from group_sidecar.proxy.client import BrokerError

What = TypeVar("What", bound=Hashable)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds between attempts: doubled each time, and shortened by up to a half lest a fleet march in step."""


class Attempts:
    """Attempts at one thing.

    Attributes:
        failures: how many failed in a row.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._condition = ""

    def pause(self) -> float:
        """Seconds until the next attempt."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.failures - 1, 16))
        return longest * random.uniform(0.5, 1.0)

    def enters(self, condition: str) -> bool:
        """Whether it was in another condition before, so that the new one is worth a line."""
        before, self._condition = self._condition, condition
        return condition != before


class _Attempt(NamedTuple):
    """When it was made, and for how long there is to be no other."""

    at: float
    pause: float


class Pace(Generic[What]):
    """When each of many things may be attempted again.

    Args:
        at_once: how many at a time.
        first, longest: seconds until the same may be attempted again, doubled each time.
        memory: so many seconds after an attempt, what is not wanted any more is forgotten.
    """

    def __init__(self, at_once: int, first: float, longest: float, memory: float = 0.0) -> None:
        self._at_once, self._first, self._longest, self._memory = at_once, first, longest, memory
        self._last: dict[What, _Attempt] = {}

    def due(self, wanted: Iterable[What]) -> list[What]:
        """What may be attempted now of what is wanted, in its order."""
        now, wanted = trio.current_time(), dict.fromkeys(wanted)
        last = {what: each for what, each in self._last.items() if what in wanted or now < each.at + self._memory}
        self._last = last
        due = (what for what in wanted if what not in last or last[what].at + last[what].pause <= now)
        return list(islice(due, self._at_once))

    def begin(self, these: Iterable[What]) -> None:
        """These are being attempted."""
        now = trio.current_time()
        for what in these:
            pause = min(2 * self._last[what].pause, self._longest) if what in self._last else self._first
            self._last[what] = _Attempt(now, pause)


_REMEDIES = {"SASL": {"setting": "own_connection.sasl"}, "TLS": {"setting": "own_connection.tls"}}


def remedy(error: Exception) -> dict[str, str]:
    """For the log: the setting that gives a listener what it may want, where that may have been the reason."""
    return _REMEDIES.get(error.may_want, {}) if isinstance(error, BrokerError) else {}
