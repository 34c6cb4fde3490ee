"""Record batches as a Fetch reply carries them: message formats 0, 1 and 2, and what is inside.

Owns: `RecordBatch`, `batches`, `first_batch_size`, `ControlMarker`. Must not know: what keys and values mean, topics,
where bytes come from. Sources: KIP-98 (format 2), KIP-32 (format 1), Kafka classes ``DefaultRecordBatch``,
``DefaultRecord``, ``AbstractLegacyRecordBatch``, ``ControlRecordType``.

A broker's whole offsets log comes through here, so this is written by hand and not declared with construct: a batch's
head is one `struct` call, and a record is a walk over its bytes with the common varints read in line. That takes 0.6
microseconds a record where a construct takes 19. Nothing is held but one batch's content.

Checksums are verified: CRC-32C in hardware costs 1 % of reading a batch of a hundred records, and what is answered
from here must be what the broker would say, so damage has to be an error and not another offset.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from zlib import crc32

from google_crc32c import value as crc32c

from group_sidecar.codecs.compression import LARGEST_DECOMPRESSED, Codec, decompress
from group_sidecar.codecs.errors import DecodeError

Record = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp in milliseconds since the epoch (-1: none), key, value."""

_PREFIX = 12
"""Bytes that a length does not count: the offset and the length itself."""
_MAGIC = 16
"""Where every format has its magic byte."""
_SHORTEST = 14
"""The least length of any format (Kafka class ``LegacyRecord``)."""

_HEAD = struct.Struct(">qi4xBIHiqqq6xi")
"""Format 2: base offset, length, magic, CRC, attributes, last offset delta, base and largest timestamp, producer id,
number of records; not the leader epoch, the producer's epoch and its sequence."""
_CHECKED = 21
"""Where the bytes begin that a format 2 CRC covers."""

_MESSAGE = struct.Struct(">qiIBB")
"""Formats 0 and 1: offset, length, CRC, magic, attributes. The CRC covers all from the magic on."""
_MESSAGE_HEADS = (_MESSAGE.size, _MESSAGE.size + 8)
"""Bytes before the key's length: format 1 has a timestamp there."""
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LENGTH = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_LONGEST_RUN = 64 << 10
"""Bytes after which a run of messages ends: about as much as one format 2 batch of the offsets log may have."""

_CODEC, _APPENDED, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
"""Attributes. Appended: the largest timestamp, set by the broker, is every record's."""
_LAST_CODEC = int(max(Codec))
_LAST_MESSAGE_CODEC = int(Codec.LZ4)
"""zstd needs format 2 (KIP-110)."""


class ControlMarker(IntEnum):
    """How a transaction ended (Kafka class ``ControlRecordType``)."""

    ABORT = 0
    COMMIT = 1


_MARKERS = {marker.to_bytes(2): marker for marker in ControlMarker}


@dataclass(slots=True, eq=False)
class RecordBatch:
    """A batch of format 2, a compressed message of format 0 or 1, or a run of uncompressed ones.

    Attributes:
        base_offset: of the first record; in format 2 it stays when compaction removes that record.
        next_offset: one more than the last offset, which likewise stays.
        magic: the message format.
        producer_id: -1 where there is none.
        transactional: whether the records count only with their transaction's marker.
        control: whether the records are such markers, or other messages of the broker to itself.
        max_timestamp: milliseconds since the epoch, -1 where there is none.
        count: number of records; may be 0 after compaction.
        size: bytes on the wire.
    """

    base_offset: int
    next_offset: int
    magic: int
    producer_id: int
    transactional: bool
    control: bool
    max_timestamp: int
    count: int
    size: int
    _read: Callable[["RecordBatch"], Iterator[Record]] = field(repr=False)

    def records(self) -> Iterator[Record]:
        """The records, decompressed.

        Raises:
            DecodeError: a record, or the compression, is not what the batch's head says.
        """
        return self._read(self)

    @property
    def marker(self) -> ControlMarker | None:
        """How a transaction ended, of a control batch that says so.

        Raises:
            DecodeError: as for the records.
        """
        if not self.control:
            return None
        # The key of a control record: version and type, an int16 each. Later versions may add to it.
        key = next((key for _, _, key, _ in self.records()), None)
        return _MARKERS.get(key[2:4]) if key else None


def first_batch_size(data: bytes) -> int:
    """Bytes that the first batch needs to be whole; 0 where not even its length is there.

    Raises:
        DecodeError: no batch has such a length.
    """
    return _size(data, 0)


