"""The primitive types of the protocol: their encodings, and the values that they refuse."""

from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.primitives import (
    BOOLEAN,
    BYTES,
    COMPACT,
    FLOAT64,
    INT,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID_,
    NullableStruct,
    SizedArray,
    WireError,
    WireType,
    read_exact,
    read_tag_count,
    read_uvarint,
    write_uvarint,
)
from tests.codecs.strategies import WIRE_VALUES
from tests.codecs.whole_parse import parse_whole


def uvarint(value: int) -> bytes:
    stream = BytesIO()
    write_uvarint(stream, value)
    return stream.getvalue()


def whole(wire_type: WireType, data: str, *, compact: bool = False, nullable: bool = False) -> Any:
    return parse_whole(wire_type.make(compact, nullable), bytes.fromhex(data))


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (0x7F, "7f"),
        (0x80, "8001"),
        (0x3FFF, "ff7f"),
        (0x4000, "808001"),
        (0x0FFFFFFF, "ffffff7f"),
        (0x10000000, "8080808001"),
        (0xFFFFFFFF, "ffffffff0f"),
    ],
)
def test_uvarint(value: int, data: str) -> None:
    """A varint is written and read with the expected bytes."""
    assert uvarint(value).hex() == data
    assert read_uvarint(BytesIO(bytes.fromhex(data))) == value


@given(st.integers(0, 0xFFFFFFFF))
def test_uvarint_round_trip(value: int) -> None:
    """A varint round-trips, and the bytes after it stay unread."""
    stream = BytesIO(uvarint(value) + b"tail")
    assert read_uvarint(stream) == value
    assert stream.read() == b"tail"


@pytest.mark.parametrize(
    ("data", "value"),
    [("ffffffff1f", 0xFFFFFFFF), ("ffffffff7f", 0xFFFFFFFF), ("8580808010", 5), ("8080808070", 0), ("858000", 5)],
)
def test_uvarint_drops_bits_above_32(data: str, value: int) -> None:
    """Bits of a varint above the 32nd are dropped, as in Java."""
    assert read_uvarint(BytesIO(bytes.fromhex(data))) == value


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        *((data, "longer than 5 bytes") for data in ("ffffffff8f01", "80808080808000")),
        *((data, "1 bytes announced, 0 left") for data in ("", "80", "ffffffff")),
    ],
)
def test_invalid_uvarint_is_refused(data: str, reason: str) -> None:
    """A varint that is longer than five bytes or truncated is refused."""
    with pytest.raises(WireError, match=reason):
        read_uvarint(BytesIO(bytes.fromhex(data)))


@pytest.mark.parametrize(
    ("data", "count"), [("02", 2), ("ffffffff07", 0x7FFFFFFF), ("8080808008", 0), ("ffffffff0f", 0)]
)
def test_negative_tag_count_is_zero(data: str, count: int) -> None:
    """A negative number of tagged fields is read as zero, and the largest positive number is kept."""
    assert read_tag_count(BytesIO(bytes.fromhex(data))) == count


def test_read_exact_refuses_short_reads() -> None:
    """read_exact refuses to return fewer bytes than requested."""
    stream = BytesIO(b"abc")
    assert read_exact(stream, 2) == b"ab"
    with pytest.raises(WireError, match="2 bytes announced, 1 left"):
        read_exact(stream, 2)


@pytest.mark.parametrize(
    ("wire_type", "value", "plain", "compact"),
    [
        (BOOLEAN, True, "01", "01"),
        (INT8, -1, "ff", "ff"),
        (INT16, -2, "fffe", "fffe"),
        (UINT16, 0xFFFE, "fffe", "fffe"),
        (INT32, 1, "00000001", "00000001"),
        (INT64, -1, "ffffffffffffffff", "ffffffffffffffff"),
        (FLOAT64, 1.0, "3ff0000000000000", "3ff0000000000000"),
        (UUID_, UUID(int=1), "00" * 15 + "01", "00" * 15 + "01"),
        (STRING, "é", "0002c3a9", "03c3a9"),
        (STRING, "", "0000", "01"),
        (BYTES, b"\xff", "00000001ff", "02ff"),
        (BYTES, b"", "00000000", "01"),
    ],
)
def test_bytes_of_each_type(wire_type: WireType, value: Any, plain: str, compact: str) -> None:
    """Each primitive type is written and read with the expected bytes, plain and compact."""
    for form, data in ((False, plain), (True, compact)):
        construct = wire_type.make(form, False)
        assert construct.build(value).hex() == data
        assert parse_whole(construct, bytes.fromhex(data)) == value


@pytest.mark.parametrize(("wire_type", "plain"), [(STRING, "ffff"), (BYTES, "ffffffff")])
def test_null(wire_type: WireType, plain: str) -> None:
    """A null string or byte field is written and read if it is nullable, and refused otherwise."""
    for compact, data in ((False, plain), (True, "00")):
        assert whole(wire_type, data, compact=compact, nullable=True) is None
        assert wire_type.make(compact, True).build(None).hex() == data
        with pytest.raises(WireError, match="null where the schema allows none"):
            whole(wire_type, data, compact=compact)
        with pytest.raises(WireError, match="null where the schema allows none"):
            wire_type.make(compact, False).build(None)


