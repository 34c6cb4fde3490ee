"""What happens to groups, as lines of the log.

Owns: which facts are worth a line, what it says, and that a group in trouble does not fill the log. Must not know: who
makes facts, how lines look (`logs`).
"""

from collections.abc import Callable
from typing import Any

from group_sidecar.coordinator.facts import (
    ClientRefused,
    CoordinatorMoved,
    Departure,
    Fact,
    MemberGone,
    OffsetsCommitted,
    RebalanceCompleted,
    Who,
)
from group_sidecar.metrics.instruments import error_name
from group_sidecar.proxy.logs import Recurring, log

MOST_CAUSES = 20_000
"""Groups, and what happens to them, that are remembered as told: a broker may have some thousands in trouble."""
LOST = {
    Departure.EXPIRED: "a member's session expired",
    Departure.DROPPED: "a member did not join or sync in time",
    Departure.KICKED: "a member was removed by somebody else",
}
"""Departures that nobody in the group has asked for. A member that leaves is part of the rebalance that follows."""


class Narrator:
    """Writes lines about facts: for each group and what happened to it one in half a minute, which says how many it
    stands for. The flight recorder has each one.
    """

    def __init__(self, recurring: Recurring | None = None) -> None:
        self._recurring = recurring or Recurring(most=MOST_CAUSES)
        self._tellers: dict[type[Fact], Callable[[Any], None]] = {
            RebalanceCompleted: self._rebalanced,
            MemberGone: self._member_gone,
            ClientRefused: self._refused,
            OffsetsCommitted: self._committed,
            CoordinatorMoved: self._moved,
        }

    def observe(self, fact: Fact) -> None:
        """Writes a line about a fact, or passes over it."""
        if (tell := self._tellers.get(type(fact))) is not None:
            tell(fact)

    def _rebalanced(self, fact: RebalanceCompleted) -> None:
        if times := self._recurring.due("rebalanced", fact.group_id, fact.cause):
            log.info(
                "group rebalanced",
                group=fact.group_id,
                cause=fact.cause.value,
                **_named("by", fact.by),
                **_given(said=fact.said),
                generation=fact.generation,
                members=fact.members,
                seconds=round(fact.duration_seconds, 3),
                **_named("slowest", fact.slowest),
                **_given(moved_partitions=fact.moved_partitions),
                times=times,
            )

    def _member_gone(self, fact: MemberGone) -> None:
        event = LOST.get(fact.how)
        if event and (times := self._recurring.due(event, fact.group_id)):
            log.warning(
                event,
                group=fact.group_id,
                client=_client(fact.client_id, fact.client_host),
                **_given(said=fact.said),
                times=times,
            )

    def _refused(self, fact: ClientRefused) -> None:
        event = "a client was refused" if fact.enforced else "a client would have been refused"
        if times := self._recurring.due(event, fact.policy, fact.group_id):
            log.warning(
                event,
                group=fact.group_id,
                policy=fact.policy,
                error=error_name(fact.error_code),
                client=_client(fact.client_id, fact.client_host),
                size=fact.size,
                limit=fact.limit,
                times=times,
            )

    def _committed(self, fact: OffsetsCommitted) -> None:
        for code, partitions in fact.refused:
            error = error_name(code)
            if times := self._recurring.due("not committed", fact.group_id, error):
                log.warning(
                    "offsets were not committed", group=fact.group_id, error=error, partitions=partitions, times=times
                )

    def _moved(self, fact: CoordinatorMoved) -> None:
        if times := self._recurring.due("moved", fact.group_id):
            log.info("the group's coordinator has moved", group=fact.group_id, times=times)


def _client(client_id: str, client_host: str) -> str:
    return f"{client_id} at {client_host.removeprefix('/')}"


def _named(name: str, who: Who | None) -> dict[str, str]:
    return {name: _client(who.client_id, who.client_host)} if who and who.client_host else {}


def _given(**fields: object) -> dict[str, object]:
    """Those that there are."""
    return {name: value for name, value in fields.items() if value not in (None, "")}
