"""GroupMetadata (10), v1: the draft of KIP-40, which no Kafka release implements.

Version 1 of the draft adds descriptions of groups to ConsumerMetadata, which Kafka later called FindCoordinator. v0 is
the same as FindCoordinator v0. Released Kafka uses the same key and version for another FindCoordinator (KIP-98). These
messages are therefore not in the table of APIs, and the caller must know which of the two messages the bytes contain.
Unless a name is unusual, the bytes of one message cannot be decoded as the other message.

The draft does not number the states of a group. Here the states are numbered from 0 in the draft's order.
"""

from enum import IntEnum

from group_sidecar.codecs.primitives import BYTES, INT8, INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field

KIP40_VERSION = 1


class Kip40State(IntEnum):
    """States of a group, in the order of the draft."""

    DEAD = 0
    """The group has no active members. All other fields are empty."""
    INITIALIZING = 1
    """The group is being loaded. All other fields are empty."""
    REBALANCING = 2
    """Generation, protocol type and protocol belong to the previous generation. Members are not listed."""
    STABLE = 3


@request(key=10, versions=(1, 1))
class GroupMetadataRequest(Struct):
    """Asks for the named groups, and for all groups of the broker if `include_all_groups` is not 0.

    If `include_member_metadata` is 0, the reply contains no members.
    """

    include_all_groups: int = wire_field(INT8)
    include_member_metadata: int = wire_field(INT8)
    groups: tuple[str, ...] = wire_field(Array(STRING))


@struct
class Kip40Coordinator(Struct):
    """The broker that coordinates a group. The draft does not define an unknown coordinator; -1 and "" are used."""

    id: int = wire_field(INT32, default=-1)
    host: str = wire_field(STRING, default="")
    port: int = wire_field(INT32, default=-1)


@struct
class Kip40GroupMetadata(Struct):
    """The state of a group. `state`: a Kip40State. Empty values are a generation of -1 and empty strings."""

    state: int = wire_field(INT8, default=0)
    protocol_type: str = wire_field(STRING, default="")
    generation: int = wire_field(INT32, default=-1)
    protocol: str = wire_field(STRING, default="")


@struct
class Kip40Member(Struct):
    """A member of the generation. One place of the draft calls `member_host` MemberIpAddress."""

    member_id: str = wire_field(STRING)
    member_host: str = wire_field(STRING)
    client_id: str = wire_field(STRING)
    member_metadata: bytes = wire_field(BYTES)
    member_assignment: bytes = wire_field(BYTES)


@struct
class Kip40MemberMetadata(Struct):
    """The members of a group, and their leader."""

    leader: str = wire_field(STRING, default="")
    members: tuple[Kip40Member, ...] = wire_field(Array(Kip40Member), default=())


@struct
class Kip40Group(Struct):
    """A group, or the reason why it is not described."""

    error_code: int = wire_field(INT16)
    group_id: str = wire_field(STRING)
    coordinator: Kip40Coordinator = wire_field(Kip40Coordinator, default=Kip40Coordinator())
    group_metadata: Kip40GroupMetadata = wire_field(Kip40GroupMetadata, default=Kip40GroupMetadata())
    member_metadata: Kip40MemberMetadata = wire_field(Kip40MemberMetadata, default=Kip40MemberMetadata())


@response(key=10, versions=(1, 1))
class GroupMetadataResponse(Struct):
    """The requested groups, each once."""

    groups: tuple[Kip40Group, ...] = wire_field(Array(Kip40Group))
