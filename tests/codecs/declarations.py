"""Walks the declarations of the messages, for Hypothesis strategies, samples and expected values.

Contains the list of messages, the fields of each version, and `at_version`, which limits a message to a version.
"""

import dataclasses
from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import UUID

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.primitives import ZERO_UUID, WireType
from group_sidecar.codecs.schema import FOREVER, Array, FieldSpec, FieldType, Struct, field_specs

MESSAGES: list[type[Struct]] = [cls for api in APIS.values() for cls in (api.request, api.response)]
"""The request and the response class of every API in the registry."""

CASES: list[tuple[type[Struct], int]] = [(cls, version) for cls in MESSAGES for version in cls.VERSIONS]
"""Every message in every version."""

ZEROS: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": ZERO_UUID}
"""Kafka's implicit default by type; 0 for the numbers."""


def case_id(value: object) -> str:
    """The test id of a message class or a version."""
    return value.NAME if isinstance(value, type) and issubclass(value, Struct) else str(value)


def present(cls: type[Struct], version: int) -> dict[str, FieldSpec]:
    """The fields that a struct has in a version, by name."""
    return {name: spec for name, spec in field_specs(cls).items() if spec.since <= version <= spec.until}


def may_be_null(spec: FieldSpec, version: int) -> bool:
    """Whether a field may be null in a version."""
    return spec.nullable <= version <= spec.nullable_until


def ever_null(spec: FieldSpec) -> bool:
    """Whether a field may be null in some version."""
    return spec.nullable <= FOREVER


def inner_struct(kind: FieldType) -> type[Struct] | None:
    """The struct type of a field or of its array elements, or None for a wire type."""
    inner = kind.of if isinstance(kind, Array) else kind
    return None if isinstance(inner, WireType) else inner


def structs_in(cls: type[Struct]) -> Iterator[type[Struct]]:
    """A struct and all structs inside it, each once."""
    seen = {cls: None}
    for outer in (queue := [cls]):
        for spec in field_specs(outer).values():
            inner = inner_struct(spec.kind)
            if inner is not None and inner not in seen:
                seen[inner] = None
                queue.append(inner)
    return iter(seen)


def defaults(cls: type[Struct]) -> dict[str, Any]:
    """The declared defaults; `dataclasses.MISSING` where a field is required."""
    return {field.name: field.default for field in dataclasses.fields(cls)}


def zero(kind: FieldType) -> Any:
    """The zero value of a type: zero, false, empty or a struct of zero values; never null."""
    if isinstance(kind, Array):
        return ()
    if isinstance(kind, WireType):
        return ZEROS.get(kind.name, 0)
    return kind(**{name: zero(spec.kind) for name, spec in field_specs(kind).items()})


def at_version(message: Any, version: int, flexible: bool) -> Any:
    """A copy of a struct, limited to what a version can encode.

    A field that the version does not have gets its default. A null that the version forbids becomes the zero value.
    """
    changes: dict[str, Any] = {} if flexible else {"unknown_tags": ()}
    absent = defaults(type(message))
    for name, spec in field_specs(type(message)).items():
        value = getattr(message, name)
        if not spec.since <= version <= spec.until:
            changes[name] = absent[name]
        elif value is None:
            changes[name] = None if may_be_null(spec, version) else zero(spec.kind)
        elif isinstance(spec.kind, Array) and inner_struct(spec.kind):
            changes[name] = tuple(at_version(item, version, flexible) for item in value)
        elif inner_struct(spec.kind):
            changes[name] = at_version(value, version, flexible)
    return dataclasses.replace(message, **changes)


def limited_to(message: Any, version: int) -> Any:
    """Returns a copy of a whole message, limited to what a version can encode. See `at_version`."""
    return at_version(message, version, version >= type(message).FLEXIBLE)


def full_sample(cls: type[Struct]) -> Any:
    """A message in which every field except booleans has a different value, so that a test detects swapped fields."""
    return _sample(cls, count(1), nulls=False)


def null_sample(cls: type[Struct]) -> Any:
    """A message with null in every field that is nullable in some version, and one element in every other array."""
    return _sample(cls, count(1), nulls=True)


def _sample(kind: FieldType, numbers: Iterator[int], nulls: bool) -> Any:
    if isinstance(kind, Array):
        return tuple(_sample(kind.of, numbers, nulls) for _ in range(1 if nulls else 2))
    if not isinstance(kind, WireType):
        fields: dict[str, Any] = {
            name: None if nulls and ever_null(spec) else _sample(spec.kind, numbers, nulls)
            for name, spec in field_specs(kind).items()
        }
        return kind(**fields)
    number = next(numbers)
    match kind.name:
        case "bool":
            return True
        case "string":
            return f"s{number}é"
        case "bytes" | "records":
            return b"\xff" + number.to_bytes(1)
        case "uuid":
            return UUID(int=number << 64 | 0xFF)
        case _:
            return -number if number % 2 else number
