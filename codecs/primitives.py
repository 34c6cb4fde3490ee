"""Kafka's primitive types for the library construct, in their plain and their compact form (KIP-482).

The classes here replace three classes of the library: VarInt, which is unbounded, and Prefixed and Array, which are too
slow for group traffic. No reader reads past its input, and no reader allocates memory for bytes that are not there.

These readers accept the same bytes, with the same values, as Kafka's generated readers and its classes
``ByteBufferAccessor`` and ``ByteUtils``. So these readers also accept bytes that no Kafka client writes. Otherwise a
client could send bytes that the broker reads and the sidecar does not, and so bypass every policy.
"""

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from io import SEEK_END, BytesIO
from typing import Any
from uuid import UUID

from construct import Construct, ConstructError

MAX_UVARINT_BYTES = 5
"""An unsigned varint has 32 bits in at most five groups of seven. Java drops the three extra bits."""
_UINT32, _INT32_MAX = 0xFFFFFFFF, 0x7FFFFFFF
MAX_STRING_BYTES = 0x7FFF
"""Kafka's limit for strings. The limit holds in the compact form too, although its length could be larger."""

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""An encoded surrogate, which is invalid UTF-8. Java decodes a surrogate as one U+FFFD, Python as two or three."""


class WireError(ConstructError):  # type: ignore[misc]
    """The bytes contain no valid value, or the value cannot be encoded. `layouts.Layout` adds the path of the field."""


def read_exact(stream: BytesIO, length: int) -> bytes:
    """Reads `length` bytes. Raises WireError if fewer are left."""
    data = stream.read(length)
    if len(data) != length:
        raise WireError(f"{length} bytes announced, {len(data)} left")
    return data


def _bytes_left(stream: BytesIO) -> int:
    """Returns how many bytes are unread. `stream.getbuffer()` would copy all bytes of the stream."""
    at = stream.tell()
    end = stream.seek(0, SEEK_END)
    stream.seek(at)
    return end - at


def read_uvarint(stream: BytesIO) -> int:
    """Reads an unsigned varint: the lowest 32 bits of at most five bytes, as Kafka's class ``ByteUtils`` does."""
    byte = read_exact(stream, 1)[0]
    if byte < 0x80:  # Nearly all varints are lengths of less than 127.
        return byte
    value = byte & 0x7F
    for shift in range(7, 7 * MAX_UVARINT_BYTES, 7):
        byte = read_exact(stream, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _UINT32
    raise WireError(f"varint longer than {MAX_UVARINT_BYTES} bytes")


def read_tag_count(stream: BytesIO) -> int:
    """Reads how many tagged fields follow. A negative count means none, as in Kafka up to 4.3. Kafka 4.4 refuses it."""
    count = read_uvarint(stream)
    return count if count <= _INT32_MAX else 0


def write_uvarint(stream: BytesIO, value: int) -> None:
    """Writes an unsigned varint."""
    while value >= 0x80:
        stream.write(bytes((value & 0x7F | 0x80,)))
        value >>= 7
    stream.write(bytes((value,)))


def uvarint(value: int) -> bytes:
    """Returns an unsigned varint, for messages that are encoded by hand."""
    if value < 0x80:
        return bytes((value,))
    stream = BytesIO()
    write_uvarint(stream, value)
    return stream.getvalue()


def decoded(data: bytes) -> str:
    """Returns the string that Java's `new String(bytes, UTF_8)` returns, with U+FFFD for invalid UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Java and Python both replace the byte 0xFF, which is never valid, by one U+FFFD.
        return _SURROGATE.sub(b"\xff", data).decode(errors="replace")


def _utf8(value: str) -> bytes:
    data = value.encode()
    if len(data) > MAX_STRING_BYTES:
        raise ValueError(f"string of {len(data)} bytes")
    return data


def encode_string(value: str) -> bytes:
    """Returns a string in its plain form. Raises ValueError if it is too long."""
    data = _utf8(value)
    return len(data).to_bytes(2, "big") + data


def encode_compact_string(value: str) -> bytes:
    """Returns a string in its compact form. Raises ValueError if it is too long."""
    data = _utf8(value)
    return uvarint(len(data) + 1) + data


def _read_int16(stream: BytesIO) -> int:
    return int.from_bytes(read_exact(stream, 2), "big", signed=True)


def _read_int32(stream: BytesIO) -> int:
    return int.from_bytes(read_exact(stream, 4), "big", signed=True)


def _write_int16(stream: BytesIO, value: int) -> None:
    stream.write(value.to_bytes(2, "big", signed=True))


def _write_int32(stream: BytesIO, value: int) -> None:
    stream.write(value.to_bytes(4, "big", signed=True))


def _read_compact(stream: BytesIO) -> int:
    """Reads a compact length: the varint minus one as a signed 32-bit number, with overflow as in Java."""
    length = read_uvarint(stream) - 1
    return length if length <= _INT32_MAX else length - (_UINT32 + 1)


def _write_compact(stream: BytesIO, length: int) -> None:
    write_uvarint(stream, length + 1)


@dataclass(frozen=True)
class Length:
    """The encoding of a length prefix. Null is written as -1. Every negative length is read as null."""

    read: Callable[[BytesIO], int]
    write: Callable[[BytesIO, int], None]


SHORT = Length(_read_int16, _write_int16)
INT = Length(_read_int32, _write_int32)
COMPACT = Length(_read_compact, _write_compact)


class FixedSize(Construct):  # type: ignore[misc]
    """A number or boolean of fixed size, with its code in the standard library's `struct`."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.format = struct.Struct(f">{code}")

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:
        return self.format.unpack(read_exact(stream, self.format.size))[0]

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:
        try:
            stream.write(self.format.pack(obj))
        except struct.error as error:
            raise WireError(str(error)) from error
        return obj


class _LengthPrefixed(Construct, ABC):  # type: ignore[misc]
    """Base of all length-prefixed types: handles the length and null."""

    def __init__(self, length: Length, nullable: bool) -> None:
        super().__init__()
        self.length = length
        self.nullable = nullable

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:
        length = self.length.read(stream)
        if length >= 0:
            return self._read(stream, length)
        if self.nullable:
            return None
        raise WireError("null where the schema allows none")

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:
        if obj is not None:
            self._write(stream, obj)
        elif self.nullable:
            self.length.write(stream, -1)
        else:
            raise WireError("null where the schema allows none")
        return obj

    @abstractmethod
    def _read(self, stream: BytesIO, length: int) -> Any: ...

    @abstractmethod
    def _write(self, stream: BytesIO, obj: Any) -> None: ...


class SizedBytes(_LengthPrefixed):
    """The types bytes and nullable bytes, plain or compact, and records, which are opaque bytes here."""

    def _read(self, stream: BytesIO, length: int) -> bytes:
        return read_exact(stream, length)

    def _write(self, stream: BytesIO, obj: bytes) -> None:
        self.length.write(stream, len(obj))
        stream.write(obj)


def _check_string(length: int) -> None:
    if length > MAX_STRING_BYTES:
        raise WireError(f"string of {length} bytes")


class SizedString(_LengthPrefixed):
    """UTF-8 text. Invalid bytes are read as U+FFFD, as in Kafka, and U+FFFD is written in their place."""

    def _read(self, stream: BytesIO, length: int) -> str:
        _check_string(length)
        return decoded(read_exact(stream, length))

    def _write(self, stream: BytesIO, obj: str) -> None:
        data = obj.encode()
        _check_string(len(data))
        self.length.write(stream, len(data))
        stream.write(data)


class SizedArray(_LengthPrefixed):
    """An array of one element type, as a tuple."""

    def __init__(self, length: Length, nullable: bool, element: Construct) -> None:
        super().__init__(length, nullable)
        self.element = element

    def _read(self, stream: BytesIO, length: int) -> tuple[Any, ...]:
        # Each element has at least one byte, so a count above the number of bytes left is refused at once.
        left = _bytes_left(stream)
        if length > left:
            raise WireError(f"{length} elements announced, {left} bytes left")
        parse = self.element._parse
        return tuple([parse(stream, None, "") for _ in range(length)])

    def _write(self, stream: BytesIO, obj: tuple[Any, ...]) -> None:
        self.length.write(stream, len(obj))
        build = self.element._build
        for item in obj:
            build(item, stream, None, "")


ZERO_UUID = UUID(int=0)
"""Kafka's encoding of a missing UUID."""


class Uuid(Construct):  # type: ignore[misc]
    """A UUID of 16 bytes. A missing UUID is the zero UUID."""

    def _parse(self, stream: BytesIO, context: Any, path: str) -> UUID:
        return UUID(bytes=read_exact(stream, 16))

    def _build(self, obj: UUID, stream: BytesIO, context: Any, path: str) -> UUID:
        stream.write(obj.bytes)
        return obj


class NullableStruct(Construct):  # type: ignore[misc]
    """A nullable struct (KIP-893). One byte precedes the struct: -1 for null, 1 for present."""

    def __init__(self, inner: Construct) -> None:
        super().__init__()
        self.inner = inner

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:
        present = read_exact(stream, 1)[0] < 0x80
        return self.inner._parse(stream, None, path) if present else None

    def _build(self, obj: Any, stream: BytesIO, context: Any, path: str) -> Any:
        stream.write(b"\xff" if obj is None else b"\x01")
        if obj is not None:
            self.inner._build(obj, stream, None, path)
        return obj


@dataclass(frozen=True)
class WireType:
    """One Kafka type. `make` returns the construct that reads and writes the type, for (compact, nullable)."""

    name: str
    make: Callable[[bool, bool], Construct]


def _same(construct: Construct) -> Callable[[bool, bool], Construct]:
    return lambda compact, nullable: construct


BOOLEAN = WireType("bool", _same(FixedSize("?")))
INT8 = WireType("int8", _same(FixedSize("b")))
INT16 = WireType("int16", _same(FixedSize("h")))
UINT16 = WireType("uint16", _same(FixedSize("H")))
INT32 = WireType("int32", _same(FixedSize("i")))
INT64 = WireType("int64", _same(FixedSize("q")))
FLOAT64 = WireType("float64", _same(FixedSize("d")))
UUID_ = WireType("uuid", _same(Uuid()))
STRING = WireType("string", lambda compact, nullable: SizedString(COMPACT if compact else SHORT, nullable))
BYTES = WireType("bytes", lambda compact, nullable: SizedBytes(COMPACT if compact else INT, nullable))
RECORDS = WireType("records", BYTES.make)
