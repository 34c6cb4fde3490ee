"""Declares a message once, as fields with their versions, and derives one layout per version.

A declaration resembles Kafka's own JSON schema:

    @request(key=12, versions=(0, 4), flexible=4)
    class HeartbeatRequest(Struct):
        group_id: str = wire_field(STRING)
        group_instance_id: str | None = wire_field(STRING, since=3, nullable=3, default=None)

A field that a version lacks has its default when the message is decoded, and is left out when the message is encoded.
Tagged fields that the declaration does not name are kept in `unknown_tags` and written back, sorted by their tags.
"""

import dataclasses
from collections.abc import Callable
from io import BytesIO
from typing import Any, ClassVar, TypeVar, dataclass_transform

from construct import Construct, ConstructError

from group_sidecar.codecs.errors import DecodeError, TooManyElements
from group_sidecar.codecs.generated_code import (
    NO_ELEMENT_LIMIT,
    READ_FAILURES,
    WRITE_FAILURES,
    ElementLimitExceeded,
    Reader,
    Writer,
    compile_reader,
    compile_writer,
)
from group_sidecar.codecs.layouts import Layout
from group_sidecar.codecs.primitives import COMPACT, INT, NullableStruct, SizedArray, WireType

FOREVER = 0x7FFF
"""As `until`, this value means every version from `since` on. As `flexible`, it means that no version is flexible."""

Tag = tuple[int, bytes]
T = TypeVar("T", bound="Struct")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Struct:
    """Base of every message and every struct inside one: immutable, compared by value.

    Attributes:
        unknown_tags: (tag, raw value) pairs that the declaration does not name, in the order of their tags.
    """

    unknown_tags: tuple[Tag, ...] = ()
    NAME: ClassVar[str]
    KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[range] = range(0)
    FLEXIBLE: ClassVar[int] = FOREVER
    HEADER_FLEXIBLE: ClassVar[int] = FOREVER
    """First version whose *header* has tagged fields. It equals FLEXIBLE, except in ApiVersions replies."""


@dataclasses.dataclass(frozen=True)
class Array:
    """The type of an array field. The elements have a wire type or are structs."""

    of: "WireType | type[Struct]"


FieldType = WireType | Array | type[Struct]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldSpec:
    """A field's type, the versions in which it is present, the versions in which it may be null, and its tag."""

    kind: FieldType
    since: int
    until: int
    nullable: int
    nullable_until: int
    tag: int | None


