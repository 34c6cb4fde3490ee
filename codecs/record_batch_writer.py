"""Writes record batches of format 2 as an idempotent producer does (KIP-98).

Sources: Kafka classes ``DefaultRecordBatch``, ``DefaultRecord``. `record_batches` reads the same format.

The records of a batch are encoded and compressed once. The header is encoded separately, because a batch may have to be
sent again under another producer id.
"""

import struct
import zlib
from dataclasses import dataclass

from google_crc32c import value as crc32c

from group_sidecar.codecs.compression import Codec

BATCH_HEADER_BYTES = 61
"""Size of a batch's header."""
_BATCH_PREFIX = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic, CRC."""
_CRC_COVERED = struct.Struct(">hiqqqhii")
"""The header fields that the CRC covers: attributes, last offset delta, base and largest timestamp, producer id and
epoch, base sequence, number of records."""
_UNCOUNTED_BYTES = 12
"""Size in bytes of the offset and the length field. The length does not include these bytes."""
_MAGIC = 2
_GZIP_LEVEL = 1
"""The lowest level shrinks lines of JSON to a tenth. The highest level takes five times as long for little gain."""
_GZIP = zlib.MAX_WBITS | 16


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """The encoded records of a batch.

    Attributes:
        count: the number of records.
        first_timestamp: the first record's timestamp, in milliseconds since the epoch.
        last_timestamp: the largest timestamp, in milliseconds since the epoch.
        size: uncompressed size of the whole batch in bytes.
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
        """The batch's uncompressed size in bytes."""
        return BATCH_HEADER_BYTES + len(self._data)

    def add(self, timestamp: int, key: bytes, value: bytes) -> None:
        """Appends a record. `timestamp`: milliseconds since the epoch."""
        if not self.count:
            self._first = self._last = timestamp
        self._last = max(self._last, timestamp)
        body = b"".join(
            (
                b"\0",  # Attributes: none.
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

    def encoded_records(self, codec: Codec) -> EncodedRecords:
        """Returns the compressed records. `codec`: NONE or GZIP, which every broker with this format supports."""
        data = bytes(self._data)
        if codec is Codec.GZIP:
            data = zlib.compress(data, level=_GZIP_LEVEL, wbits=_GZIP)
        return EncodedRecords(self.count, self._first, self._last, self.size, codec, data)


def encode_batch(encoded_records: EncodedRecords, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """Returns an encoded batch.

    Args:
        encoded_records: the batch's records, at least one.
        producer_id: the producer id in the InitProducerId reply.
        producer_epoch: the producer epoch in the InitProducerId reply.
        base_sequence: the first record's sequence number for this producer and partition.
    """
    checked = _CRC_COVERED.pack(
        encoded_records.codec,
        encoded_records.count - 1,
        encoded_records.first_timestamp,
        encoded_records.last_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        encoded_records.count,
    )
    checked += encoded_records.data
    length = _BATCH_PREFIX.size - _UNCOUNTED_BYTES + len(checked)
    return _BATCH_PREFIX.pack(0, length, -1, _MAGIC, crc32c(checked)) + checked


def _varint(value: int) -> bytes:
    """Returns a signed varint, zigzag as in Protocol Buffers."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    if value < 0x80:
        return value.to_bytes(1)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
