"""TxnOffsetCommit (28), v0-6 (KIP-98).

v1 throttling after the reply (KIP-219); v2 leader epoch (KIP-320); v3 flexible, member and generation (KIP-447);
v4 TRANSACTION_ABORTABLE (KIP-890); v5 also does what AddOffsetsToTxn does (KIP-890 part 2);
v6 topic ids in place of names (KIP-1319).
"""

from uuid import UUID

from group_sidecar.codecs.primitives import INT16, INT32, INT64, STRING, UUID_, ZERO_UUID
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@struct
class TxnOffsetCommitRequestPartition(Struct):
    """One partition's offset."""

    partition_index: int = wire_field(INT32)
    committed_offset: int = wire_field(INT64)
    committed_leader_epoch: int = wire_field(INT32, since=2, default=-1)
    committed_metadata: str | None = wire_field(STRING, nullable=0)


@struct
class TxnOffsetCommitRequestTopic(Struct):
    """The offsets of a topic, which has a name up to v5 and an id from v6 on."""

    name: str = wire_field(STRING, until=5, default="")
    topic_id: UUID = wire_field(UUID_, since=6, default=ZERO_UUID)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire_field(Array(TxnOffsetCommitRequestPartition))


@request(key=28, versions=(0, 6), flexible=3)
class TxnOffsetCommitRequest(Struct):
    """A producer stores offsets that become visible when its transaction commits."""

    transactional_id: str = wire_field(STRING)
    group_id: str = wire_field(STRING)
    producer_id: int = wire_field(INT64)
    producer_epoch: int = wire_field(INT16)
    generation_id_or_member_epoch: int = wire_field(INT32, since=3, default=-1)
    member_id: str = wire_field(STRING, since=3, default="")
    group_instance_id: str | None = wire_field(STRING, since=3, nullable=3, default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire_field(Array(TxnOffsetCommitRequestTopic))


@struct
class TxnOffsetCommitResponsePartition(Struct):
    """The result for one partition."""

    partition_index: int = wire_field(INT32)
    error_code: int = wire_field(INT16)


@struct
class TxnOffsetCommitResponseTopic(Struct):
    """The results for a topic's partitions."""

    name: str = wire_field(STRING, until=5, default="")
    topic_id: UUID = wire_field(UUID_, since=6, default=ZERO_UUID)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire_field(Array(TxnOffsetCommitResponsePartition))


@response(key=28, versions=(0, 6), flexible=3)
class TxnOffsetCommitResponse(Struct):
    """The result for each partition. Without an error, the offset is pending until the transaction ends."""

    throttle_time_ms: int = wire_field(INT32)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire_field(Array(TxnOffsetCommitResponseTopic))
