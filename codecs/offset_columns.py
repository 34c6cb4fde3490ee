"""Many offsets at once: keys in the offsets topic, and rows of an OffsetFetch reply, written column by column.

Owns: what `offsets_topic.suffix`, `offsets_topic.read_offset` and `offset_fetch.encode_partition` do with one offset,
done with thousands that are alike. Must not know: whose they are.

Of offsets that are all as long as each other, each byte of a key or of a row stands at the same distance from the last
one. So a column of bytes is copied with one slice, which costs a hundredth of what a partition costs by itself.
"""

import struct as packing
from collections.abc import Sequence
from typing import Any

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.offset_fetch import LEADER_EPOCH_SINCE, OffsetFetchResponse

_SHORT = packing.Struct(">h")
_INDEX = 4
"""Bytes of a partition's number."""
_METADATA_AT = {b"\0\3": 16, b"\0\4": 15}
"""Where the metadata begins in an OffsetCommitValue, by version. Its length begins at 14 in both."""
_OFFSET_AT, _LENGTH_AT = 2, 14
_COMMITTED = 8
"""Bytes of the commit timestamp, behind the metadata; of what is behind that a reply tells nothing."""
_LONGEST = 126
"""Bytes of metadata whose length is one byte in the compact form."""


def pack_indexes(indexes: Sequence[int]) -> bytes:
    """Partition numbers, one behind the other. Raises struct.error where one does not fit."""
    return packing.pack(f">{len(indexes)}i", *indexes)


def unpack_indexes(indexes: bytes) -> tuple[int, ...]:
    """The same as numbers."""
    return packing.unpack(f">{len(indexes) // _INDEX}i", indexes)


def suffixes(topic: str, indexes: bytes) -> tuple[bytes, ...]:
    """`offsets_topic.suffix` of each of a topic's partitions. Raises struct.error where the name does not fit."""
    name = topic.encode()
    head, count = _SHORT.pack(len(name)) + name, len(indexes) // _INDEX
    at, size = len(head), len(head) + _INDEX
    rows = bytearray((head + bytes(_INDEX)) * count)
    for column in range(_INDEX):
        rows[at + column :: size] = indexes[column::_INDEX]
    return packing.unpack(f"{size}s" * count, rows)


def indexes_behind(suffixes: Sequence[bytes]) -> bytes:
    """The partition numbers of one topic's suffixes. Raises DecodeError where these are not all of one length."""
    size, rows = len(suffixes[0]), b"".join(suffixes)
    if not _all_of(size, suffixes):
        raise DecodeError("offsets topic key", "", "of another length than its twins")
    indexes = bytearray(_INDEX * len(suffixes))
    for column in range(_INDEX):
        indexes[column::_INDEX] = rows[size - _INDEX + column :: size]
    return bytes(indexes)


def encode_alike(version: int, indexes: bytes, values: Sequence[Any]) -> bytes | None:
    """Rows of a reply without error, all of one length.

    Args:
        version: of the reply.
        indexes: the partitions' numbers.
        values: at least one: raw OffsetCommitValues.

    Returns:
        The rows; None where not all values are bytes, or they are not of one version and length, as is metadata that is
        not plain ASCII: those are to be encoded one by one.
    """
    try:
        raw = b"".join(values)
    except TypeError:
        return None
    count, size, at = len(values), len(values[0]), _METADATA_AT.get(raw[:2])
    if at is None or not _all_of(size, values):
        return None
    length = int.from_bytes(raw[_LENGTH_AT:at], "big") - (at - _LENGTH_AT == 1)
    if not 0 <= length <= _LONGEST or size < at + length + _COMMITTED:
        return None
    if any(raw[column::size] != raw[column : column + 1] * count for column in (0, 1, *range(_LENGTH_AT, at))):
        return None
    metadata = [raw[at + column :: size] for column in range(length)]
    if not all(map(bytes.isascii, metadata)):
        return None
    told = 12 if version >= LEADER_EPOCH_SINCE else 8
    columns = [indexes[column::_INDEX] for column in range(_INDEX)]
    columns += [raw[_OFFSET_AT + column :: size] for column in range(told)]
    return _rows(version, columns, metadata, count)


def _rows(version: int, columns: Sequence[bytes], metadata: Sequence[bytes], count: int) -> bytes:
    flexible, length = version >= OffsetFetchResponse.FLEXIBLE, len(metadata)
    said = bytes((length + 1,)) if flexible else length.to_bytes(2, "big")
    first = bytes([data[0] for data in columns]) + said + bytes([data[0] for data in metadata])
    row = first + (b"\0\0\0" if flexible else b"\0\0")
    rows = bytearray(row * count)
    places = (*range(len(columns)), *range(len(columns) + len(said), len(first)))
    for place, data in zip(places, (*columns, *metadata), strict=True):
        if data != data[:1] * count:
            rows[place :: len(row)] = data
    return bytes(rows)


def _all_of(size: int, values: Sequence[bytes]) -> bool:
    """Whether each is of that size."""
    return set(map(len, values)) == {size}
