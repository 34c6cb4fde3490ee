"""What the declarations of the messages say, walked: the ground for strategies, samples and oracles.

Owns: the list of messages, which fields a version has, and a message brought down to a version.
Must not know: bytes.
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
"""Every message that is decoded."""

CASES: list[tuple[type[Struct], int]] = [(cls, version) for cls in MESSAGES for version in cls.VERSIONS]
"""Every message in every version."""

ZEROS: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": ZERO_UUID}
"""Kafka's implicit default by type; 0 for the numbers."""


def case_id(value: object) -> str:
    """How a message or a version is named in test ids."""
    return value.NAME if isinstance(value, type) and issubclass(value, Struct) else str(value)


def present(cls: type[Struct], version: int) -> dict[str, FieldSpec]:
    """The fields of a struct that are there in a version."""
    return {name: spec for name, spec in field_specs(cls).items() if spec.since <= version <= spec.until}


def may_be_null(spec: FieldSpec, version: int) -> bool:
    """Whether a field may be null in a version."""
    return spec.nullable <= version <= spec.nullable_until


def ever_null(spec: FieldSpec) -> bool:
    """Whether a field may be null in some version."""
    return spec.nullable <= FOREVER


def inner_struct(kind: FieldType) -> type[Struct] | None:
    """The struct that a field, or each element of it, is; None where it is of a wire type."""
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
    """The value of a type that is as empty as it can be, and not null."""
    if isinstance(kind, Array):
        return ()
    if isinstance(kind, WireType):
        return ZEROS.get(kind.name, 0)
    return kind(**{name: zero(spec.kind) for name, spec in field_specs(kind).items()})


def at_version(message: Any, version: int, flexible: bool) -> Any:
    """The same as a version can say it: what the version lacks is at its default, a forbidden null is emptied."""
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


def brought_down(message: Any, version: int) -> Any:
    """`at_version` of a whole message."""
    return at_version(message, version, version >= type(message).FLEXIBLE)


def full_sample(cls: type[Struct]) -> Any:
    """A message in which every field has a value of its own, so that no two can be mistaken for each other."""
    return _sample(cls, count(1), nulls=False)


def null_sample(cls: type[Struct]) -> Any:
    """A message with null wherever it may ever stand, in one element per array."""
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
