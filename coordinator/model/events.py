"""The events that requests and replies show of groups.

An event is immutable, and its name is in the past tense. It stands for something that the broker has done, as its reply
shows. Only `JoinSent`, `LeaveSent`, `ReplyLost` and `OffsetsDoubted` stand for something that the broker may have done.
They do not change the state of a group, but how certain it is.

Times are seconds since the epoch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from group_sidecar.codecs.fast_instances import fast_constructor
from group_sidecar.coordinator.model.facts import MemberInfo
from group_sidecar.coordinator.model.views import CommittedOffset, GroupState, TopicPartition

NEVER, FOREVER = float("-inf"), float("inf")
LEAVE_GROUP_MEMBER_EPOCH = -1
"""The member epoch with which a member leaves a KIP-848 group. A static member that restarts sends -2 instead."""
LOST_REQUEST_SECONDS = 1.0
"""Seconds in which a request whose connection is gone may still be on its way to the broker."""
NEW_MEMBER_JOIN_TIMEOUT_SECONDS = 300.0
"""Seconds that a new member may wait for its first generation. Kafka drops it afterwards without telling the others."""
DESCRIPTION_VALID_SECONDS = 1.0
"""Seconds in which a description by the broker counts, where clients without this sidecar may change the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to one group. `sent_at`: when the request of the event was sent to the broker.

    Replies on one connection arrive in order, but replies on different connections may overtake each other. A request
    that was sent before another event was seen may have been carried out before or after that event.
    """

    group_id: str
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JoiningMember:
    """The content of a JoinGroup request. Timeouts in milliseconds.

    `will_park`: whether the join waits at the broker for a generation, because the broker issues no id first (KIP-394).
    `reason`: the reason that the client gives (KIP-800).
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
    will_park: bool
    reason: str = ""

    def member_info(self, member_id: str) -> MemberInfo:
        """Returns the identity of the member that joins, with the id that it has or gets."""
        return MemberInfo(
            member_id=member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            instance_id=self.instance_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSent(Event):
    """A join went to the broker and has no reply yet."""

    joining: JoiningMember


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyLost(Event):
    """The reply to a request that may have changed the group will not come: its connection is gone.

    `token`: the request's token. `may_create_group`: whether the request may have created the group, or may change a
    new one.
    """

    token: str
    may_create_group: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRejected(Event):
    """The broker refused a join."""

    joining: JoiningMember
    error_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdIssued(Event):
    """The broker issued a member id, and expects the join again with it (KIP-394)."""

    joining: JoiningMember
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAccepted(Event):
    """The member is in this generation. `roster`: (id, instance id, metadata) of all, in the leader's reply only."""

    joining: JoiningMember
    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    roster: tuple[tuple[str, str | None, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberActivity(Event):
    """The broker accepted a request of this member and generation."""

    member_id: str
    instance_id: str | None
    generation: int
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen(MemberActivity):
    """A heartbeat or a commit. `no_rebalance`: whether the reply shows that no rebalance is prepared (a heartbeat)."""

    no_rebalance: bool


member_seen = fast_constructor(MemberSeen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced(MemberActivity):
    """The member got its assignment. `assignments`: by member id, as it sent them. They count if it is the leader."""

    assignment: bytes
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceSeen(Event):
    """The broker answered REBALANCE_IN_PROGRESS to a member of this generation. `is_heartbeat`: whether to a
    heartbeat.
    """

    member_id: str
    generation: int
    is_heartbeat: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberUnknown(Event):
    """The broker does not know this member. `group_is_full`: whether because the group is full by the broker's
    limit.
    """

    member_id: str
    group_is_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving(Event):
    """Members leave.

    Attributes:
        members: member id and instance id of each. The member id is empty where an admin names the instance only.
        reasons: the reason that the client gives for each member (KIP-800); empty where its version has none.
        client_id, client_host: the client that sent the request; empty where it is not known.
    """

    members: tuple[tuple[str, str | None], ...]
    reasons: tuple[str, ...] = ()
    client_id: str = ""
    client_host: str = ""

    @property
    def members_with_reasons(self) -> Iterator[tuple[str, str | None, str]]:
        """Member id, instance id and reason of each member."""
        for number, (member_id, instance_id) in enumerate(self.members):
            yield member_id, instance_id, self.reasons[number] if self.reasons else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveSent(Leaving):
    """A LeaveGroup, or a leaving KIP-848 heartbeat, went to the broker and has no reply yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersLeft(Leaving):
    """Members left. `removed`: whether the sidecar removed them because of a policy."""

    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsStored(Event):
    """The broker accepted offsets.

    Attributes:
        offsets: by partition.
        refused: the number of partitions by error code.
        unresolved: the number of accepted partitions whose topic id has no known name yet.
        broker_retention: whether the broker's own setting decides their retention, not the client's (OffsetCommit
            v2-4).
    """

    offsets: Mapping[TopicPartition, CommittedOffset]
    refused: tuple[tuple[int, int], ...] = ()
    unresolved: int = 0
    broker_retention: bool = True


offsets_stored = fast_constructor(OffsetsStored)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsPending(Event):
    """The broker accepted offsets in a transaction that has not ended. `offsets`: empty where it may not have."""

    producer_id: int
    offsets: Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDeleted(Event):
    """The broker deleted the offsets of these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDoubted(Event):
    """The broker may have stored or deleted offsets. `partitions`: None where the partitions are not known either.

    `may_create_group`: whether the request may have created the group.
    """

    partitions: tuple[TopicPartition, ...] | None
    may_create_group: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsLearned(Event):
    """The broker returned offsets to a client. `complete`: whether they are all of the group.

    `as_of`: the number of the last change of the offsets when the request was sent.
    """

    offsets: Mapping[TopicPartition, CommittedOffset]
    absent: tuple[TopicPartition, ...]
    complete: bool
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted(Event):
    """The broker deleted the group, or had none.

    `existed`: whether the broker deleted it, and so may have written tombstones.
    """

    existed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member in a reply to DescribeGroups."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescribed(Event):
    """The broker described the group to a client. `as_of`: the group's `changes` when the request was sent."""

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsListed:
    """The broker listed all its groups to a client. `as_of`: the manager's `note_count` when the request was sent."""

    groups: frozenset[str]
    sent_at: float
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberSeen(Event):
    """The broker accepted a KIP-848 heartbeat. With an `epoch` below 0 the member leaves.

    `may_change_group`: whether the broker may have written a record for it. `is_join`: whether it was no member before.
    """

    member_id: str
    instance_id: str | None
    epoch: int
    client_id: str
    client_host: str
    may_change_group: bool = True
    is_join: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerJoinSent(Event):
    """A KIP-848 heartbeat of a new member went to the broker. `member_key`: its member id, or its token without one."""

    member_key: str
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerJoinAnswered(Event):
    """The KIP-848 heartbeat of a new member has its reply, which may be an error."""

    member_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribed(Event):
    """The broker answered ConsumerGroupDescribe to a client. `as_of`: as of a `GroupDescribed`.

    `assignor`: empty where there is no such group. `has_error_message`: whether the reply then has an error message.
    `members`: the member ids, in the order of the reply.
    """

    assignor: str
    has_error_message: bool
    members: tuple[str, ...]
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorMoved(Event):
    """The broker answered NOT_COORDINATOR: another broker coordinates the group now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """The transaction coordinator ended a transaction. It concerns all groups with pending offsets of the producer."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEndsSeen:
    """A reply to ListOffsets or Fetch contained the ends of partitions (their high watermarks)."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartsSeen:
    """A reply to ListOffsets contained the starts of partitions."""

    starts: Mapping[TopicPartition, int]


AnyEvent = Event | GroupsListed | TransactionEnded | LogEndsSeen | LogStartsSeen
