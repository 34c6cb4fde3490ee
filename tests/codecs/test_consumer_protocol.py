"""The consumer protocol's messages, compared with bytes of Kafka's own `ConsumerProtocol`, its schemas, and kio."""

from contextlib import suppress
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from group_sidecar.codecs.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
)
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.schema import Struct, encode
from tests.codecs.declarations import limited_to
from tests.codecs.kafka_schemas import KafkaSchemas
from tests.codecs.strategies import per_message, structs
from tests.codecs.test_kafka_schemas import declared, named_as_ours

MESSAGES = {
    ConsumerProtocolAssignment: decode_assignment,
    ConsumerProtocolSubscription: decode_subscription,
}
OWNED = (TopicPartition(topic="café", partitions=(0, 2)), TopicPartition(topic="t", partitions=(1,)))
OWNED_BYTES = "000000020005636166c3a90000000200000000000000020001740000000100000001"
SUBSCRIPTION_BYTES = "000000020005636166c3a9000174ffffffff"

# Written by Kafka 4.3.1: ConsumerProtocol.serializeAssignment and serializeSubscription.
FROM_KAFKA = [
    *(
        (
            f"000{version}{OWNED_BYTES}000000020102",
            ConsumerProtocolAssignment(assigned_partitions=OWNED, user_data=b"\1\2"),
        )
        for version in range(4)
    ),
    ("000300000000ffffffff", ConsumerProtocolAssignment(assigned_partitions=())),
    (f"0000{SUBSCRIPTION_BYTES}", ConsumerProtocolSubscription(topics=("café", "t"))),
    (
        f"0001{SUBSCRIPTION_BYTES}{OWNED_BYTES}",
        ConsumerProtocolSubscription(topics=("café", "t"), owned_partitions=OWNED),
    ),
    (
        f"0002{SUBSCRIPTION_BYTES}{OWNED_BYTES}00000007",
        ConsumerProtocolSubscription(topics=("café", "t"), owned_partitions=OWNED, generation_id=7),
    ),
    (
        f"0003{SUBSCRIPTION_BYTES}{OWNED_BYTES}0000000700027231",
        ConsumerProtocolSubscription(topics=("café", "t"), owned_partitions=OWNED, generation_id=7, rack_id="r1"),
    ),
]

every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.NAME)
every_vector = pytest.mark.parametrize(("data", "message"), [(bytes.fromhex(data), each) for data, each in FROM_KAFKA])


def whole(message: Struct, version: int) -> bytes:
    return version.to_bytes(2) + encode(message, version)


@every_vector
def test_decode_vectors(data: bytes, message: Struct) -> None:
    """Bytes written by Kafka's ConsumerProtocol decode to the expected message."""
    assert MESSAGES[type(message)](data) == message


@every_vector
def test_truncated_vectors_are_refused(data: bytes, message: Struct) -> None:
    """A truncated assignment or subscription raises DecodeError."""
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            MESSAGES[type(message)](data[:end])


@every_vector
def test_trailing_bytes_are_ignored(data: bytes, message: Struct) -> None:
    """Trailing bytes after an assignment or subscription are ignored."""
    assert MESSAGES[type(message)](data + b"\x09\x09\x09") == message


@every_message
def test_future_version_uses_newest_schema(cls: type[Struct]) -> None:
    """A future version is decoded with the newest known schema."""
    data, message = next((bytes.fromhex(data), message) for data, message in FROM_KAFKA[::-1] if type(message) is cls)
    for version in (4, 9, 0x7FFF):
        assert MESSAGES[cls](version.to_bytes(2) + data[2:] + b"new") == message


@every_message
def test_negative_version_is_refused(cls: type[Struct]) -> None:
    """A negative version raises DecodeError."""
    with pytest.raises(DecodeError, match="-1 is negative"):
        MESSAGES[cls](b"\xff\xff" + bytes(64))


def test_decode_error_has_path() -> None:
    """The DecodeError of a truncated assignment names the message, its version and the field's path."""
    with pytest.raises(DecodeError) as raised:
        decode_assignment(bytes.fromhex("0001" + OWNED_BYTES)[:-6])
    assert raised.value.what == "ConsumerProtocolAssignment v1"
    assert raised.value.path == "assigned_partitions.partitions"


@every_message
def test_fields_match_kafka_schema(cls: type[Struct], kafka_schemas: KafkaSchemas) -> None:
    """Versions and fields of the consumer protocol match Kafka's schemas."""
    assert kafka_schemas.versions(cls.NAME) == cls.VERSIONS
    assert not kafka_schemas.flexible(cls.NAME)
    for version in cls.VERSIONS:
        assert declared(cls, version) == [named_as_ours(field) for field in kafka_schemas.fields(cls.NAME, version)]


def kio_entity(cls: type[Struct], version: int) -> Any:
    module = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in cls.NAME)[1:]
    return getattr(import_module(f"kio.schema.{module}.v{version}"), cls.NAME)


@every_message
@per_message
@given(st.data())
def test_kio_reads_and_writes_same_bytes(cls: type[Struct], data: st.DataObject) -> None:
    """kio reads and writes the same bytes for a consumer protocol message."""
    version = data.draw(st.sampled_from(cls.VERSIONS))
    message = limited_to(data.draw(structs(cls, tagged=False)), version)
    body = encode(message, version)
    entity = kio_entity(cls, version)
    theirs, size = entity_reader(entity)(body, 0)
    written = BytesIO()
    entity_writer(entity)(written, theirs)
    assert size == len(body)
    assert written.getvalue() == body
    assert MESSAGES[cls](whole(message, version)) == message


@every_message
@per_message
@given(st.binary(max_size=64))
def test_any_bytes_decode_or_fail(cls: type[Struct], data: bytes) -> None:
    """Decoding any bytes as a consumer protocol message raises nothing but DecodeError."""
    with suppress(DecodeError):
        MESSAGES[cls](data)
