"""Heartbeat (12), v0-4.

v1 throttle time; v2 throttling after the reply (KIP-219); v3 group instance id (KIP-345); v4 flexible (KIP-482).
"""

from group_sidecar.codecs.primitives import INT16, INT32, STRING
from group_sidecar.codecs.schema import Struct, request, response, wire_field


@request(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest(Struct):
    """A member reports that it is alive in a generation."""

    group_id: str = wire_field(STRING)
    generation_id: int = wire_field(INT32)
    member_id: str = wire_field(STRING)
    group_instance_id: str | None = wire_field(STRING, since=3, nullable=3, default=None)


@response(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse(Struct):
    """The result of a heartbeat. An `error_code` other than 0 determines what the member does next."""

    throttle_time_ms: int = wire_field(INT32, since=1, default=0)
    error_code: int = wire_field(INT16)
