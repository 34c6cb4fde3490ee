"""JoinGroup (11), v0-9.

v1 rebalance timeout (KIP-62); v2 throttle time; v3 replies before throttling (KIP-219); v4 MEMBER_ID_REQUIRED
(KIP-394); v5 group instance id (KIP-345); v6 flexible (KIP-482); v7 protocol type in the response, protocol name
nullable (KIP-559); v8 reason (KIP-800); v9 skip assignment (KIP-814).
"""

from group_sidecar.codecs.primitives import BOOLEAN, BYTES, INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct


@struct
class JoinGroupProtocol(Struct):
    """One protocol (for consumers: an assignor) that the member supports, with its subscription."""

    name: str = f(STRING)
    metadata: bytes = f(BYTES)


@request(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest(Struct):
    """A member joins, or joins again. Timeouts in milliseconds."""

    group_id: str = f(STRING)
    session_timeout_ms: int = f(INT32)
    rebalance_timeout_ms: int = f(INT32, since=1, default=-1)
    member_id: str = f(STRING)
    group_instance_id: str | None = f(STRING, since=5, nullable=5, default=None)
    protocol_type: str = f(STRING)
    protocols: tuple[JoinGroupProtocol, ...] = f(Array(JoinGroupProtocol))
    reason: str | None = f(STRING, since=8, nullable=8, default=None)


@struct
class JoinGroupMember(Struct):
    """A member as its leader is told of it."""

    member_id: str = f(STRING)
    group_instance_id: str | None = f(STRING, since=5, nullable=5, default=None)
    metadata: bytes = f(BYTES)


@response(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse(Struct):
    """The new generation; `members` is filled for the leader only."""

    throttle_time_ms: int = f(INT32, since=2, default=0)
    error_code: int = f(INT16)
    generation_id: int = f(INT32, default=-1)
    protocol_type: str | None = f(STRING, since=7, nullable=7, default=None)
    protocol_name: str | None = f(STRING, nullable=7)
    leader: str = f(STRING)
    skip_assignment: bool = f(BOOLEAN, since=9, default=False)
    member_id: str = f(STRING)
    members: tuple[JoinGroupMember, ...] = f(Array(JoinGroupMember), default=())
