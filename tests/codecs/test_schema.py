"""The effect of a declaration: versions, nulls, tagged fields, and the paths in errors."""

import dataclasses

import pytest

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.primitives import INT16, INT32, STRING
from group_sidecar.codecs.schema import (
    Array,
    Struct,
    decode,
    decode_start,
    encode,
    field_specs,
    request,
    struct,
    wire_field,
)


@struct
class Leaf(Struct):
    """An inner struct."""

    number: int = wire_field(INT16)
    name: str | None = wire_field(STRING, nullable=2)


@request(key=500, versions=(0, 3), flexible=2)
class Example(Struct):
    """A message with each kind of field."""

    name: str = wire_field(STRING)
    newer: int = wire_field(INT32, since=1, default=7)
    older: int = wire_field(INT32, until=0, default=8)
    leaves: tuple[Leaf, ...] = wire_field(Array(Leaf), default=())
    only: Leaf | None = wire_field(Leaf, since=3, nullable=3, default=None)
    late: int = wire_field(INT16, since=2, tag=1, default=-1)
    words: tuple[str, ...] = wire_field(Array(STRING), since=2, tag=3, default=())


def test_fields_per_version() -> None:
    """Each version of a message writes only the fields of that version."""
    message = Example(name="a", newer=1, older=2)
    assert encode(message, 0) == bytes.fromhex("0001 61 00000002 00000000")
    assert encode(message, 1) == bytes.fromhex("0001 61 00000001 00000000")
    assert encode(message, 2) == bytes.fromhex("02 61 00000001 01 00")
    assert encode(message, 3) == bytes.fromhex("02 61 00000001 01 ff 00")


def test_absent_field_has_default_value() -> None:
    """A field that the version lacks is decoded as its default."""
    assert decode(Example, 0, bytes.fromhex("0001 61 00000002 00000000")) == Example(name="a", newer=7, older=2)
    assert decode(Example, 1, bytes.fromhex("0001 61 00000001 00000000")) == Example(name="a", newer=1, older=8)


def test_tagged_fields_are_ordered_and_sparse() -> None:
    """Tagged fields are written in tag order and omitted if they have their default."""
    message = Example(name="", late=5, words=("x",), unknown_tags=((0, b"a"), (2, b""), (9, b"bc")))
    body = bytes.fromhex("01 00000007 01 05 00 01 61 01 02 0005 02 00 03 03 02 02 78 09 02 6263")
    assert encode(message, 2) == body
    assert decode(Example, 2, body) == message
    assert encode(dataclasses.replace(message, late=-1, words=(), unknown_tags=()), 2) == bytes.fromhex(
        "01 00000007 01 00"
    )


@pytest.mark.parametrize(
    ("tagged", "reason"),
    [
        ("01 01 01 00", "tagged fields.late: 2 bytes announced, 1 left"),
        ("01 01 03 000000", "1 bytes left over"),
        ("01 00 ffffffff0f", "4294967295 bytes announced, 0 left"),
        ("01 02 05 00", "5 bytes announced, 1 left"),
        ("02 02 00", "1 bytes announced, 0 left"),
        ("01 03 04 03 02 78 01 00", "1 bytes left over"),
    ],
)
def test_invalid_tagged_fields_are_refused(tagged: str, reason: str) -> None:
    """Invalid tagged fields raise a DecodeError with the reason."""
    with pytest.raises(DecodeError) as caught:
        decode(Example, 2, bytes.fromhex("01 00000007 01" + tagged))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("tagged", "late", "unknown"),
    [
        ("02 02 00 01 02 0005", 5, ((2, b""),)),
        ("02 01 02 0005 01 02 0006", 6, ()),
        ("02 02 01 61 02 00", -1, ((2, b"a"), (2, b""))),
        ("02 04 00 02 01 61", -1, ((2, b"a"), (4, b""))),
        ("01 01 00 0005", 5, ()),
        ("01 01 ffffffff0f 0005", 5, ()),
        ("ffffffff0f", -1, ()),
    ],
    ids=[
        "out of order",
        "twice",
        "unknown twice",
        "unknown out of order",
        "size too small",
        "negative size",
        "negative number",
    ],
)
def test_odd_tagged_fields_match_kafka(tagged: str, late: int, unknown: tuple[tuple[int, bytes], ...]) -> None:
    """Tagged fields in odd order, repeated or with wrong sizes are read as by Kafka. Encoding keeps their order."""
    message = Example(name="", late=late, unknown_tags=unknown)
    assert decode(Example, 2, bytes.fromhex("01 00000007 01" + tagged)) == message
    assert decode(Example, 2, encode(message, 2)) == message


