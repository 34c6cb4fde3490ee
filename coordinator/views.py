"""Read-only state, as answers, policies and metrics see it.

Owns: the shapes. Must not know: how the state came about. A view shows one moment and is to be read
then: its `offsets` are a window onto the copy, not a copy of the copy.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.instances import maker


class GroupState(StrEnum):
    """States of a group, spelled as DescribeGroups spells them."""

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


class Lacking(StrEnum):
    """Why the copy of a group may not be used to answer; the label of the fallback metric."""

    COLD = "cold"
    """The group may have a past that this sidecar has not seen."""
    STALE = "stale"
    """Something passed by whose effect on the group is not followed."""
    IN_DOUBT = "in_doubt"
    """Something should have happened by now, or is happening: only the broker knows."""
    UNDECODABLE = "undecodable"
    """A request of the group could not be decoded."""
    UNAUTHORIZED = "unauthorized"
    """The broker has an authorizer, or may have one, and what this client may see is not known."""
    UNSTABLE = "unstable"
    """Offsets of a transaction may still be pending."""
    VERSION = "version"
    """The request asks for something the copy does not hold."""
    LARGE = "large"
    """The answer would be long, and all other clients would wait while it is made."""
    OFF = "off"
    """The operator has switched local answers off."""


TopicPartition = tuple[str, int]

DELETED_OFFSET: Final = -(1 << 63) - 1
"""Stands in place of an offset that was deleted. Clients may commit any 64-bit number, negative ones too."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset.

    Attributes:
        at: when it was seen, in seconds since the epoch.
        epoch_known: whether the leader epoch is known; OffsetFetch tells it from v5 on only (KIP-320).
        writer: the connection that committed it; empty where the broker told of it.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    at: float = 0.0
    epoch_known: bool = True
    writer: str = field(default="", compare=False)


committed_offset = maker(CommittedOffset)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member of a group. Hosts as Java's InetAddress prints them, with their leading slash.

    Attributes:
        client_host: where it is: whence its requests come, or if none has passed by, where the broker says it is.
        broker_host: where the broker says it is; empty while it has not said.
        since: when it was first seen in the group; those that were read or told of together have the same.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    broker_host: str = ""
    metadata: bytes = b""
    assignment: bytes = b""
    since: float = 0.0


member_view = maker(MemberView)


Partitions = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id, sorted."""

NOTHING: Partitions = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberView:
    """A member of a consumer group.

    Attributes:
        epoch: how far it has followed the group; 0 before its first assignment.
        client_host, broker_host: as of a `MemberView`.
        assignment: what it owns and may keep.
        revoking: what it owns and has been told to give up.
        target_assignment: what it shall own.
        classic: whether it speaks the classic protocol, in a group that is being upgraded.
        reconciled: whether it owns what it shall own at its epoch.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    broker_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    assignment: Partitions = field(default_factory=lambda: NOTHING)
    revoking: Partitions = field(default_factory=lambda: NOTHING)
    target_assignment: Partitions = field(default_factory=lambda: NOTHING)
    classic: bool = False
    reconciled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupView:
    """A group of one of the new protocols at one moment.

    Attributes:
        state: None where the records alone do not tell it, which is so for streams groups.
        epoch: the group's, which grows with each change of its members or topics.
        assignment_epoch: the group epoch that the target assignment was made for.
        assignors: the server-side assignors that most members prefer, sorted: none where nobody names one, several
            where they are even, and then which one the broker takes depends on the order of its hash table.
        members: by member id, sorted, or as the broker told them last; of consumer groups only.
        ordered: whether the broker told them in this order.
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
    def told(self) -> bool:
        """Whether ConsumerGroupDescribe tells of it."""
        return self.kind is GroupKind.CONSUMER and self.state is not None

    @property
    def topic_ids(self) -> set[UUID]:
        """The topics of which any member owns partitions, or shall."""
        return {
            topic_id
            for member in self.members
            for topic_id in (*member.assignment, *member.revoking, *member.target_assignment)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Seats:
    """Who has a place in a group, as Kafka's acceptJoiningMember counts them.

    Attributes:
        state: the broker's state, as far as is known.
        members: ids of the members.
        parked: how many wait in a join at the broker.
        is_parked: whether a member, by its id, is one of them.
        certain: whether this is the broker's own count; else the broker may have others, and may have lost some.
    """

    state: GroupState = GroupState.DEAD
    members: Collection[str] = ()
    parked: int = 0
    is_parked: Callable[[str], bool] = lambda _: False
    certain: bool = False


UNSEATED = Seats()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group at one moment.

    Attributes:
        seats: who has a place in it, where that was asked for (`GroupMetadataManager.seated`).
        roster_known: whether `members` are all members, not only those that passed by.
        lacking: why DescribeGroups may not be answered from this copy, hosts aside; None where it may.
        offsets_lacking: the same for OffsetFetch.
        error_code: what its coordinator would say instead of anything else: that it is loading it, or is not its
            coordinator. For answers in place of a broker that has none.
    """

    group_id: str
    kind: GroupKind = GroupKind.CLASSIC
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    generation: int = -1
    members: tuple[MemberView, ...] = ()
    seats: Seats = UNSEATED
    roster_known: bool = False
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    lacking: Lacking | None = None
    offsets_lacking: Lacking | None = None
    error_code: int = ErrorCode.NONE
    last_rebalance_at: float | None = None
    """Seconds since the epoch; None before the first rebalance seen."""
    consumer: ConsumerGroupView | None = None
    """What the log says of it, if it speaks another protocol than the classic one."""


group_view = maker(GroupView)
