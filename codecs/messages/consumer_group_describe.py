"""ConsumerGroupDescribe (69), v0-1, flexible from the start (KIP-848).

v1 member type: classic or consumer (KIP-1099).
"""

from uuid import UUID

from group_sidecar.codecs.primitives import BOOLEAN, INT8, INT16, INT32, STRING, UUID_
from group_sidecar.codecs.schema import Array, Struct, request, response, struct, wire_field


@request(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest(Struct):
    """Asks for the state and members of consumer groups. For a classic group the error is GROUP_ID_NOT_FOUND."""

    group_ids: tuple[str, ...] = wire_field(Array(STRING))
    include_authorized_operations: bool = wire_field(BOOLEAN)


@struct
class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = wire_field(UUID_)
    topic_name: str = wire_field(STRING)
    partitions: tuple[int, ...] = wire_field(Array(INT32))


@struct
class Assignment(Struct):
    """The partitions of a member, current or target."""

    topic_partitions: tuple[TopicPartitions, ...] = wire_field(Array(TopicPartitions))


@struct
class Member(Struct):
    """A member. Member types: -1 unknown, 0 classic, 1 consumer."""

    member_id: str = wire_field(STRING)
    instance_id: str | None = wire_field(STRING, nullable=0, default=None)
    rack_id: str | None = wire_field(STRING, nullable=0, default=None)
    member_epoch: int = wire_field(INT32)
    client_id: str = wire_field(STRING)
    client_host: str = wire_field(STRING)
    subscribed_topic_names: tuple[str, ...] = wire_field(Array(STRING))
    subscribed_topic_regex: str | None = wire_field(STRING, nullable=0, default=None)
    assignment: Assignment = wire_field(Assignment)
    target_assignment: Assignment = wire_field(Assignment)
    member_type: int = wire_field(INT8, since=1, default=-1)


@struct
class DescribedGroup(Struct):
    """A group, or the reason why it is not described. `authorized_operations` is a bit field."""

    error_code: int = wire_field(INT16)
    error_message: str | None = wire_field(STRING, nullable=0, default=None)
    group_id: str = wire_field(STRING)
    group_state: str = wire_field(STRING)
    group_epoch: int = wire_field(INT32)
    assignment_epoch: int = wire_field(INT32)
    assignor_name: str = wire_field(STRING)
    members: tuple[Member, ...] = wire_field(Array(Member))
    authorized_operations: int = wire_field(INT32, default=-2147483648)


@response(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse(Struct):
    """The requested groups."""

    throttle_time_ms: int = wire_field(INT32)
    groups: tuple[DescribedGroup, ...] = wire_field(Array(DescribedGroup))
