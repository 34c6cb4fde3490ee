"""Events: what happened to groups, as requests and replies show it.

Events are immutable. Most names are in the past tense. Most events report what the broker has done, as its reply shows.
`JoinSent`, `ConsumerJoinSent`, `LeaveSent`, `ReplyLost` and `OffsetsDoubted` report what the broker may have done.
These five leave the state of a group unchanged, but may make its copy uncertain. An `OffsetsPending` reports what the
broker has done or what it may have done.

Times are in seconds since the epoch. The module has more than 400 lines because it contains all events of the wire.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from group_sidecar.codecs.fast_instances import fast_constructor
from group_sidecar.coordinator.model.facts import MemberInfo
from group_sidecar.coordinator.model.views import CommittedOffset, GroupKind, GroupState, TopicPartition

NEVER, FOREVER = float("-inf"), float("inf")
LEAVE_GROUP_MEMBER_EPOCH = -1
"""The member epoch with which a member leaves a KIP-848 group. A static member that restarts sends -2 instead."""
LOST_REQUEST_SECONDS = 1.0
"""For this many seconds after a connection is lost, the connection's last requests may still reach the broker."""
NEW_MEMBER_JOIN_TIMEOUT_SECONDS = 300.0
"""Seconds that a new member may wait for its first generation. Kafka then removes the member and replies
UNKNOWN_MEMBER_ID to its parked join."""
DESCRIPTION_VALID_SECONDS = 1.0
"""Seconds for which a description by the broker is valid. Later, a client that bypasses this sidecar may have changed
the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to one group. `sent_at`: when the request of the event was sent to the broker.

    Replies on one connection arrive in order, but replies on different connections may overtake each other. If a
    request was sent before another event was seen, the broker may have executed the request before or after that event.
    """

    group_id: str
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JoiningMember:
    """The content of a JoinGroup request.

    Attributes:
        token: identifies the request (`Exchange.token`).
        will_park: whether the join probably waits at the broker for a generation. False if the broker will probably
            reply at once with a new member id (KIP-394).
        reason: the reason that the client gives (KIP-800).
        principal: the client's user as Kafka writes it; empty if it is not known.
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
    principal: str = ""

    def member_info(self, member_id: str) -> MemberInfo:
        """Returns the identity of the joining member under the given member id."""
        return MemberInfo(
            member_id=member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            instance_id=self.instance_id,
            principal=self.principal,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSent(Event):
    """A join was sent to the broker and has no reply yet."""

    joining: JoiningMember


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyLost(Event):
    """The connection was lost before the reply to a request came. The request may have changed the group.

    `token`: the request's token. `may_create_group`: whether the request may have created the group, or may change a
    group that is created later.
    """

    token: str
    may_create_group: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRejected(Event):
    """The broker rejected a join."""

    joining: JoiningMember
    error_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdIssued(Event):
    """The broker issued a member id and expects another join with this id (KIP-394)."""

    joining: JoiningMember
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAccepted(Event):
    """The broker accepted a member into a generation.

    `roster`: the id, instance id and metadata of each member; empty unless this is the leader's reply.
    """

    joining: JoiningMember
    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    roster: tuple[tuple[str, str | None, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberActivity(Event):
    """The broker accepted a request of this member and generation.

    `principal`: the client's user as Kafka writes it; empty if it is not known.
    """

    member_id: str
    instance_id: str | None
    generation: int
    client_id: str
    client_host: str
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen(MemberActivity):
    """The broker accepted a heartbeat or a commit. `no_rebalance`: True for a heartbeat.

    The broker accepts a heartbeat only if it does not prepare a rebalance.
    """

    no_rebalance: bool


member_seen = fast_constructor(MemberSeen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced(MemberActivity):
    """The broker replied to a sync with the member's assignment.

    `assignments`: the assignments in the request, by member id. Only the assignments in the leader's request count.
    """

    assignment: bytes
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceSeen(Event):
    """The broker replied REBALANCE_IN_PROGRESS to a member of this generation.

    `is_heartbeat`: whether the request was a heartbeat.
    """

    member_id: str
    generation: int
    is_heartbeat: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberUnknown(Event):
    """The broker replied UNKNOWN_MEMBER_ID to a request with this member id, or rejected a join of a full group.

    The broker may have the member nonetheless (see `Roster.may_still_have`).

    Attributes:
        instance_id: the group instance id in the request; None if it has none.
        protocol: the kind of group whose members send such requests; None for commits, which members of all kinds send.
        is_join: whether the request was a JoinGroup.
        group_is_full: whether the broker rejected the member because the group has reached the broker's size limit.
    """

    member_id: str
    instance_id: str | None = None
    protocol: GroupKind | None = None
    is_join: bool = False
    group_is_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving(Event):
    """A request by which members leave, or the reply to it.

    Attributes:
        members: member id and instance id of each member. The member id is empty if an admin names only the instance.
        reasons: the reason that the client gives for each member (KIP-800); an empty tuple if no reasons are given.
        client_id, client_host: the client that sent the request; empty if unknown.
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
    """A LeaveGroup, or a KIP-848 heartbeat that leaves the group, was sent to the broker and has no reply yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersLeft(Leaving):
    """Members left. `removed`: whether the sidecar removed them because of a policy."""

    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsStored(Event):
    """The broker replied to a commit.

    Attributes:
        offsets: the accepted offsets, by partition.
        refused: pairs of an error code and the number of partitions that were refused with it.
        unresolved: the number of accepted partitions that are missing here, because the names of their topic ids are
            not known.
        broker_retention: whether the broker's own setting decides how long the offsets are kept. A client may decide
            it in OffsetCommit v2-4.
        refused_client: the client of the commit; None unless a partition was refused.
    """

    offsets: Mapping[TopicPartition, CommittedOffset]
    refused: tuple[tuple[int, int], ...] = ()
    unresolved: int = 0
    broker_retention: bool = True
    refused_client: MemberInfo | None = None


offsets_stored = fast_constructor(OffsetsStored)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsPending(Event):
    """The broker accepted, or may have accepted, offsets in a transaction that has not ended.

    `offsets`: the offsets that were certainly accepted and whose topic names are known.
    """

    producer_id: int
    offsets: Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDeleted(Event):
    """The broker deleted the offsets of these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDoubted(Event):
    """The broker may have stored or deleted offsets. `partitions`: their partitions; None if unknown.

    `may_create_group`: whether the request may have created the group.
    """

    partitions: tuple[TopicPartition, ...] | None
    may_create_group: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsLearned(Event):
    """The broker returned offsets to a client.

    Attributes:
        offsets: the returned offsets, by partition.
        absent: the requested partitions without an offset.
        complete: whether `offsets` has all offsets of the group.
        as_of: the number of the last change of the offsets when the request was sent.
    """

    offsets: Mapping[TopicPartition, CommittedOffset]
    absent: tuple[TopicPartition, ...]
    complete: bool
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted(Event):
    """The broker does not have the group any more, after a request to delete it.

    `existed`: whether the broker had the group until then. If so, the broker may have written tombstones.
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
    """The broker described the group. `as_of`: the number of the group's last change when the request was sent.

    `has_instance_ids`: whether the version of the reply contains the instance ids of static members.
    """

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
    as_of: int
    has_instance_ids: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsListed:
    """The broker listed all its groups. `as_of`: the manager's `note_count` when the request was sent."""

    groups: frozenset[str]
    sent_at: float
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberSeen(Event):
    """The broker accepted a KIP-848 heartbeat.

    If `epoch` is -1, the member leaves. If it is -2, a static member announces a restart and stays a member.

    `may_change_group`: whether the broker may have written a record. `is_join`: whether the client asked to join.
    `principal`: the client's user as Kafka writes it; empty if it is not known. `content_hash`: a hash of the
    heartbeat's fields and its reply; None if the heartbeat joins, leaves or cannot change the group, or if its reply
    changes the epoch. `heartbeat_seconds`: how often the broker expects heartbeats; 0 in the reply to a leave.
    """

    member_id: str
    instance_id: str | None
    epoch: int
    client_id: str
    client_host: str
    may_change_group: bool = True
    is_join: bool = False
    principal: str = ""
    content_hash: int | None = None
    heartbeat_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerJoinSent(Event):
    """The first KIP-848 heartbeat of a member was sent to the broker.

    `token`: the request. `member_key`: the member id; the token if the request has no member id. `principal`: the
    client's user as Kafka writes it; empty if it is not known.
    """

    token: str
    member_key: str
    client_host: str
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerJoinAnswered(Event):
    """The broker replied to the first KIP-848 heartbeat of a member, possibly with an error. `token`: the request."""

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribed(Event):
    """The broker replied to a ConsumerGroupDescribe.

    Attributes:
        assignor: the group's assignor; empty if the broker has no such group.
        has_error_message: whether the reply has an error message.
        members: the member ids, in the order of the reply.
        as_of: the number of the group's last change when the request was sent.
    """

    assignor: str
    has_error_message: bool
    members: tuple[str, ...]
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCoordinatorReplied(Event):
    """The broker replied NOT_COORDINATOR. Usually another broker coordinates the group now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """A producer's transaction ended. Its marker will commit or drop the producer's pending offsets in all groups."""

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
