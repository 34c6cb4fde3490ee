"""Flattens replies to values by path, so that two replies with different orders and names can be compared."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import count
from typing import Any, NamedTuple

from group_sidecar.codecs.schema import Struct

ABSENT, PRESENT = "absent", "there"
_IDENTITIES = ("group_id", "member_id", "name", "partition_index")
"""Fields that identify an item of a list."""

AnswerPath = tuple[str, ...]
"""A path of field names and names of list items."""


class Difference(NamedTuple):
    """One path at which two replies differ, with both values. `ABSENT` stands for a missing value."""

    place: str
    expected: Any
    actual: Any

    def __str__(self) -> str:
        return f"{self.place}: {self.expected!r} is expected, the reply has {self.actual!r}"


NameNormalizer = Callable[[str], str]
"""Maps a random text to a name that is equal in every run. Any other text stays unchanged."""


def places(answer: Struct, naming: NameNormalizer) -> dict[AnswerPath, Any]:
    """Returns the values of a reply by path. The value of a list item is `PRESENT`."""
    return dict(_places(answer, naming, ()))


def _places(value: Any, naming: NameNormalizer, place: AnswerPath) -> Iterator[tuple[AnswerPath, Any]]:
    if isinstance(value, Struct):
        assert is_dataclass(value)
        for each in fields(value):
            yield from _places(getattr(value, each.name), naming, (*place, each.name))
    elif isinstance(value, tuple):
        for name, item in _named(value, naming):
            yield (*place, name), PRESENT
            yield from _places(item, naming, (*place, name))
    else:
        yield place, naming(value) if isinstance(value, str) else value


def _named(items: Sequence[Struct], naming: NameNormalizer) -> Iterator[tuple[str, Struct]]:
    """Yields the items with their identifying names. Items with equal names are numbered from the second one on."""
    seen: dict[str, count[int]] = {}
    for item in items:
        name = naming(next(str(getattr(item, field)) for field in _IDENTITIES if hasattr(item, field)))
        number = next(seen.setdefault(name, count(1)))
        yield (f"{name} ({number})" if number > 1 else name), item


def differences(expected: Mapping[AnswerPath, Any], answer: Mapping[AnswerPath, Any]) -> Iterator[Difference]:
    """Yields the differences of two replies. An item that only one reply has is one difference, whatever its fields."""
    lacking = {
        place for place in expected.keys() ^ answer.keys() if PRESENT in (expected.get(place), answer.get(place))
    }
    for place in sorted(expected.keys() | answer.keys()):
        pair = expected.get(place, ABSENT), answer.get(place, ABSENT)
        if pair[0] != pair[1] and not any(place[:end] in lacking for end in range(len(place))):
            yield Difference(".".join(place), *pair)
