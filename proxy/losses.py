"""Requests whose replies will not come, because their connections have ended, until each has been looked into.

Owns: `Losses`: which requests wait, and how many are looked into at a time. Must not know: what a lost reply means
(`desk`).

A connection may end while hundreds of KiB of requests have no reply. To look into all of them at once took 65 ms, in
which no client was served. So more than a few requests wait and are looked into some at a time, and clients are served
in between. Any group may have changed by a request that waits: until none does, all questions go to the broker.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from group_sidecar.coordinator.bounded import ENTRY_BYTES, Table
from group_sidecar.proxy.disposals import Shown

AT_ONCE = 8_192
"""Bytes of requests that are looked into in one go: 3 ms where each names 600 groups."""
DECODED_BYTES = 1_024
"""Bytes that count for a request that was decoded before it was forwarded: to look into it takes less."""
MOST_WAITING = 4_194_304
"""Bytes that wait at most. Beyond that the requests of a connection are looked into at once."""


class Losses:
    """The requests of one broker's clients that lost their replies and wait."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Any, float]] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    @property
    def table(self) -> Table:
        """How much waits."""
        return Table("lost_requests", len(self._waiting), self._bytes + len(self._waiting) * ENTRY_BYTES)

    def put_off(self, notes: Sequence[Any], now: float) -> bool:
        """Has the notes of a connection that has ended wait. Returns False, and keeps none, where they are few or where
        they exceed the bound.
        """
        size = sum(map(_size, notes))
        if size <= AT_ONCE or self._bytes + size > MOST_WAITING:
            return False
        self._waiting.extend((note, now) for note in notes)
        self._bytes += size
        return True

    def take(self) -> Iterator[tuple[Any, float]]:
        """Takes the next notes that are to be looked into in one go, each with the time at which it was lost."""
        left = AT_ONCE
        while self._waiting and left > 0:
            note, at = self._waiting.popleft()
            self._bytes -= _size(note)
            left -= _size(note)
            yield note, at


def _size(note: Any) -> int:
    return len(note.frame) if type(note) is Shown else DECODED_BYTES