def batches(data: bytes, *, limit: int = LARGEST_DECOMPRESSED) -> Iterator[RecordBatch]:
    """The whole batches, in order. A last one that is cut off ends them.

    Args:
        data: the record bytes of a Fetch reply's partition.
        limit: bytes that one batch may become when decompressed.

    Raises:
        DecodeError: an impossible length, an unknown format or codec, a wrong checksum.
    """
    position = 0
    there = len(data)
    while size := _size(data, position):
        end = position + size
        magic = data[position + _MAGIC] if there > position + _MAGIC else 2
        if magic > 2:
            raise _wrong(data, position, "magic", f"unknown format {magic}")
        if end > there:
            return
        batch = _batch(data, position, end, limit) if magic == 2 else _message_batch(data, position, magic, limit)
        yield batch
        position += batch.size


def _size(data: bytes, position: int) -> int:
    if len(data) < position + _PREFIX:
        return 0
    (length,) = _LENGTH.unpack_from(data, position + 8)
    if length < _SHORTEST:
        raise _wrong(data, position, "length", f"impossible length {length}")
    size: int = length + _PREFIX
    return size


def _wrong(data: bytes, position: int, field: str, reason: str) -> DecodeError:
    offset = int.from_bytes(data[position : position + 8], "big", signed=True)
    return DecodeError(f"record batch at offset {offset}", field, reason)


# Format 2.


def _batch(data: bytes, position: int, end: int, limit: int) -> RecordBatch:
    start = position + _HEAD.size
    if end < start:
        raise _wrong(data, position, "length", f"{end - position} bytes are too few for format 2")
    base, _, magic, crc, attributes, last, base_timestamp, max_timestamp, producer, count = _HEAD.unpack_from(
        data, position
    )
    if crc32c(data[position + _CHECKED : end]) != crc:
        raise _wrong(data, position, "crc", "the checksum is wrong")
    codec = attributes & _CODEC
    if base < 0 or last < 0 or count < 0 or codec > _LAST_CODEC:
        raise _wrong(data, position, "head", f"last offset {last}, {count} records, codec {codec}")
    appended = max_timestamp if attributes & _APPENDED else None
    if codec:
        read = partial(_compressed_records, data, start, end, base_timestamp, appended, Codec(codec), limit)
    else:
        read = partial(_records, data, start, end, base_timestamp, appended)
    return RecordBatch(
        base,
        base + last + 1,
        magic,
        producer,
        attributes & _TRANSACTIONAL > 0,
        attributes & _CONTROL > 0,
        max_timestamp,
        count,
        end - position,
        read,
    )


def _compressed_records(
    data: bytes,
    start: int,
    end: int,
    base_timestamp: int,
    appended: int | None,
    codec: Codec,
    limit: int,
    batch: RecordBatch,
) -> Iterator[Record]:
    content = decompress(codec, data[start:end], limit)
    return _records(content, 0, len(content), base_timestamp, appended, batch)


def _records(  # noqa: C901
    data: bytes, position: int, end: int, base_timestamp: int, appended: int | None, batch: RecordBatch
) -> Iterator[Record]:
    """The hot loop: varints of one and two bytes are read in line, and what can be wrong is looked at once a record.

    Zigzag: a length or an offset delta is even unless negative, and its value is half of it.
    """
    base_offset = batch.base_offset
    offset = base_offset
    try:
        for _ in range(batch.count):
            length = data[position]
            if length < 0x80:
                at = position + 2  # Behind the attributes too, which say nothing.
            elif (high := data[position + 1]) < 0x80:
                length += high - 1 << 7
                at = position + 3
            else:
                length, at = _varint(data, position, 32)
                at += 1
            position = at + (length >> 1) - 1
            delta = data[at]
            at += 1
            if delta >= 0x80:
                if (high := data[at]) < 0x80:
                    delta += high - 1 << 7
                    at += 1
                else:
                    delta, at = _varint(data, at - 1, 64)
            timestamp = base_timestamp + (delta >> 1 ^ -(delta & 1))
            delta = data[at]
            at += 1
            if delta >= 0x80:
                if (high := data[at]) < 0x80:
                    delta += high - 1 << 7
                    at += 1
                else:
                    delta, at = _varint(data, at - 1, 32)
            offset = base_offset + (delta >> 1)
            size = data[at]
            at += 1
            if size >= 0x80:
                if (high := data[at]) < 0x80:
                    size += high - 1 << 7
                    at += 1
                else:
                    size, at = _varint(data, at - 1, 32)
            if size & 1:
                key = None
            else:
                start = at
                at += size >> 1
                key = data[start:at]
            size = data[at]
            at += 1
            if size >= 0x80:
                size, at = _varint(data, at - 1, 32)
            if size & 1:
                value = None
            else:
                start = at
                at += size >> 1
                value = data[start:at]
            # Headers are passed over, but their number must be there.
            if (length | delta) & 1 or at >= position or position > end:
                raise _unreadable(batch, "a record that does not fit")
            yield offset, timestamp if appended is None else appended, key, value
    except IndexError as error:
        raise _unreadable(batch, "records cut off") from error
    if position != end or offset >= batch.next_offset:
        raise _unreadable(batch, f"{end - position} bytes left over, last offset {offset}")


