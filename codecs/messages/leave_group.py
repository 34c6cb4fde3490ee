"""LeaveGroup (13), v0-5.

v1 throttle time; v2 replies before throttling (KIP-219); v3 many members at once, group instance ids (KIP-345);
v4 flexible (KIP-482); v5 reason (KIP-800).
"""

from group_sidecar.codecs.primitives import INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct


@struct
class MemberIdentity(Struct):
    """A member that leaves, by its id or, with an empty id, by its instance id."""

    member_id: str = f(STRING)
    group_instance_id: str | None = f(STRING, nullable=3, default=None)
    reason: str | None = f(STRING, since=5, nullable=5, default=None)


@request(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest(Struct):
    """A member leaves, or from v3 on `members` do."""

    group_id: str = f(STRING)
    member_id: str = f(STRING, until=2, default="")
    members: tuple[MemberIdentity, ...] = f(Array(MemberIdentity), since=3, default=())


@struct
class MemberResponse(Struct):
    """How one member's leaving went."""

    member_id: str = f(STRING)
    group_instance_id: str | None = f(STRING, nullable=3)
    error_code: int = f(INT16)


@response(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse(Struct):
    """The member's error up to v2; from v3 on the group's, and each member's in `members`."""

    throttle_time_ms: int = f(INT32, since=1, default=0)
    error_code: int = f(INT16)
    members: tuple[MemberResponse, ...] = f(Array(MemberResponse), since=3, default=())
