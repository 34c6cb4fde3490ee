"""Cuts a stream of length-prefixed frames into bytes to forward and frames to hold.

This module decides where frames begin and end. The caller's `inspect` function decides once for each frame, from its
first bytes, whether the frame is forwarded, edited or held.

Neighbouring forwarded frames leave as one slice of the chunk in which they arrived. A long forwarded frame leaves piece
by piece as it arrives. Only a held frame is collected until it is complete.
"""

import struct
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from group_sidecar.proxy.dataplane.frame_editor import FrameEditor

LENGTH_BYTES: Final = 4
_unpack_length: Final = struct.Struct(">i").unpack_from


class FrameAction(Enum):
    """How a frame is treated."""

    PASS = "pass"
    """Forward the frame unchanged."""
    HOLD = "hold"
    """Collect the frame and return it whole."""
    DEFER = "defer"
    """Forward the frame unchanged, and keep its bytes to decode them later. `FrameWalker` never gets this action: the
    session turns DEFER into PASS or HOLD."""
    PEEK = "peek"
    """Forward the frame unchanged, and keep the part that arrived with its first bytes to decode this part later.
    `FrameWalker` never gets this action: the session turns PEEK into PASS."""
    EDIT = "edit"
    """Forward the frame, but change its length and its end with the walker's `editor`. The session turns EDIT into HOLD
    for a frame that has arrived whole."""
    NEED_MORE = "need_more"
    """The first bytes are not enough to decide. `inspect` is called again when more bytes have arrived."""


PASS: Final = FrameAction.PASS
HOLD: Final = FrameAction.HOLD
DEFER: Final = FrameAction.DEFER
PEEK: Final = FrameAction.PEEK
EDIT: Final = FrameAction.EDIT
NEED_MORE: Final = FrameAction.NEED_MORE
"""The members as module constants, because Python looks up members of an enum slowly."""


class PassedBytes(NamedTuple):
    """Bytes to forward as they are: complete frames, or a part of a frame, which an editor may have changed."""

    data: bytes


class HeldFrame(NamedTuple):
    """A complete held frame, with its length."""

    data: bytes


class BadFrameLength(Exception):
    """A frame has an impossible length, so the start of the next frame is unknown."""


def _inspect_nothing(buffer: bytes, start: int, end: int) -> FrameAction:
    return FrameAction.NEED_MORE


