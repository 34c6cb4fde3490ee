"""ListGroups (16), v0-5.

v1 throttle time; v2 replies before throttling (KIP-219); v3 flexible (KIP-482); v4 states (KIP-518); v5 types
(KIP-848).
"""

from group_sidecar.codecs.primitives import INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct


@request(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest(Struct):
    """Asks for the groups that this broker coordinates. An empty filter lets all through."""

    states_filter: tuple[str, ...] = f(Array(STRING), since=4, default=())
    types_filter: tuple[str, ...] = f(Array(STRING), since=5, default=())


@struct
class ListedGroup(Struct):
    """One group; the protocol type is empty for a group that only commits offsets."""

    group_id: str = f(STRING)
    protocol_type: str = f(STRING)
    group_state: str = f(STRING, since=4, default="")
    group_type: str = f(STRING, since=5, default="")


@response(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse(Struct):
    """The groups of this broker."""

    throttle_time_ms: int = f(INT32, since=1, default=0)
    error_code: int = f(INT16)
    groups: tuple[ListedGroup, ...] = f(Array(ListedGroup))
