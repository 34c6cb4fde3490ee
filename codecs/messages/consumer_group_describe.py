"""ConsumerGroupDescribe (69), v0-1, flexible from the start (KIP-848).

v1 member type: classic or consumer (KIP-1099).
"""

from uuid import UUID

from group_sidecar.codecs.primitives import BOOLEAN, INT8, INT16, INT32, STRING, UUID_
from group_sidecar.codecs.schema import Array, Struct, f, request, response, struct


@request(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest(Struct):
    """Asks for the state and members of new-protocol groups; a classic group is GROUP_ID_NOT_FOUND."""

    group_ids: tuple[str, ...] = f(Array(STRING))
    include_authorized_operations: bool = f(BOOLEAN)


@struct
class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = f(UUID_)
    topic_name: str = f(STRING)
    partitions: tuple[int, ...] = f(Array(INT32))


@struct
class Assignment(Struct):
    """What a member owns, or shall own."""

    topic_partitions: tuple[TopicPartitions, ...] = f(Array(TopicPartitions))


@struct
class Member(Struct):
    """A member. Member types: -1 unknown, 0 classic, 1 consumer."""

    member_id: str = f(STRING)
    instance_id: str | None = f(STRING, nullable=0, default=None)
    rack_id: str | None = f(STRING, nullable=0, default=None)
    member_epoch: int = f(INT32)
    client_id: str = f(STRING)
    client_host: str = f(STRING)
    subscribed_topic_names: tuple[str, ...] = f(Array(STRING))
    subscribed_topic_regex: str | None = f(STRING, nullable=0, default=None)
    assignment: Assignment = f(Assignment)
    target_assignment: Assignment = f(Assignment)
    member_type: int = f(INT8, since=1, default=-1)


@struct
class DescribedGroup(Struct):
    """A group, or the error why it is not told. `authorized_operations` is a bit field."""

    error_code: int = f(INT16)
    error_message: str | None = f(STRING, nullable=0, default=None)
    group_id: str = f(STRING)
    group_state: str = f(STRING)
    group_epoch: int = f(INT32)
    assignment_epoch: int = f(INT32)
    assignor_name: str = f(STRING)
    members: tuple[Member, ...] = f(Array(Member))
    authorized_operations: int = f(INT32, default=-2147483648)


@response(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse(Struct):
    """The groups asked for."""

    throttle_time_ms: int = f(INT32)
    groups: tuple[DescribedGroup, ...] = f(Array(DescribedGroup))
