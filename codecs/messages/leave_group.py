"""LeaveGroup (13), v0-5.

v1 throttle time; v2 throttling after the reply (KIP-219); v3 many members at once, group instance ids (KIP-345);
v4 flexible (KIP-482); v5 reason (KIP-800).
"""

from group_sidecar.codecs.primitives import INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@struct
class MemberIdentity(Struct):
    """A member that leaves, identified by its id or, if the id is empty, by its instance id."""

    member_id: str = wire_field(STRING)
    group_instance_id: str | None = wire_field(STRING, nullable=3, default=None)
    reason: str | None = wire_field(STRING, since=5, nullable=5, default=None)


@request(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest(Struct):
    """One member leaves (up to v2), or each of `members` leaves (from v3 on)."""

    group_id: str = wire_field(STRING)
    member_id: str = wire_field(STRING, until=2, default="")
    members: tuple[MemberIdentity, ...] = wire_field(Array(MemberIdentity), since=3, default=())


@struct
class MemberResponse(Struct):
    """The result for one member."""

    member_id: str = wire_field(STRING)
    group_instance_id: str | None = wire_field(STRING, nullable=3)
    error_code: int = wire_field(INT16)


@response(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse(Struct):
    """The result for each member. `error_code` is the member's error up to v2, and the group's error from v3 on."""

    throttle_time_ms: int = wire_field(INT32, since=1, default=0)
    error_code: int = wire_field(INT16)
    members: tuple[MemberResponse, ...] = wire_field(Array(MemberResponse), since=3, default=())
