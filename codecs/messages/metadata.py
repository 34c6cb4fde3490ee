"""Metadata (3), v0-13.

v1 rack, controller, internal topics, null topics ask for all topics, as an empty array does in v0; v2 cluster id
(KIP-78); v3 throttle time; v4 automatic topic creation is optional; v5 offline replicas (KIP-112); v6 throttling after
the reply (KIP-219); v7 leader epoch (KIP-320); v8 authorized operations (KIP-430); v9 flexible (KIP-482); v10 topic ids
in the reply (KIP-516); v11 the cluster's operations move to DescribeCluster (KIP-700); v12 asking by topic id;
v13 top-level error code (KIP-1102).
"""

from collections.abc import Callable
from io import BytesIO
from uuid import UUID

from construct import ConstructError

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.primitives import (
    BOOLEAN,
    INT16,
    INT32,
    STRING,
    UUID_,
    ZERO_UUID,
)
from group_sidecar.codecs.schema import Array, Struct, layout, request, response, struct, wire_field


@struct
class MetadataRequestTopic(Struct):
    """A requested topic, by name or by id."""

    topic_id: UUID = wire_field(UUID_, since=10, default=ZERO_UUID)
    name: str | None = wire_field(STRING, nullable=10)


@request(key=3, versions=(0, 13), flexible=9)
class MetadataRequest(Struct):
    """Asks for the cluster's brokers and the partitions of topics. Null means all topics."""

    topics: tuple[MetadataRequestTopic, ...] | None = wire_field(Array(MetadataRequestTopic), nullable=1)
    allow_auto_topic_creation: bool = wire_field(BOOLEAN, since=4, default=True)
    include_cluster_authorized_operations: bool = wire_field(BOOLEAN, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = wire_field(BOOLEAN, since=8, default=False)


@struct
class MetadataResponseBroker(Struct):
    """A broker's address, which a gateway rewrites."""

    node_id: int = wire_field(INT32)
    host: str = wire_field(STRING)
    port: int = wire_field(INT32)
    rack: str | None = wire_field(STRING, since=1, nullable=1, default=None)


@struct
class MetadataResponsePartition(Struct):
    """A partition: its leader and replicas, as node ids."""

    error_code: int = wire_field(INT16)
    partition_index: int = wire_field(INT32)
    leader_id: int = wire_field(INT32)
    leader_epoch: int = wire_field(INT32, since=7, default=-1)
    replica_nodes: tuple[int, ...] = wire_field(Array(INT32))
    isr_nodes: tuple[int, ...] = wire_field(Array(INT32))
    offline_replicas: tuple[int, ...] = wire_field(Array(INT32), since=5, default=())


@struct
class MetadataResponseTopic(Struct):
    """A topic, or the reason why it is not described. `topic_authorized_operations` is a bit field."""

    error_code: int = wire_field(INT16)
    name: str | None = wire_field(STRING, nullable=12)
    topic_id: UUID = wire_field(UUID_, since=10, default=ZERO_UUID)
    is_internal: bool = wire_field(BOOLEAN, since=1, default=False)
    partitions: tuple[MetadataResponsePartition, ...] = wire_field(Array(MetadataResponsePartition))
    topic_authorized_operations: int = wire_field(INT32, since=8, default=-2147483648)


@response(key=3, versions=(0, 13), flexible=9)
class MetadataResponse(Struct):
    """The brokers, and the requested topics."""

    throttle_time_ms: int = wire_field(INT32, since=3, default=0)
    brokers: tuple[MetadataResponseBroker, ...] = wire_field(Array(MetadataResponseBroker))
    cluster_id: str | None = wire_field(STRING, since=2, nullable=2, default=None)
    controller_id: int = wire_field(INT32, since=1, default=-1)
    topics: tuple[MetadataResponseTopic, ...] = wire_field(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = wire_field(INT32, since=8, until=10, default=-2147483648)
    error_code: int = wire_field(INT16, since=13, default=0)


def with_brokers(
    version: int, frame: bytes, at: int, change: Callable[[MetadataResponseBroker], MetadataResponseBroker]
) -> tuple[int, bytes, int]:
    """Returns the new encoding of a reply's brokers, without decoding the topics, which are most of a long reply.

    Args:
        version: the reply's API version, one of the declared versions.
        frame: the reply.
        at: where the reply's body begins.
        change: returns the replacement of a broker.

    Returns:
        Where the brokers begin in the frame, the bytes that replace them, and where they end.

    Raises:
        DecodeError: the brokers cannot be read.
        ValueError: a changed broker does not fit its fields.
    """
    fields = layout(MetadataResponse, version, version >= MetadataResponse.FLEXIBLE).plain
    stream = BytesIO(frame)
    stream.seek(at)
    try:
        if "throttle_time_ms" in fields:
            fields["throttle_time_ms"]._parse(stream, None, "")
        start = stream.tell()
        brokers = fields["brokers"]._parse(stream, None, "")
    except ConstructError as error:
        raise DecodeError(f"{MetadataResponse.NAME} v{version}", "brokers", str(error)) from error
    changed = BytesIO()
    try:
        fields["brokers"]._build(tuple(map(change, brokers)), changed, None, "")
    except ConstructError as error:
        raise ValueError(f"{MetadataResponse.NAME} v{version}: brokers: {error}") from error
    return start, changed.getvalue(), stream.tell()
