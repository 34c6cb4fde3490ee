"""OffsetCommit (8), v0-10; Kafka 4 accepts v2 and later (KIP-896).

v0 stores in ZooKeeper; v1 stores in Kafka, with generation, member and a timestamp per partition; v2 retention time in
place of the timestamp; v3 throttle time; v4 throttling after the reply (KIP-219); v5 without retention time (KIP-211);
v6 leader epoch (KIP-320); v7 group instance id (KIP-345); v8 flexible (KIP-482); v9 errors of the new consumer
protocol (KIP-848); v10 topic ids in place of names.
"""

from uuid import UUID

from group_sidecar.codecs.primitives import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID_,
    ZERO_UUID,
)
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@struct
class OffsetCommitRequestPartition(Struct):
    """One partition's offset. `commit_timestamp` is in milliseconds since the epoch, -1 for the broker's time."""

    partition_index: int = wire_field(INT32)
    committed_offset: int = wire_field(INT64)
    committed_leader_epoch: int = wire_field(INT32, since=6, default=-1)
    commit_timestamp: int = wire_field(INT64, since=1, until=1, default=-1)
    committed_metadata: str | None = wire_field(STRING, nullable=0)


@struct
class OffsetCommitRequestTopic(Struct):
    """The offsets of a topic, which has a name up to v9 and an id from v10 on."""

    name: str = wire_field(STRING, until=9, default="")
    topic_id: UUID = wire_field(UUID_, since=10, default=ZERO_UUID)
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire_field(Array(OffsetCommitRequestPartition))


@request(key=8, versions=(0, 10), flexible=8)
class OffsetCommitRequest(Struct):
    """A member, or a client that is not a member (generation -1), stores offsets."""

    group_id: str = wire_field(STRING)
    generation_id_or_member_epoch: int = wire_field(INT32, since=1, default=-1)
    member_id: str = wire_field(STRING, since=1, default="")
    group_instance_id: str | None = wire_field(STRING, since=7, nullable=7, default=None)
    retention_time_ms: int = wire_field(INT64, since=2, until=4, default=-1)
    topics: tuple[OffsetCommitRequestTopic, ...] = wire_field(Array(OffsetCommitRequestTopic))


@struct
class OffsetCommitResponsePartition(Struct):
    """The result for one partition."""

    partition_index: int = wire_field(INT32)
    error_code: int = wire_field(INT16)


@struct
class OffsetCommitResponseTopic(Struct):
    """The results for a topic's partitions."""

    name: str = wire_field(STRING, until=9, default="")
    topic_id: UUID = wire_field(UUID_, since=10, default=ZERO_UUID)
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire_field(Array(OffsetCommitResponsePartition))


@response(key=8, versions=(0, 10), flexible=8)
class OffsetCommitResponse(Struct):
    """The result for each partition. If the broker refuses the whole request, each partition has the same error."""

    throttle_time_ms: int = wire_field(INT32, since=3, default=0)
    topics: tuple[OffsetCommitResponseTopic, ...] = wire_field(Array(OffsetCommitResponseTopic))
