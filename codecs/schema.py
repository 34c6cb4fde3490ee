"""A message declared once, as fields with their versions; one construct derived per version.

Owns: the declaration (`struct`, `request`, `response`, `f`, `Array`), the derived layouts, and
`decode` and `encode`. Must not know: what any field means, nor where bytes come from.

A declaration reads like Kafka's own JSON schema:

    @request(key=12, versions=(0, 4), flexible=4)
    class HeartbeatRequest(Struct):
        group_id: str = f(STRING)
        group_instance_id: str | None = f(STRING, since=3, nullable=3, default=None)

A field that a version lacks takes its default when decoded and is left out when encoded.
Tagged fields that the declaration does not name are kept in `unknown_tags` and written back.
"""

import dataclasses
from collections.abc import Callable
from io import BytesIO
from typing import Any, ClassVar, TypeVar, dataclass_transform

from construct import Construct, ConstructError

from group_sidecar.codecs.compiled import NO_BOUND, ODD, UNFIT, Reader, TooMany, Writer, reader, writer
from group_sidecar.codecs.errors import DecodeError, TooManyElements
from group_sidecar.codecs.layouts import Layout
from group_sidecar.codecs.primitives import COMPACT, INT, NullableStruct, SizedArray, WireType

FOREVER = 0x7FFF
"""As `until`: in every version from `since` on."""

Tag = tuple[int, bytes]
T = TypeVar("T", bound="Struct")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Struct:
    """Base of every message and every struct inside one: immutable, compared by value.

    Attributes:
        unknown_tags: (tag, raw value) pairs that the declaration does not name, in wire order.
    """

    unknown_tags: tuple[Tag, ...] = ()
    NAME: ClassVar[str]
    KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[range] = range(0)
    FLEXIBLE: ClassVar[int] = FOREVER
    HEADER_FLEXIBLE: ClassVar[int] = FOREVER
    """First version whose *header* has tagged fields; differs from FLEXIBLE for ApiVersions replies only."""


@dataclasses.dataclass(frozen=True)
class Array:
    """The type of an array field: of a wire type or of a struct."""

    of: "WireType | type[Struct]"


FieldType = WireType | Array | type[Struct]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """One field's place on the wire: its type, and the versions in which it is there, may be null, or is tagged."""

    kind: FieldType
    since: int
    until: int
    nullable: int
    nullable_until: int
    tag: int | None


