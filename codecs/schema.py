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

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.primitives import (
    COMPACT,
    INT,
    NullableStruct,
    SizedArray,
    WireError,
    WireType,
    read_exact,
    read_uvarint,
    write_uvarint,
)

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


class Layout(Construct):  # type: ignore[misc]
    """The construct of one struct in one version: bytes to an instance of `cls` and back."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        super().__init__()
        self.cls = cls
        self.flexible = flexible
        self.plain: list[tuple[str, Construct]] = []
        self.tagged: dict[int, tuple[str, Construct, Any]] = {}
        defaults = {field.name: field.default for field in dataclasses.fields(cls)}
        for name, spec in specs(cls).items():
            if not spec.since <= version <= spec.until:
                continue
            construct = _construct(spec, version, flexible)
            if spec.tag is None:
                self.plain.append((name, construct))
            else:
                self.tagged[spec.tag] = (name, construct, defaults[name])

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, construct in self.plain:
                values[name] = construct._parse(stream, None, "")
            if self.flexible:
                name = "tagged fields"
                self._parse_tags(stream, values)
        except ConstructError as error:
            raise _located(error, name) from error
        return self.cls(**values)

    def _parse_tags(self, stream: BytesIO, values: dict[str, Any]) -> None:
        count = read_uvarint(stream)
        if not count:
            return
        unknown: list[Tag] = []
        previous = -1
        for _ in range(count):
            tag = read_uvarint(stream)
            if tag <= previous:
                raise WireError(f"tag {tag} after tag {previous}")
            previous = tag
            raw = read_exact(stream, read_uvarint(stream))
            known = self.tagged.get(tag)
            if known is None:
                unknown.append((tag, raw))
            else:
                values[known[0]] = _parse_tag(known[0], known[1], raw)
        if unknown:
            values["unknown_tags"] = tuple(unknown)

    def _build(self, obj: Struct, stream: BytesIO, context: Any, path: str) -> Struct:
        name = ""
        try:
            for name, construct in self.plain:
                construct._build(getattr(obj, name), stream, None, "")
            if self.flexible:
                name = "tagged fields"
                self._build_tags(obj, stream)
        except (ConstructError, OverflowError) as error:
            raise _located(error, name) from error
        return obj

    def _build_tags(self, obj: Struct, stream: BytesIO) -> None:
        tags = list(obj.unknown_tags)
        for tag, (name, construct, default) in self.tagged.items():
            value = getattr(obj, name)
            if value != default:
                tags.append((tag, _build_tag(name, construct, value)))
        write_uvarint(stream, len(tags))
        for tag, raw in sorted(tags):
            write_uvarint(stream, tag)
            write_uvarint(stream, len(raw))
            stream.write(raw)


def _parse_tag(name: str, construct: Construct, raw: bytes) -> Any:
    try:
        return parse_whole(construct, raw)
    except ConstructError as error:
        raise _located(error, name) from error


def _build_tag(name: str, construct: Construct, value: Any) -> bytes:
    stream = BytesIO()
    try:
        construct._build(value, stream, None, "")
    except (ConstructError, OverflowError) as error:
        raise _located(error, name) from error
    return stream.getvalue()


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


def _located(error: Exception, name: str) -> WireError:
    """The same error with `name` put before the path it carries."""
    inner = getattr(error, "where", "")
    located = WireError(getattr(error, "reason", None) or str(error).strip().splitlines()[-1])
    located.reason = located.args[0]
    located.where = f"{name}.{inner}" if inner else name
    return located


_layouts: dict[tuple[type[Struct], int, bool], Layout] = {}


def layout(cls: type[Struct], version: int, flexible: bool) -> Layout:
    """The layout of a struct in one version; built once."""
    key = cls, version, flexible
    found = _layouts.get(key)
    if found is None:
        found = _layouts[key] = Layout(cls, version, flexible)
    return found


def parse_whole(construct: Construct, data: bytes) -> Any:
    """Parses `data`, all of it. Raises WireError where bytes are left."""
    stream = BytesIO(data)
    value = construct._parse(stream, None, "")
    left = len(data) - stream.tell()
    if left:
        raise WireError(f"{left} bytes left over")
    return value


def decode(cls: type[T], version: int, data: bytes) -> T:
    """Decodes a message body, all of it.

    Raises:
        DecodeError: the bytes are cut off, left over, or not what this version says; or the version is not described.
    """
    message, rest = decode_start(cls, version, data)
    if rest:
        raise DecodeError(f"{cls.NAME} v{version}", "", f"{len(rest)} bytes left over")
    return message


def decode_start(cls: type[T], version: int, data: bytes) -> tuple[T, bytes]:
    """Decodes a message body, and gives what stands behind it.

    Kafka's own classes read what they know and pass over the rest, and there are brokers that send some.

    Raises:
        DecodeError: the bytes are cut off, or not what this version says; or the version is not described.
    """
    what = f"{cls.NAME} v{version}"
    if version not in cls.VERSIONS:
        raise DecodeError(what, "", "version not described")
    stream = BytesIO(data)
    try:
        message: T = layout(cls, version, version >= cls.FLEXIBLE)._parse(stream, None, "")
    except ConstructError as error:
        raise DecodeError(what, getattr(error, "where", ""), getattr(error, "reason", str(error))) from error
    return message, data[stream.tell() :]


def encode(message: Struct, version: int) -> bytes:
    """Encodes a message body.

    Raises:
        ValueError: a value does not fit its field, or the version is not described.
    """
    cls = type(message)
    if version not in cls.VERSIONS:
        raise ValueError(f"{cls.NAME} v{version}: version not described")
    stream = BytesIO()
    try:
        layout(cls, version, version >= cls.FLEXIBLE)._build(message, stream, None, "")
    except ConstructError as error:
        raise ValueError(f"{cls.NAME} v{version}: {getattr(error, 'where', '')}: {error}") from error
    return stream.getvalue()
