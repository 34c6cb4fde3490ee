"""ConsumerGroupHeartbeat (68), v0-1, flexible from the start (KIP-848).

v1 subscription by regular expression; the client makes its own member id (KIP-1082).
"""

from uuid import UUID

from group_sidecar.codecs.primitives import INT16, INT32, STRING, UUID_
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct


@struct
class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = f(UUID_)
    partitions: tuple[int, ...] = f(Array(INT32))


@request(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest(Struct):
    """A member joins (epoch 0), stays, leaves (-1) or leaves for a restart (-2). Null means unchanged."""

    group_id: str = f(STRING)
    member_id: str = f(STRING)
    member_epoch: int = f(INT32)
    instance_id: str | None = f(STRING, nullable=0, default=None)
    rack_id: str | None = f(STRING, nullable=0, default=None)
    rebalance_timeout_ms: int = f(INT32, default=-1)
    subscribed_topic_names: tuple[str, ...] | None = f(Array(STRING), nullable=0, default=None)
    subscribed_topic_regex: str | None = f(STRING, since=1, nullable=1, default=None)
    server_assignor: str | None = f(STRING, nullable=0, default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = f(Array(TopicPartitions), nullable=0, default=None)


@struct
class Assignment(Struct):
    """What the member shall own."""

    topic_partitions: tuple[TopicPartitions, ...] = f(Array(TopicPartitions))


@response(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse(Struct):
    """The member's epoch, and its assignment where that changed."""

    throttle_time_ms: int = f(INT32)
    error_code: int = f(INT16)
    error_message: str | None = f(STRING, nullable=0, default=None)
    member_id: str | None = f(STRING, nullable=0, default=None)
    member_epoch: int = f(INT32)
    heartbeat_interval_ms: int = f(INT32)
    assignment: Assignment | None = f(Assignment, nullable=0, default=None)
