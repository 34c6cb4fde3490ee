"""A stream of length-prefixed frames, as runs to pass on and frames to look into.

Owns: where frames begin and end. Must not know: what a frame says, nor sockets. The caller's
`look` decides each frame by its first bytes, once.

Neighbouring frames that nobody takes leave as one slice of the chunk they came in, and a long one
leaves piece by piece as it comes. Only a frame that is taken is held until it is whole.
"""

import struct
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

LENGTH_BYTES = 4
_unpack_length = struct.Struct(">i").unpack_from


class Look(Enum):
    """What is to become of a frame."""

    PASS = "pass"
    """It goes on as it comes."""
    TAKE = "take"
    """It is collected and handed out whole."""
    SHOW = "show"
    """It goes on as it comes, and a copy is read behind it. Of no matter to who walks: it passes, or is taken."""
    BEGIN = "begin"
    """The same of what came with its first bytes; it always passes."""
    MORE = "more"
    """Its first bytes do not say yet; ask again when more have come."""


PASS: Final = Look.PASS
TAKE: Final = Look.TAKE
SHOW: Final = Look.SHOW
BEGIN: Final = Look.BEGIN
MORE: Final = Look.MORE
"""Under names of their own: an enum's members are slow to look up."""


class Run(NamedTuple):
    """Bytes to pass on as they are: whole frames, or a part of one."""

    data: bytes


class Frame(NamedTuple):
    """A frame that was taken: all of it, its length included."""

    data: bytes


class BadFrameLength(Exception):
    """A length that no frame can have; where the next frame begins is lost."""


def _nobody_looks(buffer: bytes, start: int, end: int) -> Look:
    return Look.MORE


class FrameWalker:
    """Cuts one direction of a connection.

    Args:
        head: how many bytes of a frame, length included, `look` needs at the least.
        smallest, largest: the lengths that are possible; others raise BadFrameLength. The smallest frame, with its
            length, is no shorter than `head`.
        look: called as look(buffer, start, end) with a frame's first bytes at `start`. It may change `head` and
            `smallest`, for the frames behind this one.

    Attributes:
        passing: how many bytes of the last frame that was passed on are still to come. Who passes them on by
            other means takes them off.
    """

    def __init__(self, head: int, smallest: int, largest: int, look: Callable[[bytes, int, int], Look]) -> None:
        self.head = head
        self.smallest = smallest
        self._largest = largest
        self._look = look
        self._buffer = b""
        self._position = 0
        self.passing = 0
        self._taking = 0
        self._parts = bytearray()

    def is_frame(self, chunk: bytes) -> bool:
        """Whether a chunk is one whole frame, of a length that is possible."""
        size = len(chunk) - LENGTH_BYTES
        return self.smallest <= size <= self._largest and _unpack_length(chunk)[0] == size

    def first(self, chunk: bytes) -> Run | Frame | None:
        """Adds what was read, and gives what `next` would."""
        if self.passing >= len(chunk):
            self.passing -= len(chunk)
            return Run(chunk)
        self.push(chunk)
        return self.next()

    def end(self) -> None:
        """Drops what is held, and `look`, because the walker and its session would keep each other in memory."""
        self._look = _nobody_looks
        self._buffer, self._position = b"", 0
        self._parts = bytearray()

    @property
    def between_frames(self) -> bool:
        """Whether nothing of an unfinished frame is held or owed."""
        return not (self.passing or self._taking or self._position < len(self._buffer))

    @property
    def held_bytes(self) -> int:
        """How much is held: unread, or of a frame being collected."""
        return len(self._buffer) - self._position + len(self._parts)

    @property
    def has_more(self) -> bool:
        """Whether there is something to look at, if only a part of a frame."""
        return self._position < len(self._buffer)

    @property
    def start(self) -> bytes:
        """The first bytes of what is held unread, as many as a length has."""
        return self._buffer[self._position : self._position + LENGTH_BYTES]

    def rest(self) -> bytes:
        """Gives up what is held unread: the stream is no longer one of frames. To be called between taken frames."""
        rest = self._buffer[self._position :]
        self._buffer, self._position = b"", 0
        return rest

    def let_go(self) -> bytes:
        """Gives up the frame that is being collected, unless all of it has come: returns what has come, and the rest
        passes. Returns no bytes where no frame is being collected.
        """
        begun = bytes(self._parts) or self._buffer[self._position :]
        if len(begun) >= self._taking:
            return b""
        self.passing, self._taking = self._taking - len(begun), 0
        self._buffer, self._position, self._parts = b"", 0, bytearray()
        return begun

    def push(self, chunk: bytes) -> None:
        """Adds what was read."""
        held = self._buffer[self._position :]
        self._position = 0
        if self._taking > len(self._parts) + len(held) + len(chunk):
            # A long frame is being collected. Pieces of two bytes, kept as they are, would take 25 times their size.
            self._parts.extend(held)
            self._parts.extend(chunk)
            self._buffer = b""
        elif self._parts:
            self._parts.extend(chunk)
            self._buffer, self._parts = bytes(self._parts), bytearray()
        else:
            self._buffer = held + chunk if held else chunk

    def next(self) -> Run | Frame | None:
        """The next run or taken frame; None where more bytes are needed. Raises BadFrameLength."""
        if self._taking:
            return self._taken()
        buffer, start, end = self._buffer, self._position, len(self._buffer)
        position = start
        while True:
            step = min(self.passing, end - position)
            self.passing -= step
            position += step
            left = end - position
            if left < LENGTH_BYTES:
                break
            size = _unpack_length(buffer, position)[0]
            if not self.smallest <= size <= self._largest:
                # What came before is whole and goes on; the next call meets the bad length again.
                if position > start:
                    break
                raise BadFrameLength(f"a frame of {size} bytes")
            if left < self.head:
                break
            look = self._look(buffer, position, end)
            if look is Look.PASS:
                self.passing = LENGTH_BYTES + size
            else:
                if look is Look.TAKE:
                    self._taking = LENGTH_BYTES + size
                break
        self._move_to(position)
        if position > start:
            return Run(buffer if position - start == end else buffer[start:position])
        return self._taken() if self._taking else None

    def _taken(self) -> Frame | None:
        end = self._position + self._taking
        if end > len(self._buffer):
            return None
        whole = self._position == 0 and end == len(self._buffer)
        frame = Frame(self._buffer if whole else self._buffer[self._position : end])
        self._taking = 0
        self._move_to(end)
        return frame

    def _move_to(self, position: int) -> None:
        if position == len(self._buffer):
            self._buffer, position = b"", 0  # Nothing is kept for who is silent.
        self._position = position
