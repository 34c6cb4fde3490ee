"""JoinGroup (11), v0-9.

v1 rebalance timeout (KIP-62); v2 throttle time; v3 throttling after the reply (KIP-219); v4 MEMBER_ID_REQUIRED
(KIP-394); v5 group instance id (KIP-345); v6 flexible (KIP-482); v7 protocol type in the response, protocol name
nullable (KIP-559); v8 reason (KIP-800); v9 skip assignment (KIP-814).
"""

from group_sidecar.codecs.primitives import BOOLEAN, BYTES, INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@struct
class JoinGroupProtocol(Struct):
    """One protocol (for consumers: an assignor) that the member supports, with its subscription."""

    name: str = wire_field(STRING)
    metadata: bytes = wire_field(BYTES)


@request(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest(Struct):
    """A member joins or rejoins. Timeouts are in milliseconds."""

    group_id: str = wire_field(STRING)
    session_timeout_ms: int = wire_field(INT32)
    rebalance_timeout_ms: int = wire_field(INT32, since=1, default=-1)
    member_id: str = wire_field(STRING)
    group_instance_id: str | None = wire_field(STRING, since=5, nullable=5, default=None)
    protocol_type: str = wire_field(STRING)
    protocols: tuple[JoinGroupProtocol, ...] = wire_field(Array(JoinGroupProtocol))
    reason: str | None = wire_field(STRING, since=8, nullable=8, default=None)


@struct
class JoinGroupMember(Struct):
    """A member in the reply to the leader."""

    member_id: str = wire_field(STRING)
    group_instance_id: str | None = wire_field(STRING, since=5, nullable=5, default=None)
    metadata: bytes = wire_field(BYTES)


@response(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse(Struct):
    """The new generation. `members` is empty unless the receiver is the leader."""

    throttle_time_ms: int = wire_field(INT32, since=2, default=0)
    error_code: int = wire_field(INT16)
    generation_id: int = wire_field(INT32, default=-1)
    protocol_type: str | None = wire_field(STRING, since=7, nullable=7, default=None)
    protocol_name: str | None = wire_field(STRING, nullable=7)
    leader: str = wire_field(STRING)
    skip_assignment: bool = wire_field(BOOLEAN, since=9, default=False)
    member_id: str = wire_field(STRING)
    members: tuple[JoinGroupMember, ...] = wire_field(Array(JoinGroupMember), default=())
