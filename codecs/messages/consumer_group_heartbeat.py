"""ConsumerGroupHeartbeat (68), v0-1, flexible from the start (KIP-848).

v1 subscription by regular expression; the client makes its own member id (KIP-1082).
"""

from uuid import UUID

from group_sidecar.codecs.primitives import INT16, INT32, STRING, UUID_
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@struct
class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = wire_field(UUID_)
    partitions: tuple[int, ...] = wire_field(Array(INT32))


@request(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest(Struct):
    """A member joins (`member_epoch` 0), stays, or leaves (-1). A static member leaves with -2 if it will restart.

    A null field has not changed since the member's previous heartbeat.
    """

    group_id: str = wire_field(STRING)
    member_id: str = wire_field(STRING)
    member_epoch: int = wire_field(INT32)
    instance_id: str | None = wire_field(STRING, nullable=0, default=None)
    rack_id: str | None = wire_field(STRING, nullable=0, default=None)
    rebalance_timeout_ms: int = wire_field(INT32, default=-1)
    subscribed_topic_names: tuple[str, ...] | None = wire_field(Array(STRING), nullable=0, default=None)
    subscribed_topic_regex: str | None = wire_field(STRING, since=1, nullable=1, default=None)
    server_assignor: str | None = wire_field(STRING, nullable=0, default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = wire_field(Array(TopicPartitions), nullable=0, default=None)


@struct
class Assignment(Struct):
    """The partitions that the member may use now. The member's target assignment may differ."""

    topic_partitions: tuple[TopicPartitions, ...] = wire_field(Array(TopicPartitions))


@response(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse(Struct):
    """The member's epoch, and its assignment if the assignment changed."""

    throttle_time_ms: int = wire_field(INT32)
    error_code: int = wire_field(INT16)
    error_message: str | None = wire_field(STRING, nullable=0, default=None)
    member_id: str | None = wire_field(STRING, nullable=0, default=None)
    member_epoch: int = wire_field(INT32)
    heartbeat_interval_ms: int = wire_field(INT32)
    assignment: Assignment | None = wire_field(Assignment, nullable=0, default=None)
