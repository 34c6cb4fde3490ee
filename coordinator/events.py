"""What happened to a group, as told to the copy of the coordinator.

Owns: the shapes. Past tense, immutable. An event stands for something the broker has done, seen by
its reply. `JoinSent`, `LeaveSent`, `ReplyLost` and `OffsetsDoubted` alone tell of something that the broker may
have done: they change no state, but what is known of it. Must not know: where events come from, nor what they do.

Times are seconds since the epoch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from group_sidecar.codecs.instances import maker
from group_sidecar.coordinator.facts import Who
from group_sidecar.coordinator.views import CommittedOffset, GroupState, TopicPartition

NEVER, FOREVER = float("-inf"), float("inf")
LEAVING_EPOCH = -1
"""The member epoch of one that leaves a group of KIP-848; a static one that is restarting says -2 instead."""
LOST_SECONDS = 1.0
"""For so long a request whose connection is gone may still be on its way to the broker."""
NEW_MEMBER_SECONDS = 300.0
"""For so long a new member may wait for its first generation; then Kafka drops it, without a word to the others."""
CONFIRMED_SECONDS = 1.0
"""For so long the broker's word of who is in a group is good, where others may change it unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to one group. `sent_at`: when the request behind it went to the broker.

    Replies on one connection come in order, but those of different connections may overtake each other. What
    was sent before something else was seen may have happened before or after it.
    """

    group_id: str
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """What a JoinGroup request says of its member. Timeouts in milliseconds.

    `parks`: whether the broker will make a member of it at once, rather than first hand out an id (KIP-394).
    `said`: why it joins, in its own words (KIP-800).
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
    said: str = ""

    def who(self, member_id: str) -> Who:
        """The member that joins, with the id that it has or is given."""
        return Who(
            member_id=member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            instance_id=self.instance_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSent(Event):
    """A join went to the broker and has not been answered."""

    joining: Joining


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyLost(Event):
    """The reply to a request that may have changed the group will not come: its connection is gone.

    `token`: the request's. `creates`: whether it may have created the group, or may change one that is made yet.
    """

    token: str
    creates: bool


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
class SignOfLife(Event):
    """The broker took a request as one of this member and generation."""

    member_id: str
    instance_id: str | None
    generation: int
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen(SignOfLife):
    """A heartbeat or a commit. `steady`: whether it says that no rebalance is prepared, as a heartbeat does."""

    steady: bool


member_seen = maker(MemberSeen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced(SignOfLife):
    """The member got its assignment. `assignments` by member id: what it sent, which counts if it is the leader."""

    assignment: bytes
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceSeen(Event):
    """The broker said REBALANCE_IN_PROGRESS to a member of this generation. `alive`: to a heartbeat."""

    member_id: str
    generation: int
    alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberUnknown(Event):
    """The broker said that it does not know this member. `refused`: since the group is full by the broker's rule."""

    member_id: str
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving(Event):
    """Members leave, as (member id, instance id); the id is empty where an admin names the instance only.

    Attributes:
        said: why each of them leaves, in the client's words (KIP-800); none where it has no words for it.
        client_id, client_host: who asks for it; empty where that is not known.
    """

    members: tuple[tuple[str, str | None], ...]
    said: tuple[str, ...] = ()
    client_id: str = ""
    client_host: str = ""

    @property
    def each(self) -> Iterator[tuple[str, str | None, str]]:
        """Member id, instance id and reason."""
        for number, (member_id, instance_id) in enumerate(self.members):
            yield member_id, instance_id, self.said[number] if self.said else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveSent(Leaving):
    """A leave went to the broker, LeaveGroup or KIP-848's, and has not been answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersLeft(Leaving):
    """Members left. `removed`: the sidecar removed them, for a policy."""

    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsStored(Event):
    """The broker accepted offsets.

    Attributes:
        offsets: by partition.
        refused: the number of partitions by error code.
        unnamed: the number of accepted partitions whose topic id nobody has named yet.
        lasting: whether they stay as long as the broker's own settings say, not the client's (OffsetCommit v2-4).
    """

    offsets: Mapping[TopicPartition, CommittedOffset]
    refused: tuple[tuple[int, int], ...] = ()
    unnamed: int = 0
    lasting: bool = True


offsets_stored = maker(OffsetsStored)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsPending(Event):
    """The broker accepted offsets as part of a transaction that has not ended, or may have: then they are none."""

    producer_id: int
    offsets: Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDeleted(Event):
    """The broker forgot the offsets of these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDoubted(Event):
    """Whether the broker stored or forgot offsets will not be known. `partitions`: which; None where not even that is.

    `creates`: whether it may have created the group.
    """

    partitions: tuple[TopicPartition, ...] | None
    creates: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsLearned(Event):
    """The broker told a client offsets. `whole`: all that the group has. `as_of`: their `changes` when it was asked."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    absent: tuple[TopicPartition, ...]
    whole: bool
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted(Event):
    """The broker deleted the group, or had none.

    `existed`: whether the broker deleted it, and so may have written tombstones.
    """

    existed: bool = True


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
class GroupsListed:
    """The broker listed all its groups to a client. `as_of`: the manager's `notings` when it was asked."""

    groups: frozenset[str]
    sent_at: float
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberSeen(Event):
    """The broker took a KIP-848 heartbeat; `epoch` below 0 says that the member left.

    `changes`: whether the broker may have written something down for it. `joins`: whether it was not in before.
    """

    member_id: str
    instance_id: str | None
    epoch: int
    client_id: str
    client_host: str
    changes: bool = True
    joins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerJoinSent(Event):
    """A KIP-848 heartbeat of a new member went to the broker. `who`: its member id, or its token without one."""

    who: str
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerJoinAnswered(Event):
    """It was answered, one way or another."""

    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribed(Event):
    """The broker answered ConsumerGroupDescribe to a client. `as_of`: as of a `GroupDescribed`.

    `assignor`: empty where there is no such group; then `explained` tells whether the broker said so in words.
    `members`: ids, in the order told.
    """

    assignor: str
    explained: bool
    members: tuple[str, ...]
    as_of: int


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
    """A ListOffsets or a Fetch reply told the end of partitions (their high watermark)."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartsSeen:
    """A ListOffsets reply told the start of partitions."""

    starts: Mapping[TopicPartition, int]


AnyEvent = Event | GroupsListed | TransactionEnded | LogEndsSeen | LogStartsSeen
