"""Which requests may be held while they come in pieces, and how many bytes of them in all.

Owns: `Holding`. Must not know: what a request says, what becomes of one that may not be held.

A connection announces the length of a frame before it sends the frame. The bound counts announced bytes, so that no
number of half frames takes more memory than the bound allows.
"""

UNAUTHENTICATED_FRAME = 524_288
"""Bytes of the longest frame before authentication: the default of Kafka's `sasl.server.max.receive.size`."""
SMALL_FRAME = 16_384
"""Bytes of a frame that is always held. TCP may cut any frame, and 10,000 connections hold 160 MB of such at most."""
UNAUTHENTICATED_SHARE = 8
"""One such part of the bound is for connections that the broker has not admitted yet."""


class Holding:
    """The requests of all clients of one broker that are held because they are not whole yet.

    Args:
        most_bytes: announced bytes that are held at a time, without those of small frames.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = {True: most_bytes, False: most_bytes // UNAUTHENTICATED_SHARE}
        self._held = {True: 0, False: 0}
        self._frames: dict[int, tuple[bool, int]] = {}
        """By the number of a connection: whether the broker had admitted it, and the announced bytes."""

    def holds(self, connection: int, size: int, *, admitted: bool) -> bool:
        """Returns whether a connection's frame of `size` bytes may be held, and counts the frame if so."""
        self.release(connection)
        if size <= SMALL_FRAME:
            return True
        if self._held[admitted] + size > self._most[admitted]:
            return False
        self._held[admitted] += size
        self._frames[connection] = admitted, size
        return True

    def release(self, connection: int) -> None:
        """The frame of a connection is whole, or the connection is over."""
        if self._frames and connection in self._frames:
            admitted, size = self._frames.pop(connection)
            self._held[admitted] -= size
