"""Keys and values of the offsets topic, compared with bytes and schemas of Kafka's own group coordinator."""

import re
import zipfile
from contextlib import suppress
from dataclasses import MISSING, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.offsets_topic import (
    KEYS,
    VALUES,
    GroupKey,
    KeyType,
    OffsetCommitKey,
    UnknownKeyType,
    decode_as,
    decode_key,
    decode_key_suffix,
    decode_offset_value,
    encode_key,
    encode_value,
    key_suffix,
)
from group_sidecar.codecs.offsets_topic_values import (
    CLASSIC_MEMBER_METADATA_TAG,
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    OffsetCommitValue,
    classic_metadata,
)
from group_sidecar.codecs.schema import Struct
from tests.codecs import make_offsets_topic_vectors
from tests.codecs.conftest import KAFKA
from tests.codecs.declarations import case_id, full_sample, limited_to, zero
from tests.codecs.kafka_schemas import KafkaSchemas
from tests.codecs.strategies import per_message, structs
from tests.codecs.test_kafka_schemas import declared, named_as_ours, our_default, written_value
from tests.kafka.maven import kafka_jars

CASES = list(make_offsets_topic_vectors.cases())
VECTORS = make_offsets_topic_vectors.read()
KEY_VECTORS = [
    (kind, data, case.message) for (kind, version, _, data), case in zip(VECTORS, CASES, strict=True) if version is None
]
VALUE_VECTORS = [
    (kind, version, data, case.message)
    for (kind, version, _, data), case in zip(VECTORS, CASES, strict=True)
    if version is not None
]
VERSION_PREFIXES = [version.to_bytes(2, "big") for version in OffsetCommitValue.VERSIONS]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)

each_key = pytest.mark.parametrize(("kind", "data", "key"), KEY_VECTORS, ids=lambda value: getattr(value, "name", ""))
each_value = pytest.mark.parametrize(
    ("kind", "version", "data", "value"), VALUE_VECTORS, ids=lambda value: str(getattr(value, "name", ""))
)
each_described = pytest.mark.parametrize("cls", dict.fromkeys(VALUES.values()), ids=case_id)


@pytest.fixture(scope="module")
def group_schemas() -> KafkaSchemas:
    """The schemas of the records, from the group-coordinator jar."""
    return KafkaSchemas(kafka_jars(KAFKA) / f"kafka-group-coordinator-{KAFKA}.jar")


def test_vectors_match_declarations() -> None:
    """The stored vectors have the kinds, versions and names of the declared cases."""
    assert [vector[:3] for vector in VECTORS] == [case[:3] for case in CASES]


@each_key
def test_keys_match_vectors(kind: KeyType, data: bytes, key: Any) -> None:
    """Each key vector decodes to its key and encodes to its bytes."""
    assert decode_key(data) == (kind, key)
    assert encode_key(kind, key) == data


@each_key
def test_truncated_key_is_refused(kind: KeyType, data: bytes, key: Any) -> None:
    """A truncated key raises DecodeError."""
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            decode_key(data[:end])


@each_value
def test_values_match_vectors(kind: KeyType, version: int, data: bytes, value: Struct) -> None:
    """Each value vector decodes to its value and encodes to its bytes."""
    assert decode_as(VALUES[kind], data) == value
    assert encode_value(value, version) == data


@each_value
def test_truncated_value_is_refused(kind: KeyType, version: int, data: bytes, value: Struct) -> None:
    """A truncated value raises DecodeError."""
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            decode_as(VALUES[kind], data[:end])


@each_value
def test_trailing_bytes_after_value_are_ignored(kind: KeyType, version: int, data: bytes, value: Struct) -> None:
    """Trailing bytes after a value are ignored."""
    assert decode_as(VALUES[kind], data + b"\0") == value


