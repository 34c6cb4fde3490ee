"""Why a rebalance has begun.

Owns: that judgement, from the joins and leaves under way, the sessions that have run out, and what clients say
themselves (KIP-800). Must not know: what is told of it. Follows the callers of Kafka's prepareRebalance
(GroupCoordinator, later GroupMetadataManager): a new member joins, a known one joins with other protocols, the leader
joins again, a member goes, or does not sync in time.
"""

from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter

from group_sidecar.codecs.consumer_protocol import ConsumerProtocolSubscription, decode_subscription
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.coordinator.events import Joining, JoinSent
from group_sidecar.coordinator.facts import Departure, RebalanceCause
from group_sidecar.coordinator.groups import Group, StaticMembers
from group_sidecar.coordinator.members import Member
from group_sidecar.coordinator.rebalances import Blame
from group_sidecar.coordinator.states import SETTLED, STABLE

MOVED_SECONDS = 60.0
"""Who joins again, and says not why, within so long after the broker has become the coordinator does so for that."""
LEAVING_SECONDS = 30.0
"""For so long a leave whose reply was not seen may be the cause."""

ECHOES = ("group is already rebalancing", "rebalance failed due to RebalanceInProgressException")
"""What Java's AbstractCoordinator says when a rebalance made it join again: no cause of one."""
_SAID = {
    "cached metadata has changed": RebalanceCause.TOPIC_METADATA,
    "subscription has changed": RebalanceCause.SUBSCRIPTION_CHANGED,
    "need to revoke partitions": RebalanceCause.PARTITIONS_REVOKED,
}
"""What Java's ConsumerCoordinator says, as its text begins, and what it means."""
_MOVED = ("notcoordinator", "coordinatornotavailable", "coordinatorloadinprogress")
_ADMIN = "member was removed by an admin"
"""What Java's KafkaAdminClient says by itself."""
_WEAK = frozenset({RebalanceCause.UNKNOWN, RebalanceCause.STATIC_REPLACED})
"""What a join may do without any rebalance: where another is there, it was that one."""
_REPEATED = frozenset({RebalanceCause.UNKNOWN, RebalanceCause.LEADER_REJOINED})
"""Joins of members that are in the group, and say no reason."""


def silence_tells(group: Group, member: Member) -> bool:
    """Whether a member that is not heard of must have fallen silent, and is not heard of elsewhere."""
    return group.exclusive or member.heard


def blame(group: Group, now: float) -> Blame:
    """Why a rebalance that was just seen has begun; of several likely causes the first."""
    static = _static_of(group)
    joins = [_of_join(group, sent, static) for sent in _forcing(group)]
    sent_at = min((sent.sent_at for sent in _forcing(group)), default=now)
    silent = (*group.overdue.values(), *group.late(now))
    late = {member.member_id: member for member in silent if silence_tells(group, member)}
    if late:
        due_at, first = min(((each.due_at(group.tenure.began_at), each) for each in late.values()), key=itemgetter(0))
        others = {*group.members, *group.overdue}.difference(late)
        alone = not others  # Then the group was Empty, and nothing to be seen of it.
        if not joins or not (alone or sent_at < due_at):
            return Blame(cause=RebalanceCause.SESSION_EXPIRED, by=first.who)
    for member_id, leave in group.leaving.items():
        member = group.members.get(member_id)
        if member is not None and leave.at + LEAVING_SECONDS > now and not (joins and sent_at < leave.at):
            cause = RebalanceCause.MEMBER_REMOVED if leave.kicked else RebalanceCause.MEMBER_LEFT
            return Blame(cause=cause, by=member.who, said=leave.said)
    strong = (each for each in joins if each.cause not in _WEAK)
    found = next(strong, joins[0] if joins else Blame())
    return after_move(group, found, now)


def join_before(group: Group, at: float) -> Blame | None:
    """What a join brought about that went out before then, and has not been answered; None without one."""
    if not group.joins:
        return None
    static = _static_of(group)
    earlier = (_of_join(group, sent, static) for sent in _forcing(group) if sent.sent_at < at)
    found = next((each for each in earlier if each.cause not in _WEAK), None)
    return found and after_move(group, found, at)


def _static_of(group: Group) -> StaticMembers | None:
    """The static members, where the joins of many are under way."""
    statics = sum(bool(sent.joining.instance_id) for sent in group.joins.values())
    return group.static_members() if statics > 1 else None


def _forcing(group: Group) -> Iterator[JoinSent]:
    """The joins at the broker that may have begun it, in their order."""
    return (
        sent
        for sent in group.joins.values()
        if group.forces_rebalance(sent.joining) and not sent.joining.said.startswith(ECHOES)
    )


def _of_join(group: Group, sent: JoinSent, static: StaticMembers | None) -> Blame:
    """What a join that forces a rebalance brings about. `static`: as of `Group.predecessor`."""
    joining = sent.joining
    member = group.members.get(joining.member_id) or group.overdue.get(joining.member_id)
    cause = _of_newcomer(group, joining, static) if member is None else _of_member(group, member, joining)
    by = joining.who(joining.member_id)
    found = Blame(cause=cause, by=by, said=joining.said, token=joining.token, at=sent.sent_at)
    return after_move(group, found, sent.sent_at) if group.tenure.moved else found


