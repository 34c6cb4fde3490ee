"""Keys and values of the offsets topic, ``__consumer_offsets``.

The module encodes and decodes every key, and the values that `offsets_topic_values` declares. The readers that run once
per record are written by hand.

A key is an int16 type and the key's fields. The fields have the plain form, not the compact form of KIP-482. The group
id is the first field of every key. A value is an int16 version and the value's fields. A record without a value is a
tombstone, which the caller handles. Bytes after the known fields are ignored, as in Kafka's
``GroupCoordinatorRecordSerde``.
"""

import struct as packing
from enum import IntEnum
from io import BytesIO
from typing import ClassVar, TypeVar

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.offsets_topic_values import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataValue,
    OffsetCommitValue,
)
from group_sidecar.codecs.primitives import (
    INT32,
    MAX_STRING_BYTES,
    MAX_UVARINT_BYTES,
    STRING,
    WireError,
    decoded,
    read_uvarint,
)
from group_sidecar.codecs.schema import Struct, decode_start, encode, struct, wire_field

OFFSETS_TOPIC = "__consumer_offsets"
"""The topic's name (Kafka's ``Topic.GROUP_METADATA_TOPIC_NAME``)."""

T = TypeVar("T", bound=Struct)


class KeyType(IntEnum):
    """The type of a record (Kafka class ``CoordinatorRecordType``). Kafka has removed the types 9 and 18."""

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    SHARE_GROUP_MEMBER_METADATA = 10
    SHARE_GROUP_METADATA = 11
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = 12
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = 13
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = 14
    SHARE_GROUP_STATE_PARTITION_METADATA = 15
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16
    STREAMS_GROUP_METADATA = 17
    STREAMS_GROUP_MEMBER_METADATA = 19
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = 20
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = 21
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = 22
    STREAMS_GROUP_TOPOLOGY = 23


class UnknownKeyType(Exception):
    """The record's type belongs to another version of Kafka. Brokers skip such a record with a warning.

    Attributes:
        number: the type in the key.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"key type {number} is not known")
        self.number = number


@struct
class OffsetCommitKey(Struct):
    """The key of a group's offset in one partition."""

    VERSIONS: ClassVar[range] = range(1)

    group_id: str = wire_field(STRING)
    topic: str = wire_field(STRING)
    partition: int = wire_field(INT32)


@struct
class GroupKey(Struct):
    """The key of a record that exists once per group."""

    VERSIONS: ClassVar[range] = range(1)

    group_id: str = wire_field(STRING)


@struct
class MemberKey(Struct):
    """The key of a record that exists once per member."""

    VERSIONS: ClassVar[range] = range(1)

    group_id: str = wire_field(STRING)
    member_id: str = wire_field(STRING)


@struct
class RegularExpressionKey(Struct):
    """The key of a record that exists once per subscribed regular expression."""

    VERSIONS: ClassVar[range] = range(1)

    group_id: str = wire_field(STRING)
    regular_expression: str = wire_field(STRING)


Key = OffsetCommitKey | GroupKey | MemberKey | RegularExpressionKey

KEYS: dict[KeyType, type[Key]] = {
    KeyType.LEGACY_OFFSET_COMMIT: OffsetCommitKey,
    KeyType.OFFSET_COMMIT: OffsetCommitKey,
    KeyType.CONSUMER_GROUP_MEMBER_METADATA: MemberKey,
    KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: MemberKey,
    KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: MemberKey,
    KeyType.SHARE_GROUP_MEMBER_METADATA: MemberKey,
    KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: MemberKey,
    KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: MemberKey,
    KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION: RegularExpressionKey,
    KeyType.STREAMS_GROUP_MEMBER_METADATA: MemberKey,
    KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: MemberKey,
    KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: MemberKey,
}
"""The class of each type's key. All other types have a `GroupKey`."""

VALUES: dict[KeyType, type[Struct]] = {
    # Kafka 0.8.2 wrote LEGACY_OFFSET_COMMIT with values of version 0. Brokers before 4.0 still read such records.
    KeyType.LEGACY_OFFSET_COMMIT: OffsetCommitValue,
    KeyType.OFFSET_COMMIT: OffsetCommitValue,
    KeyType.GROUP_METADATA: GroupMetadataValue,
    KeyType.CONSUMER_GROUP_METADATA: ConsumerGroupMetadataValue,
    KeyType.CONSUMER_GROUP_PARTITION_METADATA: ConsumerGroupPartitionMetadataValue,
    KeyType.CONSUMER_GROUP_MEMBER_METADATA: ConsumerGroupMemberMetadataValue,
    KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: ConsumerGroupTargetAssignmentMetadataValue,
    KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: ConsumerGroupTargetAssignmentMemberValue,
    KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: ConsumerGroupCurrentMemberAssignmentValue,
    KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION: ConsumerGroupRegularExpressionValue,
}
"""The class of each value that is declared."""

_KEY = "offsets topic key"
_OFFSET_VALUE = "OffsetCommitValue"
_KNOWN = frozenset(KeyType)
_OLD_VERSIONS = (b"\0\0", b"\0\1", b"\0\2")
_SHORT = packing.Struct(">h")
_INT = packing.Struct(">i")
_LONG = packing.Struct(">q")
_OLD_OFFSET = packing.Struct(">hqh")
"""Version, offset, and the length of the metadata, in versions 0 to 2."""
_OFFSET = packing.Struct(">hqih")
"""Version, offset, leader epoch, and the length of the metadata, in version 3."""
_FLEXIBLE_OFFSET = packing.Struct(">hqiB")
"""Version, offset, leader epoch, and the first byte of the metadata's compact length, in version 4."""


