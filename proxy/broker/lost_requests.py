"""Queues requests that lost their replies because their connections ended, until each request is handled.

A connection may end while hundreds of KiB of requests are in flight. Handling all these requests at once took 65 ms, in
which no client was served. So more than a few such requests wait and are handled in slices. A waiting request may have
changed any group. So while any request waits, all questions that the broker can answer go to the broker.
`PendingReply.lost` decides the effect of a lost reply on a group.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from group_sidecar.coordinator.state.bounded_table import ENTRY_BYTES, TableSize
from group_sidecar.proxy.dataplane.outcomes import DeferredRequest, Pending

BYTES_AT_ONCE = 8_192
"""Bytes of requests that are handled in one slice, which takes 3 ms if each request names 600 groups."""
DECODED_BYTES = 1_024
"""A request that was decoded before it was forwarded counts as this many bytes, because handling a decoded request
takes less time."""
MAX_WAITING_BYTES = 4_194_304
"""The maximum number of bytes that wait. Beyond this limit, the requests of a connection are handled at once."""


class LostRequests:
    """The requests of one broker's clients that lost their replies and wait."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Pending, float]] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        """Whether any request waits."""
        return bool(self._waiting)

    @property
    def table(self) -> TableSize:
        """The number and size of the requests that wait."""
        return TableSize("lost_requests", len(self._waiting), self._bytes + len(self._waiting) * ENTRY_BYTES)

    def defer(self, requests: Sequence[Pending], now: float) -> bool:
        """Queues the requests of a connection that has ended. Returns False and queues nothing if the requests are few
        or exceed the bound.
        """
        size = sum(map(_size, requests))
        if size <= BYTES_AT_ONCE or self._bytes + size > MAX_WAITING_BYTES:
            return False
        self._waiting.extend((request, now) for request in requests)
        self._bytes += size
        return True

    def take(self) -> Iterator[tuple[Pending, float]]:
        """Yields and removes the requests of the next slice, each with the time at which it was lost."""
        left = BYTES_AT_ONCE
        while self._waiting and left > 0:
            request, at = self._waiting.popleft()
            self._bytes -= _size(request)
            left -= _size(request)
            yield request, at


def _size(request: Pending) -> int:
    return len(request.frame) if type(request) is DeferredRequest else DECODED_BYTES