class FrameWalker:
    """Cuts one direction of a connection into frames.

    Args:
        head: how many bytes of a frame `inspect` needs, including the length.
        smallest: the shortest length that a frame may have. `smallest` plus the length's own bytes must be at least
            `head`.
        largest: the longest length that a frame may have. Any other length raises BadFrameLength.
        inspect: called as inspect(buffer, start, end) with a frame's first bytes from `start`. `end` is the end of the
            buffer. `inspect` may change `head` and `smallest` for the frames after this one.

    Attributes:
        passing: how many bytes of the last forwarded frame have not arrived yet. A caller that forwards such bytes
            without this object must lower `passing` by their number. For an edited frame, only the bytes that the last
            `FrameEditor.skip` let pass are counted.
        editor: changes the frame that is arriving, or None. `inspect` sets it before it returns EDIT.
    """

    def __init__(
        self, head: int, smallest: int, largest: int, inspect: Callable[[bytes, int, int], FrameAction]
    ) -> None:
        self.head = head
        self.smallest = smallest
        self._largest = largest
        self._inspect = inspect
        self._buffer = b""
        self._position = 0
        self.passing = 0
        self.editor: FrameEditor | None = None
        self._edit_begins = False
        self._held_size = 0
        self._parts = bytearray()

    def is_frame(self, chunk: bytes) -> bool:
        """Whether a chunk is exactly one complete frame of a possible length."""
        size = len(chunk) - LENGTH_BYTES
        return self.smallest <= size <= self._largest and _unpack_length(chunk)[0] == size

    def feed(self, chunk: bytes) -> PassedBytes | HeldFrame | None:
        """Adds a chunk that was read, and returns what `next` returns."""
        if self.passing >= len(chunk):
            self.passing -= len(chunk)
            return PassedBytes(chunk)
        self.push(chunk)
        return self.next()

    def end(self) -> None:
        """Drops the held bytes. Drops `inspect` too, so that the walker and its session form no reference cycle."""
        self._inspect = _inspect_nothing
        self.editor = None
        self._buffer, self._position = b"", 0
        self._parts = bytearray()

    @property
    def between_frames(self) -> bool:
        """Whether all frames that have begun are complete."""
        return not (self.is_forwarding or self._held_size or self._position < len(self._buffer))

    @property
    def is_forwarding(self) -> bool:
        """Whether a forwarded or edited frame has not arrived completely."""
        return bool(self.passing) or self.editor is not None

    @property
    def held_bytes(self) -> int:
        """The number of bytes that are held: bytes not looked at yet, and parts of a held frame."""
        return len(self._buffer) - self._position + len(self._parts)

    @property
    def has_more(self) -> bool:
        """Whether the buffer contains bytes that were not looked at yet."""
        return self._position < len(self._buffer)

    @property
    def start(self) -> bytes:
        """The first four bytes in the buffer, or fewer if the buffer is shorter."""
        return self._buffer[self._position : self._position + LENGTH_BYTES]

    def rest(self) -> bytes:
        """Empties the buffer and returns its bytes, because the stream has no more frames.

        Must not be called while a frame is held.
        """
        rest = self._buffer[self._position :]
        self._buffer, self._position = b"", 0
        return rest

    def evict_partial(self) -> bytes:
        """Stops collecting an incomplete held frame and returns the part that has arrived. The rest will be forwarded.

        Returns no bytes if no frame is being collected or the held frame is complete.
        """
        begun = bytes(self._parts) or self._buffer[self._position :]
        if len(begun) >= self._held_size:
            return b""
        self.passing, self._held_size = self._held_size - len(begun), 0
        self._buffer, self._position, self._parts = b"", 0, bytearray()
        return begun

    def push(self, chunk: bytes) -> None:
        """Adds a chunk that was read."""
        if not chunk:
            return  # Without this return, a long buffer would be copied.
        held = self._buffer[self._position :]
        self._position = 0
        if self._held_size > len(self._parts) + len(held) + len(chunk):
            # A long frame is being collected. A list of its pieces would take more memory: 25 times as much for pieces
            # of two bytes.
            self._parts.extend(held)
            self._parts.extend(chunk)
            self._buffer = b""
        elif self._parts:
            self._parts.extend(chunk)
            self._buffer, self._parts = bytes(self._parts), bytearray()
        else:
            self._buffer = held + chunk if held else chunk

    def next(self) -> PassedBytes | HeldFrame | None:  # noqa: C901  Splitting it would slow each frame.
        """Returns the next bytes to forward or the next held frame, or None if more bytes are needed.

        Raises:
            BadFrameLength: the next frame has an impossible length.
            FrameEditError: an edited frame cannot be changed.
        """
        if self._held_size:
            return self._held_frame()
        if self.editor is not None and not self.passing:
            return self._edited_part(self.editor)
        buffer, start, end = self._buffer, self._position, len(self._buffer)
        position = start
        while True:
            step = min(self.passing, end - position)
            self.passing -= step
            position += step
            left = end - position
            if left < LENGTH_BYTES or self.editor is not None:
                break
            size = _unpack_length(buffer, position)[0]
            if not self.smallest <= size <= self._largest:
                # The frames before this one are complete and are forwarded. The next call finds the bad length again.
                if position > start:
                    break
                raise BadFrameLength(f"a frame of {size} bytes")
            if left < self.head:
                break
            action = self._inspect(buffer, position, end)
            if action is FrameAction.PASS:
                self.passing = LENGTH_BYTES + size
            else:
                if action is FrameAction.HOLD:
                    self._held_size = LENGTH_BYTES + size
                self._edit_begins = action is FrameAction.EDIT
                break
        self._move_to(position)
        if position > start:
            return PassedBytes(buffer if position - start == end else buffer[start:position])
        if self._edit_begins and self.editor is not None:
            return self._edited_part(self.editor)
        return self._held_frame() if self._held_size else None

    def _edited_part(self, editor: FrameEditor) -> PassedBytes | HeldFrame | None:
        """Returns the next part of the edited frame, or None if more bytes are needed."""
        buffer, start, end = self._buffer, self._position, len(self._buffer)
        if self._edit_begins:
            self._edit_begins = False
            self._move_to(start + LENGTH_BYTES)
            return PassedBytes(editor.length(buffer[start : start + LENGTH_BYTES]))
        size = editor.skip(buffer, start, end)
        self._held_size = editor.tail_bytes
        if not size:
            return self._held_frame() if self._held_size else None
        stop = min(start + size, end)
        self.passing = start + size - stop
        self._move_to(stop)
        return PassedBytes(buffer[start:stop])

    def _held_frame(self) -> PassedBytes | HeldFrame | None:
        end = self._position + self._held_size
        if end > len(self._buffer):
            return None
        whole = self._position == 0 and end == len(self._buffer)
        frame = HeldFrame(self._buffer if whole else self._buffer[self._position : end])
        self._held_size = 0
        self._move_to(end)
        if self.editor is not None:
            editor, self.editor = self.editor, None
            return PassedBytes(editor.edit(frame.data))
        return frame

    def _move_to(self, position: int) -> None:
        if position == len(self._buffer):
            self._buffer, position = b"", 0  # An idle connection keeps no memory.
        self._position = position
