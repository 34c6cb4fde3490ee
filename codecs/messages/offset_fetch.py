"""OffsetFetch (9), v0-10; Kafka 4 takes v1 and later (KIP-896).

v0 reads from ZooKeeper; v1 from Kafka; v2 null topics ask for all, top-level error code (KIP-88); v3 throttle time;
v4 replies before throttling (KIP-219); v5 leader epoch (KIP-320); v6 flexible (KIP-482); v7 require stable (KIP-447);
v8 many groups at once (KIP-709); v9 member id and epoch (KIP-848); v10 topic ids in place of names.

Kafka's schema has twins of the topic structs, for v0-7 and for v8 on; their layouts are the same, so here they are one.
"""

from uuid import UUID

from group_sidecar.codecs.primitives import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID_,
    ZERO_UUID,
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
