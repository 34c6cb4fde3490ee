"""FindCoordinator (10), v0-6.

v1 key type, throttle time, error message (KIP-98); v2 throttling after the reply (KIP-219); v3 flexible (KIP-482);
v4 many keys at once (KIP-699); v5 TRANSACTION_ABORTABLE (KIP-890); v6 key type for share groups (KIP-932).
"""

from group_sidecar.codecs.primitives import INT8, INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field

FIRST_VERSION_OF_MANY_KEYS = 4


@request(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest(Struct):
    """Asks which broker coordinates `key` (up to v3) or each of `coordinator_keys` (from v4 on).

    Key types: 0 group, 1 transaction, 2 share.
    """

    key: str = wire_field(STRING, until=3, default="")
    key_type: int = wire_field(INT8, since=1, default=0)
    coordinator_keys: tuple[str, ...] = wire_field(Array(STRING), since=FIRST_VERSION_OF_MANY_KEYS, default=())


@struct
class Coordinator(Struct):
    """The coordinator of one key. If there is an error, node and port are -1 and the host is empty."""

    key: str = wire_field(STRING)
    node_id: int = wire_field(INT32)
    host: str = wire_field(STRING)
    port: int = wire_field(INT32)
    error_code: int = wire_field(INT16)
    error_message: str | None = wire_field(STRING, nullable=4)


@response(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse(Struct):
    """One coordinator in `node_id`, `host` and `port` up to v3, or one per key in `coordinators` from v4 on."""

    throttle_time_ms: int = wire_field(INT32, since=1, default=0)
    error_code: int = wire_field(INT16, until=3, default=0)
    error_message: str | None = wire_field(STRING, since=1, until=3, nullable=1, default="")
    node_id: int = wire_field(INT32, until=3, default=0)
    host: str = wire_field(STRING, until=3, default="")
    port: int = wire_field(INT32, until=3, default=0)
    coordinators: tuple[Coordinator, ...] = wire_field(Array(Coordinator), since=FIRST_VERSION_OF_MANY_KEYS, default=())