def _varint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """An unsigned varint and where it ends. Raises DecodeError where it has more than `bits`."""
    value = 0
    for shift in range(0, bits + 6, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and not value >> bits:
            return value, position
        if byte < 0x80:
            break
    raise DecodeError("record", "", f"varint longer than {bits} bits")


def _unreadable(batch: RecordBatch, reason: str) -> DecodeError:
    return DecodeError(f"record batch at offset {batch.base_offset}", "records", reason)


# Formats 0 and 1, where each message is its own batch: runs of them are taken together.


def _message_batch(data: bytes, position: int, magic: int, limit: int) -> RecordBatch:
    if data[position + _MAGIC + 1] & _CODEC:
        return _wrapped(data, position, magic, limit)
    return _run(data, position, magic, min(len(data), position + _LONGEST_RUN))


def _run(data: bytes, start: int, magic: int, stop: int) -> RecordBatch:
    """The messages of one format from `start` on, up to the first that is compressed or ends behind `stop`."""
    position, count, first, last, latest = start, 0, 0, -1, -1
    while size := _size(data, position):
        end = position + size
        if end > len(data) or (count and end > stop):
            break
        offset, _, crc, found, attributes = _MESSAGE.unpack_from(data, position)
        if found != magic or attributes & _CODEC:
            break
        _check(data, position, end, magic, crc)
        if offset <= last:
            raise _wrong(data, position, "offset", f"not behind offset {last}")
        latest = max(latest, _timestamp(data, position, magic))
        first = first if count else offset
        last = offset
        count += 1
        position = end
    read = partial(_messages, data, start, 0, None)
    return RecordBatch(first, last + 1, magic, -1, False, False, latest, count, position - start, read)


def _check(data: bytes, position: int, end: int, magic: int, crc: int) -> None:
    if end - position < _MESSAGE_HEADS[magic] + 2 * _LENGTH.size:
        raise _wrong(data, position, "length", f"{end - position} bytes are too few for format {magic}")
    if crc32(data[position + _MAGIC : end]) != crc:
        raise _wrong(data, position, "crc", "the checksum is wrong")


def _timestamp(data: bytes, position: int, magic: int) -> int:
    if not magic:
        return -1
    timestamp: int = _TIMESTAMP.unpack_from(data, position + _MESSAGE.size)[0]
    return timestamp


def _wrapped(data: bytes, position: int, magic: int, limit: int) -> RecordBatch:
    """The messages inside a compressed one, whose offset is the last one's. In format 1 theirs count from their first.

    They are decompressed at once: else not even the first offset would be known.
    """
    outer, size, crc, _, attributes = _MESSAGE.unpack_from(data, position)
    end = position + _PREFIX + size
    _check(data, position, end, magic, crc)
    _, value = _key_and_value(data, position, position + _MESSAGE_HEADS[magic], end)
    if value is None or attributes & _CODEC > _LAST_MESSAGE_CODEC:
        raise _wrong(data, position, "value", f"no message can be in it with codec {attributes & _CODEC}")
    content = decompress(Codec(attributes & _CODEC), value, limit)
    batch = _run(content, 0, magic, len(content))
    shift = outer - batch.next_offset + 1
    if batch.size != len(content) or not batch.count or shift < 0 or (shift and not magic):
        raise _wrong(data, position, "value", f"{batch.count} messages, {len(content) - batch.size} bytes left over")
    appended = _timestamp(data, position, magic) if attributes & _APPENDED else None
    return replace(
        batch,
        base_offset=batch.base_offset + shift,
        next_offset=outer + 1,
        max_timestamp=batch.max_timestamp if appended is None else appended,
        size=end - position,
        _read=partial(_messages, content, 0, shift, appended),
    )


def _messages(data: bytes, position: int, shift: int, appended: int | None, batch: RecordBatch) -> Iterator[Record]:
    head = _MESSAGE_HEADS[batch.magic]
    for _ in range(batch.count):
        offset, length = _OFFSET_AND_LENGTH.unpack_from(data, position)
        end = position + _PREFIX + length
        key, value = _key_and_value(data, position, position + head, end)
        timestamp = _timestamp(data, position, batch.magic) if appended is None else appended
        yield offset + shift, timestamp, key, value
        position = end


def _key_and_value(data: bytes, position: int, at: int, end: int) -> tuple[bytes | None, bytes | None]:
    """Both stand at the end of a message, each behind its length, which is negative for null."""
    start = at + _LENGTH.size
    (key,) = _LENGTH.unpack_from(data, at)
    at = start + max(key, 0)
    middle = at + _LENGTH.size
    value = _LENGTH.unpack_from(data, at)[0] if middle <= end else -1
    if middle + max(value, 0) != end:
        raise _wrong(data, position, "key or value", f"lengths {key} and {value} in {end - start} bytes")
    return None if key < 0 else data[start:at], None if value < 0 else data[middle:end]
