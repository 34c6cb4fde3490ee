"""Builds record batches by hand for tests, and decodes them."""

import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import google_crc32c

from group_sidecar.codecs.record_batches import Record, RecordBatch, batches
from tests.codecs.lz4 import lz4_frame

HEAD = 61
"""Bytes before the records in format 2."""


def all_records(data: bytes) -> list[Record]:
    return [record for batch in batches(data) for record in batch.records()]


def only(data: bytes) -> RecordBatch:
    (batch,) = batches(data)
    return batch


def sealed(batch: bytes) -> bytes:
    """Returns a format 2 batch with the correct length and checksum."""
    length = (len(batch) - 12).to_bytes(4, "big")
    crc: int = google_crc32c.value(batch[21:])
    return batch[:8] + length + batch[12:17] + crc.to_bytes(4, "big") + batch[21:]


def sealed_message(message: bytes) -> bytes:
    """Returns a message of format 0 or 1 with the correct length and checksum."""
    length = (len(message) - 12).to_bytes(4, "big")
    return message[:8] + length + zlib.crc32(message[16:]).to_bytes(4, "big") + message[16:]


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def compressed(codec: int, content: bytes) -> bytes:
    compress: dict[int, Callable[[bytes], Any]] = {
        1: lambda data: zlib.compress(data, wbits=31),
        2: cramjam.snappy.compress_raw,
        3: lz4_frame,
        4: cramjam.zstd.compress,
    }
    return bytes(compress[codec](content))


def message(magic: int, offset: int, key: bytes | None, value: bytes | None, attributes: int = 0) -> bytes:
    timestamp = (1_000 + offset).to_bytes(8, "big") if magic else b""
    sized = b"".join(b"\xff" * 4 if part is None else len(part).to_bytes(4, "big") + part for part in (key, value))
    return sealed_message(offset.to_bytes(8, "big") + bytes(8) + bytes((magic, attributes)) + timestamp + sized)


def messages(magic: int, number: int, first: int = 0) -> bytes:
    return b"".join(message(magic, first + n, b"key", b"value") for n in range(number))


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def varint(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def record(*fields: bytes, length: int | None = None) -> bytes:
    body = b"\0" + b"".join(fields)
    return varint(len(body) if length is None else length) + body


def batch_of(*records: bytes, count: int | None = None, attributes: int = 0, last: int = 0) -> bytes:
    head = bytes(8 + 4 + 4) + b"\2" + bytes(4) + attributes.to_bytes(2, "big") + last.to_bytes(4, "big")
    head += bytes(8 + 8) + b"\xff" * (8 + 2 + 4) + (len(records) if count is None else count).to_bytes(4, "big")
    assert len(head) == HEAD
    return sealed(head + b"".join(records))


ONE = record(varint(0), varint(0), varint(1), b"k", varint(1), b"v", varint(0))
