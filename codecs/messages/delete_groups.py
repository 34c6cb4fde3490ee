"""DeleteGroups (42), v0-3 (KIP-229).

v1 throttling after the reply (KIP-219); v2 flexible (KIP-482); v3 an error message per group.
"""

from group_sidecar.codecs.primitives import INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@request(key=42, versions=(0, 3), flexible=2)
class DeleteGroupsRequest(Struct):
    """Asks to delete groups, which must be empty."""

    groups_names: tuple[str, ...] = wire_field(Array(STRING))


@struct
class DeletableGroupResult(Struct):
    """The result for one group."""

    group_id: str = wire_field(STRING)
    error_code: int = wire_field(INT16)
    error_message: str | None = wire_field(STRING, since=3, nullable=3, default=None)


@response(key=42, versions=(0, 3), flexible=2)
class DeleteGroupsResponse(Struct):
    """One result per group."""

    throttle_time_ms: int = wire_field(INT32)
    results: tuple[DeletableGroupResult, ...] = wire_field(Array(DeletableGroupResult))
