"""Partitions that are encoded column by column equal those that are encoded one by one."""

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchResponse, encode_partition
from group_sidecar.codecs.offset_columns import (
    encode_uniform_rows,
    indexes_in_suffixes,
    key_suffixes,
    pack_indexes,
    unpack_indexes,
)
from group_sidecar.codecs.offsets_topic import decode_offset_value, key_suffix
from tests.codecs.strategies import per_message

INDEXES = st.lists(st.integers(0, (1 << 31) - 1), min_size=1, max_size=5)
LONGEST = 126
"""The length of metadata above which partitions are encoded one by one."""


def raw(version: int, offset: int, epoch: int, metadata: str, behind: bytes = b"") -> bytes:
    """Returns an OffsetCommitValue of version 2, 3 or 4."""
    text = metadata.encode()
    middle = struct.pack(">i", epoch) if version > 2 else b""
    length = bytes((len(text) + 1,)) if version == 4 else struct.pack(">h", len(text))
    return b"".join((struct.pack(">hq", version, offset), middle, length, text, bytes(8), behind))


def one_by_one(version: int, indexes: Sequence[int], values: Sequence[bytes]) -> bytes:
    decoded = [(index, *decode_offset_value(value)[:3]) for index, value in zip(indexes, values, strict=True)]
    return b"".join(encode_partition(version, *each) for each in decoded)


OFFSETS, EPOCHS = st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
METADATA = st.text(st.characters(max_codepoint=127), max_size=LONGEST + 2) | st.sampled_from(["", "n\u00f6te"])
DEFERRED_APIS = st.sampled_from([b"", b"\0", b"\1\0\x10" + bytes(16)])


@pytest.mark.parametrize("version", range(1, OffsetFetchResponse.VERSIONS.stop))
@per_message
@given(INDEXES, st.sampled_from([3, 4]), METADATA, DEFERRED_APIS, st.data())
def test_uniform_rows_match_single_rows(
    version: int, indexes: list[int], written: int, metadata: str, behind: bytes, data: st.DataObject
) -> None:
    """Rows with equal metadata encode together to the same bytes as one by one, if the metadata is short ASCII."""
    if written == 4 and len(metadata.encode()) > LONGEST:
        metadata = metadata[:LONGEST]  # Its length takes one byte.
    values = [raw(written, data.draw(OFFSETS), data.draw(EPOCHS), metadata, behind) for _ in indexes]
    rows = encode_uniform_rows(version, pack_indexes(indexes), values)
    if metadata.isascii() and len(metadata) <= LONGEST:
        assert rows == one_by_one(version, indexes, values)
    else:
        assert rows is None


@pytest.mark.parametrize(
    "odd",
    [
        None,
        b"",
        raw(3, 1, 1, "")[:-1],
        raw(3, 1, 1, "x"),
        raw(4, 1, 1, "x"),
        raw(2, 1, 1, "none"),
        b"\0\3" + raw(3, 1, 1, "")[2:14] + b"\1\0" + bytes(8),
        b"\0\3" + raw(3, 1, 1, "")[2:14] + b"\xff\xff" + bytes(8),
        raw(3, 1, 1, "")[:-1] + b"more",
    ],
)
def test_mixed_rows_are_not_uniform(odd: bytes | None) -> None:
    """Rows are not encoded together if one of them differs or is invalid."""
    fine = raw(3, 1, 1, "")
    for values in ([fine, odd], [odd, fine], [fine, odd, fine]):
        assert encode_uniform_rows(8, pack_indexes(range(len(values))), values) is None


@pytest.mark.parametrize("value", [b"", b"\0\3", raw(2, 1, 1, ""), raw(3, 1, 1, "")[:-1], raw(4, 1, 1, "")[:-1]])
def test_invalid_equal_rows_are_not_uniform(value: bytes) -> None:
    """Equal rows that are invalid, or of an unsupported version, are not encoded together."""
    assert encode_uniform_rows(8, pack_indexes((0, 1)), [value, value]) is None


def test_compensating_lengths_are_not_uniform() -> None:
    """Rows whose differing lengths sum to the expected total are not encoded together."""
    longer, shorter = raw(3, 1, 0, "") + b"\0\3", raw(3, 1, 0, "")[:-2]
    assert encode_uniform_rows(8, pack_indexes((0, 1, 2)), [raw(3, 1, 0, ""), longer, shorter]) is None


@given(st.text(max_size=20), INDEXES)
def test_suffixes_of_topic(topic: str, indexes: list[int]) -> None:
    """Key suffixes of all partitions of a topic match those encoded one by one, and return the indexes."""
    found = key_suffixes(topic, pack_indexes(indexes))
    assert list(found) == [key_suffix(topic, index) for index in indexes]
    assert unpack_indexes(indexes_in_suffixes(found)) == tuple(indexes)


def test_suffixes_without_partitions() -> None:
    """A topic without partitions has no key suffixes."""
    assert key_suffixes("t", b"") == ()


def test_suffix_of_other_length_is_refused() -> None:
    """Key suffixes of different lengths raise DecodeError."""
    with pytest.raises(DecodeError, match="differ in length"):
        indexes_in_suffixes([b"\0\1t\0\0\0\1", b"\0\1t\0\0\0\1\0"])
