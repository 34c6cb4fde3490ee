"""Request and response headers of every version, and the frame around them.

Owns: the bytes from the frame's length to the start of the body. Must not know: bodies.

The fixed part of a request header is the same in every version, so frames of APIs that nobody
decodes can be told apart without a table. Response headers cannot: they are v1 (with tagged
fields) where the API's version is flexible, but always v0 for ApiVersions.
"""

import struct
from dataclasses import dataclass
from io import BytesIO

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.primitives import WireError, read_exact, read_uvarint, write_uvarint
from group_sidecar.codecs.schema import Struct, Tag, encode

REQUEST_HEAD = struct.Struct(">ihhi")
"""Frame length, API key, API version, correlation id."""
REPLY_HEAD = struct.Struct(">ii")
"""Frame length, correlation id."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """A request's header. `client_id` is None where the client sent null."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None
    tags: tuple[Tag, ...] = ()


def decode_request_header(frame: bytes, flexible: bool) -> tuple[RequestHeader, bytes]:
    """Splits a frame (without its length) into header and body.

    Args:
        frame: the frame behind its four length bytes.
        flexible: whether this API and version has header v2. The client id keeps its int16 length even there.

    Raises:
        DecodeError: the header is cut off or its client id is not UTF-8.
    """
    stream = BytesIO(frame)
    try:
        key, version, correlation = struct.unpack(">hhi", read_exact(stream, 8))
        length = int.from_bytes(read_exact(stream, 2), "big", signed=True)
        client_id = read_exact(stream, length).decode() if length >= 0 else None
        tags = _read_tags(stream) if flexible else ()
    except (WireError, UnicodeDecodeError) as error:
        raise DecodeError("RequestHeader", "", str(error)) from error
    return RequestHeader(key, version, correlation, client_id, tags), frame[stream.tell() :]


def body_start(head: bytes, flexible: bool) -> int | None:
    """Where the body begins, from a request frame's first bytes; None where they do not reach so far."""
    stream = BytesIO(head)
    try:
        read_exact(stream, 8)
        length = int.from_bytes(read_exact(stream, 2), "big", signed=True)
        read_exact(stream, max(0, length))
        if flexible:
            _read_tags(stream)
    except WireError:
        return None
    return stream.tell()


def split_reply(frame: bytes, flexible: bool) -> bytes:
    """The body of a reply frame (without its length). Raises DecodeError where the header is cut off."""
    stream = BytesIO(frame)
    try:
        read_exact(stream, 4)
        if flexible:
            _read_tags(stream)
    except WireError as error:
        raise DecodeError("ResponseHeader", "", str(error)) from error
    return frame[stream.tell() :]


def encode_request(message: Struct, header: RequestHeader) -> bytes:
    """A whole request frame, its length included."""
    stream = BytesIO()
    client = None if header.client_id is None else header.client_id.encode()
    stream.write(struct.pack(">hhi", header.api_key, header.api_version, header.correlation_id))
    stream.write((-1 if client is None else len(client)).to_bytes(2, "big", signed=True))
    stream.write(client or b"")
    if header.api_version >= message.HEADER_FLEXIBLE:
        _write_tags(stream, header.tags)
    stream.write(encode(message, header.api_version))
    return _framed(stream.getvalue())


def encode_reply(message: Struct, version: int, correlation_id: int) -> bytes:
    """A whole reply frame, its length included."""
    return framed_reply(correlation_id, encode_reply_rest(message, version))


def encode_reply_rest(message: Struct, version: int) -> bytes:
    """What of a reply stands behind the correlation id."""
    return reply_rest(type(message), version, encode(message, version))


def reply_rest(response: type[Struct], version: int, body: bytes) -> bytes:
    """The same, of a body that is encoded."""
    return b"\0" + body if version >= response.HEADER_FLEXIBLE else body


def framed_reply(correlation_id: int, rest: bytes) -> bytes:
    """A whole reply frame, its length included, of what stands behind the correlation id."""
    return REPLY_HEAD.pack(4 + len(rest), correlation_id) + rest


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def _read_tags(stream: BytesIO) -> tuple[Tag, ...]:
    return tuple((read_uvarint(stream), read_exact(stream, read_uvarint(stream))) for _ in range(read_uvarint(stream)))


def _write_tags(stream: BytesIO, tags: tuple[Tag, ...]) -> None:
    write_uvarint(stream, len(tags))
    for tag, raw in tags:
        write_uvarint(stream, tag)
        write_uvarint(stream, len(raw))
        stream.write(raw)
