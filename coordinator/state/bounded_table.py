"""A table of values by name, with bounds in entries and in bytes. The oldest entry is evicted first."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")

ENTRY_BYTES = 200
"""Estimated bytes of an entry without its name: its share of the dictionary, and the object headers of name and value.
"""
TABLE_BYTES = 64_000_000
"""Maximum estimated bytes of one table of names."""


class TableSize(NamedTuple):
    """The size of a table. `bytes` is an estimate."""

    name: str
    entries: int
    bytes: int


def name_bytes(name: str) -> int:
    """Returns the estimated bytes of an entry under this name. A name in Kafka has at most 32,767 bytes.

    If a name has any character outside of ASCII, Python may store each of its characters in four bytes.
    """
    return ENTRY_BYTES + (len(name) if name.isascii() else 4 * len(name))


class BoundedTable(Generic[V]):
    """Values by name, in the order in which they were put. The oldest entries are evicted first.

    Args:
        max_entries: how many entries are kept.
        on_evict: called with each entry that is evicted for a newer entry.
        max_bytes: how many bytes all entries may take, as `name_bytes` counts them.

    Attributes:
        bytes: the estimated bytes of all entries.
    """

    def __init__(
        self, max_entries: int, on_evict: Callable[[str, V], None] | None = None, max_bytes: int = TABLE_BYTES
    ) -> None:
        self.bytes = 0
        # Not a dict: to find its first entry, a dict iterates over the slots of all entries that were removed before.
        self._values: OrderedDict[str, V] = OrderedDict()
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._on_evict = on_evict

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> V | None:
        """Returns the value under a name; None if the name has no entry."""
        return self._values.get(name)

    def first(self) -> tuple[str, V] | None:
        """Returns the oldest entry; None if the table is empty."""
        return next(iter(self._values.items()), None)

    def put(self, name: str, value: V) -> bool:
        """Stores a value under a name as the newest entry, and evicts the oldest entries beyond the bounds.

        Returns whether any entry was evicted.
        """
        self.pop(name)
        self._values[name] = value
        self.bytes += name_bytes(name)
        evicts = False
        while len(self._values) > self._max_entries or self.bytes > self._max_bytes:
            oldest, evicted_value = self._values.popitem(last=False)
            self.bytes -= name_bytes(oldest)
            evicts = True
            if self._on_evict is not None:
                self._on_evict(oldest, evicted_value)
        return evicts

    def pop(self, name: str) -> V | None:
        """Removes an entry. Returns its value; None if the name has no entry."""
        if name not in self._values:
            return None
        self.bytes -= name_bytes(name)
        return self._values.pop(name)

    def clear(self) -> None:
        """Removes all entries."""
        self._values.clear()
        self.bytes = 0
