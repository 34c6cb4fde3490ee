"""Reads and writes request and response headers of every version, and the frame around them.

The module handles the bytes from the frame's length to the start of the body.

The fixed part of a request header is the same in every version, so it can be read for APIs that are not decoded. A
response header depends on the API: it is v1 (with tagged fields) if the API's version is flexible, but always v0 for
ApiVersions.
"""

import struct
from io import BytesIO
from typing import NamedTuple

from group_sidecar.codecs.errors import DecodeError, TooManyElements
from group_sidecar.codecs.primitives import (
    MAX_STRING_BYTES,
    WireError,
    decoded,
    read_exact,
    read_tag_count,
    read_uvarint,
    write_uvarint,
)
from group_sidecar.codecs.schema import Struct, Tag, encode

REQUEST_HEAD = struct.Struct(">ihhi")
"""Frame length, API key, API version, correlation id."""
_REQUEST_START = struct.Struct(">hhih")
"""API key, API version, correlation id, and the length of the client id."""
_START, _unpack_start = _REQUEST_START.size, _REQUEST_START.unpack_from
MAX_HEADER_TAGS = 1_000
"""Maximum number of tagged fields in a header. Reading a field takes 1 us. Kafka's own clients send none."""
REPLY_HEAD = struct.Struct(">ii")
"""Frame length, correlation id."""


class RequestHeader(NamedTuple):
    """A request's header. `client_id` is None if the client sent null."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None
    tags: tuple[Tag, ...] = ()


# Does the same as NamedTuple's constructor in half the time. Each decoded request creates a header.
_header = tuple.__new__


def decode_request_header(frame: bytes, flexible: bool) -> tuple[RequestHeader, bytes]:
    """Splits a frame (without its length) into header and body.

    Args:
        frame: the frame after its four length bytes.
        flexible: whether this API and version has header v2. The client id has an int16 length in v2 too.

    Raises:
        DecodeError: the header is truncated.
        TooManyElements: the header has more than `MAX_HEADER_TAGS` tagged fields.
    """
    try:
        key, version, correlation, length = _unpack_start(frame)
        end = _START if length < 0 else _START + length
        if end > len(frame):
            raise WireError(f"client id of {length} bytes, {len(frame) - _START} left")
        client_id = None if length < 0 else decoded(frame[_START:end])
        tags: tuple[Tag, ...] = ()
        if flexible:
            tags, end = _read_tags(frame, end)
    except (struct.error, WireError) as error:
        raise DecodeError("RequestHeader", "", str(error)) from error
    return _header(RequestHeader, (key, version, correlation, client_id, tags)), frame[end:]


def body_start(head: bytes, flexible: bool) -> int | None:
    """Returns where the body of a request frame begins, or None if `head`, the frame's start, ends inside the header.

    Raises:
        TooManyElements: the header has more than `MAX_HEADER_TAGS` tagged fields.
    """
    try:
        length = _REQUEST_START.unpack_from(head)[3]
        end = _REQUEST_START.size + max(length, 0)
        if flexible:
            _, end = _read_tags(head, end)
    except (struct.error, WireError):
        return None
    return end if end <= len(head) else None


def split_reply(frame: bytes, flexible: bool) -> bytes:
    """Returns the body of a reply frame (without its length). Raises DecodeError if the header is truncated."""
    return frame[reply_start(frame, flexible) :]


def reply_start(frame: bytes, flexible: bool) -> int:
    """Returns where the body of a reply frame (without its length) begins.

    Raises:
        DecodeError: the header is truncated.
    """
    end = 4
    try:
        if flexible:
            _, end = _read_tags(frame, end)
        elif len(frame) < end:
            raise WireError(f"{end} bytes announced, {len(frame)} left")
    except WireError as error:
        raise DecodeError("ResponseHeader", "", str(error)) from error
    return end


def encode_request(message: Struct, header: RequestHeader) -> bytes:
    """Returns a request frame with its length. Raises ValueError if the client id or a value does not fit."""
    stream = BytesIO()
    client = None if header.client_id is None else header.client_id.encode()
    if client is not None and len(client) > MAX_STRING_BYTES:
        raise ValueError(f"client id of {len(client)} bytes")
    stream.write(struct.pack(">hhi", header.api_key, header.api_version, header.correlation_id))
    stream.write((-1 if client is None else len(client)).to_bytes(2, "big", signed=True))
    stream.write(client or b"")
    if header.api_version >= message.HEADER_FLEXIBLE:
        _write_tags(stream, header.tags)
    stream.write(encode(message, header.api_version))
    return _framed(stream.getvalue())


def encode_reply(message: Struct, version: int, correlation_id: int) -> bytes:
    """Returns a reply frame with its length. Raises ValueError if a value does not fit."""
    return framed_reply(correlation_id, encode_reply_rest(message, version))


def encode_reply_rest(message: Struct, version: int) -> bytes:
    """Returns the part of a reply frame after the correlation id. Raises ValueError if a value does not fit."""
    return reply_rest(type(message), version, encode(message, version))


def reply_rest(response: type[Struct], version: int, body: bytes) -> bytes:
    """Returns the part of a reply frame after the correlation id, from an encoded body."""
    return b"\0" + body if version >= response.HEADER_FLEXIBLE else body


def framed_reply(correlation_id: int, rest: bytes) -> bytes:
    """Returns a reply frame with its length. `rest`: the part after the correlation id."""
    return REPLY_HEAD.pack(4 + len(rest), correlation_id) + rest


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def _read_tags(data: bytes, at: int) -> tuple[tuple[Tag, ...], int]:
    """Returns the tagged fields at a position, and where they end. Raises WireError if they are truncated."""
    if data[at : at + 1] == b"\0":
        return (), at + 1
    stream = BytesIO(data)
    stream.seek(at)
    count = read_tag_count(stream)
    if count > MAX_HEADER_TAGS:
        raise TooManyElements("header", "tagged fields", f"{count} of them")
    tags = [(read_uvarint(stream), read_exact(stream, read_uvarint(stream))) for _ in range(count)]
    return tuple(tags), stream.tell()


def _write_tags(stream: BytesIO, tags: tuple[Tag, ...]) -> None:
    write_uvarint(stream, len(tags))
    for tag, raw in tags:
        write_uvarint(stream, tag)
        write_uvarint(stream, len(raw))
        stream.write(raw)
