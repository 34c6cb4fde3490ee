"""What happened to a group, as told to the copy of the coordinator.

Owns: the shapes. Past tense, immutable. An event stands for something the broker has done, seen by
its reply; `JoinSent` and `JoinAbandoned` alone tell of something under way, and change no state:
they hold a place in the count. Must not know: where events come from, nor what they do.

Times are seconds since the epoch. `seen_at` of a member is when its request went to the
broker: the broker's own timer starts no earlier.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from group_sidecar.coordinator.views import CommittedOffset, GroupState, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to one group."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """What a JoinGroup request says of its member. Timeouts in milliseconds.

    `parks`: whether the broker will make a member of it at once, rather than first hand out an id (KIP-394).
    """

    token: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    parks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSent(Event):
    """A join went to the broker and has not been answered."""

    joining: Joining


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAbandoned(Event):
    """The reply to a join will not come: its connection is gone."""

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRejected(Event):
    """The broker refused a join."""

    joining: Joining
    error_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdIssued(Event):
    """The broker gave out a member id and wants the join again with it (KIP-394)."""

    joining: Joining
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAccepted(Event):
    """The member is in this generation. `roster`: (id, instance id, metadata) of all; in the leader's reply only."""

    joining: Joining
    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    roster: tuple[tuple[str, str | None, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced(Event):
    """The member got its assignment. `assignments` by member id: what the leader sent; None from a follower."""

    member_id: str
    generation: int
    assignment: bytes
    assignments: Mapping[str, bytes] | None
    seen_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen(Event):
    """The broker took a heartbeat or commit as one of this member and generation.

    `steady`: whether that says that no rebalance is being prepared. A heartbeat does; a commit does not.
    """

    member_id: str
    instance_id: str | None
    generation: int
    client_id: str
    client_host: str
    seen_at: float
    steady: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceSeen(Event):
    """The broker said REBALANCE_IN_PROGRESS to a member."""

    member_id: str
    seen_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberUnknown(Event):
    """The broker said that it does not know this member, or that its instance id belongs to another."""

    member_id: str
    fenced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersLeft(Event):
    """Members left, as (member id, instance id); the id is empty where an admin named the instance only.

    `removed`: the sidecar removed them, for a policy.
    """

    members: tuple[tuple[str, str | None], ...]
    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsStored(Event):
    """The broker accepted offsets. `refused` counts partitions by error code; `unnamed` those of unknown topic ids."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    refused: tuple[tuple[int, int], ...] = ()
    unnamed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsPending(Event):
    """The broker accepted offsets as part of a transaction that has not ended."""

    producer_id: int
    offsets: Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDeleted(Event):
    """The broker forgot the offsets of these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsLearned(Event):
    """The broker told a client offsets. `whole`: all that the group has. `as_of`: their `changes` when it was asked."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    absent: tuple[TopicPartition, ...]
    whole: bool
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted(Event):
    """The broker deleted the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member as DescribeGroups tells of it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescribed(Event):
    """The broker described the group to a client. `as_of`: the group's `changes` when it was asked."""

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberSeen(Event):
    """The broker took a KIP-848 heartbeat; `epoch` below 0 says that the member left."""

    member_id: str
    instance_id: str | None
    epoch: int
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorMoved(Event):
    """The broker said NOT_COORDINATOR: the group is another's now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """The transaction coordinator ended a producer's transaction. Of no group: of all with offsets pending by it."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEndsSeen:
    """A ListOffsets reply told the end of partitions."""

    ends: Mapping[TopicPartition, int]


AnyEvent = Event | TransactionEnded | LogEndsSeen