def test_classic_member_metadata(group_schemas: KafkaSchemas) -> None:
    """classic_metadata decodes the tagged metadata of classic members, and its declaration matches Kafka's schema."""
    assert [
        (version, classic_metadata(value))
        for _, version, _, value in VALUE_VECTORS
        if isinstance(value, ConsumerGroupMemberMetadataValue)
    ] == [
        (0, empty := ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=())),
        (0, empty),
        (0, None),
        (0, full_sample(ClassicMemberMetadata)),
    ]
    *_, kafkas = group_schemas.fields(ConsumerGroupMemberMetadataValue.NAME, 0)
    assert (kafkas.name, kafkas.tag) == ("ClassicMemberMetadata", CLASSIC_MEMBER_METADATA_TAG)
    assert tuple(declared(ClassicMemberMetadata, 0)) == named_as_ours(kafkas).fields


def test_damaged_classic_member_metadata() -> None:
    """Damaged metadata of a classic member raises a DecodeError that names the field."""
    member = replace(
        full_sample(ConsumerGroupMemberMetadataValue), unknown_tags=((CLASSIC_MEMBER_METADATA_TAG, b"\1\0"),)
    )
    with pytest.raises(DecodeError, match="ClassicMemberMetadata v0: session_timeout_ms"):
        classic_metadata(member)


@pytest.mark.parametrize("number", [-1, 9, 18, 24, 0x7FFF])
def test_unknown_key_type(number: int) -> None:
    """A key of an unknown type raises UnknownKeyType with the type's number."""
    key = number.to_bytes(2, "big", signed=True) + b"\0\1g"
    with pytest.raises(UnknownKeyType) as caught:
        decode_key(key)
    assert caught.value.number == number


def test_unknown_versions_are_decode_errors() -> None:
    """An unknown value version raises DecodeError."""
    with pytest.raises(DecodeError, match="OffsetCommitValue v5: version not declared"):
        decode_as(VALUES[KeyType.OFFSET_COMMIT], b"\0\5")
    with pytest.raises(DecodeError, match="version: 0005 is not known"):
        decode_offset_value(b"\0\5" + bytes(40))


def test_mismatched_key_type_is_refused() -> None:
    """Encoding a key as a type that it does not match raises ValueError."""
    with pytest.raises(ValueError, match="OFFSET_COMMIT has no GroupKey"):
        encode_key(KeyType.OFFSET_COMMIT, GroupKey(group_id="g"))


@each_described
@per_message
@given(data=st.data())
def test_values_round_trip(cls: type[Struct], data: st.DataObject) -> None:
    """Values of the offsets topic round-trip in each version."""
    version = data.draw(st.sampled_from(cls.VERSIONS))
    value = limited_to(data.draw(structs(cls)), version)
    assert decode_as(cls, encode_value(value, version)) == value


@given(value=structs(OffsetCommitValue), version=st.sampled_from(OffsetCommitValue.VERSIONS))
def test_offset_value_matches_declaration(value: OffsetCommitValue, version: int) -> None:
    """decode_offset_value returns the same fields as the declared OffsetCommitValue."""
    raw = encode_value(value, version)
    decoded = decode_as(OffsetCommitValue, raw)
    expiry = None if decoded.expire_timestamp == -1 else decoded.expire_timestamp
    fields = decoded.offset, decoded.leader_epoch, decoded.metadata, decoded.commit_timestamp, expiry
    assert decode_offset_value(raw) == fields


@pytest.mark.parametrize("version", OffsetCommitValue.VERSIONS)
def test_truncated_offset_value_is_refused(version: int) -> None:
    """A truncated offset value raises DecodeError."""
    raw = encode_value(OffsetCommitValue(offset=1, metadata="é" * 100, commit_timestamp=2), version)
    untagged = len(raw) - (version >= OffsetCommitValue.FLEXIBLE)
    for end in range(untagged):
        with pytest.raises(DecodeError):
            decode_offset_value(raw[:end])


@given(st.builds(bytes.__add__, st.sampled_from([b"", b"\0", *VERSION_PREFIXES]), st.binary(max_size=60)))
def test_any_bytes_as_offset_value(raw: bytes) -> None:
    """decode_offset_value returns five fields for any bytes, or raises DecodeError like the declared value."""
    try:
        read = decode_offset_value(raw)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode_as(OffsetCommitValue, raw)
    else:
        assert len(read) == 5


