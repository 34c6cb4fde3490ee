"""ListGroups (16), v0-5.

v1 throttle time; v2 replies before throttling (KIP-219); v3 flexible (KIP-482); v4 states (KIP-518); v5 types
(KIP-848).

A list is long and its groups seldom change: `encode_group` and `encode_list` write one from parts that are kept.
"""

from collections.abc import Iterable

from group_sidecar.codecs.primitives import INT16, INT32, STRING, compact_text, text, uvarint
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


THROTTLED_SINCE, STATES_SINCE, TYPES_SINCE = 1, 4, 5
_FLEXIBLE = ListGroupsResponse.FLEXIBLE


def form(version: int) -> int:
    """The first version in which a group is written as in this one."""
    return version if version >= _FLEXIBLE else 0


def encode_group(group: ListedGroup, version: int) -> bytes:
    """One group as a list has it. Raises ValueError where a value does not fit its field."""
    if version < _FLEXIBLE:
        return text(group.group_id) + text(group.protocol_type)
    parts = [compact_text(group.group_id), compact_text(group.protocol_type)]
    if version >= STATES_SINCE:
        parts.append(compact_text(group.group_state))
    if version >= TYPES_SINCE:
        parts.append(compact_text(group.group_type))
    return b"".join((*parts, b"\0"))


def encode_list(count: int, groups: Iterable[bytes], version: int) -> bytes:
    """The body of a reply without error, of so many groups as they are encoded in this version, some in each part."""
    head = (b"\0\0\0\0" if version >= THROTTLED_SINCE else b"") + b"\0\0"
    if version < _FLEXIBLE:
        return b"".join((head, count.to_bytes(4, "big"), *groups))
    return b"".join((head, uvarint(count + 1), *groups, b"\0"))
