"""What happened to groups, as told to the outside: metrics, journal, recorder.

Owns: the shapes. Must not know: who listens. Past tense, immutable; times are seconds since the epoch.
"""

from dataclasses import dataclass
from enum import StrEnum


class RebalanceReason(StrEnum):
    """The closed set of what begins rebalances: small enough for a label."""

    JOIN = "join"
    LEAVE = "leave"
    METADATA = "metadata"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


class RebalanceCause(StrEnum):
    """Why a rebalance began: the closed set of what makes Kafka's coordinator prepare one."""

    NEW_MEMBER = "new_member"
    STATIC_REPLACED = "static_replaced"
    """A static member is back under another member id, and what it brought would not do without one (KIP-345)."""
    MEMBER_LEFT = "member_left"
    MEMBER_REMOVED = "member_removed"
    """An admin took it out, or the sidecar for a policy."""
    SESSION_EXPIRED = "session_expired"
    """A member was not heard of in time, or did not sync in time."""
    SUBSCRIPTION_CHANGED = "subscription_changed"
    PARTITIONS_REVOKED = "partitions_revoked"
    """A member has given up partitions, as it was told, and joins again so that others get them (KIP-429)."""
    LEADER_REJOINED = "leader_rejoined"
    """The leader joined again as it was: it wants the partitions assigned anew, and did not say why."""
    TOPIC_METADATA = "topic_metadata"
    """The leader joined again, since its topics have other partitions than before."""
    COORDINATOR_MOVED = "coordinator_moved"
    """The broker has just become the group's coordinator, and members joined again there."""
    UNKNOWN = "unknown"

    @property
    def reason(self) -> RebalanceReason:
        """The label that it goes by."""
        return _REASONS[self]


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
    """How a member went."""

    LEFT = "left"
    EXPIRED = "expired"
    """Its session ran out, as far as can be told from outside the broker."""
    DROPPED = "dropped"
    """The broker went on without it: it did not join or sync within its rebalance timeout, or why is not known."""
    REMOVED = "removed"
    """The sidecar removed it, for a policy."""
    KICKED = "kicked"
    """Somebody else let it leave: an admin."""
    FENCED = "fenced"
    """Another client took over its group.instance.id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """A member. `client_host` as Kafka prints it; empty with `client_id` where only its member id is known.

    `member_id` is empty for one that has not been given any yet.
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowest(Who):
    """The member whose join came last, so many seconds after the first."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that happened to one group at one moment."""

    group_id: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStarted(Fact):
    """The group left Stable or Empty for PreparingRebalance.

    Attributes:
        by: who brought it about; None where that is not known.
        said: the reason that this client gave (KIP-800); empty without.
    """

    cause: RebalanceCause
    by: Who | None = None
    said: str = ""

    @property
    def reason(self) -> RebalanceReason:
        """The label of its cause."""
        return self.cause.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceCompleted(Fact):
    """A generation became stable.

    Attributes:
        cause, by, said: of what began it, also where more has come in between.
        duration_seconds: first join to last needed sync; 0 where its beginning was not seen.
        joined, gone: how many members came and went with it.
        slowest: whose join came last; None where fewer than two were seen.
        moved_partitions: how many partitions have another owner than before, or none; None where assignments
            cannot be read.
    """

    cause: RebalanceCause
    by: Who | None = None
    said: str = ""
    generation: int
    protocol: str
    members: int
    duration_seconds: float
    joined: int = 0
    gone: int = 0
    slowest: Slowest | None = None
    moved_partitions: int | None = None

    @property
    def reason(self) -> RebalanceReason:
        """The label of its cause."""
        return self.cause.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoined(Fact):
    """A member that was not in the group before is in it now. `said`: the reason that it gave (KIP-800)."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberGone(Fact):
    """A member is no longer in the group. `said`: the reason that was given with its leave (KIP-800)."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    how: Departure
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorMoved(Fact):
    """The broker said that it does not coordinate the group any more: another one does, or it is being restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted(Fact):
    """The broker accepted offsets of this many partitions, and refused those counted by error code."""

    accepted: int
    refused: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsExpired:
    """The broker cleaned up: so many offsets went, of whichever groups, and it took the copy so long to follow."""

    at: float
    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRefused(Fact):
    """A policy refused a request. `limit` and `size` are the policy's own figures.

    `enforced`: whether the client was told; else the policy only reports what it would have refused.
    """

    policy: str
    error_code: int
    client_id: str
    client_host: str
    size: int
    limit: int
    enforced: bool = True
