"""OffsetFetch (9), v0-10; Kafka 4 takes v1 and later (KIP-896).

v0 reads from ZooKeeper; v1 from Kafka; v2 null topics ask for all, top-level error code (KIP-88); v3 throttle time;
v4 replies before throttling (KIP-219); v5 leader epoch (KIP-320); v6 flexible (KIP-482); v7 require stable (KIP-447);
v8 many groups at once (KIP-709); v9 member id and epoch (KIP-848); v10 topic ids in place of names.

Kafka's schema has twins of the topic structs, for v0-7 and for v8 on; their layouts are the same, so here they are one.

A reply may tell of thousands of partitions, most of them the same as the last time: `start_topics` and the functions
behind it write one from parts that are kept.
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
    compact_text,
    text,
    uvarint,
)
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct


@struct
class OffsetFetchRequestTopic(Struct):
    """Partitions asked for; named up to v9, by id from v10 on."""

    name: str = f(STRING, until=9, default="")
    topic_id: UUID = f(UUID_, since=10, default=ZERO_UUID)
    partition_indexes: tuple[int, ...] = f(Array(INT32))


@struct
class OffsetFetchRequestGroup(Struct):
    """One group (v8 on). Null topics ask for all; member epoch -1 and a null id ask as an administrator."""

    group_id: str = f(STRING)
    member_id: str | None = f(STRING, since=9, nullable=9, default=None)
    member_epoch: int = f(INT32, since=9, default=-1)
    topics: tuple[OffsetFetchRequestTopic, ...] | None = f(Array(OffsetFetchRequestTopic), nullable=8)


@request(key=9, versions=(0, 10), flexible=6)
class OffsetFetchRequest(Struct):
    """Asks for committed offsets: of `group_id` up to v7, of `groups` from v8 on."""

    group_id: str = f(STRING, until=7, default="")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = f(
        Array(OffsetFetchRequestTopic), until=7, nullable=2, default=()
    )
    groups: tuple[OffsetFetchRequestGroup, ...] = f(Array(OffsetFetchRequestGroup), since=8, default=())
    require_stable: bool = f(BOOLEAN, since=7, default=False)


@struct
class OffsetFetchResponsePartition(Struct):
    """A committed offset; -1 where there is none."""

    partition_index: int = f(INT32)
    committed_offset: int = f(INT64)
    committed_leader_epoch: int = f(INT32, since=5, default=-1)
    metadata: str | None = f(STRING, nullable=0)
    error_code: int = f(INT16)


@struct
class OffsetFetchResponseTopic(Struct):
    """A topic's offsets; named up to v9, by id from v10 on."""

    name: str = f(STRING, until=9, default="")
    topic_id: UUID = f(UUID_, since=10, default=ZERO_UUID)
    partitions: tuple[OffsetFetchResponsePartition, ...] = f(Array(OffsetFetchResponsePartition))


@struct
class OffsetFetchResponseGroup(Struct):
    """One group's offsets (v8 on), with the group's error."""

    group_id: str = f(STRING)
    topics: tuple[OffsetFetchResponseTopic, ...] = f(Array(OffsetFetchResponseTopic))
    error_code: int = f(INT16, default=0)


@response(key=9, versions=(0, 10), flexible=6)
class OffsetFetchResponse(Struct):
    """The group's error stands on each partition in v0-1, in `error_code` in v2-7, in each group from v8 on."""

    throttle_time_ms: int = f(INT32, since=3, default=0)
    topics: tuple[OffsetFetchResponseTopic, ...] = f(Array(OffsetFetchResponseTopic), until=7, default=())
    error_code: int = f(INT16, since=2, until=7, default=0)
    groups: tuple[OffsetFetchResponseGroup, ...] = f(Array(OffsetFetchResponseGroup), since=8, default=())


ERROR_SINCE, THROTTLED_SINCE, LEADER_EPOCH_SINCE, MANY_GROUPS_SINCE, TOPIC_IDS_SINCE = 2, 3, 5, 8, 10
_FLEXIBLE = OffsetFetchResponse.FLEXIBLE
_PLACE, _PLACE_AND_EPOCH = packing.Struct(">iq"), packing.Struct(">iqi")


def start_topics(version: int, count: int) -> bytes:
    """What stands before so many topics."""
    return uvarint(count + 1) if version >= _FLEXIBLE else count.to_bytes(4, "big")


def start_topic(version: int, name: str, topic_id: UUID, count: int) -> bytes:
    """What stands before so many partitions of a topic."""
    if version < _FLEXIBLE:
        return text(name) + count.to_bytes(4, "big")
    return (topic_id.bytes if version >= TOPIC_IDS_SINCE else compact_text(name)) + uvarint(count + 1)


def end_topic(version: int) -> bytes:
    """What stands behind a topic's partitions."""
    return b"\0" if version >= _FLEXIBLE else b""


def encode_partition(version: int, index: int, offset: int, leader_epoch: int, metadata: str | None) -> bytes:
    """A partition without error. Raises ValueError or struct.error where a value does not fit its field."""
    if version >= LEADER_EPOCH_SINCE:
        place = _PLACE_AND_EPOCH.pack(index, offset, leader_epoch)
    else:
        place = _PLACE.pack(index, offset)
    if version < _FLEXIBLE:
        return place + (b"\xff\xff" if metadata is None else text(metadata)) + b"\0\0"
    if not metadata:
        return place + (b"\0\0\0\0" if metadata is None else b"\1\0\0\0")
    return place + compact_text(metadata) + b"\0\0\0"


def encode_reply(version: int, groups: Iterable[tuple[str, Iterable[bytes]]]) -> bytes:
    """The body of a reply without errors, of each group's topics as they are encoded; up to v7 of one group."""
    groups = list(groups)
    parts = [b"\0\0\0\0"] if version >= THROTTLED_SINCE else []
    if version < MANY_GROUPS_SINCE:
        [(_, topics)] = groups
        parts += topics
        parts.append(b"\0\0" if version >= ERROR_SINCE else b"")
    else:
        parts.append(uvarint(len(groups) + 1))
        for group_id, topics in groups:
            parts.append(compact_text(group_id))
            parts += topics
            parts.append(b"\0\0\0")
    return b"".join((*parts, b"\0" if version >= _FLEXIBLE else b""))
