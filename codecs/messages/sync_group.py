"""SyncGroup (14), v0-5.

v1 throttle time; v2 throttling after the reply (KIP-219); v3 group instance id (KIP-345); v4 flexible (KIP-482);
v5 protocol type and name on both sides (KIP-559).
"""

from group_sidecar.codecs.primitives import BYTES, INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@struct
class SyncGroupRequestAssignment(Struct):
    """The leader's assignment for one member."""

    member_id: str = wire_field(STRING)
    assignment: bytes = wire_field(BYTES)


@request(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest(Struct):
    """A member asks for its assignment. The leader sends the assignments of all members."""

    group_id: str = wire_field(STRING)
    generation_id: int = wire_field(INT32)
    member_id: str = wire_field(STRING)
    group_instance_id: str | None = wire_field(STRING, since=3, nullable=3, default=None)
    protocol_type: str | None = wire_field(STRING, since=5, nullable=5, default=None)
    protocol_name: str | None = wire_field(STRING, since=5, nullable=5, default=None)
    assignments: tuple[SyncGroupRequestAssignment, ...] = wire_field(Array(SyncGroupRequestAssignment))


@response(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse(Struct):
    """The member's assignment."""

    throttle_time_ms: int = wire_field(INT32, since=1, default=0)
    error_code: int = wire_field(INT16)
    protocol_type: str | None = wire_field(STRING, since=5, nullable=5, default=None)
    protocol_name: str | None = wire_field(STRING, since=5, nullable=5, default=None)
    assignment: bytes = wire_field(BYTES)
