"""OffsetFetch (9), v0-10; Kafka 4 accepts v1 and later (KIP-896).

v0 reads from ZooKeeper; v1 from Kafka; v2 null topics ask for all, top-level error code (KIP-88); v3 throttle time;
v4 throttling after the reply (KIP-219); v5 leader epoch (KIP-320); v6 flexible (KIP-482); v7 require stable (KIP-447);
v8 many groups at once (KIP-709); v9 member id and epoch (KIP-848); v10 topic ids in place of names.

Kafka's schema has two sets of topic structs, for v0-7 and for v8 on. Both sets have the same layout, so this module has
one set.

A reply may contain thousands of partitions, and most have not changed since the last reply. `start_topics` and the
functions after it build a reply from cached parts.
"""

import struct as packing
from collections.abc import Iterable
from uuid import UUID

from group_sidecar.codecs.primitives import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID_,
    ZERO_UUID,
    encode_compact_string,
    encode_string,
    uvarint,
)
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@struct
class OffsetFetchRequestTopic(Struct):
    """The requested partitions of a topic, which has a name up to v9 and an id from v10 on."""

    name: str = wire_field(STRING, until=9, default="")
    topic_id: UUID = wire_field(UUID_, since=10, default=ZERO_UUID)
    partition_indexes: tuple[int, ...] = wire_field(Array(INT32))


@struct
class OffsetFetchRequestGroup(Struct):
    """One group, from v8 on. Null topics mean all topics.

    A client that is not a member, such as an admin client, sends a null `member_id` and a `member_epoch` of -1.
    """

    group_id: str = wire_field(STRING)
    member_id: str | None = wire_field(STRING, since=9, nullable=9, default=None)
    member_epoch: int = wire_field(INT32, since=9, default=-1)
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire_field(Array(OffsetFetchRequestTopic), nullable=8)


@request(key=9, versions=(0, 10), flexible=6)
class OffsetFetchRequest(Struct):
    """Asks for committed offsets: of `group_id` up to v7, of `groups` from v8 on."""

    group_id: str = wire_field(STRING, until=7, default="")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire_field(
        Array(OffsetFetchRequestTopic), until=7, nullable=2, default=()
    )
    groups: tuple[OffsetFetchRequestGroup, ...] = wire_field(Array(OffsetFetchRequestGroup), since=8, default=())
    require_stable: bool = wire_field(BOOLEAN, since=7, default=False)


@struct
class OffsetFetchResponsePartition(Struct):
    """The committed offset of one partition; -1 if there is none."""

    partition_index: int = wire_field(INT32)
    committed_offset: int = wire_field(INT64)
    committed_leader_epoch: int = wire_field(INT32, since=5, default=-1)
    metadata: str | None = wire_field(STRING, nullable=0)
    error_code: int = wire_field(INT16)


@struct
class OffsetFetchResponseTopic(Struct):
    """The offsets of a topic, which has a name up to v9 and an id from v10 on."""

    name: str = wire_field(STRING, until=9, default="")
    topic_id: UUID = wire_field(UUID_, since=10, default=ZERO_UUID)
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire_field(Array(OffsetFetchResponsePartition))


@struct
class OffsetFetchResponseGroup(Struct):
    """The offsets of one group, from v8 on, and the group's error."""

    group_id: str = wire_field(STRING)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire_field(Array(OffsetFetchResponseTopic))
    error_code: int = wire_field(INT16, default=0)


@response(key=9, versions=(0, 10), flexible=6)
class OffsetFetchResponse(Struct):
    """The group's error is in each partition in v0-1, in `error_code` in v2-7, and in each group from v8 on."""

    throttle_time_ms: int = wire_field(INT32, since=3, default=0)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire_field(Array(OffsetFetchResponseTopic), until=7, default=())
    error_code: int = wire_field(INT16, since=2, until=7, default=0)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire_field(Array(OffsetFetchResponseGroup), since=8, default=())


ERROR_SINCE, THROTTLED_SINCE, LEADER_EPOCH_SINCE, MANY_GROUPS_SINCE, TOPIC_IDS_SINCE = 2, 3, 5, 8, 10
_FLEXIBLE = OffsetFetchResponse.FLEXIBLE
_PLACE, _PLACE_AND_EPOCH = packing.Struct(">iq"), packing.Struct(">iqi")


def start_topics(version: int, count: int) -> bytes:
    """Returns the bytes before `count` topics."""
    return uvarint(count + 1) if version >= _FLEXIBLE else count.to_bytes(4, "big")


def start_topic(version: int, name: str, topic_id: UUID, count: int) -> bytes:
    """Returns the bytes before `count` partitions of a topic."""
    if version < _FLEXIBLE:
        return encode_string(name) + count.to_bytes(4, "big")
    return (topic_id.bytes if version >= TOPIC_IDS_SINCE else encode_compact_string(name)) + uvarint(count + 1)


def end_topic(version: int) -> bytes:
    """Returns the bytes after a topic's partitions."""
    return b"\0" if version >= _FLEXIBLE else b""


def encode_partition(version: int, index: int, offset: int, leader_epoch: int, metadata: str | None) -> bytes:
    """Encodes a partition without error. Raises ValueError or struct.error if a value does not fit its field."""
    if version >= LEADER_EPOCH_SINCE:
        place = _PLACE_AND_EPOCH.pack(index, offset, leader_epoch)
    else:
        place = _PLACE.pack(index, offset)
    if version < _FLEXIBLE:
        return place + (b"\xff\xff" if metadata is None else encode_string(metadata)) + b"\0\0"
    if not metadata:
        return place + (b"\0\0\0\0" if metadata is None else b"\1\0\0\0")
    return place + encode_compact_string(metadata) + b"\0\0\0"


def encode_reply(version: int, groups: Iterable[tuple[str, Iterable[bytes]]]) -> bytes:
    """Returns the body of a reply without errors from each group's encoded topics. Up to v7 there is one group."""
    groups = list(groups)
    parts = [b"\0\0\0\0"] if version >= THROTTLED_SINCE else []
    if version < MANY_GROUPS_SINCE:
        [(_, topics)] = groups
        parts += topics
        parts.append(b"\0\0" if version >= ERROR_SINCE else b"")
    else:
        parts.append(uvarint(len(groups) + 1))
        for group_id, topics in groups:
            parts.append(encode_compact_string(group_id))
            parts += topics
            parts.append(b"\0\0\0")
    return b"".join((*parts, b"\0" if version >= _FLEXIBLE else b""))
