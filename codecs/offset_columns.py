"""Encodes many offsets at once: keys in the offsets topic, and rows of an OffsetFetch reply.

A row is the encoding of one partition. `offsets_topic.key_suffix`, `offsets_topic.decode_offset_value` and
`offset_fetch.encode_partition` handle one offset. The functions here do the same for thousands of offsets.

The functions here need rows of equal length. The bytes at one position of all rows then form a column, and one slice
assignment copies a whole column. A partition takes a hundredth of the time that the functions for one offset need.
"""

import struct as packing
from collections.abc import Sequence
from typing import Any

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.offset_fetch import LEADER_EPOCH_SINCE, OffsetFetchResponse

_SHORT = packing.Struct(">h")
_PARTITION_BYTES = 4
"""Size of a partition index."""
_METADATA_AT = {b"\0\3": 16, b"\0\4": 15}
"""Position of the metadata in an OffsetCommitValue, by version. The length of the metadata is at position 14."""
_OFFSET_AT, _LENGTH_AT = 2, 14
_TIMESTAMP_BYTES = 8
"""Size of the commit timestamp, which follows the metadata. Replies do not contain the timestamp or later bytes."""
_MAX_SHORT_METADATA_BYTES = 126
"""Maximum size of metadata whose compact length is one byte."""


def pack_indexes(indexes: Sequence[int]) -> bytes:
    """Returns partition indexes packed as int32. Raises struct.error if an index does not fit."""
    return packing.pack(f">{len(indexes)}i", *indexes)


def unpack_indexes(indexes: bytes) -> tuple[int, ...]:
    """Returns packed partition indexes as numbers."""
    return packing.unpack(f">{len(indexes) // _PARTITION_BYTES}i", indexes)


def key_suffixes(topic: str, indexes: bytes) -> tuple[bytes, ...]:
    """Returns `offsets_topic.key_suffix` for each partition of a topic. Raises struct.error if the name is too long."""
    name = topic.encode()
    head, count = _SHORT.pack(len(name)) + name, len(indexes) // _PARTITION_BYTES
    at, size = len(head), len(head) + _PARTITION_BYTES
    rows = bytearray((head + bytes(_PARTITION_BYTES)) * count)
    for column in range(_PARTITION_BYTES):
        rows[at + column :: size] = indexes[column::_PARTITION_BYTES]
    return packing.unpack(f"{size}s" * count, rows)


def indexes_in_suffixes(key_suffixes: Sequence[bytes]) -> bytes:
    """Returns the packed partition indexes of one topic's suffixes. Raises DecodeError if suffix lengths differ."""
    size, rows = len(key_suffixes[0]), b"".join(key_suffixes)
    if not _all_have_size(size, key_suffixes):
        raise DecodeError("offsets topic key", "", "the keys of one topic differ in length")
    indexes = bytearray(_PARTITION_BYTES * len(key_suffixes))
    for column in range(_PARTITION_BYTES):
        indexes[column::_PARTITION_BYTES] = rows[size - _PARTITION_BYTES + column :: size]
    return bytes(indexes)


def encode_uniform_rows(version: int, indexes: bytes, values: Sequence[Any]) -> bytes | None:
    """Returns the encoded partitions of a reply without errors, or None if the values differ in form.

    Args:
        version: the reply's version.
        indexes: the packed partition indexes.
        values: raw OffsetCommitValues, at least one.

    Returns:
        The rows. None if a value is not bytes or has another version than 3 or 4, if versions or lengths differ, or if
        metadata is not ASCII or longer than 126 bytes. The caller then encodes the rows one by one.
    """
    try:
        raw = b"".join(values)
    except TypeError:
        return None
    count, size, at = len(values), len(values[0]), _METADATA_AT.get(raw[:2])
    if at is None or not _all_have_size(size, values):
        return None
    length = int.from_bytes(raw[_LENGTH_AT:at], "big") - (at - _LENGTH_AT == 1)
    if not 0 <= length <= _MAX_SHORT_METADATA_BYTES or size < at + length + _TIMESTAMP_BYTES:
        return None
    if any(raw[column::size] != raw[column : column + 1] * count for column in (0, 1, *range(_LENGTH_AT, at))):
        return None
    metadata = [raw[at + column :: size] for column in range(length)]
    if not all(map(bytes.isascii, metadata)):
        return None
    offset_bytes = 12 if version >= LEADER_EPOCH_SINCE else 8
    columns = [indexes[column::_PARTITION_BYTES] for column in range(_PARTITION_BYTES)]
    columns += [raw[_OFFSET_AT + column :: size] for column in range(offset_bytes)]
    return _rows(version, columns, metadata, count)


def _rows(version: int, columns: Sequence[bytes], metadata: Sequence[bytes], count: int) -> bytes:
    flexible, length = version >= OffsetFetchResponse.FLEXIBLE, len(metadata)
    length_prefix = bytes((length + 1,)) if flexible else length.to_bytes(2, "big")
    first = bytes([data[0] for data in columns]) + length_prefix + bytes([data[0] for data in metadata])
    row = first + (b"\0\0\0" if flexible else b"\0\0")
    rows = bytearray(row * count)
    places = (*range(len(columns)), *range(len(columns) + len(length_prefix), len(first)))
    for place, data in zip(places, (*columns, *metadata), strict=True):
        if data != data[:1] * count:
            rows[place :: len(row)] = data
    return bytes(rows)


def _all_have_size(size: int, values: Sequence[bytes]) -> bool:
    """Whether each value has `size` bytes."""
    return set(map(len, values)) == {size}
