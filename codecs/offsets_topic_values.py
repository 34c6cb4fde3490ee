"""Declares the values in the offsets topic: offsets, classic groups, and groups of the new consumer protocol.

The declarations follow the JSON schemas inside Kafka's group-coordinator jar.

Offset commit: v1 adds the expiry (written if the client sent a retention time), v2 removes the expiry, v3 adds the
leader epoch (KIP-320), v4 is flexible and adds the topic id. Group metadata: v1 adds the rebalance timeout, v2 the time
of the last state change (KIP-211), v3 static members (KIP-345), v4 is flexible (KIP-915). The values of the consumer
protocol (KIP-848) have one version and grow by tagged fields. The values of share and streams groups are not declared,
because their keys contain all that this project needs.
"""

from typing import ClassVar
from uuid import UUID

from group_sidecar.codecs.primitives import BYTES, INT8, INT32, INT64, STRING, UUID_, ZERO_UUID
from group_sidecar.codecs.schema import Array, Struct, decode_start, struct, wire_field

CLASSIC_MEMBER_METADATA_TAG = 0
"""The tag of `ConsumerGroupMemberMetadataValue` that `classic_metadata` reads."""


@struct
class OffsetCommitValue(Struct):
    """A committed offset. Timestamps are in milliseconds. `expire_timestamp`: -1 if the broker's retention applies."""

    VERSIONS: ClassVar[range] = range(0, 5)
    FLEXIBLE: ClassVar[int] = 4

    offset: int = wire_field(INT64)
    leader_epoch: int = wire_field(INT32, since=3, default=-1)
    metadata: str = wire_field(STRING)
    commit_timestamp: int = wire_field(INT64)
    expire_timestamp: int = wire_field(INT64, since=1, until=1, default=-1)
    topic_id: UUID = wire_field(UUID_, since=4, tag=0, default=ZERO_UUID)


@struct
class MemberMetadata(Struct):
    """A member of a classic group. `subscription` is in the group's protocol. Timeouts are in milliseconds."""

    member_id: str = wire_field(STRING)
    group_instance_id: str | None = wire_field(STRING, since=3, nullable=3, default=None)
    client_id: str = wire_field(STRING)
    client_host: str = wire_field(STRING)
    rebalance_timeout: int = wire_field(INT32, since=1, default=-1)
    session_timeout: int = wire_field(INT32)
    subscription: bytes = wire_field(BYTES)
    assignment: bytes = wire_field(BYTES)


@struct
class GroupMetadataValue(Struct):
    """A classic group after a generation is complete or after the group has become empty."""

    VERSIONS: ClassVar[range] = range(0, 5)
    FLEXIBLE: ClassVar[int] = 4

    protocol_type: str = wire_field(STRING)
    generation: int = wire_field(INT32)
    protocol: str | None = wire_field(STRING, nullable=0)
    leader: str | None = wire_field(STRING, nullable=0)
    current_state_timestamp: int = wire_field(INT64, since=2, default=-1)
    members: tuple[MemberMetadata, ...] = wire_field(Array(MemberMetadata))


@struct
class ConsumerGroupMetadataValue(Struct):
    """The epoch of a group, and a hash of the topics that the epoch was computed for (KIP-1101)."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    epoch: int = wire_field(INT32)
    metadata_hash: int = wire_field(INT64, tag=0, default=0)


@struct
class PartitionMetadata(Struct):
    """The racks of one partition."""

    partition: int = wire_field(INT32)
    racks: tuple[str, ...] = wire_field(Array(STRING))


@struct
class TopicMetadata(Struct):
    """A topic that a group is subscribed to."""

    topic_id: UUID = wire_field(UUID_)
    topic_name: str = wire_field(STRING)
    num_partitions: int = wire_field(INT32)
    partition_metadata: tuple[PartitionMetadata, ...] = wire_field(Array(PartitionMetadata))


@struct
class ConsumerGroupPartitionMetadataValue(Struct):
    """The topics that a group is subscribed to, as brokers before 4.1 wrote them."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    topics: tuple[TopicMetadata, ...] = wire_field(Array(TopicMetadata))


