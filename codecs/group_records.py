"""What the values in the offsets topic hold: offsets, classic groups, and groups of the new consumer protocol.

Owns: the declarations, which follow the JSON schemas inside Kafka's group-coordinator jar. Must not know: how key and
value stand in a record, nor what the coordinator makes of them.

Offset commit: v1 expiry (written where the client gave a retention), v2 without it again, v3 leader epoch (KIP-320),
v4 flexible, topic id. Group metadata: v1 rebalance timeout, v2 time of the last state change (KIP-211), v3 static
members (KIP-345), v4 flexible (KIP-915). The consumer protocol's (KIP-848) have one version and grow by tags.
The values of share and streams groups are not described: the keys that are there tell of them what is asked.
"""

from typing import ClassVar
from uuid import UUID

from group_sidecar.codecs.primitives import BYTES, INT8, INT32, INT64, STRING, UUID_, ZERO_UUID
from group_sidecar.codecs.schema import Array, Struct, decode_start, f, struct

CLASSIC_TAG = 0
"""The tag of `ConsumerGroupMemberMetadataValue` that `classic_metadata` reads."""


@struct
class OffsetCommitValue(Struct):
    """A committed offset. Timestamps in milliseconds; `expire_timestamp` -1 where the broker's retention decides."""

    VERSIONS: ClassVar[range] = range(0, 5)
    FLEXIBLE: ClassVar[int] = 4

    offset: int = f(INT64)
    leader_epoch: int = f(INT32, since=3, default=-1)
    metadata: str = f(STRING)
    commit_timestamp: int = f(INT64)
    expire_timestamp: int = f(INT64, since=1, until=1, default=-1)
    topic_id: UUID = f(UUID_, since=4, tag=0, default=ZERO_UUID)


@struct
class MemberMetadata(Struct):
    """A member of a classic group. Its `subscription` is of the group's protocol; timeouts in milliseconds."""

    member_id: str = f(STRING)
    group_instance_id: str | None = f(STRING, since=3, nullable=3, default=None)
    client_id: str = f(STRING)
    client_host: str = f(STRING)
    rebalance_timeout: int = f(INT32, since=1, default=-1)
    session_timeout: int = f(INT32)
    subscription: bytes = f(BYTES)
    assignment: bytes = f(BYTES)


@struct
class GroupMetadataValue(Struct):
    """A classic group whose generation is complete, or that has become empty."""

    VERSIONS: ClassVar[range] = range(0, 5)
    FLEXIBLE: ClassVar[int] = 4

    protocol_type: str = f(STRING)
    generation: int = f(INT32)
    protocol: str | None = f(STRING, nullable=0)
    leader: str | None = f(STRING, nullable=0)
    current_state_timestamp: int = f(INT64, since=2, default=-1)
    members: tuple[MemberMetadata, ...] = f(Array(MemberMetadata))


@struct
class ConsumerGroupMetadataValue(Struct):
    """The epoch of a group, and a hash of the topics it was computed for (KIP-1101)."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    epoch: int = f(INT32)
    metadata_hash: int = f(INT64, tag=0, default=0)


@struct
class PartitionMetadata(Struct):
    """The racks of one partition."""

    partition: int = f(INT32)
    racks: tuple[str, ...] = f(Array(STRING))


@struct
class TopicMetadata(Struct):
    """A topic that a group is subscribed to."""

    topic_id: UUID = f(UUID_)
    topic_name: str = f(STRING)
    num_partitions: int = f(INT32)
    partition_metadata: tuple[PartitionMetadata, ...] = f(Array(PartitionMetadata))


@struct
class ConsumerGroupPartitionMetadataValue(Struct):
    """The topics that a group is subscribed to, as brokers before 4.1 wrote them."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    topics: tuple[TopicMetadata, ...] = f(Array(TopicMetadata))


@struct
class ClassicProtocol(Struct):
    """A protocol that a classic member supports."""

    name: str = f(STRING)
    metadata: bytes = f(BYTES)


@struct
class ClassicMemberMetadata(Struct):
    """What a member of a consumer group that speaks the classic protocol has said in its JoinGroup."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    session_timeout_ms: int = f(INT32)
    supported_protocols: tuple[ClassicProtocol, ...] = f(Array(ClassicProtocol))


@struct
class ConsumerGroupMemberMetadataValue(Struct):
    """Who a member is and what it wants. Tag 0 is read by `classic_metadata` and kept in `unknown_tags`."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    instance_id: str | None = f(STRING, nullable=0)
    rack_id: str | None = f(STRING, nullable=0)
    client_id: str = f(STRING)
    client_host: str = f(STRING)
    subscribed_topic_names: tuple[str, ...] = f(Array(STRING))
    subscribed_topic_regex: str | None = f(STRING, nullable=0)
    rebalance_timeout_ms: int = f(INT32, default=-1)
    server_assignor: str | None = f(STRING, nullable=0)


def classic_metadata(member: ConsumerGroupMemberMetadataValue) -> ClassicMemberMetadata | None:
    """What a member of the classic protocol has said; None where it speaks the consumer protocol.

    Kafka's generated class has an empty struct as this tag's default, not null, and puts a varint before it, 0 for
    null and 1 otherwise: so without the tag a member is a classic one. Raises DecodeError where the tag is damaged.
    """
    raw = dict(member.unknown_tags).get(CLASSIC_TAG)
    if raw is None:
        return ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=())
    return None if raw[:1] == b"\0" else decode_start(ClassicMemberMetadata, 0, raw[1:])[0]


@struct
class ConsumerGroupTargetAssignmentMetadataValue(Struct):
    """The group epoch that the target assignment was computed for, and when, in milliseconds (KIP-1263)."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    assignment_epoch: int = f(INT32)
    assignment_timestamp: int = f(INT64, tag=0, default=0)


@struct
class TopicPartition(Struct):
    """Partitions of one topic that a member shall own."""

    topic_id: UUID = f(UUID_)
    partitions: tuple[int, ...] = f(Array(INT32))


@struct
class ConsumerGroupTargetAssignmentMemberValue(Struct):
    """What a member shall own."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    topic_partitions: tuple[TopicPartition, ...] = f(Array(TopicPartition))


@struct
class TopicPartitions(Struct):
    """Partitions of one topic that a member owns; `assignment_epochs` are those at which it came by each, if told."""

    topic_id: UUID = f(UUID_)
    partitions: tuple[int, ...] = f(Array(INT32))
    assignment_epochs: tuple[int, ...] | None = f(Array(INT32), nullable=0, tag=0, default=())


@struct
class ConsumerGroupCurrentMemberAssignmentValue(Struct):
    """How far a member has come. `state` is a number of Kafka's enum ``MemberState``."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    member_epoch: int = f(INT32)
    previous_member_epoch: int = f(INT32)
    state: int = f(INT8)
    assigned_partitions: tuple[TopicPartitions, ...] = f(Array(TopicPartitions))
    partitions_pending_revocation: tuple[TopicPartitions, ...] = f(Array(TopicPartitions))


@struct
class ConsumerGroupRegularExpressionValue(Struct):
    """The topics that a regular expression meant, by which version of the metadata, and when, in milliseconds."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int] = 0

    topics: tuple[str, ...] = f(Array(STRING))
    version: int = f(INT64)
    timestamp: int = f(INT64)