def decode_key(key: bytes) -> tuple[KeyType, Key]:
    """Decodes a key.

    Raises:
        UnknownKeyType: the type is unknown. The caller skips and counts the record.
        DecodeError: the key is truncated or damaged.
    """
    kind = KeyType(_key_type(key))
    return kind, decode_start(_key_class(kind), 0, key[2:])[0]


def encode_key(kind: KeyType, key: Key) -> bytes:
    """Encodes a key. Raises ValueError if a field does not fit, or if the key's class does not match `kind`."""
    if type(key) is not _key_class(kind):
        raise ValueError(f"{kind.name} has no {key.NAME}")
    return _SHORT.pack(kind) + encode(key, 0)


def decode_as(cls: type[T], value: bytes) -> T:
    """Decodes a value whose declaration the caller knows.

    Raises:
        DecodeError: the value is truncated or damaged, or its version is unknown.
    """
    if len(value) < _SHORT.size:
        raise DecodeError(cls.NAME, "version", f"2 bytes announced, {len(value)} left")
    return decode_start(cls, _SHORT.unpack_from(value)[0], value[2:])[0]


def encode_value(value: Struct, version: int) -> bytes:
    """Encodes a value. Raises ValueError if a field does not fit or the version is not declared."""
    return _SHORT.pack(version) + encode(value, version)


def key_suffix(topic: str, partition: int) -> bytes:
    """Returns the part of an offset's key after the group id. Raises struct.error if a field does not fit."""
    name = topic.encode()
    return _SHORT.pack(len(name)) + name + _INT.pack(partition)


def decode_key_suffix(key_suffix: bytes) -> tuple[str, int]:
    """Returns topic and partition from the part of an offset's key after the group id.

    Raises:
        DecodeError: the bytes are damaged.
    """
    topic, end = _text(key_suffix, 0)
    try:
        return topic, _INT.unpack_from(key_suffix, end)[0]
    except packing.error as error:
        raise DecodeError(_KEY, "partition", str(error)) from error


def decode_offset_value(raw: bytes) -> tuple[int, int, str, int, int | None]:
    """Decodes an OffsetCommitValue of versions 0 to 4 by hand, because a log has millions of such values.

    Tagged fields are ignored. Use `decode_as` to read them.

    Returns:
        Offset, leader epoch (-1: none), metadata, commit timestamp and expiry. Both times are in milliseconds. The
        expiry is None if the broker's retention applies.

    Raises:
        DecodeError: the value is truncated or damaged, or its version is unknown.
    """
    version, epoch, expiry = raw[:2], -1, -1
    try:
        if version == b"\0\3":
            (_, offset, epoch, length), at = _OFFSET.unpack_from(raw), 16
        elif version == b"\0\4":
            (_, offset, epoch, length), at = _FLEXIBLE_OFFSET.unpack_from(raw), 15
            length, at = (length - 1, at) if length < 0x80 else _long_length(raw, 14)
        elif version in _OLD_VERSIONS:
            (_, offset, length), at = _OLD_OFFSET.unpack_from(raw), 12
        else:
            raise DecodeError(_OFFSET_VALUE, "version", f"{version.hex()} is not known")
        if not 0 <= length <= MAX_STRING_BYTES:
            raise DecodeError(_OFFSET_VALUE, "metadata", f"string of {length} bytes")
        end = at + length
        metadata = decoded(raw[at:end])
        (committed,) = _LONG.unpack_from(raw, end)
        if version == b"\0\1":
            (expiry,) = _LONG.unpack_from(raw, end + 8)
    except packing.error as error:
        raise DecodeError(_OFFSET_VALUE, "", str(error)) from error
    return offset, epoch, metadata, committed, None if expiry == -1 else expiry


def _key_type(key: bytes) -> int:
    if len(key) < 2:
        raise DecodeError(_KEY, "type", f"2 bytes announced, {len(key)} left")
    number: int = _SHORT.unpack_from(key)[0]
    if number not in _KNOWN:
        raise UnknownKeyType(number)
    return number


def _key_class(kind: KeyType) -> type[Key]:
    return KEYS.get(kind, GroupKey)


def _text(data: bytes, at: int) -> tuple[str, int]:
    """Returns the string whose length is at `at`, and where the string ends."""
    begin = at + 2
    end = begin + int.from_bytes(data[at:begin], "big", signed=True)
    if not begin <= end <= len(data):
        raise DecodeError(_KEY, "", f"string of {end - begin} bytes, {len(data) - begin} left")
    return decoded(data[begin:end]), end


def _long_length(raw: bytes, at: int) -> tuple[int, int]:
    """Returns a compact length of more than one byte, and where it ends."""
    stream = BytesIO(raw[at : at + MAX_UVARINT_BYTES])
    try:
        return read_uvarint(stream) - 1, at + stream.tell()
    except WireError as error:
        raise DecodeError(_OFFSET_VALUE, "metadata", str(error)) from error