def test_nested_struct_has_tagged_fields() -> None:
    """A nested struct writes and reads its own tagged fields."""
    message = Example(name="", only=Leaf(number=1, name=None, unknown_tags=((4, b"z"),)))
    body = bytes.fromhex("01 00000007 01 01 0001 00 01 04 01 7a 00")
    assert encode(message, 3) == body
    assert decode(Example, 3, body) == message


@pytest.mark.parametrize(
    ("body", "path", "reason"),
    [
        ("0001", "name", "1 bytes announced, 0 left"),
        ("0001 61 0000", "newer", "4 bytes announced, 2 left"),
        ("0001 61 00000000 00000002 0001 0000 0001", "leaves.name", "2 bytes announced, 0 left"),
        ("0001 61 00000000 00000001 0001 ffff", "leaves.name", "null where the schema allows none"),
        ("0001 61 00000000 00000000 0000", "", "2 bytes left over"),
    ],
)
def test_decode_error_has_path(body: str, path: str, reason: str) -> None:
    """A DecodeError names the message, the field's path and the reason in one line."""
    with pytest.raises(DecodeError) as caught:
        decode(Example, 1, bytes.fromhex(body))
    assert (caught.value.what, caught.value.path) == ("Example v1", path)
    assert reason in caught.value.reason
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize("rest", [b"", b"\0", b"behind"])
def test_decode_start_returns_rest(rest: bytes) -> None:
    """decode_start returns the message and the bytes that follow it."""
    message = Example(name="a", newer=1)
    for version in Example.VERSIONS[1:]:
        assert decode_start(Example, version, encode(message, version) + rest) == (message, rest)


@pytest.mark.parametrize(("version", "body"), [(1, "0001"), (2, "02 61 00000001 01"), (4, "")])
def test_decode_start_of_incomplete_message(version: int, body: str) -> None:
    """decode_start raises DecodeError for an incomplete message and for an unknown version."""
    with pytest.raises(DecodeError, match=f"Example v{version}"):
        decode_start(Example, version, bytes.fromhex(body))


@pytest.mark.parametrize(
    ("message", "version", "where"),
    [
        (Example(name="x" * 0x8000), 2, "name: string of 32768 bytes"),
        (Example(name="", newer=1 << 31), 1, "newer"),
        (Example(name="", leaves=(Leaf(number=1, name=None),)), 1, "leaves.name: null"),
        (Example(name="", leaves=(Leaf(number=1 << 15, name=""),)), 1, "leaves.number"),
        (Example(name="", late=1 << 15), 2, "tagged fields.late"),
        (Example(name=""), 4, "version not declared"),
        (Example(name=""), -1, "version not declared"),
    ],
)
def test_unfit_values_are_not_encoded(message: Example, version: int, where: str) -> None:
    """Encoding a value that does not fit raises a ValueError with the field's path."""
    with pytest.raises(ValueError, match=rf"^Example v{version}: {where}"):
        encode(message, version)


def test_message_is_immutable_value() -> None:
    """A message is immutable, hashable and compares by value."""
    message = Example(name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.name = "b"  # type: ignore[misc]
    assert message == Example(name="a")
    assert hash(message) == hash(Example(name="a"))
    assert message != Example(name="a", unknown_tags=((0, b""),))


def test_field_specs_are_in_wire_order() -> None:
    """field_specs lists the fields in wire order."""
    assert list(field_specs(Example)) == ["name", "newer", "older", "leaves", "only", "late", "words"]
