"""Where the admin port looks.

Owns: what has to be given to it. Must not know: who gives it, HTTP.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from uuid import UUID

from group_sidecar.coordinator.views import GroupView, Lacking
from group_sidecar.metrics.collector import LastReload, OutletHealth
from group_sidecar.metrics.flight_recorder import FlightRecorder
from group_sidecar.metrics.survey import LogEnds, MostMembers, Survey
from group_sidecar.proxy.questions import Node
from group_sidecar.proxy.reloading import Outcome
from group_sidecar.proxy.supervision import Failing

Readiness = Mapping[str, Mapping[str, bool]]
"""Broker -> what it takes to be ready -> whether it is so."""
Standings = Mapping[str, Mapping[str, object]]
"""Broker -> how far its log was read; for people, and no part of being ready."""


class Unreachable(NamedTuple):
    """A broker that does not answer the sidecar. `since`: seconds since the epoch."""

    broker: str
    since: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What the sidecar says of itself in numbers; see `models.Status`.

    Attributes:
        started_at: seconds since the epoch.
        answers: requests that were answered here, by API key.
        fallbacks: requests that were left to the broker, by API key and why.
        outlets: of the journal, by name; none where no records are written.
    """

    sidecar_id: str
    mode: Literal["sidecar", "gateway"]
    started_at: float
    connections: int
    held_bytes: int
    series_suppressed: int
    last_reload: LastReload
    answers: Mapping[int, int] = field(default_factory=dict)
    fallbacks: Mapping[tuple[int, Lacking], int] = field(default_factory=dict)
    outlets: Mapping[str, OutletHealth] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSources:
    """Where the admin port looks. All of it is asked in the trio thread.

    Attributes:
        metrics: the exposition that an Accept header asks for, and its content type.
        readiness: ready when there is a broker and everything is so for each.
        standings: how far logs were read.
        unreachable: brokers that do not answer.
        failing: background tasks that failed lately; no part of being ready.
        reload: has the settings read again.
        epoch: seconds since the epoch, on the clock of the views.
        surveyed: all groups and where they stand.
        find: a group as it is now; None where there is none.
        coordinator: the broker that coordinates a group, as clients are told of it; None where that is not known.
        most_members: the most members that a group may have; None without limit.
        log_ends: the ends of logs, one mapping per copy, each of which may change.
        topic_names: names by topic id; those that are not known are asked for, and missing.
        recorder: what happened to groups.
        numbers: what the sidecar says of itself.
    """

    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    readiness: Callable[[], Readiness]
    standings: Callable[[], Standings]
    failing: Callable[[], Sequence[Failing]] = list
    unreachable: Callable[[], Sequence[Unreachable]] = list
    reload: Callable[[], Awaitable[Outcome]]
    epoch: Callable[[], float]
    surveyed: Callable[[], Awaitable[Survey]]
    find: Callable[[str], GroupView | None]
    coordinator: Callable[[str], Node | None]
    most_members: MostMembers
    log_ends: Callable[[], Sequence[LogEnds]]
    topic_names: Callable[[set[UUID]], Mapping[UUID, str]]
    recorder: FlightRecorder
    numbers: Callable[[], Numbers]
