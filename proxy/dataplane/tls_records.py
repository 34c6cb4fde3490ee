"""Finds the records of TLS in a stream of encrypted bytes. The header of a record is not encrypted (RFC 8446, 5.1)."""

from typing import Final

HEADER_BYTES: Final = 5
"""The size of a record's header. The header's last two bytes are the length of the bytes that follow the header."""
LENGTH_AT: Final = 3


class RecordWalker:
    """Walks over the records of a stream that arrives in pieces.

    Attributes:
        ended: how many records ended within the bytes of the last call of `walk`.
    """

    __slots__ = ("_body_left", "_header_seen", "ended")

    def __init__(self) -> None:
        self._header_seen = 0
        self._body_left = 0
        self.ended = 0

    def walk(self, data: bytes, start: int, max_records: int) -> int:
        """Walks from `start` to the end of `max_records` records, or to the end of the data. Returns the position.

        The bytes from `start` on must follow the bytes over which the last call has walked.
        """
        position, size, ended = start, len(data), 0
        seen, left = self._header_seen, self._body_left
        while ended < max_records and position < size:
            if seen < HEADER_BYTES:
                if seen >= LENGTH_AT:
                    left = left << 8 | data[position]
                seen += 1
                position += 1
            else:
                step = min(left, size - position)
                position += step
                left -= step
            if seen == HEADER_BYTES and not left:
                seen = 0
                ended += 1
        self._header_seen, self._body_left, self.ended = seen, left, ended
        return position
