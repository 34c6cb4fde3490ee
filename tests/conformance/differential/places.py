"""An answer as a value for each place, so that two can be compared whose lists have another order, and other names.

Owns: the places, and `differences`. Must not know: whose answers they are, what may differ.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import count
from typing import Any, NamedTuple

from group_sidecar.codecs.schema import Struct

ABSENT, THERE = "absent", "there"
_IDENTITIES = ("group_id", "member_id", "name", "partition_index")
"""Fields by which an item of a list is known."""

Place = tuple[str, ...]
"""Names of fields, and of items of lists."""


class Difference(NamedTuple):
    """One place where two answers differ, and what they say there: `ABSENT` where one lacks it."""

    place: str
    expected: Any
    told: Any

    def __str__(self) -> str:
        return f"{self.place}: {self.expected!r} is expected, {self.told!r} is told"


Naming = Callable[[str], str]
"""Gives a text that is made by chance a name that is the same in every run, and any other text as it is."""


def places(answer: Struct, naming: Naming) -> dict[Place, Any]:
    """The values of an answer by place; an item of a list is `THERE`."""
    return dict(_places(answer, naming, ()))


def _places(value: Any, naming: Naming, place: Place) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, Struct):
        assert is_dataclass(value)
        for each in fields(value):
            yield from _places(getattr(value, each.name), naming, (*place, each.name))
    elif isinstance(value, tuple):
        for name, item in _named(value, naming):
            yield (*place, name), THERE
            yield from _places(item, naming, (*place, name))
    else:
        yield place, naming(value) if isinstance(value, str) else value


def _named(items: Sequence[Struct], naming: Naming) -> Iterator[tuple[str, Struct]]:
    """The items by what they are known by. Of several that are known alike all but the first are numbered."""
    seen: dict[str, count[int]] = {}
    for item in items:
        name = naming(next(str(getattr(item, field)) for field in _IDENTITIES if hasattr(item, field)))
        number = next(seen.setdefault(name, count(1)))
        yield (f"{name} ({number})" if number > 1 else name), item


def differences(expected: Mapping[Place, Any], told: Mapping[Place, Any]) -> Iterator[Difference]:
    """Where two answers differ. What one lacks is told once, and not field by field."""
    lacking = {place for place in expected.keys() ^ told.keys() if THERE in (expected.get(place), told.get(place))}
    for place in sorted(expected.keys() | told.keys()):
        pair = expected.get(place, ABSENT), told.get(place, ABSENT)
        if pair[0] != pair[1] and not any(place[:end] in lacking for end in range(len(place))):
            yield Difference(".".join(place), *pair)
