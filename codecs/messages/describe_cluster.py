"""DescribeCluster (60), v0-2, flexible from the start (KIP-700).

v1 endpoint type: brokers or controllers (KIP-919); v2 fenced brokers (KIP-1073).
"""

from group_sidecar.codecs.primitives import BOOLEAN, INT8, INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@request(key=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest(Struct):
    """Asks for the cluster's nodes. Endpoint types: 1 brokers, 2 controllers."""

    include_cluster_authorized_operations: bool = wire_field(BOOLEAN)
    endpoint_type: int = wire_field(INT8, since=1, default=1)
    include_fenced_brokers: bool = wire_field(BOOLEAN, since=2, default=False)


@struct
class DescribeClusterBroker(Struct):
    """A node's address, which a gateway rewrites."""

    broker_id: int = wire_field(INT32)
    host: str = wire_field(STRING)
    port: int = wire_field(INT32)
    rack: str | None = wire_field(STRING, nullable=0, default=None)
    is_fenced: bool = wire_field(BOOLEAN, since=2, default=False)


@response(key=60, versions=(0, 2), flexible=0)
class DescribeClusterResponse(Struct):
    """The cluster's nodes; `cluster_authorized_operations` is a bit field."""

    throttle_time_ms: int = wire_field(INT32)
    error_code: int = wire_field(INT16)
    error_message: str | None = wire_field(STRING, nullable=0, default=None)
    endpoint_type: int = wire_field(INT8, since=1, default=1)
    cluster_id: str = wire_field(STRING)
    controller_id: int = wire_field(INT32, default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = wire_field(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire_field(INT32, default=-2147483648)
