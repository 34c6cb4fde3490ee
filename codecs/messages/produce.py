"""Produce (0), v0-13; Kafka 4 accepts v3 and later (KIP-896).

v1 throttle time; v2 log append time (KIP-32); v3 transactional id (KIP-98); v4 KAFKA_STORAGE_ERROR (KIP-112); v5 log
start offset (KIP-107); v6 throttling after the reply (KIP-219); v7 zstd (KIP-110); v8 errors per record (KIP-467);
v9 flexible (KIP-482); v10 the new leader and its address as tagged fields (KIP-951); v11 TRANSACTION_ABORTABLE
(KIP-890); v12 also does what AddPartitionsToTxn does (KIP-890 part 2); v13 topic ids in place of names (KIP-516).

A request with acks 0 has no reply, so the proxy reads acks before it waits for a reply (`acks_of`). The proxy decodes
no other field of a client's request. Records are bytes here.
"""

from io import BytesIO
from uuid import UUID

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.primitives import (
    COMPACT,
    INT16,
    INT32,
    INT64,
    MAX_STRING_BYTES,
    MAX_UVARINT_BYTES,
    RECORDS,
    STRING,
    UUID_,
    ZERO_UUID,
    WireError,
)
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field

TOPIC_IDS_SINCE = 13


@struct
class PartitionProduceData(Struct):
    """A partition's records. From v3 on, the records are one batch."""

    index: int = wire_field(INT32)
    records: bytes | None = wire_field(RECORDS, nullable=0)


@struct
class TopicProduceData(Struct):
    """The partitions of a topic, which has a name up to v12 and an id from v13 on."""

    name: str = wire_field(STRING, until=12, default="")
    topic_id: UUID = wire_field(UUID_, since=TOPIC_IDS_SINCE, default=ZERO_UUID)
    partition_data: tuple[PartitionProduceData, ...] = wire_field(Array(PartitionProduceData))


@request(key=0, versions=(0, 13), flexible=9)
class ProduceRequest(Struct):
    """Records to append. `acks_of` explains `acks`. The broker waits at most `timeout_ms` for the in-sync replicas."""

    transactional_id: str | None = wire_field(STRING, since=3, nullable=3, default=None)
    acks: int = wire_field(INT16)
    timeout_ms: int = wire_field(INT32)
    topic_data: tuple[TopicProduceData, ...] = wire_field(Array(TopicProduceData))


@struct
class LeaderIdAndEpoch(Struct):
    """The partition's current leader."""

    leader_id: int = wire_field(INT32, default=-1)
    leader_epoch: int = wire_field(INT32, default=-1)


@struct
class BatchIndexAndErrorMessage(Struct):
    """A record that made its batch fail."""

    batch_index: int = wire_field(INT32)
    batch_index_error_message: str | None = wire_field(STRING, nullable=8, default=None)


@struct
class PartitionProduceResponse(Struct):
    """The result for one partition.

    `log_append_time_ms`: milliseconds since the epoch; -1 if the topic has message.timestamp.type=CreateTime.
    """

    index: int = wire_field(INT32)
    error_code: int = wire_field(INT16)
    base_offset: int = wire_field(INT64)
    log_append_time_ms: int = wire_field(INT64, since=2, default=-1)
    log_start_offset: int = wire_field(INT64, since=5, default=-1)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire_field(
        Array(BatchIndexAndErrorMessage), since=8, default=()
    )
    error_message: str | None = wire_field(STRING, since=8, nullable=8, default=None)
    current_leader: LeaderIdAndEpoch = wire_field(LeaderIdAndEpoch, since=10, tag=0, default=LeaderIdAndEpoch())


@struct
class TopicProduceResponse(Struct):
    """The partitions of a topic, which has a name up to v12 and an id from v13 on."""

    name: str = wire_field(STRING, until=12, default="")
    topic_id: UUID = wire_field(UUID_, since=TOPIC_IDS_SINCE, default=ZERO_UUID)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire_field(Array(PartitionProduceResponse))


@struct
class NodeEndpoint(Struct):
    """The address of a new leader, which a gateway rewrites."""

    node_id: int = wire_field(INT32)
    host: str = wire_field(STRING)
    port: int = wire_field(INT32)
    rack: str | None = wire_field(STRING, nullable=10, default=None)


@response(key=0, versions=(0, 13), flexible=9)
class ProduceResponse(Struct):
    """The results per partition, and the addresses of the leaders of partitions that have moved."""

    responses: tuple[TopicProduceResponse, ...] = wire_field(Array(TopicProduceResponse))
    throttle_time_ms: int = wire_field(INT32, since=1, default=0)
    node_endpoints: tuple[NodeEndpoint, ...] = wire_field(Array(NodeEndpoint), since=10, tag=0, default=())


def acks_of(version: int, head: bytes) -> int | None:
    """Returns the acks of a Produce request: 0 for none, 1 for the leader's, -1 for all in-sync replicas'.

    Acks follow the transactional id (from v3 on, compact from v9 on), so a few bytes are enough for nearly all clients.

    Args:
        version: the request's API version. A version newer than the declared versions is read as the newest declared
            version.
        head: the first bytes of the *body*.

    Returns:
        Acks, or None if `head` ends before the end of that field.

    Raises:
        DecodeError: the transactional id's length is impossible.
    """
    if version < 3:
        start = 0
    elif version < ProduceResponse.FLEXIBLE:
        if len(head) < 2:
            return None
        length = int.from_bytes(head[:2], "big", signed=True)  # Any negative length is null.
        start = 2 + max(length, 0)
    else:
        read = _compact_end(version, head)
        if read is None:
            return None
        start = read
    if len(head) < start + 2:
        return None
    return int.from_bytes(head[start : start + 2], "big", signed=True)


def _compact_end(version: int, head: bytes) -> int | None:
    """Returns where the compact transactional id ends, or None if its length is truncated."""
    stream = BytesIO(head[:MAX_UVARINT_BYTES])
    try:
        length = COMPACT.read(stream)
    except WireError as error:
        if len(head) < MAX_UVARINT_BYTES:
            return None
        raise DecodeError(f"ProduceRequest v{version}", "transactional_id", str(error)) from error
    if length > MAX_STRING_BYTES:
        raise DecodeError(f"ProduceRequest v{version}", "transactional_id", f"string of {length} bytes")
    return stream.tell() + max(length, 0)