def wire_field(
    kind: FieldType,
    *,
    since: int = 0,
    until: int = FOREVER,
    nullable: int = FOREVER + 1,
    nullable_until: int = FOREVER,
    tag: int | None = None,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declares a field of versions `since` to `until`, nullable in versions `nullable` to `nullable_until`.

    The first and the last version of each range are included. With `tag`, the field is a tagged field (KIP-482) and is
    written only if it differs from its default.
    """
    spec = FieldSpec(kind=kind, since=since, until=until, nullable=nullable, nullable_until=nullable_until, tag=tag)
    return dataclasses.field(default=default, metadata={"spec": spec})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire_field,))
def struct(cls: type[T]) -> type[T]:
    """Turns a declared class into an immutable struct."""
    cls.NAME = cls.__name__
    return dataclasses.dataclass(frozen=True, kw_only=True, slots=True)(cls)


def _message(key: int, versions: tuple[int, int], flexible: int, header_flexible: int) -> Callable[[type[T]], type[T]]:
    def declare(cls: type[T]) -> type[T]:
        cls.KEY = key
        cls.VERSIONS = range(versions[0], versions[1] + 1)
        cls.FLEXIBLE = flexible
        cls.HEADER_FLEXIBLE = header_flexible
        return struct(cls)

    return declare


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire_field,))
def request(*, key: int, versions: tuple[int, int], flexible: int = FOREVER) -> Callable[[type[T]], type[T]]:
    """Declares a request: API key, first and last declared version, and first flexible version."""
    return _message(key, versions, flexible, flexible)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire_field,))
def response(
    *, key: int, versions: tuple[int, int], flexible: int = FOREVER, header_flexible: int | None = None
) -> Callable[[type[T]], type[T]]:
    """Declares a response. `header_flexible` is needed only if it differs from `flexible`."""
    return _message(key, versions, flexible, flexible if header_flexible is None else header_flexible)


def field_specs(cls: type[Struct]) -> dict[str, FieldSpec]:
    """Returns the declared fields of a struct, in wire order."""
    return {field.name: field.metadata["spec"] for field in dataclasses.fields(cls) if "spec" in field.metadata}


def _construct(spec: FieldSpec, version: int, flexible: bool) -> Construct:
    nullable = spec.nullable <= version <= spec.nullable_until
    kind = spec.kind
    if isinstance(kind, WireType):
        return kind.make(flexible, nullable)
    if isinstance(kind, Array):
        inner = kind.of
        element = inner.make(flexible, False) if isinstance(inner, WireType) else layout(inner, version, flexible)
        return SizedArray(COMPACT if flexible else INT, nullable, element)
    nested = layout(kind, version, flexible)
    return NullableStruct(nested) if nullable else nested


_layouts: dict[tuple[type[Struct], int, bool], Layout] = {}
_readers: dict[tuple[type[Struct], int], Reader] = {}
_writers: dict[tuple[type[Struct], int], Writer] = {}
_NEEDS_LAYOUT = KeyError, *READ_FAILURES
"""Exceptions after which `_read` compiles the reader, or decodes the message with the layout."""
MAX_LAYOUT_BYTES = 2_048
"""Maximum size of a message that the layout decodes if the caller gives `max_elements`, because the layout takes up to
23 us per byte."""


def layout(cls: type[Struct], version: int, flexible: bool) -> Layout:
    """Returns the layout of a struct in one version. Each layout is built once."""
    key = cls, version, flexible
    found = _layouts.get(key)
    if found is None:
        plain: dict[str, Construct] = {}
        tagged: dict[int, tuple[str, Construct]] = {}
        for name, spec in field_specs(cls).items():
            if spec.since <= version <= spec.until:
                construct = _construct(spec, version, flexible)
                if spec.tag is None:
                    plain[name] = construct
                else:
                    tagged[spec.tag] = name, construct
        found = _layouts[key] = Layout(f"{cls.NAME}_v{version}", cls, flexible, plain, tagged)
    return found


def decode(cls: type[T], version: int, data: bytes) -> T:
    """Decodes a message body. No bytes may follow it in `data`.

    Raises:
        DecodeError: bytes are missing, left over or not valid in this version, or the version is not declared.
    """
    message, end = _read(cls, version, data, NO_ELEMENT_LIMIT)
    if end != len(data):
        raise DecodeError(f"{cls.NAME} v{version}", "", f"{len(data) - end} bytes left over")
    return message


def decode_start(cls: type[T], version: int, data: bytes, max_elements: int = NO_ELEMENT_LIMIT) -> tuple[T, bytes]:
    """Decodes a message body, and returns the message and the bytes after it.

    Kafka's own classes ignore bytes after the known fields, and some brokers send such bytes.

    Args:
        cls: the message class.
        version: the message's version.
        data: the body.
        max_elements: maximum number of elements in all arrays and tagged fields together. An element takes about 1 us.

    Raises:
        DecodeError: bytes are missing or not valid in this version, or the version is not declared.
        TooManyElements: there are more than `max_elements` elements. Or the caller gave `max_elements`, and a message
            of more than `MAX_LAYOUT_BYTES` bytes needs the layout, which is 20 times as slow as the generated reader.
    """
    try:
        message, end = _readers[cls, version](data, 0, max_elements)
    except ElementLimitExceeded as error:
        raise TooManyElements(f"{cls.NAME} v{version}", "", f"more than {max_elements} elements") from error
    except _NEEDS_LAYOUT:
        message, end = _read(cls, version, data, max_elements)
    return message, data[end:]


def _read(cls: type[T], version: int, data: bytes, max_elements: int) -> tuple[T, int]:
    """Decodes a message body, and returns the message and its end. Raises as `decode_start` does."""
    try:
        read = _readers[cls, version]
    except KeyError:
        if version not in cls.VERSIONS:
            raise DecodeError(f"{cls.NAME} v{version}", "", "version not declared") from None
        read = _readers[cls, version] = compile_reader(_body(cls, version))
    try:
        return read(data, 0, max_elements)
    except ElementLimitExceeded as error:
        raise TooManyElements(f"{cls.NAME} v{version}", "", f"more than {max_elements} elements") from error
    except READ_FAILURES as error:
        if max_elements != NO_ELEMENT_LIMIT and len(data) > MAX_LAYOUT_BYTES:
            reason = f"an unusual value needs the slow decoder, which does not take {len(data)} bytes"
            raise TooManyElements(f"{cls.NAME} v{version}", "", reason) from error
        return _read_by_layout(cls, version, data)


def _read_by_layout(cls: type[T], version: int, data: bytes) -> tuple[T, int]:
    stream = BytesIO(data)
    try:
        return _body(cls, version)._parse(stream, None, ""), stream.tell()
    except ConstructError as error:
        where, reason = getattr(error, "where", ""), getattr(error, "reason", str(error))
        raise DecodeError(f"{cls.NAME} v{version}", where, reason) from error


def encode(message: Struct, version: int) -> bytes:
    """Encodes a message body.

    Raises:
        ValueError: a value does not fit its field, or the version is not declared.
    """
    cls = type(message)
    try:
        write = _writers[cls, version]
    except KeyError:
        if version not in cls.VERSIONS:
            raise ValueError(f"{cls.NAME} v{version}: version not declared") from None
        write = _writers[cls, version] = compile_writer(_body(cls, version))
    try:
        return write(message)
    except WRITE_FAILURES:
        return _write_by_layout(message, version)


def _write_by_layout(message: Struct, version: int) -> bytes:
    cls = type(message)
    stream = BytesIO()
    try:
        _body(cls, version)._build(message, stream, None, "")
    except ConstructError as error:
        raise ValueError(f"{cls.NAME} v{version}: {getattr(error, 'where', '')}: {error}") from error
    return stream.getvalue()


def _body(cls: type[Struct], version: int) -> Layout:
    return layout(cls, version, version >= cls.FLEXIBLE)