def f(
    kind: FieldType,
    *,
    since: int = 0,
    until: int = FOREVER,
    nullable: int = FOREVER + 1,
    nullable_until: int = FOREVER,
    tag: int | None = None,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declares a field, present in versions `since` to `until` (both included), nullable from version `nullable` on.

    With `tag`, the field is a tagged one (KIP-482), written only where it differs from its default.
    """
    spec = Spec(kind=kind, since=since, until=until, nullable=nullable, nullable_until=nullable_until, tag=tag)
    return dataclasses.field(default=default, metadata={"spec": spec})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(f,))
def struct(cls: type[T]) -> type[T]:
    """Makes a declared class an immutable struct."""
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


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(f,))
def request(*, key: int, versions: tuple[int, int], flexible: int = FOREVER) -> Callable[[type[T]], type[T]]:
    """Declares a request: its API key, the first and last version described, the first flexible one."""
    return _message(key, versions, flexible, flexible)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(f,))
def response(
    *, key: int, versions: tuple[int, int], flexible: int = FOREVER, header_flexible: int | None = None
) -> Callable[[type[T]], type[T]]:
    """Declares a response; `header_flexible` only where its header is not flexible with its body."""
    return _message(key, versions, flexible, flexible if header_flexible is None else header_flexible)


def specs(cls: type[Struct]) -> dict[str, Spec]:
    """The declared fields of a struct, in wire order."""
    return {field.name: field.metadata["spec"] for field in dataclasses.fields(cls) if "spec" in field.metadata}


def _construct(spec: Spec, version: int, flexible: bool) -> Construct:
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
_NOT_READ = KeyError, *ODD
"""Where a reader is not compiled yet, or the layout has to look."""
LONGEST_ODD = 2_048
"""Bytes of the longest message that the layout reads where elements are bounded. It takes up to 23 us a byte."""


def layout(cls: type[Struct], version: int, flexible: bool) -> Layout:
    """The layout of a struct in one version; built once."""
    key = cls, version, flexible
    found = _layouts.get(key)
    if found is None:
        plain: dict[str, Construct] = {}
        tagged: dict[int, tuple[str, Construct]] = {}
        for name, spec in specs(cls).items():
            if spec.since <= version <= spec.until:
                construct = _construct(spec, version, flexible)
                if spec.tag is None:
                    plain[name] = construct
                else:
                    tagged[spec.tag] = name, construct
        found = _layouts[key] = Layout(f"{cls.NAME}_v{version}", cls, flexible, plain, tagged)
    return found


def decode(cls: type[T], version: int, data: bytes) -> T:
    """Decodes a message body, all of it.

    Raises:
        DecodeError: the bytes are cut off, left over, or not what this version says; or the version is not described.
    """
    message, end = _read(cls, version, data, NO_BOUND)
    if end != len(data):
        raise DecodeError(f"{cls.NAME} v{version}", "", f"{len(data) - end} bytes left over")
    return message


def decode_start(cls: type[T], version: int, data: bytes, most: int = NO_BOUND) -> tuple[T, bytes]:
    """Decodes a message body, and gives what stands behind it.

    Kafka's own classes read what they know and pass over the rest, and there are brokers that send some.

    Args:
        cls: the message.
        version: of it.
        data: the body.
        most: elements, of all its arrays and tagged fields together, that are decoded: each takes about 1 us.

    Raises:
        DecodeError: the bytes are cut off, or not what this version says; or the version is not described.
        TooManyElements: there are more, or a long message holds what only the layout can read, 20 times as slowly.
    """
    try:
        message, end = _readers[cls, version](data, 0, most)
    except TooMany as error:
        raise TooManyElements(f"{cls.NAME} v{version}", "", f"more than {most} elements") from error
    except _NOT_READ:
        message, end = _read(cls, version, data, most)
    return message, data[end:]


def _read(cls: type[T], version: int, data: bytes, most: int) -> tuple[T, int]:
    """Decodes a message body; gives where it ends. Raises as `decode_start` does."""
    try:
        read = _readers[cls, version]
    except KeyError:
        if version not in cls.VERSIONS:
            raise DecodeError(f"{cls.NAME} v{version}", "", "version not described") from None
        read = _readers[cls, version] = reader(_body(cls, version))
    try:
        return read(data, 0, most)
    except TooMany as error:
        raise TooManyElements(f"{cls.NAME} v{version}", "", f"more than {most} elements") from error
    except ODD as error:
        if most != NO_BOUND and len(data) > LONGEST_ODD:
            raise TooManyElements(f"{cls.NAME} v{version}", "", f"odd, and of {len(data)} bytes") from error
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
        ValueError: a value does not fit its field, or the version is not described.
    """
    cls = type(message)
    try:
        write = _writers[cls, version]
    except KeyError:
        if version not in cls.VERSIONS:
            raise ValueError(f"{cls.NAME} v{version}: version not described") from None
        write = _writers[cls, version] = writer(_body(cls, version))
    try:
        return write(message)
    except UNFIT:
        return _written_by_layout(message, version)


def _written_by_layout(message: Struct, version: int) -> bytes:
    cls = type(message)
    stream = BytesIO()
    try:
        _body(cls, version)._build(message, stream, None, "")
    except ConstructError as error:
        raise ValueError(f"{cls.NAME} v{version}: {getattr(error, 'where', '')}: {error}") from error
    return stream.getvalue()


def _body(cls: type[Struct], version: int) -> Layout:
    return layout(cls, version, version >= cls.FLEXIBLE)
