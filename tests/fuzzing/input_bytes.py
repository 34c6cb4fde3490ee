"""Takes numbers and pieces from the bytes of an input. An input that is too short gives zeros and empty pieces."""


class InputBytes:
    """Reads an input from its start."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether bytes are left."""
        return self._at < len(self._data)

    def number(self, size: int = 1) -> int:
        """Returns the next `size` bytes as an unsigned number."""
        return int.from_bytes(self.take(size), "big")

    def take(self, size: int) -> bytes:
        """Returns the next `size` bytes, or fewer at the end."""
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]

    def piece(self) -> bytes:
        """Reads a length of two bytes. Returns as many of the bytes after it."""
        return self.take(self.number(2))

    def rest(self) -> bytes:
        """Returns all bytes that are left."""
        return self.take(len(self._data))


def piece(data: bytes) -> bytes:
    """Returns the bytes from which `InputBytes.piece` reads `data`."""
    return len(data).to_bytes(2, "big") + data


def pieces(data: bytes, size: int) -> list[bytes]:
    """Cuts data into pieces of `size` bytes; 0 for one piece."""
    return [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