@given(TEXT.filter(lambda text: len(text.encode()) < 0x8000), st.integers(-(2**31), 2**31 - 1))
def test_key_suffix_round_trip(topic: str, partition: int) -> None:
    """A key suffix equals the end of the encoded key and decodes to the topic and partition."""
    key = OffsetCommitKey(group_id="gé", topic=topic, partition=partition)
    behind = encode_key(KeyType.OFFSET_COMMIT, key)[4 + len("gé".encode()) :]
    assert key_suffix(topic, partition) == behind
    assert decode_key_suffix(behind) == (topic, partition)


@given(st.binary(max_size=20) | st.builds(key_suffix, TEXT, st.just(1)).map(lambda data: data[:-1]))
def test_any_bytes_as_key_suffix(data: bytes) -> None:
    """Any bytes decode as a key suffix that reproduces them, or raise DecodeError."""
    try:
        topic, partition = decode_key_suffix(data)
    except DecodeError:
        return
    assert data.startswith(key_suffix(topic, partition))


@given(st.builds(bytes.__add__, st.sampled_from([b"", b"\0", b"\0\1", b"\0\5", b"\0\x63"]), st.binary(max_size=20)))
def test_any_bytes_as_key(data: bytes) -> None:
    """Any bytes decode as a key, or raise DecodeError or UnknownKeyType."""
    with suppress(DecodeError, UnknownKeyType):
        decode_key(data)


def kafka_name(kind: KeyType) -> str:
    """Returns Kafka's name of the message of a type, without Key or Value."""
    return "".join(word.capitalize() for word in kind.name.split("_"))


def test_key_types_match_kafka(group_schemas: KafkaSchemas) -> None:
    """The key types are exactly those of Kafka's group coordinator."""
    with zipfile.ZipFile(group_schemas.jar) as jar:
        keys = [name for name in jar.namelist() if re.fullmatch(r"common/message/.*Key\.json", name)]
    assert sorted(keys) == sorted(f"common/message/{kafka_name(kind)}Key.json" for kind in KeyType)
    for kind in KeyType:
        assert group_schemas.key(f"{kafka_name(kind)}Key") == kind


@pytest.mark.parametrize("kind", KeyType)
def test_key_fields_match_kafka(kind: KeyType, group_schemas: KafkaSchemas) -> None:
    """The fields of each key match Kafka's schemas."""
    name = f"{kafka_name(kind)}Key"
    kafkas = [named_as_ours(field) for field in group_schemas.fields(name, 0)]
    assert declared(KEYS.get(kind, GroupKey), 0) == [
        replace(field, name="group_id") if field.name == "group" else field for field in kafkas
    ]
    assert not group_schemas.flexible(name)


@each_described
def test_value_fields_match_kafka(cls: type[Struct], group_schemas: KafkaSchemas) -> None:
    """The versions and fields of each value match Kafka's schemas."""
    assert group_schemas.versions(cls.NAME) == cls.VERSIONS
    assert group_schemas.flexible(cls.NAME).start == cls.FLEXIBLE
    for version in cls.VERSIONS:
        kafkas = [named_as_ours(field) for field in group_schemas.fields(cls.NAME, version)]
        # This field is decoded separately.
        assert declared(cls, version) == [field for field in kafkas if field.name != "classic_member_metadata"]


@each_described
def test_value_defaults_match_kafka(cls: type[Struct], group_schemas: KafkaSchemas) -> None:
    """The default of each value's field matches Kafka's schemas."""
    for default in group_schemas.defaults(cls.NAME):
        if default.path.startswith("ClassicMemberMetadata"):
            continue
        ours, kind = our_default(cls, default.path)
        # The schema may have null instead of the string "null" as a default. Kafka's generator ignores it, so the
        # field's default is the empty value.
        if default.written and default.text is not None:
            assert ours == written_value(default), default.path
        elif ours is MISSING:
            assert default.everywhere, f"{default.path} is not in every version, so it needs a default"
        else:
            assert ours == zero(kind), default.path
