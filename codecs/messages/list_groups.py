"""ListGroups (16), v0-5.

v1 throttle time; v2 throttling after the reply (KIP-219); v3 flexible (KIP-482); v4 states (KIP-518); v5 types
(KIP-848).

A list is long and its groups seldom change. `encode_group` and `encode_list` build a reply from cached parts.
"""

from collections.abc import Iterable

from group_sidecar.codecs.primitives import INT16, INT32, STRING, encode_compact_string, encode_string, uvarint
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@request(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest(Struct):
    """Asks for the groups that this broker coordinates. An empty filter matches all groups."""

    states_filter: tuple[str, ...] = wire_field(Array(STRING), since=4, default=())
    types_filter: tuple[str, ...] = wire_field(Array(STRING), since=5, default=())


@struct
class ListedGroup(Struct):
    """One group. The protocol type is empty for a group that only commits offsets."""

    group_id: str = wire_field(STRING)
    protocol_type: str = wire_field(STRING)
    group_state: str = wire_field(STRING, since=4, default="")
    group_type: str = wire_field(STRING, since=5, default="")


@response(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse(Struct):
    """The groups of this broker."""

    throttle_time_ms: int = wire_field(INT32, since=1, default=0)
    error_code: int = wire_field(INT16)
    groups: tuple[ListedGroup, ...] = wire_field(Array(ListedGroup))


THROTTLED_SINCE, STATES_SINCE, TYPES_SINCE = 1, 4, 5
_FLEXIBLE = ListGroupsResponse.FLEXIBLE


def form(version: int) -> int:
    """Returns the first version with the same encoding of a group as `version`."""
    return version if version >= _FLEXIBLE else 0


def encode_group(group: ListedGroup, version: int) -> bytes:
    """Returns the encoding of a group in a list. Raises ValueError if a value does not fit its field."""
    if version < _FLEXIBLE:
        return encode_string(group.group_id) + encode_string(group.protocol_type)
    parts = [encode_compact_string(group.group_id), encode_compact_string(group.protocol_type)]
    if version >= STATES_SINCE:
        parts.append(encode_compact_string(group.group_state))
    if version >= TYPES_SINCE:
        parts.append(encode_compact_string(group.group_type))
    return b"".join((*parts, b"\0"))


def encode_list(count: int, groups: Iterable[bytes], version: int) -> bytes:
    """Returns the body of a reply without error.

    `groups` contains the encodings of `count` groups. One item may contain the encodings of several groups.
    """
    head = (b"\0\0\0\0" if version >= THROTTLED_SINCE else b"") + b"\0\0"
    if version < _FLEXIBLE:
        return b"".join((head, count.to_bytes(4, "big"), *groups))
    return b"".join((head, uvarint(count + 1), *groups, b"\0"))
