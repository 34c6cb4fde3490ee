"""Record batches of format 2 as an idempotent producer writes them (KIP-98).

Owns: `RecordWriter`, `Contents`, `batch_of`. Must not know: what keys and values mean, where bytes go. Sources: Kafka
classes ``DefaultRecordBatch``, ``DefaultRecord``; `records` reads the same.

The records of a batch are written once, and compressed once. Its head is not part of that: it may have to be sent
again under another producer id.
"""

import struct
import zlib
from dataclasses import dataclass

from google_crc32c import value as crc32c

from group_sidecar.codecs.compression import Codec

HEAD_BYTES = 61
"""Bytes of a batch before its records."""
_FRONT = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic, CRC."""
_CHECKED = struct.Struct(">hiqqqhii")
"""What the CRC covers before the records: attributes, last offset delta, base and largest timestamp, producer id and
epoch, base sequence, number of records."""
_PREFIX = 12
"""Bytes that the length does not count."""
_MAGIC = 2
_GZIP_LEVEL = 1
"""Lines of JSON shrink to a tenth at the lowest level; the highest takes five times as long for little more."""
_GZIP = zlib.MAX_WBITS | 16


@dataclass(frozen=True, slots=True)
class Contents:
    """The records of a batch as they are on the wire.

    Attributes:
        count: how many there are.
        first_timestamp, last_timestamp: of the first record, and the largest; milliseconds since the epoch.
        size: bytes of the whole batch, were it not compressed.
        codec: how `data` is compressed.
    """

    count: int
    first_timestamp: int
    last_timestamp: int
    size: int
    codec: Codec
    data: bytes


class RecordWriter:
    """Writes the records of one batch.

    Attributes:
        count: records so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._first = self._last = 0
        self._data = bytearray()

    @property
    def size(self) -> int:
        """Bytes that the batch would have, uncompressed."""
        return HEAD_BYTES + len(self._data)

    def add(self, timestamp: int, key: bytes, value: bytes) -> None:
        """Appends a record. `timestamp`: milliseconds since the epoch."""
        if not self.count:
            self._first = self._last = timestamp
        self._last = max(self._last, timestamp)
        body = b"".join(
            (
                b"\0",  # Attributes, of which there are none.
                _varint(timestamp - self._first),
                _varint(self.count),
                _varint(len(key)),
                key,
                _varint(len(value)),
                value,
                b"\0",  # The number of headers.
            )
        )
        self._data += _varint(len(body))
        self._data += body
        self.count += 1

    def contents(self, codec: Codec) -> Contents:
        """What was written, compressed. `codec`: NONE or GZIP, which all brokers know that know this format."""
        data = bytes(self._data)
        if codec is Codec.GZIP:
            data = zlib.compress(data, level=_GZIP_LEVEL, wbits=_GZIP)
        return Contents(self.count, self._first, self._last, self.size, codec, data)


def batch_of(contents: Contents, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """A whole batch.

    Args:
        contents: its records, one at least.
        producer_id: as InitProducerId gave it.
        producer_epoch: likewise.
        base_sequence: number of its first record among those of this producer to this partition.
    """
    checked = _CHECKED.pack(
        contents.codec,
        contents.count - 1,
        contents.first_timestamp,
        contents.last_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        contents.count,
    )
    checked += contents.data
    length = _FRONT.size - _PREFIX + len(checked)
    return _FRONT.pack(0, length, -1, _MAGIC, crc32c(checked)) + checked


def _varint(value: int) -> bytes:
    """A signed varint, zigzag as in Protocol Buffers."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    if value < 0x80:
        return value.to_bytes(1)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
