"""Frozen dataclasses made cheaply, for what is made with every request.

Owns: `twin`, `maker` and `changer`. Must not know: what any class means.

A frozen dataclass sets each field through `object.__setattr__`, and calling a class packs its arguments twice. So a
plain object is filled, and then takes on the class: Python allows a change of class where both have the same slots.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@cache
def twin(cls: type[Any]) -> type[Any]:
    """The same class, but mutable and without `__init__`. `cls`: a frozen dataclass with slots.

    It has to have the same bases, and so it is found among their subclasses.
    """
    plain = {name: getattr(object, name) for name in ("__init__", "__setattr__", "__delattr__")}
    return type(cls.__name__, cls.__bases__, {"__slots__": cls.__slots__, **plain})


def maker(cls: Callable[P, T]) -> Callable[P, T]:
    """What does the same as calling a frozen dataclass with slots, in a quarter of the time.

    The source is made and run in the way of the standard library's dataclasses.
    """
    names: dict[str, Any] = {"cls": cls, "twin": twin(cls), "missing": MISSING}
    declared = fields(cls)  # type: ignore[arg-type]
    positional = [_parameter(field, names) for field in declared if not field.kw_only]
    keywords = [_parameter(field, names) for field in declared if field.kw_only]
    lines = [f"def make({', '.join([*positional, *(['*'] if keywords else []), *keywords])}):", "self = twin()"]
    lines += [line for field in declared for line in _setting(field)]
    lines += ["self.__class__ = cls", "return self"]
    exec("\n    ".join(lines), names)
    make: Callable[P, T] = names["make"]
    return make


def changer(cls: Callable[..., T], name: str) -> Callable[[T, Any], T]:
    """What makes another instance of a frozen dataclass with slots, in which one field has another value."""
    names: dict[str, Any] = {"cls": cls, "twin": twin(cls)}
    declared = fields(cls)  # type: ignore[arg-type]
    values = ((each.name, name if each.name == name else f"given.{each.name}") for each in declared)
    lines = [f"def change(given, {name}):", "self = twin()", *(f"self.{field} = {value}" for field, value in values)]
    exec("\n    ".join([*lines, "self.__class__ = cls", "return self"]), names)
    change: Callable[[T, Any], T] = names["change"]
    return change


def _parameter(field: Field[Any], names: dict[str, Any]) -> str:
    if field.default is MISSING and field.default_factory is MISSING:
        return field.name
    names[f"default_{field.name}"] = field.default
    names[f"new_{field.name}"] = field.default_factory
    return f"{field.name}=default_{field.name}"


def _setting(field: Field[Any]) -> Iterator[str]:
    if field.default_factory is not MISSING:
        yield f"if {field.name} is missing: {field.name} = new_{field.name}()"
    yield f"self.{field.name} = {field.name}"
