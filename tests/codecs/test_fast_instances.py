"""Instances of a maker are like those of the class: equal, of the same class, and as immutable."""

import copy
import pickle
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.fast_instances import fast_constructor


@dataclass(frozen=True, slots=True)
class Point:
    """A class with positional fields."""

    x: int
    y: int = 0
    label: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A base class."""

    name: str
    names: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Base):
    """A class with a field without a default after a field with a default."""

    number: int
    more: tuple[int, ...] = ()

    @property
    def twice(self) -> int:
        return 2 * self.number


@dataclass(frozen=True, slots=True)
class Mixed:
    """A class with both kinds of fields."""

    first: int
    second: int = field(default=2, kw_only=True)


CASES: list[tuple[Callable[..., Any], Mapping[str, st.SearchStrategy[Any]], set[str]]] = [
    (Point, {"x": st.integers(), "y": st.integers(), "label": st.text()}, {"x"}),
    (Base, {"name": st.text(), "names": st.dictionaries(st.text(), st.integers())}, {"name"}),
    (Derived, {"name": st.text(), "number": st.integers(), "more": st.just((1, 2))}, {"name", "number"}),
    (Mixed, {"first": st.integers(), "second": st.integers()}, {"first"}),
]
MAKERS = {cls: fast_constructor(cls) for cls, _, _ in CASES}
each = pytest.mark.parametrize(("cls", "values", "needed"), CASES)


@each
@given(st.data())
def test_instance_equals_class_instance(
    cls: Callable[..., Any], values: Mapping[str, st.SearchStrategy[Any]], needed: set[str], data: st.DataObject
) -> None:
    """A fast constructor returns an instance equal to the class's own, including type, repr, copies and pickles."""
    given = {name: data.draw(each) for name, each in values.items() if name in needed or data.draw(st.booleans())}
    expected, made = cls(**given), MAKERS[cls](**given)
    assert (made, repr(made), type(made)) == (expected, repr(expected), cls)
    assert [getattr(made, each.name) for each in fields(expected)] == [
        getattr(expected, each.name) for each in fields(expected)
    ]
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == replace(made) == expected


@each
def test_missing_and_unknown_arguments(
    cls: Callable[..., Any], values: Mapping[str, st.SearchStrategy[Any]], needed: set[str]
) -> None:
    """A fast constructor raises TypeError for a missing field and for an unknown field."""
    for left_out in needed:
        with pytest.raises(TypeError, match=left_out):
            MAKERS[cls](**dict.fromkeys(needed - {left_out}, 1))
    with pytest.raises(TypeError, match="other"):
        MAKERS[cls](**dict.fromkeys(needed, 1), other=2)


def test_positional_arguments() -> None:
    """A fast constructor accepts the same positional arguments as the class."""
    assert MAKERS[Point](1, 2, "here") == Point(1, 2, "here")
    assert MAKERS[Mixed](1, second=3) == Mixed(1, second=3)
    for cls, arguments in ((Mixed, (1, 3)), (Base, ("name",))):
        with pytest.raises(TypeError, match="positional argument"):
            MAKERS[cls](*arguments)


def test_hashes_are_equal() -> None:
    """An instance of a fast constructor has the same hash as the class's own."""
    assert hash(MAKERS[Point](1, 2)) == hash(Point(1, 2))


def test_instance_is_immutable() -> None:
    """An instance of a fast constructor rejects changed, deleted and undeclared attributes."""
    made = fast_constructor(Derived)(name="n", number=1)
    assert made.twice == 2
    with pytest.raises(FrozenInstanceError):
        made.number = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del made.number
    with pytest.raises(AttributeError):
        object.__setattr__(made, "not_declared", 1)


def test_default_factory_runs_per_instance() -> None:
    """A fast constructor calls a default factory for each instance."""
    one, other = fast_constructor(Base)(name="n"), fast_constructor(Base)(name="n")
    assert one.names == other.names == {}
    assert one.names is not other.names