def after_move(group: Group, found: Blame, now: float) -> Blame:
    """What needs no other reason just after the broker has become the coordinator; unknown where it may have."""
    at = now if found.at is None else found.at
    late = at >= group.tenure.began_at + MOVED_SECONDS
    if late or group.tenure.moved is False or found.cause not in _REPEATED:
        return found
    return replace(found, cause=RebalanceCause.COORDINATOR_MOVED if group.tenure.moved else RebalanceCause.UNKNOWN)


def _of_newcomer(group: Group, joining: Joining, static: StaticMembers | None) -> RebalanceCause:
    if group.predecessor(joining.instance_id, joining.member_id, static) is not None:
        return RebalanceCause.STATIC_REPLACED
    empty = group.state in SETTLED and group.state is not STABLE and group.unsure is None
    if not joining.member_id or joining.member_id in group.pending or empty:
        return RebalanceCause.NEW_MEMBER
    return _of_words(joining.said)  # The broker knew it before this sidecar did.


def _of_member(group: Group, member: Member, joining: Joining) -> RebalanceCause:
    """Why a known member has joined again: as it says, or as its subscription has changed.

    What it owns, and since which generation, is no wish of its own.
    """
    if (cause := _of_words(joining.said)) is not RebalanceCause.UNKNOWN:
        return cause
    pairs = [(member.protocols[name], new) for name, new in joining.protocols if name in member.protocols]
    alike = bool(pairs) and pairs[0][0] == pairs[0][1]
    if pairs and not alike:
        try:
            old, new = (decode_subscription(metadata) for metadata in pairs[0])
        except DecodeError:
            return RebalanceCause.SUBSCRIPTION_CHANGED
        if set(old.topics) != set(new.topics):
            return RebalanceCause.SUBSCRIPTION_CHANGED
        if _owned(old) - _owned(new):
            return RebalanceCause.PARTITIONS_REVOKED
        alike = (old.user_data, old.rack_id) == (new.user_data, new.rack_id)
    if member.member_id == group.leader:
        return RebalanceCause.LEADER_REJOINED
    if not member.protocols:
        return RebalanceCause.UNKNOWN  # Only its heartbeats have passed by.
    known = len(member.protocols) > 1 or len(joining.protocols) == 1  # The log tells of one protocol alone.
    same = alike and not (known and list(member.protocols) != [name for name, _ in joining.protocols])
    return RebalanceCause.UNKNOWN if same else RebalanceCause.SUBSCRIPTION_CHANGED


def _owned(subscription: ConsumerProtocolSubscription) -> set[tuple[str, int]]:
    return {(told.topic, each) for told in subscription.owned_partitions for each in told.partitions}


def _of_words(said: str) -> RebalanceCause:
    for beginning, cause in _SAID.items():
        if said.startswith(beginning):
            return cause
    words = said.replace("_", "").lower()
    return RebalanceCause.COORDINATOR_MOVED if any(each in words for each in _MOVED) else RebalanceCause.UNKNOWN


def by_admin(member: Member | None, named: str, said: str, client_id: str, client_host: str) -> bool:
    """Whether somebody else lets a member leave.

    A member names itself by its id; a static one that is back keeps the client id that it had first. Of hosts true ones
    are compared: the broker sees all clients in one place.
    """
    if not named or said.startswith(_ADMIN):
        return True
    if member is None or member.instance_id or not (member.client_host and client_host):
        return False
    return member.client_id != client_id or (bool(member.true_host) and member.true_host != client_host)


def how_dropped(group: Group, member: Member, now: float, static: StaticMembers) -> tuple[Departure, str]:
    """How a member went that is not there any more, and what was said of it. `static`: the group's now."""
    if group.predecessor(member.instance_id, member.member_id, static) is not None:
        return Departure.FENCED, ""
    if (leave := group.leaving.pop(member.member_id, None)) is not None:
        return Departure.KICKED if leave.kicked else Departure.LEFT, leave.said
    silent = member.silent(now, group.tenure.began_at) and silence_tells(group, member)
    return Departure.EXPIRED if silent else Departure.DROPPED, ""


def of_departure(member: Member, how: Departure, said: str = "") -> Blame:
    """What a member's departure brings about."""
    return Blame(cause=_DEPARTURES[how], by=member.who, said=said)


_DEPARTURES = {
    Departure.LEFT: RebalanceCause.MEMBER_LEFT,
    Departure.EXPIRED: RebalanceCause.SESSION_EXPIRED,
    Departure.DROPPED: RebalanceCause.UNKNOWN,
    Departure.REMOVED: RebalanceCause.MEMBER_REMOVED,
    Departure.KICKED: RebalanceCause.MEMBER_REMOVED,
    Departure.FENCED: RebalanceCause.STATIC_REPLACED,
}
