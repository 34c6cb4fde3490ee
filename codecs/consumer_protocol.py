"""Subscriptions and assignments that consumers of a classic group exchange inside JoinGroup and SyncGroup, v0-3.

v1 adds owned partitions (KIP-429), v2 the generation of the owned partitions (KIP-792), v3 the rack (KIP-881). The
assignment is the same in all versions.

The bytes begin with their own version number. Clients and brokers do not negotiate this version. A version above the
last known version is read as the last known version. Bytes after the known fields are ignored. Kafka's class
``ConsumerProtocol`` does both as well.
"""

from typing import ClassVar, TypeVar

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.primitives import BYTES, INT32, STRING
from group_sidecar.codecs.schema import Array, Struct, decode_start, struct, wire_field

CONSUMER = "consumer"
"""The protocol type of groups whose members use this format."""

M = TypeVar("M", bound=Struct)


@struct
class TopicPartition(Struct):
    """Partitions of one topic."""

    topic: str = wire_field(STRING)
    partitions: tuple[int, ...] = wire_field(Array(INT32))


@struct
class ConsumerProtocolSubscription(Struct):
    """A member's subscription, which is the metadata in its JoinGroup.

    `generation_id` is the generation in which the member got its `owned_partitions`.
    """

    VERSIONS: ClassVar[range] = range(0, 4)

    topics: tuple[str, ...] = wire_field(Array(STRING))
    user_data: bytes | None = wire_field(BYTES, nullable=0, default=None)
    owned_partitions: tuple[TopicPartition, ...] = wire_field(Array(TopicPartition), since=1, default=())
    generation_id: int = wire_field(INT32, since=2, default=-1)
    rack_id: str | None = wire_field(STRING, since=3, nullable=3, default=None)


@struct
class ConsumerProtocolAssignment(Struct):
    """The partitions that the leader assigned to a member: the assignment in SyncGroup."""

    VERSIONS: ClassVar[range] = range(0, 4)

    assigned_partitions: tuple[TopicPartition, ...] = wire_field(Array(TopicPartition))
    user_data: bytes | None = wire_field(BYTES, nullable=0, default=None)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decodes a member's subscription. Raises DecodeError if the bytes are not a subscription."""
    return _decode(ConsumerProtocolSubscription, data)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decodes a member's assignment. Raises DecodeError if the bytes are empty or not an assignment."""
    return _decode(ConsumerProtocolAssignment, data)


def partitions_in_assignment(assignment: bytes) -> frozenset[tuple[str, int]]:
    """Returns the (topic, partition) pairs of an assignment. Empty bytes are an assignment without partitions.

    Raises:
        DecodeError: the bytes are not an assignment.
    """
    if not assignment:
        return frozenset()
    topics = decode_assignment(assignment).assigned_partitions
    return frozenset((entry.topic, partition) for entry in topics for partition in entry.partitions)


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
