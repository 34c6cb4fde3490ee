"""Read-only views of groups, members and offsets, for answers, policies and metrics.

A view shows one moment. Two parts are not snapshots: `GroupView.offsets` and `Occupancy.is_parked` read the current
state of the copy. So callers must use these parts immediately.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.fast_instances import fast_constructor


class GroupState(StrEnum):
    """States of a group, spelled as in DescribeGroups and ConsumerGroupDescribe."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupKind(StrEnum):
    """Which protocol a group speaks, spelled as ListGroups v5 spells it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class FallbackReason(StrEnum):
    """Why the copy of a group may not be used to answer; the label of the fallback metric."""

    NOT_EXCLUSIVE = "not_exclusive"
    """Clients may reach the broker without this sidecar: `answers.exclusive` is false, or a client has bypassed this
    sidecar."""
    COLD = "cold"
    """The copy lacks a part of the group that the sidecar has not observed or read yet, or for which it has no room."""
    STALE = "stale"
    """The effect of a recent request on the group is not known, or the group's log partition is not fresh."""
    IN_DOUBT = "in_doubt"
    """A change of the group is due or in progress, and only the broker knows its outcome."""
    UNDECODABLE = "undecodable"
    """A request or a record of the group could not be decoded, or another sidecar may have forwarded a request."""
    UNAUTHORIZED = "unauthorized"
    """The broker has or may have an authorizer, and it is unknown what this client may read."""
    UNSTABLE = "unstable"
    """Offsets of a transaction may still be pending."""
    VERSION = "version"
    """The answer in this version needs information that the copy does not have, or depends on the broker's release."""
    LARGE = "large"
    """The reply would be long, and all other clients would wait while the sidecar builds it."""
    OFF = "off"
    """The operator has switched local answers off."""


TopicPartition = tuple[str, int]

DELETED_OFFSET: Final = -(1 << 63) - 1
"""Marks a deleted offset. The value is below all 64-bit numbers, because clients may commit any 64-bit number."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset.

    Attributes:
        at: when the commit was seen, or the commit time in its log record, in seconds since the epoch.
        epoch_known: whether the leader epoch is known. OffsetFetch returns leader epochs only since v5 (KIP-320).
        writer: the connection that committed the offset; empty if the offset comes from the log or from OffsetFetch.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    at: float = 0.0
    epoch_known: bool = True
    writer: str = field(default="", compare=False)

    @property
    def looks_absent(self) -> bool:
        """Whether OffsetFetch reports this commit like a missing commit. Clients may commit -1."""
        return self.offset == -1 and not self.metadata


committed_offset = fast_constructor(CommittedOffset)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member of a group. Hosts are as Java's InetAddress prints them, with a leading slash.

    Attributes:
        client_host: the host from which the member's requests arrive. `broker_host` if no request was seen.
        broker_host: the host that the broker reports for the member; empty if the broker has not reported one.
        principal: the user of the member's last request, as Kafka writes it; empty if it is not known.
        since: when the member was first seen in the group. Members from one record or reply have the same time.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    broker_host: str = ""
    principal: str = ""
    metadata: bytes = b""
    assignment: bytes = b""
    since: float = 0.0


member_view = fast_constructor(MemberView)


Partitions = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id, sorted."""

NO_PARTITIONS: Partitions = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberView:
    """A member of a consumer group.

    Attributes:
        epoch: the epoch of the member, which follows the group's epoch; 0 before its first assignment.
        client_host: the host from which the member's requests arrive. `broker_host` if no request was seen.
        broker_host: the host that the broker reports for the member; empty if the broker has not reported one.
        principal: the user of the member's last request, as Kafka writes it; empty if it is not known.
        assignment: the partitions that the member owns and may keep.
        revoking: the partitions that the member owns and has to give up.
        target_assignment: the partitions that the member will own.
        classic: whether the member uses the classic protocol, in a group that is being upgraded.
        reconciled: whether the member owns exactly the target assignment of its epoch.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    broker_host: str = ""
    principal: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    assignment: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    revoking: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    target_assignment: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    classic: bool = False
    reconciled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupView:
    """A group of one of the newer protocols at one moment.

    Attributes:
        state: the state of the group; None if the records do not determine it, as for streams groups.
        epoch: the epoch of the group, which grows with each change of its members or topics.
        assignment_epoch: the group epoch for which the target assignment was computed.
        assignors: the server-side assignors that most members prefer, sorted. Empty if no member names one. If several
            are equally preferred, the broker's choice depends on the order of its hash table.
        members: the members of a consumer group, sorted by member id, or in the broker's order; empty for other kinds.
        ordered: whether the members are in the order in which the broker last described them.
    """

    group_id: str
    kind: GroupKind
    state: GroupState | None = None
    epoch: int = 0
    assignment_epoch: int = 0
    assignors: tuple[str, ...] = ()
    members: tuple[ConsumerMemberView, ...] = ()
    ordered: bool = False

    @property
    def is_describable(self) -> bool:
        """Whether ConsumerGroupDescribe describes the group."""
        return self.kind is GroupKind.CONSUMER and self.state is not None

    @property
    def topic_ids(self) -> set[UUID]:
        """The topics of all partitions that any member owns or will own."""
        return {
            topic_id
            for member in self.members
            for topic_id in (*member.assignment, *member.revoking, *member.target_assignment)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """The members and joins that count towards a group's size limit, as in Kafka's acceptJoiningMember.

    Attributes:
        state: the state that the group most likely has at the broker.
        members: ids of the members.
        parked: how many joins are parked at the broker.
        is_parked: returns whether the join of a member, given by its member id and its instance id, is parked.
        certain: whether the broker has exactly these members and joins. If not, the broker may have more or fewer.
        may_be_settled: whether the broker lately described a group that does not rebalance. If `state` is a rebalance
            nonetheless, joins that were lost or that have no reply may begin it.
    """

    state: GroupState = GroupState.DEAD
    members: Collection[str] = ()
    parked: int = 0
    is_parked: Callable[[str, str | None], bool] = lambda _, __: False
    certain: bool = False
    may_be_settled: bool = False


NO_OCCUPANCY = Occupancy()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group at one moment.

    Attributes:
        occupancy: the members and joins that count towards the size limit. Set only by
            `GroupMetadataManager.view_with_occupancy`.
        roster_known: whether `members` are all members, not only the observed members.
        fallback_reason: why the state and the members may not be taken from this copy; None if they may.
            DescribeGroups also needs metadata and hosts.
        offsets_fallback_reason: why OffsetFetch may not be answered from this copy; None if it may.
        error_code: the error that a coordinator in the copy's place would return: the group's log partition is loading,
            is not fresh, or belongs to another broker. Only replies for an API that the broker lacks contain this
            error. For other APIs, the sidecar forwards the question.
    """

    group_id: str
    kind: GroupKind = GroupKind.CLASSIC
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    generation: int = -1
    members: tuple[MemberView, ...] = ()
    occupancy: Occupancy = NO_OCCUPANCY
    roster_known: bool = False
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    fallback_reason: FallbackReason | None = None
    offsets_fallback_reason: FallbackReason | None = None
    error_code: int = ErrorCode.NONE
    last_rebalance_at: float | None = None
    """When the last rebalance ended, in seconds since the epoch; None before the first observed rebalance."""
    consumer: ConsumerGroupView | None = None
    """A group of a newer protocol, as the log describes it; None if the log has not shown such a group."""


group_view = fast_constructor(GroupView)
