"""`acks_of` reads acks from the first bytes of a Produce request. These tests declare the same bytes as a message, and
compare.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.produce import ProduceResponse, acks_of
from group_sidecar.codecs.primitives import INT16, STRING
from group_sidecar.codecs.schema import Struct, layout, struct, wire_field
from tests.codecs.kafka_schemas import KafkaSchemas

VERSIONS = ProduceResponse.VERSIONS


@struct
class ProduceRequestHead(Struct):
    """The fields of a Produce request up to acks."""

    transactional_id: str | None = wire_field(STRING, since=3, nullable=3, default=None)
    acks: int = wire_field(INT16)


def head_of(version: int, transactional_id: str | None, acks: int) -> bytes:
    """Returns the encoded head. In flexible versions, the empty tag section of the declaration is removed."""
    flexible = version >= ProduceResponse.FLEXIBLE
    head: bytes = layout(ProduceRequestHead, version, flexible).build(
        ProduceRequestHead(transactional_id=transactional_id, acks=acks)
    )
    return head[:-1] if flexible else head


ids = st.none() | st.text(max_size=20) | st.sampled_from((126, 127, 128, 0x7FFF)).map(lambda length: "t" * length)


@given(st.sampled_from(VERSIONS), ids, st.integers(-0x8000, 0x7FFF), st.binary(max_size=8))
def test_acks_of_whole_head(version: int, transactional_id: str | None, acks: int, more: bytes) -> None:
    """acks_of returns the acks of a complete Produce head, with or without following bytes."""
    head = head_of(version, transactional_id, acks)
    assert acks_of(version, head) == acks
    assert acks_of(version, head + more) == acks


@given(st.sampled_from(VERSIONS), ids, st.integers(-1, 1), st.data())
def test_acks_of_truncated_head(version: int, transactional_id: str | None, acks: int, data: st.DataObject) -> None:
    """acks_of returns None for a truncated Produce head."""
    head = head_of(version, transactional_id, acks)
    assert acks_of(version, head[: data.draw(st.integers(0, len(head) - 1))]) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "", "txn", "t" * 200])
def test_acks_of_every_truncation(version: int, transactional_id: str | None) -> None:
    """acks_of returns None for every truncation of a Produce head and the acks for the whole head."""
    head = head_of(version, transactional_id, 0)
    assert [acks_of(version, head[:end]) for end in range(len(head) + 1)] == [None] * len(head) + [0]


@pytest.mark.parametrize(
    ("version", "head"),
    [
        (13, "ffffffffff01"),
        (9, "818002"),  # 32,768 bytes, one more than the maximum of a string.
        (9, "ffffffff07"),
    ],
)
def test_invalid_id_length_is_refused(version: int, head: str) -> None:
    """An invalid length of the transactional id raises DecodeError."""
    with pytest.raises(DecodeError, match=f"ProduceRequest v{version}: transactional_id"):
        acks_of(version, bytes.fromhex(head))


@pytest.mark.parametrize(("version", "null"), [(3, "fffe"), (8, "8000"), (9, "ffffffff0f"), (13, "8080808010")])
def test_negative_id_length_is_null(version: int, null: str) -> None:
    """Any negative length of the transactional id is read as null."""
    assert acks_of(version, bytes.fromhex(null) + b"\0\0") == 0


@pytest.mark.parametrize("version", [VERSIONS[-1] + 1, 0x7FFF])
def test_newer_version_is_read_as_newest(version: int) -> None:
    """A Produce head of a newer, unknown version is read like the newest known version."""
    assert acks_of(version, head_of(VERSIONS[-1], "txn", -1)) == -1


@given(st.sampled_from(VERSIONS), st.binary(max_size=16))
@example(9, b"\x80\x80\x80\x80")
def test_any_bytes_as_head(version: int, head: bytes) -> None:
    """For any bytes, acks_of returns None or an int16, or raises DecodeError. More bytes do not end a DecodeError."""
    try:
        acks = acks_of(version, head)
    except DecodeError:
        # More bytes cannot make the request valid.
        with pytest.raises(DecodeError):
            acks_of(version, head + bytes(4))
    else:
        assert acks is None or -0x8000 <= acks <= 0x7FFF


def test_head_matches_kafka_schema(kafka_schemas: KafkaSchemas) -> None:
    """The first two fields of ProduceRequest and its flexible versions match Kafka's schemas."""
    for version in kafka_schemas.versions("ProduceRequest"):
        first, second, *_ = kafka_schemas.fields("ProduceRequest", version)
        assert (first.name, first.type, first.nullable) == ("TransactionalId", "string", True)
        assert (second.name, second.type) == ("Acks", "int16")
    assert kafka_schemas.flexible("ProduceRequest").start == ProduceResponse.FLEXIBLE
