"""Defines the interface of the editors, which change a long frame while the frame passes."""

from abc import ABC, abstractmethod


class FrameEditError(Exception):
    """A frame cannot be changed as required, and a part of the frame was forwarded already."""


class FrameEditor(ABC):
    """Changes the length and the end of one frame. The bytes between them pass unchanged, as they arrive.

    Attributes:
        tail_bytes: the size of the frame's end, which is collected and passed to `edit`. 0 until the end is found.
    """

    tail_bytes: int = 0

    @abstractmethod
    def length(self, length: bytes) -> bytes:
        """Returns the length that replaces the frame's length. This method is called before `skip` and `edit`."""

    @abstractmethod
    def skip(self, buffer: bytes, start: int, end: int) -> int:
        """Returns how many bytes from `start` pass unchanged. These bytes need not have arrived yet.

        Sets `tail_bytes` when only the frame's end follows these bytes. Returns 0 if the frame's end begins at `start`,
        or if the bytes up to `end` are not enough to know.

        Raises:
            FrameEditError: the frame cannot be changed.
        """

    @abstractmethod
    def edit(self, tail: bytes) -> bytes:
        """Returns the bytes that replace the frame's end. Raises FrameEditError."""
