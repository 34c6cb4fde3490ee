"""The interface between the admin port and its data sources."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from uuid import UUID

from group_sidecar.coordinator.model.views import FallbackReason, GroupView
from group_sidecar.metrics.admin_counters import AdminCounters
from group_sidecar.metrics.collector import JournalWriterHealth, LastReload
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.group_snapshot import GroupSnapshot, LogEnds, MaxMembers
from group_sidecar.proxy.broker.group_queries import Node
from group_sidecar.proxy.config.model import Config
from group_sidecar.proxy.config.reload import ReloadOutcome
from group_sidecar.proxy.runtime.supervision import FailingTask

Readiness = Mapping[str, Mapping[str, bool]]
"""By broker and readiness condition: whether the condition holds."""
LogStatuses = Mapping[str, Mapping[str, object]]
"""By broker: how far its `__consumer_offsets` was read. This progress is for people, and does not affect readiness."""


class Unreachable(NamedTuple):
    """A broker that does not answer the sidecar. `since`: the first failure, in seconds since the epoch."""

    broker: str
    since: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFigures:
    """The sidecar's figures about itself, for `json_models.Status`.

    Attributes:
        started_at: seconds since the epoch.
        answers: number of requests that the sidecar answered, by API key.
        fallbacks: number of requests that the sidecar left to the broker, by API key and reason.
        outlets: the writers of the journal, by name; empty if no records are written.
    """

    sidecar_id: str
    mode: Literal["sidecar", "gateway"]
    started_at: float
    connections: int
    held_bytes: int
    series_suppressed: int
    last_reload: LastReload
    answers: Mapping[int, int] = field(default_factory=dict)
    fallbacks: Mapping[tuple[int, FallbackReason], int] = field(default_factory=dict)
    outlets: Mapping[str, JournalWriterHealth] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSources:
    """The data sources of the admin port. All functions are called in the trio thread.

    Attributes:
        metrics: returns the metrics in the format of an Accept header, and their content type.
        readiness: returns the readiness conditions of each broker; see `Readiness`.
        probed: returns, by broker, whether its first probe has ended.
        unusable_listeners: returns the names of the listeners that accept no clients any more, although they should.
        log_statuses: returns how far the `__consumer_offsets` of each broker was read.
        unreachable: returns the brokers that do not answer.
        failing_tasks: returns the background tasks that failed recently. These tasks do not affect readiness.
        reload: reads the settings again.
        config: returns the settings in force.
        epoch: returns the present time on the system's clock, in seconds since the epoch.
        group_snapshot: returns the figures of all groups.
        find_group: returns the current view of a group, or None if the group does not exist.
        coordinator: returns a group's coordinator with the address that clients get, or None if unknown.
        max_members: returns the size limit of a group, or None if it has no limit.
        log_ends: returns the log ends, one mapping per copy. The mappings may change later.
        topic_names: returns names by topic id. An unknown name is missing, and is requested from the broker.
        recorder: the flight recorder.
        figures: returns the sidecar's figures about itself.
        counters: counts what the admin port refuses.
    """

    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    readiness: Callable[[], Readiness]
    log_statuses: Callable[[], LogStatuses]
    probed: Callable[[], Mapping[str, bool]] = dict
    unusable_listeners: Callable[[], Sequence[str]] = list
    failing_tasks: Callable[[], Sequence[FailingTask]] = list
    unreachable: Callable[[], Sequence[Unreachable]] = list
    reload: Callable[[], Awaitable[ReloadOutcome]]
    config: Callable[[], Config]
    epoch: Callable[[], float]
    group_snapshot: Callable[[], Awaitable[GroupSnapshot]]
    find_group: Callable[[str], GroupView | None]
    coordinator: Callable[[str], Node | None]
    max_members: MaxMembers
    log_ends: Callable[[], Sequence[LogEnds]]
    topic_names: Callable[[set[UUID]], Mapping[UUID, str]]
    recorder: FlightRecorder
    figures: Callable[[], SidecarFigures]
    counters: AdminCounters = field(default_factory=AdminCounters)
