"""Target: keys and values of `__consumer_offsets`, and the subscriptions and assignments inside them.

An input is a key after its length, and a value.

- Keys: only UnknownKeyType and DecodeError are raised. A decoded key encodes and decodes to the same key.
- Values: only DecodeError is raised. A decoded value encodes and decodes to the same value. The handwritten reader of
  offsets agrees with the declared structure, except that it ignores damaged tagged fields.
- Rows that are encoded column by column equal the rows that are encoded one by one.
"""

from collections.abc import Callable, Iterator
from typing import Any

from group_sidecar.codecs.consumer_protocol import decode_assignment, decode_subscription, partitions_in_assignment
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchResponse, encode_partition
from group_sidecar.codecs.offset_columns import encode_uniform_rows, indexes_in_suffixes, pack_indexes
from group_sidecar.codecs.offsets_topic import (
    VALUES,
    KeyType,
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
    ConsumerGroupMemberMetadataValue,
    OffsetCommitValue,
    classic_metadata,
)
from tests.codecs import make_offsets_topic_vectors
from tests.codecs.declarations import full_sample, limited_to, null_sample
from tests.fuzzing.input_bytes import InputBytes, piece
from tests.fuzzing.target import require

REPLACEMENT = "\ufffd"


def check(data: bytes) -> object:
    """Decodes one record."""
    given = InputBytes(data)
    key, value = given.piece(), given.rest()
    try:
        kind, decoded = decode_key(key)
    except UnknownKeyType as error:
        return str(error)
    except DecodeError as error:
        return str(error), _value(KeyType.OFFSET_COMMIT, value)
    if REPLACEMENT not in repr(decoded):
        require(decode_key(encode_key(kind, decoded)) == (kind, decoded), "a key changes when it is encoded")
    _check_suffix(key)
    return kind, decoded, _value(kind, value)


def _check_suffix(key: bytes) -> None:
    suffix = _or_error(lambda: decode_key_suffix(key[2:]))
    if isinstance(suffix, tuple) and REPLACEMENT not in suffix[0]:
        encoded = key_suffix(*suffix)
        require(decode_key_suffix(encoded) == suffix, "a suffix changes when it is encoded")
        require(indexes_in_suffixes([encoded]) == encoded[-4:], "the columns of suffixes differ")


def _value(kind: KeyType, value: bytes) -> object:
    cls = VALUES.get(kind)
    if cls is None:
        return None
    decoded = _or_error(lambda: decode_as(cls, value))
    if not isinstance(decoded, str):
        _check_round_trip(decoded, value)
    if isinstance(decoded, OffsetCommitValue) or cls is OffsetCommitValue:
        _check_offset(decoded, value)
    if isinstance(decoded, ConsumerGroupMemberMetadataValue):
        _or_error(lambda: classic_metadata(decoded))
    for read in (decode_subscription, decode_assignment, partitions_in_assignment):
        _or_error(lambda read=read: read(value))  # type: ignore[misc]
    return decoded


def _check_round_trip(decoded: Any, value: bytes) -> None:
    version = int.from_bytes(value[:2], "big")
    if REPLACEMENT not in repr(decoded):
        encoded = encode_value(decoded, version)
        require(decode_as(type(decoded), encoded) == decoded, "a value changes when it is encoded")


def _check_offset(declared: Any, value: bytes) -> None:
    by_hand = _or_error(lambda: decode_offset_value(value))
    if isinstance(by_hand, str):
        require(isinstance(declared, str), f"only the declaration accepts an offset: {by_hand}")
        return
    if isinstance(declared, str):
        # The handwritten reader ignores tagged fields, also damaged ones.
        require(value[:2] == b"\0\4", f"only the reader by hand accepts an offset: {declared}")
        return
    expiry = None if declared.expire_timestamp == -1 else declared.expire_timestamp
    fields = declared.offset, declared.leader_epoch, declared.metadata, declared.commit_timestamp, expiry
    require(by_hand == fields, "the reader by hand and the declaration differ")
    for version in (0, 5, OffsetFetchResponse.VERSIONS[-1]):
        _check_rows(version, value, by_hand)


def _check_rows(version: int, value: bytes, offset: tuple[int, int, str, int, int | None]) -> None:
    """Compares rows that are encoded column by column with rows that are encoded one by one."""
    rows = encode_uniform_rows(version, pack_indexes((1, 2)), [value, value])
    if rows is not None:
        single = [encode_partition(version, index, offset[0], offset[1], offset[2]) for index in (1, 2)]
        require(rows == b"".join(single), "rows by column differ from single rows")


def _or_error(read: Callable[[], Any]) -> Any:
    """Returns the result, or the text of the DecodeError."""
    try:
        return read()
    except DecodeError as error:
        return str(error)


def seeds() -> Iterator[bytes]:
    """Records that Kafka's own classes wrote, and a sample of each value in each version."""
    vectors = make_offsets_topic_vectors.read()
    keys = {kind: content for kind, version, _, content in vectors if version is None}
    for kind, version, _, content in vectors:
        yield piece(keys[kind]) + (b"" if version is None else content)
    for kind, cls in VALUES.items():
        key = kind.to_bytes(2, "big") + b"\0\5group\0\1t\0\0\0\1"
        for version in cls.VERSIONS:
            for sample in (full_sample(cls), null_sample(cls)):
                yield piece(key) + encode_value(limited_to(sample, version), version)
