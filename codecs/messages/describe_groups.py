"""DescribeGroups (15), v0-6.

v1 throttle time; v2 throttling after the reply (KIP-219); v3 authorized operations (KIP-430); v4 group instance id
(KIP-345); v5 flexible (KIP-482); v6 error message, GROUP_ID_NOT_FOUND (KIP-1043).
"""

from group_sidecar.codecs.primitives import BOOLEAN, BYTES, INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@request(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest(Struct):
    """Asks for the state and members of groups."""

    groups: tuple[str, ...] = wire_field(Array(STRING))
    include_authorized_operations: bool = wire_field(BOOLEAN, since=3, default=False)


@struct
class DescribedGroupMember(Struct):
    """A member. Metadata and assignment are empty unless the group is Stable. The host has Java's form ``/address``."""

    member_id: str = wire_field(STRING)
    group_instance_id: str | None = wire_field(STRING, since=4, nullable=4, default=None)
    client_id: str = wire_field(STRING)
    client_host: str = wire_field(STRING)
    member_metadata: bytes = wire_field(BYTES)
    member_assignment: bytes = wire_field(BYTES)


@struct
class DescribedGroup(Struct):
    """A group, or the reason why it is not described. `authorized_operations` is a bit field."""

    error_code: int = wire_field(INT16)
    error_message: str | None = wire_field(STRING, since=6, nullable=6, default=None)
    group_id: str = wire_field(STRING)
    group_state: str = wire_field(STRING)
    protocol_type: str = wire_field(STRING)
    protocol_data: str = wire_field(STRING)
    members: tuple[DescribedGroupMember, ...] = wire_field(Array(DescribedGroupMember))
    authorized_operations: int = wire_field(INT32, since=3, default=-2147483648)


@response(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse(Struct):
    """The requested groups. Kafka does not guarantee their order."""

    throttle_time_ms: int = wire_field(INT32, since=1, default=0)
    groups: tuple[DescribedGroup, ...] = wire_field(Array(DescribedGroup))
