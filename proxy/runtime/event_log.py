"""Log lines about events of groups.

`EventLog` selects the facts that are worth a line, and throttles the lines of each group with a `LogThrottle`.
"""

from collections.abc import Callable
from typing import Any

from group_sidecar.coordinator.model.facts import (
    ClientBypassed,
    ClientRefused,
    CoordinatorMoved,
    Departure,
    Fact,
    MemberGone,
    MemberInfo,
    OffsetsCommitted,
    RebalanceCompleted,
)
from group_sidecar.coordinator.state.exclusivity import DOUBT_SECONDS
from group_sidecar.metrics.fact_counters import error_name
from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log

MAX_CAUSES = 20_000
"""The maximum number of pairs of a group and an event that are throttled at a time. A broker may have problems with
some thousands of groups."""
UNREQUESTED_DEPARTURES = {
    Departure.EXPIRED: "a member's session expired",
    Departure.DROPPED: "a member did not join or sync in time, or left unobserved",
    Departure.REMOVED_BY_CLIENT: "a member was removed by somebody else",
}
"""The log lines of departures that the member itself did not request. A member's own leave has no such line, because
the line about the following rebalance reports the leave."""


class EventLog:
    """Writes a line about a fact, at most once in 30 seconds for each group and event.

    A line about a client that bypasses the sidecar is written at most once in `DOUBT_SECONDS` for each group.

    The field `times` of a line is the number of events that the line stands for. The flight recorder keeps the single
    events of groups.
    """

    def __init__(self, log_throttle: LogThrottle | None = None) -> None:
        self._log_throttle = log_throttle or LogThrottle(max_causes=MAX_CAUSES)
        self._bypass_throttle = LogThrottle(every=DOUBT_SECONDS, max_causes=MAX_CAUSES)
        self._writers: dict[type[Fact], Callable[[Any], None]] = {
            RebalanceCompleted: self._rebalanced,
            MemberGone: self._member_gone,
            ClientRefused: self._refused,
            OffsetsCommitted: self._committed,
            CoordinatorMoved: self._moved,
            ClientBypassed: self._bypassed,
        }

    def observe(self, fact: Fact) -> None:
        """Writes a line about a fact, or ignores it."""
        if (write := self._writers.get(type(fact))) is not None:
            write(fact)

    def _rebalanced(self, fact: RebalanceCompleted) -> None:
        if times := self._log_throttle.due("rebalanced", fact.group_id, fact.cause):
            log.info(
                "group rebalanced",
                group=fact.group_id,
                cause=fact.cause.value,
                **_client_field("by", fact.by),
                **_present_fields(said=fact.said),
                generation=fact.generation,
                members=fact.members,
                seconds=round(fact.duration_seconds, 3),
                **_client_field("slowest", fact.slowest),
                **_present_fields(moved_partitions=fact.moved_partitions),
                times=times,
            )

    def _member_gone(self, fact: MemberGone) -> None:
        event = UNREQUESTED_DEPARTURES.get(fact.how)
        if event and (times := self._log_throttle.due(event, fact.group_id)):
            log.warning(
                event,
                group=fact.group_id,
                client=_client(fact.client_id, fact.client_host),
                **_present_fields(principal=fact.principal, said=fact.said),
                times=times,
            )

    def _refused(self, fact: ClientRefused) -> None:
        event = "a client was refused" if fact.enforced else "a client would have been refused"
        if times := self._log_throttle.due(event, fact.policy, fact.group_id):
            log.warning(
                event,
                group=fact.group_id,
                policy=fact.policy,
                error=error_name(fact.error_code),
                client=_client(fact.client_id, fact.client_host),
                **_present_fields(principal=fact.principal),
                size=fact.size,
                limit=fact.limit,
                times=times,
            )

    def _committed(self, fact: OffsetsCommitted) -> None:
        for code, partitions in fact.refused:
            error = error_name(code)
            if times := self._log_throttle.due("not committed", fact.group_id, error):
                log.warning(
                    "offsets were not committed", group=fact.group_id, error=error, partitions=partitions, times=times
                )

    def _moved(self, fact: CoordinatorMoved) -> None:
        if times := self._log_throttle.due("moved", fact.group_id):
            log.info("the group's coordinator has moved", group=fact.group_id, times=times)

    def _bypassed(self, fact: ClientBypassed) -> None:
        kind = "a member" if fact.member else "a commit"
        if times := self._bypass_throttle.due(kind, fact.group_id):
            log.warning(
                f"{kind} bypassed the sidecar, although answers.exclusive is true",
                group=fact.group_id,
                times=times,
                hint="put every listener that clients use behind the sidecar, or set answers.exclusive to false",
                **_present_fields(member=fact.member and fact.member.member_id, topic=fact.topic),
                **_client_field("client", fact.member),
            )


def _client(client_id: str, client_host: str) -> str:
    return f"{client_id} at {client_host.removeprefix('/')}"


def _client_field(name: str, member: MemberInfo | None) -> dict[str, str]:
    return {name: _client(member.client_id, member.client_host)} if member and member.client_host else {}


def _present_fields(**fields: object) -> dict[str, object]:
    """Returns the fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "")}