@pytest.mark.parametrize(
    ("wire_type", "data", "compact"),
    [
        (STRING, "fffe", False),
        (STRING, "8000", False),
        (BYTES, "fffffffe", False),
        (BYTES, "80000000", False),
        (STRING, "ffffffff0f", True),
        (BYTES, "8180808008", True),
        (STRING, "8080808010", True),
    ],
)
def test_negative_length_is_null(wire_type: WireType, data: str, compact: bool) -> None:
    """Any negative length is read as null, and refused where null is not allowed."""
    assert whole(wire_type, data, compact=compact, nullable=True) is None
    with pytest.raises(WireError, match="null where the schema allows none"):
        whole(wire_type, data, compact=compact)


def test_lowest_compact_length_wraps_around() -> None:
    """The lowest compact length wraps around to the largest int32, as in Java."""
    with pytest.raises(WireError, match="2147483647 bytes announced, 0 left"):
        whole(BYTES, "8080808008", compact=True, nullable=True)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize(("raw", "mistakes"), [(b"\xff", 1), (b"\xc3", 1), (b"\xed\xa0\x80", 1), (b"\xc0\x80", 2)])
def test_invalid_utf8_is_replaced(raw: bytes, mistakes: int, compact: bool) -> None:
    """Invalid UTF-8 in a string is read as replacement characters, which are written as such."""
    construct = STRING.make(compact, False)
    data = BYTES.make(True, False).build(raw) if compact else len(raw).to_bytes(2, "big") + raw
    assert parse_whole(construct, data) == "\ufffd" * mistakes
    assert construct.build("\ufffd" * mistakes)[-3 * mistakes :] == b"\xef\xbf\xbd" * mistakes


@pytest.mark.parametrize("compact", [False, True])
def test_replaced_string_may_be_too_long(compact: bool) -> None:
    """A string that grows beyond the limit by replacement characters is read but not written."""
    construct, raw = STRING.make(compact, False), b"\xff" * 20_000
    text = parse_whole(construct, (uvarint(20_001) if compact else (20_000).to_bytes(2, "big")) + raw)
    assert text == "\ufffd" * 20_000
    with pytest.raises(WireError, match="string of 60000 bytes"):
        construct.build(text)


def test_lone_surrogate_is_not_written() -> None:
    """Writing a string with a lone surrogate raises ValueError."""
    with pytest.raises(ValueError, match="surrogates"):
        STRING.make(True, False).build("\ud800")


@pytest.mark.parametrize("compact", [False, True])
def test_longest_string(compact: bool) -> None:
    """A string of 32767 bytes is written and read. A longer string is not written."""
    construct = STRING.make(compact, False)
    longest = "x" * 0x7FFF
    assert parse_whole(construct, construct.build(longest)) == longest
    with pytest.raises(WireError, match="string of 32768 bytes"):
        construct.build("x" * 0x8000)


def test_oversized_compact_string_is_refused() -> None:
    """Reading a compact string of 32768 bytes raises an error."""
    with pytest.raises(WireError, match="string of 32768 bytes"):
        parse_whole(STRING.make(True, False), uvarint(0x8001) + b"x" * 0x8000)


@pytest.mark.parametrize("length", [INT, COMPACT])
def test_arrays(length: Any) -> None:
    """Arrays round-trip, and an empty array has other bytes than a null array."""
    construct = SizedArray(length, True, INT16.make(False, False))
    for value in ((), (1, -1), None):
        assert parse_whole(construct, construct.build(value)) == value
    assert construct.build(()) != construct.build(None)


@pytest.mark.parametrize(
    ("length", "data"),
    [(INT, "7fffffff 0001"), (INT, "00000003 0001"), (COMPACT, "ffffffff07 0001"), (COMPACT, "04 0001")],
)
def test_count_beyond_bytes_is_refused(length: Any, data: str) -> None:
    """An array count that needs more bytes than are left is refused."""
    with pytest.raises(WireError, match="elements announced, 2 bytes left"):
        parse_whole(SizedArray(length, False, INT16.make(False, False)), bytes.fromhex(data))


@pytest.mark.parametrize(
    ("wire_type", "value"),
    [(INT8, 128), (INT16, -0x8001), (UINT16, -1), (INT32, 1 << 31), (INT64, 1 << 63), (INT32, None)],
)
def test_number_out_of_range_is_refused(wire_type: WireType, value: Any) -> None:
    """Writing a number that does not fit its type raises an error."""
    with pytest.raises(WireError):
        wire_type.make(False, False).build(value)


def test_nullable_struct_has_prefix_byte() -> None:
    """A nullable struct is preceded by one byte that distinguishes null from a value."""
    construct = NullableStruct(INT16.make(False, False))
    assert construct.build(None) == b"\xff"
    assert construct.build(1) == bytes.fromhex("010001")
    assert parse_whole(construct, b"\xff") is None
    assert parse_whole(construct, bytes.fromhex("010001")) == 1


def test_leftover_bytes_are_refused() -> None:
    """Parsing a whole value refuses leftover bytes."""
    with pytest.raises(WireError, match="2 bytes left over"):
        whole(INT16, "00010203")


@pytest.mark.parametrize("wire_type", [BOOLEAN, INT8, INT16, UINT16, INT32, INT64, FLOAT64, UUID_, STRING, BYTES])
@given(st.data(), st.booleans())
def test_round_trip_and_truncation(wire_type: WireType, data: st.DataObject, compact: bool) -> None:
    """Each primitive type round-trips, and every truncation is refused."""
    value = data.draw(WIRE_VALUES[wire_type.name])
    construct = wire_type.make(compact, False)
    written = construct.build(value)
    assert parse_whole(construct, written) == value
    for end in range(len(written)):
        with pytest.raises(WireError, match="bytes announced"):
            parse_whole(construct, written[:end])
