"""What consumers of a classic group say to each other inside JoinGroup and SyncGroup, v0-3.

v1 owned partitions (KIP-429); v2 generation of the owned partitions (KIP-792); v3 rack (KIP-881). Assignments have
changed in none of them.

The bytes begin with their own version, which no broker negotiates. As Kafka's class ``ConsumerProtocol`` does, a
version above the last known one is read as that one, and what follows the known fields is left unread.
"""

from typing import ClassVar, TypeVar

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.primitives import BYTES, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, decode_start, f, struct

CONSUMER = "consumer"
"""The protocol type of groups whose members speak this."""

M = TypeVar("M", bound=Struct)


@struct
class TopicPartition(Struct):
    """Partitions of one topic."""

    topic: str = f(STRING)
    partitions: tuple[int, ...] = f(Array(INT32))


@struct
class ConsumerProtocolSubscription(Struct):
    """What a member wants: the metadata of its JoinGroup. `generation_id` is that of `owned_partitions`."""

    VERSIONS: ClassVar[range] = range(0, 4)

    topics: tuple[str, ...] = f(Array(STRING))
    user_data: bytes | None = f(BYTES, nullable=0, default=None)
    owned_partitions: tuple[TopicPartition, ...] = f(Array(TopicPartition), since=1, default=())
    generation_id: int = f(INT32, since=2, default=-1)
    rack_id: str | None = f(STRING, since=3, nullable=3, default=None)


@struct
class ConsumerProtocolAssignment(Struct):
    """What the leader gave a member: the assignment of its SyncGroup."""

    VERSIONS: ClassVar[range] = range(0, 4)

    assigned_partitions: tuple[TopicPartition, ...] = f(Array(TopicPartition))
    user_data: bytes | None = f(BYTES, nullable=0, default=None)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decodes a member's subscription. Raises DecodeError where the bytes are not one."""
    return _decode(ConsumerProtocolSubscription, data)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decodes a member's assignment. Raises DecodeError where the bytes are not one; empty bytes are none."""
    return _decode(ConsumerProtocolAssignment, data)


def assigned_to(assignment: bytes) -> frozenset[tuple[str, int]]:
    """The partitions, as (topic, partition), that an assignment names: none where the bytes are empty.

    Raises:
        DecodeError: the bytes are no assignment.
    """
    if not assignment:
        return frozenset()
    topics = decode_assignment(assignment).assigned_partitions
    return frozenset((of.topic, partition) for of in topics for partition in of.partitions)


def _decode(cls: type[M], data: bytes) -> M:
    what = cls.NAME
    if len(data) < 2:
        raise DecodeError(what, "", f"2 bytes announced, {len(data)} left")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise DecodeError(what, "version", f"{version} is negative")
    try:
        return decode_start(cls, min(version, cls.VERSIONS[-1]), data[2:])[0]
    except DecodeError as error:
        raise DecodeError(f"{what} v{version}", error.path, error.reason) from error
