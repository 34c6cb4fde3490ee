"""Events of one group that come from the log or from the copy itself, not from a client's request.

The wire's events are in `model.events`. Internal events need no group id, because `apply` gets them with their group.
"""

from collections.abc import Set
from dataclasses import dataclass

from group_sidecar.coordinator.model.events import GroupDescribed
from group_sidecar.coordinator.model.views import ConsumerGroupView
from group_sidecar.coordinator.state.log_partitions import LeaderTerm


@dataclass(frozen=True, slots=True)
class InternalEvent:
    """An event that changes one group and that no request of a client shows."""


@dataclass(frozen=True, slots=True)
class GroupFound(InternalEvent):
    """The log or a commit shows that the broker has the group."""


@dataclass(frozen=True, slots=True)
class GroupLoaded(InternalEvent):
    """The group was in the log when its partition was loaded."""

    leader_term: LeaderTerm


@dataclass(frozen=True, slots=True)
class GenerationLogged(InternalEvent):
    """The log has this generation of a classic group.

    Attributes:
        metadata: the raw value of the record; None if the log has no generation.
        is_live: whether the record is new. False while the partition is loading, and when an old record is merged
            again because a new commit followed the group's removal by the wire.
    """

    metadata: bytes | None
    is_live: bool


@dataclass(frozen=True, slots=True)
class ConsumerGroupLogged(InternalEvent):
    """The log has records of a group of a newer protocol.

    Attributes:
        metadata: the raw value of the last classic generation in the log; None if the log has no generation.
        changes: how often the records have changed.
        view: the group as its records describe it; None if the records have not changed since the last decoding.
        is_live: whether the records are new. False while the partition is loading, and when old records are merged
            again because a new commit followed the group's removal by the wire.
    """

    metadata: bytes | None
    changes: int
    view: ConsumerGroupView | None
    is_live: bool


@dataclass(frozen=True, slots=True)
class RecordsUnreadable(InternalEvent):
    """The log has records of a group of a newer protocol that cannot be decoded.

    Attributes:
        metadata: the raw value of the last classic generation in the log; None if the log has no generation.
        changes: how often the records have changed.
    """

    metadata: bytes | None
    changes: int


@dataclass(frozen=True, slots=True)
class GroupVanished(InternalEvent):
    """The log does not contain the group any more. The broker may still have the group, or a new one of this name."""


@dataclass(frozen=True, slots=True)
class LogCaughtUp(InternalEvent):
    """The log was read past the last request that may have changed the group."""


@dataclass(frozen=True, slots=True)
class DescriptionAwaited(InternalEvent):
    """The broker will be asked for the members that were not observed."""


@dataclass(frozen=True, slots=True)
class BrokerLost(InternalEvent):
    """The connection to the broker was lost. The broker may have restarted, and then all sessions began again."""


@dataclass(frozen=True, slots=True)
class RequestsCrossed(InternalEvent):
    """The broker executed two requests in an unknown order, and one of them may have deleted the group."""


@dataclass(frozen=True, slots=True)
class InstanceIdsMissing(InternalEvent):
    """A description has members without instance ids, and the broker may have left the ids out."""


@dataclass(frozen=True, slots=True)
class TimePassed(InternalEvent):
    """Time has passed, so sessions and other deadlines may have expired."""


@dataclass(frozen=True, slots=True)
class MetadataDropped(InternalEvent):
    """There was no room for the metadata and assignments that an event contained."""


@dataclass(frozen=True, slots=True)
class SizeDescribed(InternalEvent):
    """The broker has described the members of the group. The rest of the description may be outdated.

    Attributes:
        description: the broker's description.
        before: ids of the members that were known before the description, overdue ones included.
        roster_complete: whether `before` had all members of the last generation.
    """

    description: GroupDescribed
    before: Set[str]
    roster_complete: bool


@dataclass(frozen=True, slots=True)
class MembersOrdered(InternalEvent):
    """The broker describes the members of a group of a newer protocol in this order. `members` are their ids."""

    members: tuple[str, ...]
