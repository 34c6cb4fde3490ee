"""Produce (0), v0-13; Kafka 4 takes v3 and later (KIP-896).

v1 throttle time; v2 log append time (KIP-32); v3 transactional id (KIP-98); v4 KAFKA_STORAGE_ERROR (KIP-112); v5 log
start offset (KIP-107); v6 replies before throttling (KIP-219); v7 zstd (KIP-110); v8 errors per record (KIP-467);
v9 flexible (KIP-482); v10 the new leader and its address as tagged fields (KIP-951); v11 TRANSACTION_ABORTABLE
(KIP-890); v12 also does what AddPartitionsToTxn does (KIP-890 part 2); v13 topic ids in place of names (KIP-516).

A request with acks 0 has no reply at all, so a proxy must know acks before it waits for one: `acks_of`. It needs no
more of clients' requests, which are never decoded. Records are bytes here.
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
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct

TOPIC_IDS_SINCE = 13


@struct
class PartitionProduceData(Struct):
    """A partition's records: one batch from v3 on."""

    index: int = f(INT32)
    records: bytes | None = f(RECORDS, nullable=0)


@struct
class TopicProduceData(Struct):
    """A topic's partitions; named up to v12, by id from v13 on."""

    name: str = f(STRING, until=12, default="")
    topic_id: UUID = f(UUID_, since=TOPIC_IDS_SINCE, default=ZERO_UUID)
    partition_data: tuple[PartitionProduceData, ...] = f(Array(PartitionProduceData))


@request(key=0, versions=(0, 13), flexible=9)
class ProduceRequest(Struct):
    """Records to append. `acks`: 0, 1 or -1, as of `acks_of`; the broker waits for them `timeout_ms` at most."""

    transactional_id: str | None = f(STRING, since=3, nullable=3, default=None)
    acks: int = f(INT16)
    timeout_ms: int = f(INT32)
    topic_data: tuple[TopicProduceData, ...] = f(Array(TopicProduceData))


@struct
class LeaderIdAndEpoch(Struct):
    """Who leads the partition now."""

    leader_id: int = f(INT32, default=-1)
    leader_epoch: int = f(INT32, default=-1)


@struct
class BatchIndexAndErrorMessage(Struct):
    """A record that made its batch fail."""

    batch_index: int = f(INT32)
    batch_index_error_message: str | None = f(STRING, nullable=8, default=None)


@struct
class PartitionProduceResponse(Struct):
    """How one partition's append went. `log_append_time_ms` in milliseconds since the epoch, -1 with create time."""

    index: int = f(INT32)
    error_code: int = f(INT16)
    base_offset: int = f(INT64)
    log_append_time_ms: int = f(INT64, since=2, default=-1)
    log_start_offset: int = f(INT64, since=5, default=-1)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = f(Array(BatchIndexAndErrorMessage), since=8, default=())
    error_message: str | None = f(STRING, since=8, nullable=8, default=None)
    current_leader: LeaderIdAndEpoch = f(LeaderIdAndEpoch, since=10, tag=0, default=LeaderIdAndEpoch())


@struct
class TopicProduceResponse(Struct):
    """A topic's partitions; named up to v12, by id from v13 on."""

    name: str = f(STRING, until=12, default="")
    topic_id: UUID = f(UUID_, since=TOPIC_IDS_SINCE, default=ZERO_UUID)
    partition_responses: tuple[PartitionProduceResponse, ...] = f(Array(PartitionProduceResponse))


@struct
class NodeEndpoint(Struct):
    """The address of a new leader: what a gateway rewrites."""

    node_id: int = f(INT32)
    host: str = f(STRING)
    port: int = f(INT32)
    rack: str | None = f(STRING, nullable=10, default=None)


@response(key=0, versions=(0, 13), flexible=9)
class ProduceResponse(Struct):
    """The appends, and the addresses of leaders that the client does not seem to know."""

    responses: tuple[TopicProduceResponse, ...] = f(Array(TopicProduceResponse))
    throttle_time_ms: int = f(INT32, since=1, default=0)
    node_endpoints: tuple[NodeEndpoint, ...] = f(Array(NodeEndpoint), since=10, tag=0, default=())


def acks_of(version: int, head: bytes) -> int | None:
    """The acks of a Produce request: 0 for none, 1 for the leader's, -1 for all in-sync replicas'.

    Acks stand behind the transactional id (from v3; compact from v9), so a few bytes are enough for nearly all clients.

    Args:
        version: the request's API version; one newer than those described is read as the newest.
        head: the first bytes of the *body*, as many as there are.

    Returns:
        acks, or None where `head` ends before it.

    Raises:
        DecodeError: the transactional id's length is impossible.
    """
    if version < 3:
        start = 0
    elif version < ProduceResponse.FLEXIBLE:
        if len(head) < 2:
            return None
        length = int.from_bytes(head[:2], "big", signed=True)  # Any negative one is null.
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
    """Where the compact transactional id ends; None where its length is cut off."""
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
