"""Bounds the memory of requests that are held while they arrive in pieces.

A connection announces the length of a frame before it sends the frame. The bound counts announced bytes, so incomplete
frames longer than SMALL_FRAME never take more memory than the bound allows. A frame counts until its request has its
reply, which may take minutes for a request that follows a parked JoinGroup.

If a new frame does not fit, the oldest frame of the client host with the most announced bytes is evicted. For this
comparison, the new frame counts as one of its own host's frames. So each host can keep frames up to an equal share of
the bound, whatever the other hosts announce. All addresses of an IPv6 /64 network are one host.
"""

from collections import OrderedDict
from heapq import heapify, heappop, heappush

from group_sidecar.proxy.runtime.addresses import network_of

UNAUTHENTICATED_FRAME = 524_288
"""The bytes of the longest frame before authentication: the default of Kafka's `sasl.server.max.receive.size`."""
SMALL_FRAME = 16_384
"""The bytes of the longest frame that is always held, because TCP may split a frame of any size. 10,000 connections
hold at most 164 MB of such frames."""
UNAUTHENTICATED_DIVISOR = 8
"""The bound divided by this number is the bound for all connections that the broker has not admitted yet."""


class HeldRequestBudget:
    """The requests of all clients of one broker that arrived in pieces.

    Args:
        max_bytes: the maximum number of announced bytes that are held at a time. Small frames do not count.
    """

    def __init__(self, max_bytes: int) -> None:
        self._quotas = {True: _Quota(max_bytes), False: _Quota(max_bytes // UNAUTHENTICATED_DIVISOR)}
        self._frames: dict[int, tuple[_Quota, str]] = {}
        """By connection number: the quota that counts the connection's frame, and the connection's host."""
        self._evicted: dict[int, None] = {}

    def try_hold(self, connection: int, host: str, size: int, *, admitted: bool) -> bool:
        """Returns whether a connection's frame of `size` bytes may be held, and counts the frame if so.

        Other frames may be evicted for the new frame. `take_evicted` returns their connections.
        """
        self.release(connection)
        if size <= SMALL_FRAME:
            return True
        quota, host = self._quotas[admitted], network_of(host)
        while quota.bytes + size > quota.max_bytes:
            oldest = quota.find_evictable(host, size)
            if oldest is None:
                return False
            self.release(oldest)
            self._evicted[oldest] = None
        quota.add(connection, host, size)
        self._frames[connection] = quota, host
        return True

    def release(self, connection: int) -> None:
        """Stops counting the frame of a connection that no longer keeps the frame."""
        if self._frames and connection in self._frames:
            quota, host = self._frames.pop(connection)
            quota.remove(connection, host)
        if self._evicted:
            self._evicted.pop(connection, None)

    def take_evicted(self) -> list[int]:
        """Returns the connections that must drop their frames, without those that were returned before."""
        if not self._evicted:
            return []
        connections = list(self._evicted)
        self._evicted.clear()
        return connections


class _Quota:
    """The frames that share one bound of `max_bytes` bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        # OrderedDict, because a plain dict skips all removed entries to find its first entry.
        self._frames: dict[str, OrderedDict[int, int]] = {}
        """The sizes of frames by host and connection. The oldest frame of a host is the first."""
        self._sums: dict[str, int] = {}
        """The announced bytes of each host."""
        self._heaviest: list[tuple[int, str]] = []
        """A heap of hosts by their negated sums. The heap may contain a host several times, and stale sums."""

    def add(self, connection: int, host: str, size: int) -> None:
        """Counts a frame."""
        self.bytes += size
        self._frames.setdefault(host, OrderedDict())[connection] = size
        self._sums[host] = self._sums.get(host, 0) + size
        if len(self._heaviest) > 2 * len(self._sums) + 16:
            self._heaviest = [(-total, each) for each, total in self._sums.items()]
            heapify(self._heaviest)
        else:
            heappush(self._heaviest, (-self._sums[host], host))

    def remove(self, connection: int, host: str) -> None:
        """Stops counting a frame."""
        size = self._frames[host].pop(connection)
        self.bytes -= size
        self._sums[host] -= size
        if not self._sums[host]:
            del self._frames[host], self._sums[host]

    def find_evictable(self, host: str, size: int) -> int | None:
        """Returns the connection whose frame must be evicted for a new frame of `host`.

        Returns None if the new frame must not be held.
        """
        if size > self.max_bytes:
            return None
        heaviest = self._largest_host()
        if heaviest is None or self._sums.get(host, 0) + size > self._sums[heaviest]:
            heaviest = host
        return next(iter(self._frames.get(heaviest, ())), None)

    def _largest_host(self) -> str | None:
        heap, sums = self._heaviest, self._sums
        while heap:
            recorded, host = heap[0]
            if sums.get(host) == -recorded:
                return host
            heappop(heap)
            if host in sums:
                heappush(heap, (-sums[host], host))
        return None
