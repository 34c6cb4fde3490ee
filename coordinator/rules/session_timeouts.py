"""Decides when the session of a silent member has expired in the copy, and resets session timers."""

from group_sidecar.coordinator.model.facts import Departure, Fact
from group_sidecar.coordinator.model.state_transitions import PREPARING_REBALANCE
from group_sidecar.coordinator.rules.causes import cause_of_departure, silence_is_conclusive
from group_sidecar.coordinator.rules.fact_builder import (
    conclude_overdue_rebalance,
    member_gone_facts,
    member_seen_facts,
)
from group_sidecar.coordinator.rules.internal_events import TimePassed
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.member import Member

TIMER_DELAY_SECONDS = 1.0
"""The copy's session timer may expire up to this many seconds after the broker's timer."""


def expire(group: Group, event: TimePassed, now: float) -> list[Fact]:
    """Moves members whose sessions must have expired to `overdue`.

    The group is in doubt until the broker confirms that these members are gone.
    """
    facts = conclude_overdue_rebalance(group, now) if group.rebalance is not None else []
    late = group.expire(now)
    if late:
        group.touch(now)
    if group.exclusive and not all(member.seen_on_wire for member in late):
        group.doubt(now)  # If the broker still has such a member, the member bypasses this sidecar.
    for member in late:
        if silence_is_conclusive(group, member, now):
            silent = member.session_expired(now, group.leader_term.began_at)
            departure = Departure.EXPIRED if silent else Departure.DROPPED
            facts += member_gone_facts(group, member, departure, now)
            _explain_by_expiry(group, member, departure)
    return facts


def _explain_by_expiry(group: Group, member: Member, departure: Departure) -> None:
    """Sets an expired session as a rebalance's cause if no cause is known and both happened at about the same time.

    The copy may start a session timer some milliseconds later than the broker, when it sees the reply to a join or to
    a sync. So a heartbeat may show the rebalance before the copy's timer has expired.
    """
    rebalance = group.rebalance
    if departure is not Departure.EXPIRED or rebalance is None or group.state is not PREPARING_REBALANCE:
        return
    if abs(member.timeout_at(group.leader_term.began_at) - rebalance.started_at) <= TIMER_DELAY_SECONDS:
        group.rebalances.explain(cause_of_departure(member, departure))


def refresh(
    group: Group, member_id: str, sent_at: float, now: float, client_host: str = "", principal: str = ""
) -> list[Fact]:
    """Resets the session timer of a known member, which may be overdue. `client_host` is empty if unknown."""
    facts: list[Fact] = []
    if (back := group.roster.restore(member_id)) is not None:
        group.set_client(back, client_host, principal)
        group.touch(now)
        facts += member_seen_facts(group, back, sent_at, now)
    if (member := group.members.get(member_id)) is not None:
        group.record_activity(member, sent_at)
        group.set_client(member, client_host, principal)
    return facts
