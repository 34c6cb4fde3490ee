"""Which requests may be held while they come in pieces, and which of them give way where there is no more room.

Owns: `Holding`. Must not know: what a request says, what becomes of one that is not held any more.

A connection announces the length of a frame before it sends the frame. The bound counts announced bytes, so that no
number of half frames takes more memory than the bound allows. A frame counts until its request has its reply: a request
that waits behind a parked JoinGroup is kept for minutes.

Where there is no room, the client host that has announced most gives way with its oldest frame: the room is shared as
equally as the hosts want it. So a host keeps what is within an equal share, whatever the other hosts announce.
"""

from collections import OrderedDict
from heapq import heapify, heappop, heappush

UNAUTHENTICATED_FRAME = 524_288
"""Bytes of the longest frame before authentication: the default of Kafka's `sasl.server.max.receive.size`."""
SMALL_FRAME = 16_384
"""Bytes of a frame that is always held. TCP may cut any frame, and 10,000 connections hold 160 MB of such at most."""
UNAUTHENTICATED_SHARE = 8
"""One such part of the bound is for connections that the broker has not admitted yet."""
IPV6_NETWORK = 4
"""Groups of an IPv6 address that tell hosts apart: whoever has one address of a /64 network has them all."""


class Holding:
    """The requests of all clients of one broker that were not whole when they came.

    Args:
        most_bytes: announced bytes that are held at a time, without those of small frames.
    """

    def __init__(self, most_bytes: int) -> None:
        self._rooms = {True: _Room(most_bytes), False: _Room(most_bytes // UNAUTHENTICATED_SHARE)}
        self._frames: dict[int, tuple[_Room, str]] = {}
        """By the number of a connection: where its frame is counted, and its host."""
        self._crowded_out: dict[int, None] = {}

    def holds(self, connection: int, host: str, size: int, *, admitted: bool) -> bool:
        """Returns whether a connection's frame of `size` bytes may be held, and counts the frame if so. Other frames
        may have to give way to it: see `crowded_out`.
        """
        self.release(connection)
        if size <= SMALL_FRAME:
            return True
        room, host = self._rooms[admitted], _network(host)
        while room.bytes + size > room.most:
            oldest = room.oldest_of_heaviest(host, size)
            if oldest is None:
                return False
            self.release(oldest)
            self._crowded_out[oldest] = None
        room.add(connection, host, size)
        self._frames[connection] = room, host
        return True

    def release(self, connection: int) -> None:
        """Nothing is kept of the requests of a connection any more."""
        if self._frames and connection in self._frames:
            room, host = self._frames.pop(connection)
            room.remove(connection, host)
        if self._crowded_out:
            self._crowded_out.pop(connection, None)

    def crowded_out(self) -> list[int]:
        """Returns the connections whose frames must not be held any more, since others needed their room. Each is
        returned once.
        """
        if not self._crowded_out:
            return []
        connections = list(self._crowded_out)
        self._crowded_out.clear()
        return connections


class _Room:
    """The frames that share one bound of `most` bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0
        # Not a plain dict by connection: to find its first entry, a dict passes over all that were taken out before it.
        self._frames: dict[str, OrderedDict[int, int]] = {}
        """Sizes by host and connection, the oldest frame of a host first."""
        self._sums: dict[str, int] = {}
        """By host."""
        self._heaviest: list[tuple[int, str]] = []
        """A heap of hosts by their sums, negated. A host may be in it several times, and with a sum that was once."""

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
        """Counts a frame no longer."""
        size = self._frames[host].pop(connection)
        self.bytes -= size
        self._sums[host] -= size
        if not self._sums[host]:
            del self._frames[host], self._sums[host]

    def oldest_of_heaviest(self, host: str, size: int) -> int | None:
        """Returns whose frame gives way to a new one of `host`; None where it is the new one."""
        if size > self.most:
            return None
        heaviest = self._most_announced()
        if heaviest is None or self._sums.get(host, 0) + size > self._sums[heaviest]:
            heaviest = host
        return next(iter(self._frames.get(heaviest, ())), None)

    def _most_announced(self) -> str | None:
        heap, sums = self._heaviest, self._sums
        while heap:
            told, host = heap[0]
            if sums.get(host) == -told:
                return host
            heappop(heap)
            if host in sums:
                heappush(heap, (-sums[host], host))
        return None


def _network(host: str) -> str:
    """The part of a client's address that it cannot choose freely."""
    return ":".join(host.split(":")[:IPV6_NETWORK]) if ":" in host else host
