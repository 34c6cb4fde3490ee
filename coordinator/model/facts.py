"""Facts: what happened to groups, as the copy reports it to metrics, journal and flight recorder.

Facts are immutable, and their names are in the past tense. Times are in seconds since the epoch.
"""

from dataclasses import dataclass
from enum import StrEnum


class RebalanceReason(StrEnum):
    """Why a rebalance began, in few enough values for a metric label."""

    JOIN = "join"
    LEAVE = "leave"
    METADATA = "metadata"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


class RebalanceCause(StrEnum):
    """Why a rebalance began: the cases in which Kafka's coordinator prepares a rebalance."""

    NEW_MEMBER = "new_member"
    STATIC_REPLACED = "static_replaced"
    """A static member joined again under another member id, and its new join required a rebalance (KIP-345)."""
    MEMBER_LEFT = "member_left"
    MEMBER_REMOVED = "member_removed"
    """An admin removed the member, or the sidecar removed it for a policy."""
    SESSION_EXPIRED = "session_expired"
    """A member sent no heartbeat in time, or did not sync in time."""
    SUBSCRIPTION_CHANGED = "subscription_changed"
    PARTITIONS_REVOKED = "partitions_revoked"
    """A member has revoked partitions and joins again, so that other members get these partitions (KIP-429)."""
    LEADER_REJOINED = "leader_rejoined"
    """The leader joined again unchanged and gave no reason. The group then assigns its partitions again."""
    TOPIC_METADATA = "topic_metadata"
    """The leader joined again, because the partitions of its topics have changed."""
    COORDINATOR_MOVED = "coordinator_moved"
    """The broker has just become the group's coordinator, and members joined again there."""
    UNKNOWN = "unknown"

    @property
    def reason(self) -> RebalanceReason:
        """The label value for this cause."""
        return _REASONS[self]


ISSUED_ID_REASON = "need to re-join with the given member-id"
"""Start of the reason of a Java client that joins with the member id that the broker has just issued (KIP-394). Every
new member does this, so the reason explains nothing."""
_REASONS = {
    RebalanceCause.NEW_MEMBER: RebalanceReason.JOIN,
    RebalanceCause.STATIC_REPLACED: RebalanceReason.JOIN,
    RebalanceCause.MEMBER_LEFT: RebalanceReason.LEAVE,
    RebalanceCause.MEMBER_REMOVED: RebalanceReason.LEAVE,
    RebalanceCause.SESSION_EXPIRED: RebalanceReason.EXPIRED,
    RebalanceCause.SUBSCRIPTION_CHANGED: RebalanceReason.METADATA,
    RebalanceCause.PARTITIONS_REVOKED: RebalanceReason.METADATA,
    RebalanceCause.LEADER_REJOINED: RebalanceReason.METADATA,
    RebalanceCause.TOPIC_METADATA: RebalanceReason.METADATA,
    RebalanceCause.COORDINATOR_MOVED: RebalanceReason.UNKNOWN,
    RebalanceCause.UNKNOWN: RebalanceReason.UNKNOWN,
}


class Departure(StrEnum):
    """How a member left the group."""

    LEFT = "left"
    EXPIRED = "expired"
    """The session of the member most likely expired. Only the broker knows for certain."""
    DROPPED = "dropped"
    """The broker removed the member because it did not join or sync in time, or for an unknown reason."""
    REMOVED_BY_POLICY = "removed"
    """The sidecar removed the member with a LeaveGroup of its own, for a policy."""
    REMOVED_BY_CLIENT = "kicked"
    """Another client, such as an admin tool, removed the member with a LeaveGroup that named the member."""
    FENCED = "fenced"
    """Another client took over the member's group.instance.id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """The identity of a member.

    Attributes:
        member_id: empty if the broker has not issued an id yet.
        client_id: empty if only the member id is known.
        client_host: the host as Kafka prints it; empty if only the member id is known.
        principal: the client's user as Kafka writes it; empty if it is not known.
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowestMember(MemberInfo):
    """The member whose join was sent last. `seconds` is the time between the first join and the last join."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact about one group. `at` is when the change happened."""

    group_id: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStarted(Fact):
    """A rebalance began: a classic group entered PreparingRebalance, or the epoch of a KIP-848 group grew.

    Attributes:
        by: the member that caused the rebalance; None if unknown.
        said: the reason that this member's client gave (KIP-800); empty if the client gave none. `said` is also the
            name of the field in the journal's records.
    """

    cause: RebalanceCause
    by: MemberInfo | None = None
    said: str = ""

    @property
    def reason(self) -> RebalanceReason:
        """The label value for the cause."""
        return self.cause.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceCompleted(Fact):
    """A rebalance ended: the generation of a classic group, or the epoch of a KIP-848 group, became stable.

    Attributes:
        cause, by, said: the same as in the `RebalanceStarted` of this rebalance, even if further causes followed.
        duration_seconds: for a classic group, the time from the first sign of the rebalance, usually a join, to the
            first sign of the stable generation, usually a SyncGroup reply; 0 if only the log showed the rebalance. For
            a KIP-848 group, the time from the new epoch until each member owns its target assignment.
        joined, gone: how many members joined and left since the previous rebalance.
        slowest: the member whose join was sent last; None if fewer than two joins were seen.
        moved_partitions: how many partitions have lost their previous owner; None if assignments cannot be read.
    """

    cause: RebalanceCause
    by: MemberInfo | None = None
    said: str = ""
    generation: int
    protocol: str
    members: int
    duration_seconds: float
    joined: int = 0
    gone: int = 0
    slowest: SlowestMember | None = None
    moved_partitions: int | None = None

    @property
    def reason(self) -> RebalanceReason:
        """The label value for the cause."""
        return self.cause.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoined(Fact):
    """A member joined that was not in the group before. `said` is the reason that its client gave (KIP-800).

    `principal`: the client's user as Kafka writes it; empty if it is not known.
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    principal: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberGone(Fact):
    """A member is no longer in the group. `said` is the reason that the request to leave gave (KIP-800).

    `principal`: the client's user as Kafka writes it; empty if it is not known.
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    principal: str = ""
    how: Departure
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorMoved(Fact):
    """The broker replied that it does not coordinate the group any more.

    Another broker coordinates the group now, or this broker is restarting.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted(Fact):
    """The broker replied to a commit.

    Attributes:
        accepted: for how many partitions the broker accepted the offset.
        refused: pairs of an error code and the number of partitions that were refused with it.
        by: the client of the commit; None unless a partition was refused.
    """

    accepted: int
    refused: tuple[tuple[int, int], ...] = ()
    by: MemberInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsExpired:
    """The broker removed expired offsets of one or more groups.

    Attributes:
        count: how many offsets it removed.
        seconds: how long the copy took to apply the removals.
    """

    at: float
    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientBypassed(Fact):
    """The log or the broker shows a commit or a member that bypassed this sidecar, contrary to `answers.exclusive`.

    Attributes:
        member: the member; None for a commit, whose record does not name its client.
        topic, partition: where the offset was committed; empty and -1 for a member.
    """

    member: MemberInfo | None = None
    topic: str = ""
    partition: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRefused(Fact):
    """A policy refused a request.

    Attributes:
        principal: the client's user as Kafka writes it; empty if it is not known.
        size, limit: the value that the policy judged and its limit, in the policy's own unit.
        enforced: whether the client got the refusal. If not, the policy is in audit mode and only reports it.
    """

    policy: str
    error_code: int
    client_id: str
    client_host: str
    size: int
    limit: int
    enforced: bool = True
    principal: str = ""
