"""What happened to groups, as told to the outside: metrics, journal, recorder.

Owns: the shapes. Must not know: who listens. Past tense, immutable; times are seconds since the epoch.
"""

from dataclasses import dataclass
from enum import StrEnum


class RebalanceReason(StrEnum):
    """The closed set of rebalance causes: small enough for a label."""

    JOIN = "join"
    LEAVE = "leave"
    METADATA = "metadata"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


class Departure(StrEnum):
    """How a member went."""

    LEFT = "left"
    EXPIRED = "expired"
    """Its session ran out, as far as can be told from outside the broker."""
    DROPPED = "dropped"
    """A generation completed without it."""
    REMOVED = "removed"
    """The sidecar removed it, for a policy."""
    FENCED = "fenced"
    """Another client took over its group.instance.id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that happened to one group at one moment."""

    group_id: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStarted(Fact):
    """The group left Stable or Empty for PreparingRebalance."""

    reason: RebalanceReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceCompleted(Fact):
    """A generation became stable, first join to last needed sync, in seconds."""

    reason: RebalanceReason
    generation: int
    protocol: str
    members: int
    duration_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoined(Fact):
    """A member that was not in the group before is in it now."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberGone(Fact):
    """A member is no longer in the group."""

    member_id: str
    client_id: str
    client_host: str
    how: Departure


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