@struct
class ClassicProtocol(Struct):
    """A protocol that a classic member supports."""

    name: str = wire_field(STRING)
    metadata: bytes = wire_field(BYTES)


@struct
class ClassicMemberMetadata(Struct):
    """The JoinGroup contents of a member of a consumer group that uses the classic protocol."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    session_timeout_ms: int = wire_field(INT32)
    supported_protocols: tuple[ClassicProtocol, ...] = wire_field(Array(ClassicProtocol))


@struct
class ConsumerGroupMemberMetadataValue(Struct):
    """A member's identity and subscription. Tag 0 stays in `unknown_tags`, where `classic_metadata` reads it."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    instance_id: str | None = wire_field(STRING, nullable=0)
    rack_id: str | None = wire_field(STRING, nullable=0)
    client_id: str = wire_field(STRING)
    client_host: str = wire_field(STRING)
    subscribed_topic_names: tuple[str, ...] = wire_field(Array(STRING))
    subscribed_topic_regex: str | None = wire_field(STRING, nullable=0)
    rebalance_timeout_ms: int = wire_field(INT32, default=-1)
    server_assignor: str | None = wire_field(STRING, nullable=0)


def classic_metadata(member: ConsumerGroupMemberMetadataValue) -> ClassicMemberMetadata | None:
    """Returns the JoinGroup contents of a classic member, or None for a member of the consumer protocol.

    A member without the tag is a classic member, because the tag's default in Kafka's generated class is an empty
    struct, not null. In the tag, a varint precedes the struct: 0 for null, 1 otherwise. Raises DecodeError if the tag
    is damaged.
    """
    raw = dict(member.unknown_tags).get(CLASSIC_MEMBER_METADATA_TAG)
    if raw is None:
        return ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=())
    return None if raw[:1] == b"\0" else decode_start(ClassicMemberMetadata, 0, raw[1:])[0]


@struct
class ConsumerGroupTargetAssignmentMetadataValue(Struct):
    """The group epoch of the target assignment, and when it was computed, in milliseconds (KIP-1263)."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    assignment_epoch: int = wire_field(INT32)
    assignment_timestamp: int = wire_field(INT64, tag=0, default=0)


@struct
class TopicPartition(Struct):
    """Partitions of one topic in a member's target assignment."""

    topic_id: UUID = wire_field(UUID_)
    partitions: tuple[int, ...] = wire_field(Array(INT32))


@struct
class ConsumerGroupTargetAssignmentMemberValue(Struct):
    """The target assignment of a member."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    topic_partitions: tuple[TopicPartition, ...] = wire_field(Array(TopicPartition))


@struct
class TopicPartitions(Struct):
    """Partitions of one topic that a member owns. `assignment_epochs`: the epoch of each assignment, if known."""

    topic_id: UUID = wire_field(UUID_)
    partitions: tuple[int, ...] = wire_field(Array(INT32))
    assignment_epochs: tuple[int, ...] | None = wire_field(Array(INT32), nullable=0, tag=0, default=())


@struct
class ConsumerGroupCurrentMemberAssignmentValue(Struct):
    """A member's progress towards its target assignment. `state` is a number of Kafka's enum ``MemberState``."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    member_epoch: int = wire_field(INT32)
    previous_member_epoch: int = wire_field(INT32)
    state: int = wire_field(INT8)
    assigned_partitions: tuple[TopicPartitions, ...] = wire_field(Array(TopicPartitions))
    partitions_pending_revocation: tuple[TopicPartitions, ...] = wire_field(Array(TopicPartitions))


@struct
class ConsumerGroupRegularExpressionValue(Struct):
    """The topics that match a regular expression, and the cluster metadata's version and the time (ms) of the match."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    topics: tuple[str, ...] = wire_field(Array(STRING))
    version: int = wire_field(INT64)
    timestamp: int = wire_field(INT64)
