"""Keys and values of the offsets topic, ``__consumer_offsets``.

Owns: the key types, both directions for every key and for the values that `group_records` declares, and the few
hand-written readers that run once per record. Must not know: record batches, nor what a record does to a group.

A key is an int16 that tells its type, and its fields in the plain form; the group's name is the first field of all.
A value is an int16 version and its fields; no value is a tombstone, which is the caller's to see. Kafka's
``GroupCoordinatorRecordSerde`` reads what it knows and passes over what is behind it, and so is it done here.
"""

import struct as packing
from enum import IntEnum
from io import BytesIO
from typing import ClassVar, TypeVar

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.group_records import (
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
from group_sidecar.codecs.schema import Struct, decode_start, encode, f, struct

T = TypeVar("T", bound=Struct)


class KeyType(IntEnum):
    """What a record is about (Kafka class ``CoordinatorRecordType``). 9 and 18 are of early forms, and gone."""

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
    """A record of a type that only another Kafka knows. Brokers skip it with a warning.

    Attributes:
        number: the type as it stands in the key.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"key type {number} is not known")
        self.number = number


@struct
class OffsetCommitKey(Struct):
    """Whose offset in which partition."""

    VERSIONS: ClassVar[range] = range(1)

    group_id: str = f(STRING)
    topic: str = f(STRING)
    partition: int = f(INT32)


@struct
class GroupKey(Struct):
    """Of what there is one in a group."""

    VERSIONS: ClassVar[range] = range(1)

    group_id: str = f(STRING)


@struct
class MemberKey(Struct):
    """Of what there is one per member."""

    VERSIONS: ClassVar[range] = range(1)

    group_id: str = f(STRING)
    member_id: str = f(STRING)


@struct
class RegularExpressionKey(Struct):
    """Of what there is one per subscribed regular expression."""

    VERSIONS: ClassVar[range] = range(1)

    group_id: str = f(STRING)
    regular_expression: str = f(STRING)


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
"""The fields of each type's key; those not named here are a `GroupKey`."""

VALUES: dict[KeyType, type[Struct]] = {
    # Written by 0.8.2 with version 0, which the legacy value is; brokers before 4.0 read it like any other.
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
"""The values that are described."""

_KEY = "offsets topic key"
_OFFSET_VALUE = "OffsetCommitValue"
_KNOWN = frozenset(KeyType)
_OLD_VERSIONS = (b"\0\0", b"\0\1", b"\0\2")
_SHORT = packing.Struct(">h")
_INT = packing.Struct(">i")
_LONG = packing.Struct(">q")
_OLD_OFFSET = packing.Struct(">hqh")
"""Version, offset, and the length of the metadata; versions 0 to 2."""
_OFFSET = packing.Struct(">hqih")
"""The same with the leader epoch before the length; version 3."""
_FLEXIBLE_OFFSET = packing.Struct(">hqiB")
"""The same with the first byte of the compact length; version 4."""


def decode_key(key: bytes) -> tuple[KeyType, Key]:
    """Decodes a key.

    Raises:
        UnknownKeyType: it is of a type that is not known; to be skipped and counted.
        DecodeError: it is cut off or damaged.
    """
    kind = KeyType(_key_type(key))
    return kind, decode_start(_key_class(kind), 0, key[2:])[0]


def encode_key(kind: KeyType, key: Key) -> bytes:
    """Encodes a key. Raises ValueError where it does not fit, or is not the kind's."""
    if type(key) is not _key_class(kind):
        raise ValueError(f"{kind.name} has no {key.NAME}")
    return _SHORT.pack(kind) + encode(key, 0)


def decode_value(kind: KeyType, value: bytes) -> Struct:
    """Decodes a value of a described kind; see `VALUES`.

    Raises:
        DecodeError: it is cut off or damaged, of a version that is not known, or of a kind that is not described.
    """
    if kind not in VALUES:
        raise DecodeError(kind.name, "", "value not described")
    return decode_as(VALUES[kind], value)


def decode_as(cls: type[T], value: bytes) -> T:
    """Decodes a value whose declaration the caller knows. Raises DecodeError as `decode_value` does."""
    if len(value) < _SHORT.size:
        raise DecodeError(cls.NAME, "version", f"2 bytes announced, {len(value)} left")
    return decode_start(cls, _SHORT.unpack_from(value)[0], value[2:])[0]


def encode_value(value: Struct, version: int) -> bytes:
    """Encodes a value. Raises ValueError where it does not fit, or the version is not described."""
    return _SHORT.pack(version) + encode(value, version)


def group_of(key: bytes) -> str:
    """The group that a key of any known type belongs to. Raises UnknownKeyType and DecodeError as `decode_key` does."""
    _key_type(key)
    return _text(key, 2)[0]


def suffix(topic: str, partition: int) -> bytes:
    """What stands behind the group in the key of an offset. Raises struct.error where it does not fit."""
    name = topic.encode()
    return _SHORT.pack(len(name)) + name + _INT.pack(partition)


def read_suffix(suffix: bytes) -> tuple[str, int]:
    """Topic and partition of what stands behind the group in the key of an offset. Raises DecodeError on damage."""
    topic, end = _text(suffix, 0)
    try:
        return topic, _INT.unpack_from(suffix, end)[0]
    except packing.error as error:
        raise DecodeError(_KEY, "partition", str(error)) from error


def read_offset(raw: bytes) -> tuple[int, int, str, int, int | None]:
    """An OffsetCommitValue, versions 0 to 4, read by hand: there are millions of them.

    Tagged fields are not looked at; `OffsetCommitValue` has them.

    Returns:
        offset, leader epoch (-1: none), metadata, commit timestamp in milliseconds, and the expiry likewise, or None
        where the broker's retention decides.

    Raises:
        DecodeError: it is cut off or damaged, or of a version that is not known.
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
    """The string whose length stands at `at`, and where it ends."""
    begin = at + 2
    end = begin + int.from_bytes(data[at:begin], "big", signed=True)
    if not begin <= end <= len(data):
        raise DecodeError(_KEY, "", f"string of {end - begin} bytes, {len(data) - begin} left")
    return decoded(data[begin:end]), end


def _long_length(raw: bytes, at: int) -> tuple[int, int]:
    """A compact length of more than one byte, and where it ends."""
    stream = BytesIO(raw[at : at + MAX_UVARINT_BYTES])
    try:
        return read_uvarint(stream) - 1, at + stream.tell()
    except WireError as error:
        raise DecodeError(_OFFSET_VALUE, "metadata", str(error)) from error
