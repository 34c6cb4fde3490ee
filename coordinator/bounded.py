"""A table of names that cannot grow without end.

Owns: `BoundedTable`: its bound in entries and in bytes, and that the oldest entry goes first. Must not know: what the
names and values stand for.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")

ENTRY_BYTES = 200
"""Estimated bytes of an entry without its name: its share of the dictionary, and the heads of the string and value."""
TABLE_BYTES = 64_000_000
"""Bytes that one table of names may take."""


class Table(NamedTuple):
    """How large a table is. `bytes`: an estimate."""

    name: str
    entries: int
    bytes: int


def name_bytes(name: str) -> int:
    """About how many bytes an entry under this name takes. A name in Kafka has at most 32,767.

    One character outside of ASCII makes Python keep each character of a string in up to four bytes.
    """
    return ENTRY_BYTES + (len(name) if name.isascii() else 4 * len(name))


class BoundedTable(Generic[V]):
    """Values by name, in the order in which they were put. The oldest entries are evicted first.

    Args:
        most: entries that are kept.
        evicted: is called with each entry that is evicted for a newer one.
        most_bytes: bytes of names that are kept, as `name_bytes` counts them.

    Attributes:
        bytes: estimated bytes of all entries.
    """

    def __init__(
        self, most: int, evicted: Callable[[str, V], None] | None = None, most_bytes: int = TABLE_BYTES
    ) -> None:
        self.bytes = 0
        # Not a dict: to find its first entry, a dict passes over all places of entries that were taken out before it.
        self._values: OrderedDict[str, V] = OrderedDict()
        self._most, self._most_bytes = most, most_bytes
        self._evicted = evicted

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> V | None:
        """The value under a name; None where there is none."""
        return self._values.get(name)

    def first(self) -> tuple[str, V] | None:
        """The oldest entry; None in an empty table."""
        return next(iter(self._values.items()), None)

    def put(self, name: str, value: V) -> bool:
        """Puts a value under a name, as the newest, and evicts the oldest entries beyond the bounds. Returns whether
        any was evicted.
        """
        self.pop(name)
        self._values[name] = value
        self.bytes += name_bytes(name)
        evicts = False
        while len(self._values) > self._most or self.bytes > self._most_bytes:
            oldest, gone = self._values.popitem(last=False)
            self.bytes -= name_bytes(oldest)
            evicts = True
            if self._evicted is not None:
                self._evicted(oldest, gone)
        return evicts

    def pop(self, name: str) -> V | None:
        """Takes an entry out; None where there is none."""
        if name not in self._values:
            return None
        self.bytes -= name_bytes(name)
        return self._values.pop(name)

    def clear(self) -> None:
        """Takes all entries out."""
        self._values.clear()
        self.bytes = 0
