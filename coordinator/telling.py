"""Facts about a group's members and rebalances.

Owns: how a change of a `Group` is told. Must not know: what brought it about.
"""

from collections.abc import Iterable, Set
from dataclasses import replace

from group_sidecar.coordinator.causes import blame
from group_sidecar.coordinator.events import NEVER
from group_sidecar.coordinator.facts import (
    CoordinatorMoved,
    Departure,
    Fact,
    MemberGone,
    MemberJoined,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.groups import NOBODY, Group
from group_sidecar.coordinator.members import Member
from group_sidecar.coordinator.ownership import Moves, keep_owners, settle_owners
from group_sidecar.coordinator.rebalances import Blame, Rebalance
from group_sidecar.coordinator.states import PREPARING_REBALANCE

SYNC_SECONDS = 1.0
"""For so long after a generation is stable its leader's sync is waited for, which tells the assignments."""


def gone(group: Group, members: Iterable[Member], how: Departure, now: float, said: str = "") -> list[Fact]:
    """The facts that these members went. One of whom only the id was known was never told of."""
    facts: list[Fact] = [
        MemberGone(
            group_id=group.group_id,
            at=now,
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            instance_id=member.instance_id,
            how=how,
            said=said,
        )
        for member in members
        if member.client_host
    ]
    if how is not Departure.FENCED:
        group.went = _with(group.went, members)
    return facts


def _with(names: Set[str], members: Iterable[Member]) -> Set[str]:
    """The names, and those of these members of whom more than the id is known. A set takes them in place: of a group
    of 5,000 members each may go by itself.
    """
    added = [member.member_id for member in members if member.client_host]
    if not added:
        return names
    if not isinstance(names, set):
        return set(added)
    names.update(added)
    return names


def joined(group: Group, members: Iterable[Member], now: float, said: str = "") -> list[Fact]:
    """The facts that these members are in. One of whom only the id is known is told of when it is known who it is."""
    group.came = _with(group.came, members)
    return noticed(group, members, now, said)


def noticed(group: Group, members: Iterable[Member], now: float, said: str = "") -> list[Fact]:
    """The same of those that were in before, unseen or under another member id: no rebalance has brought them."""
    return [
        MemberJoined(
            group_id=group.group_id,
            at=now,
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            instance_id=member.instance_id,
            said=said,
        )
        for member in members
        if member.client_host
    ]


def coordinator_moved(group_id: str, now: float) -> list[Fact]:
    """The fact that the broker does not coordinate the group any more."""
    return [CoordinatorMoved(group_id=group_id, at=now)]


def begin(group: Group, now: float, why: Blame | None = None) -> list[Fact]:
    """The group prepares a rebalance, since the first join that waits for it; no fact where it did so already.

    `why`: where that is known; else it is found out. A rebalance keeps its first cause.
    """
    rebalance = group.rebalance
    if group.state is PREPARING_REBALANCE:
        if rebalance is not None and why is not None and why.known and not rebalance.blame.known:
            rebalance.blame = why  # Its reply was overtaken by others.
        return []
    facts = interrupted(group, now)
    why = why or blame(group, now)
    keep_owners(group)
    since = min((sent.sent_at for sent in group.joins.values() if sent.joining.parks), default=now)
    group.become(PREPARING_REBALANCE)
    if group.rebalance is None:
        group.rebalance = Rebalance(blame=why, began=since, since=since)
    group.rebalance.since = since
    at = now if why.at is None else max(why.at, group.last_rebalance_at or why.at)
    return [*facts, RebalanceStarted(group_id=group.group_id, at=at, cause=why.cause, by=why.by, said=why.said)]


def completed(group: Group, now: float, *, waited: bool = False) -> list[Fact]:
    """The rebalance is over; no fact where its beginning was not seen, nor while its assignments may yet be told.

    `waited`: they will not be, any more.
    """
    rebalance = group.rebalance
    if rebalance is None:
        group.last_rebalance_at = now
        forget_past(group)
        return []
    if rebalance.done_at == NEVER:
        rebalance.done_at = group.last_rebalance_at = now
        rebalance.joined, rebalance.gone = counts(group)
    if rebalance.led and not (group.assigned or waited):
        return []
    group.rebalance, moves = None, settle_owners(group)
    return [_conclusion(group, rebalance, moves)]


def counts(group: Group) -> tuple[int, int]:
    """How many members have come and gone, of which some may have been back, until now; they are counted once."""
    came, went, group.came, group.went = group.came, group.went, NOBODY, NOBODY
    return len(came), len(went - group.members.keys())


def forget_past(group: Group) -> None:
    """What comes next has nothing to do with what was."""
    group.owned, group.came, group.went = None, NOBODY, NOBODY


def overdue_conclusion(group: Group, now: float) -> list[Fact]:
    """The fact that a rebalance is over, where the sync of its leader has been waited for in vain."""
    late = group.rebalance is not None and now >= group.rebalance.done_at + SYNC_SECONDS
    return interrupted(group, now) if late else []


def interrupted(group: Group, now: float) -> list[Fact]:
    """The fact that a rebalance was over whose assignments are not known yet: they will not be, any more."""
    done = group.rebalance is not None and group.rebalance.done_at != NEVER
    return completed(group, now, waited=True) if done else []


def _wanted_anew(group: Group, why: Blame) -> bool:
    """Whether the leader joined again and did not say why, wherever its coordinator was before."""
    if why.cause in (RebalanceCause.COORDINATOR_MOVED, RebalanceCause.UNKNOWN):
        return why.by is not None and why.by.member_id == group.leader and not why.said
    return why.cause is RebalanceCause.LEADER_REJOINED


def _conclusion(group: Group, rebalance: Rebalance, moves: Moves | None) -> Fact:
    """A rebalance that is over."""
    why = rebalance.blame
    if moves is not None and moves.added and _wanted_anew(group, why):
        why = replace(why, cause=RebalanceCause.TOPIC_METADATA)  # That is what it came for.
    return RebalanceCompleted(
        group_id=group.group_id,
        at=rebalance.done_at,
        cause=why.cause,
        by=why.by,
        said=why.said,
        generation=group.generation,
        protocol=group.protocol,
        members=len(group.members),
        duration_seconds=rebalance.done_at - rebalance.began,
        joined=rebalance.joined,
        gone=rebalance.gone,
        slowest=rebalance.slowest(group.members),
        moved_partitions=None if moves is None else moves.moved,
    )
