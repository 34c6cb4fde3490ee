"""TxnOffsetCommit (28), v0-6 (KIP-98).

v1 replies before throttling (KIP-219); v2 leader epoch (KIP-320); v3 flexible, member and generation (KIP-447);
v4 TRANSACTION_ABORTABLE (KIP-890); v5 also does what AddOffsetsToTxn does (KIP-890 part 2);
v6 topic ids in place of names (KIP-1319).
"""

from uuid import UUID

from group_sidecar.codecs.primitives import INT16, INT32, INT64, STRING, UUID_, ZERO_UUID
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct


@struct
class TxnOffsetCommitRequestPartition(Struct):
    """One partition's offset."""

    partition_index: int = f(INT32)
    committed_offset: int = f(INT64)
    committed_leader_epoch: int = f(INT32, since=2, default=-1)
    committed_metadata: str | None = f(STRING, nullable=0)


@struct
class TxnOffsetCommitRequestTopic(Struct):
    """A topic's offsets; named up to v5, by id from v6 on."""

    name: str = f(STRING, until=5, default="")
    topic_id: UUID = f(UUID_, since=6, default=ZERO_UUID)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = f(Array(TxnOffsetCommitRequestPartition))


@request(key=28, versions=(0, 6), flexible=3)
class TxnOffsetCommitRequest(Struct):
    """A producer stores offsets that become visible when its transaction commits."""

    transactional_id: str = f(STRING)
    group_id: str = f(STRING)
    producer_id: int = f(INT64)
    producer_epoch: int = f(INT16)
    generation_id_or_member_epoch: int = f(INT32, since=3, default=-1)
    member_id: str = f(STRING, since=3, default="")
    group_instance_id: str | None = f(STRING, since=3, nullable=3, default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = f(Array(TxnOffsetCommitRequestTopic))


@struct
class TxnOffsetCommitResponsePartition(Struct):
    """How one partition's commit went."""

    partition_index: int = f(INT32)
    error_code: int = f(INT16)


@struct
class TxnOffsetCommitResponseTopic(Struct):
    """A topic's partitions, as in the request."""

    name: str = f(STRING, until=5, default="")
    topic_id: UUID = f(UUID_, since=6, default=ZERO_UUID)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = f(Array(TxnOffsetCommitResponsePartition))


@response(key=28, versions=(0, 6), flexible=3)
class TxnOffsetCommitResponse(Struct):
    """Errors stand per partition only; success means pending, not committed."""

    throttle_time_ms: int = f(INT32)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = f(Array(TxnOffsetCommitResponseTopic))
