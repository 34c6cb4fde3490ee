"""GroupMetadata (10), v1: the draft of KIP-40, which no Kafka release speaks.

The draft makes version 1 of what was called ConsumerMetadata, and later FindCoordinator, tell groups too; v0 is
FindCoordinator's. Released Kafka gave the same key and version to another FindCoordinator (KIP-98), so these messages
are not in the table of APIs: who wants them must know that they are meant. The bytes do not tell: but for odd names,
what is one of the two cannot be decoded as the other.

The draft names a group's states and does not number them. Here they have the numbers in which it lists them, from 0.
"""

from enum import IntEnum

from group_sidecar.codecs.primitives import BYTES, INT8, INT16, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct

DRAFT_VERSION = 1


class DraftState(IntEnum):
    """States of a group, in the order of the draft."""

    DEAD = 0
    """It has no active members; all else is empty."""
    INITIALIZING = 1
    """It is being loaded; all else is empty."""
    REBALANCING = 2
    """Generation, protocol type and protocol are those of the prior generation; no members are told."""
    STABLE = 3


@request(key=10, versions=(1, 1))
class GroupMetadataRequest(Struct):
    """Asks for groups: all that the broker coordinates if the first flag is not 0, and those named.

    Without the second flag no members are told.
    """

    include_all_groups: int = f(INT8)
    include_member_metadata: int = f(INT8)
    groups: tuple[str, ...] = f(Array(STRING))


@struct
class DraftCoordinator(Struct):
    """The broker that coordinates a group. The draft has no word for none: here it is as in FindCoordinator."""

    id: int = f(INT32, default=-1)
    host: str = f(STRING, default="")
    port: int = f(INT32, default=-1)


@struct
class DraftGroupMetadata(Struct):
    """What a group is doing. `state`: a DraftState. Empty are a generation of -1 and strings without characters."""

    state: int = f(INT8, default=0)
    protocol_type: str = f(STRING, default="")
    generation: int = f(INT32, default=-1)
    protocol: str = f(STRING, default="")


@struct
class DraftMember(Struct):
    """A member of the generation. `member_host`: MemberIpAddress in one place of the draft."""

    member_id: str = f(STRING)
    member_host: str = f(STRING)
    client_id: str = f(STRING)
    member_metadata: bytes = f(BYTES)
    member_assignment: bytes = f(BYTES)


@struct
class DraftMemberMetadata(Struct):
    """Who is in a group, and who of them assigns."""

    leader: str = f(STRING, default="")
    members: tuple[DraftMember, ...] = f(Array(DraftMember), default=())


@struct
class DraftGroup(Struct):
    """A group, or the error why it is not told."""

    error_code: int = f(INT16)
    group_id: str = f(STRING)
    coordinator: DraftCoordinator = f(DraftCoordinator, default=DraftCoordinator())
    group_metadata: DraftGroupMetadata = f(DraftGroupMetadata, default=DraftGroupMetadata())
    member_metadata: DraftMemberMetadata = f(DraftMemberMetadata, default=DraftMemberMetadata())


@response(key=10, versions=(1, 1))
class GroupMetadataResponse(Struct):
    """The groups, each once."""

    groups: tuple[DraftGroup, ...] = f(Array(DraftGroup))
