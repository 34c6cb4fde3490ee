"""The rebalances of groups of KIP-848, as their records tell of them.

Owns: what of two views of a group, before and after, is told as facts. Must not know: records, connections.

Such a group has no joins that wait for each other. Its epoch grows with each change of its members or of their topics;
that is taken for the beginning of a rebalance, and for its end that everybody owns what it shall own at that epoch.
"""

from collections.abc import Mapping

from group_sidecar.coordinator.causes import how_dropped, of_departure, silence_tells
from group_sidecar.coordinator.events import NEVER
from group_sidecar.coordinator.facts import (
    Departure,
    Fact,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceStarted,
)
from group_sidecar.coordinator.groups import Group
from group_sidecar.coordinator.members import Member
from group_sidecar.coordinator.ownership import consumer_moves, consumer_owners
from group_sidecar.coordinator.rebalances import Blame, Rebalance
from group_sidecar.coordinator.telling import counts, forget_past, gone, joined, noticed
from group_sidecar.coordinator.views import ConsumerGroupView, ConsumerMemberView, GroupKind, GroupState


def changed(group: Group, before: Mapping[str, Member], old: ConsumerGroupView | None, now: float) -> list[Fact]:
    """The facts of a change, after it; `before` and `old` are the members and the view that were there.

    Of members that the wire has told to have gone the log may tell yet that they are there, but that is no news.
    """
    view = group.consumer
    if view is None or view.kind is not GroupKind.CONSUMER:
        return []
    facts, causes = _members(group, before, now)
    if old is None or view.epoch > old.epoch:
        facts += _begin(group, old, view, causes, now)
    if view.state is GroupState.STABLE and group.rebalance is not None:
        facts.append(_complete(group, group.rebalance, view, now))
    elif view.state is GroupState.EMPTY:
        group.rebalance = None
        forget_past(group)
    return facts


def _members(group: Group, before: Mapping[str, Member], now: float) -> tuple[list[Fact], list[Blame]]:
    """Who came and went, and what each brings about."""
    facts, causes = list[Fact](), list[Blame]()
    was = {member.instance_id for member in before.values() if member.instance_id}
    for member in group.members.values():
        if member.member_id in before or member.member_id in group.departed:
            continue
        back = member.instance_id in was
        facts += (noticed if back else joined)(group, [member], now)
        cause = RebalanceCause.STATIC_REPLACED if back else RebalanceCause.NEW_MEMBER
        causes.append(Blame(cause=cause, by=member.who))
    static = group.static_members()
    for member in [before[each] for each in before.keys() - group.members.keys() - group.departed]:
        how, said = how_dropped(group, member, now, static)
        if how is Departure.DROPPED and silence_tells(group, member):
            how = Departure.EXPIRED  # There is nothing else that it could have missed.
        facts += gone(group, [member], how, now, said)
        causes.append(of_departure(member, how, said))
    group.departed.intersection_update(group.members)
    return facts, causes


def _begin(
    group: Group, old: ConsumerGroupView | None, view: ConsumerGroupView, causes: list[Blame], now: float
) -> list[Fact]:
    """The epoch has grown. A rebalance that is under way goes on, with its first cause."""
    if view.state is GroupState.EMPTY:
        return []
    foretold, group.foretold = group.foretold, None
    why = causes[0] if causes else foretold or _of_topics(group, old, view)
    if group.rebalance is None or group.rebalance.done_at != NEVER:
        group.rebalance = Rebalance(blame=why, began=now, since=now, owners=consumer_owners(old))
    return [RebalanceStarted(group_id=group.group_id, at=now, cause=why.cause, by=why.by, said=why.said)]


def _complete(group: Group, rebalance: Rebalance, view: ConsumerGroupView, now: float) -> Fact:
    group.rebalance, group.last_rebalance_at = None, now
    came, went = counts(group)
    return RebalanceCompleted(
        group_id=group.group_id,
        at=now,
        cause=rebalance.blame.cause,
        by=rebalance.blame.by,
        said=rebalance.blame.said,
        generation=view.epoch,
        protocol=view.assignors[0] if len(view.assignors) == 1 else "",
        members=len(view.members),
        duration_seconds=now - rebalance.began,
        joined=came,
        gone=went,
        moved_partitions=consumer_moves(rebalance.owners, consumer_owners(view)),
    )


def _of_topics(group: Group, old: ConsumerGroupView | None, view: ConsumerGroupView) -> Blame:
    """Nobody came or went: a member wants other topics, or they have other partitions, which the broker saw."""
    if old is None:  # A new group: the wire has told already that its first member joined.
        first = next((member for member in view.members if not member.classic), None)
        who = group.members[first.member_id].who if first else None
        return Blame(cause=RebalanceCause.NEW_MEMBER, by=who) if who else Blame()
    known = {member.member_id: _wants(member) for member in old.members}
    for member in view.members:
        if known.get(member.member_id, _wants(member)) != _wants(member):
            return Blame(cause=RebalanceCause.SUBSCRIPTION_CHANGED, by=group.members[member.member_id].who)
    return Blame(cause=RebalanceCause.TOPIC_METADATA)


def _wants(member: ConsumerMemberView) -> tuple[object, ...]:
    return frozenset(member.subscribed_topic_names), member.subscribed_topic_regex, member.server_assignor
