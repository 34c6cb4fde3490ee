"""What a record of the log does to a group.

Owns: how a logged generation, or what the log says of a group of a newer protocol, becomes the state of a `Group`.
Must not know: records' keys, partitions, offsets. A generation is logged when its leader has synced, and when the group
has become Empty; a static member that comes back under another id is logged in the same generation (KIP-345).
"""

from group_sidecar.codecs.group_records import GroupMetadataValue, MemberMetadata
from group_sidecar.codecs.offsets_topic import decode_as
from group_sidecar.coordinator.causes import how_dropped, of_departure, silence_tells
from group_sidecar.coordinator.consumer_rebalances import changed
from group_sidecar.coordinator.events import FOREVER, NEVER
from group_sidecar.coordinator.facts import Fact, RebalanceCause, RebalanceStarted
from group_sidecar.coordinator.groups import UNKNOWN_GENERATION, Group
from group_sidecar.coordinator.members import Member
from group_sidecar.coordinator.ownership import keep_owners
from group_sidecar.coordinator.rebalances import Blame, Rebalance
from group_sidecar.coordinator.telling import completed, forget_past, gone, interrupted, joined
from group_sidecar.coordinator.views import ConsumerGroupView, ConsumerMemberView, GroupKind, GroupState, Lacking


def generation_logged(group: Group, raw: bytes, now: float, *, news: bool) -> list[Fact]:
    """A generation of a classic group. One that the wire has overtaken says nothing new. Raises DecodeError.

    `news`: whether it has been written just now; what is read while a partition is loaded is history.
    """
    value = decode_as(GroupMetadataValue, raw)
    group.consumer = None
    converted = group.kind is not GroupKind.CLASSIC
    if converted:
        group.kind, group.generation = GroupKind.CLASSIC, -1
    known = group.generation_at != NEVER or group.members
    if known and value.generation < group.generation:
        return []
    if not known or value.generation > group.generation:
        described = known and group.generation == UNKNOWN_GENERATION
        facts = _told_of(group, value, now) if news else _adopt(group, value, now)
        if described and not news:
            group.doubt(now)  # The broker has said since how it is, and may say so again.
        if converted and value.members:
            group.doubt(now)  # The broker rebalances a group that it converts (`convertToClassicGroup`).
        return facts
    return _confirm(group, value, now)


def _told_of(group: Group, value: GroupMetadataValue, now: float) -> list[Fact]:
    """The same, and what has happened with it, as far as two generations tell."""
    facts = interrupted(group, now)
    keep_owners(group)
    under_way, departed = group.rebalance, set(group.departed)
    unheard = {member_id: member for member_id, member in group.overdue.items() if not silence_tells(group, member)}
    here = {**unheard, **group.members}
    _adopt(group, value, now)
    came = [member for member_id, member in group.members.items() if member_id not in here]
    went = [here[member_id] for member_id in here if member_id not in group.members and member_id not in departed]
    facts += joined(group, came, now)
    causes = [Blame(cause=RebalanceCause.NEW_MEMBER, by=member.who) for member in came]
    static = group.static_members() if went else {}
    for member in went:
        how, said = how_dropped(group, member, now, static)
        facts += gone(group, [member], how, now, said)
        causes.append(of_departure(member, how, said))
    if not group.members:
        forget_past(group)
        return facts
    if under_way is None:
        why = causes[0] if causes else Blame()
        under_way = Rebalance(blame=why, began=now, since=now)
        facts.append(RebalanceStarted(group_id=group.group_id, at=now, cause=why.cause, by=why.by, said=why.said))
    group.rebalance = under_way
    return facts + completed(group, now)


def _adopt(group: Group, value: GroupMetadataValue, now: float) -> list[Fact]:
    """A generation that the wire did not tell of."""
    before = {**group.overdue, **group.members}
    group.rebalance, group.overdue = None, {}
    group.generation, group.generation_at, group.stable_at = value.generation, now, now
    _agree(group, value)
    group.state = GroupState.STABLE if value.members else GroupState.EMPTY
    members = (_member(before.get(told.member_id), told, group.protocol, now) for told in value.members)
    group.members = {member.member_id: member for member in members}
    group.departed.intersection_update(sent.joining.member_id for sent in group.joins.values())
    group.reservations.begin_generation(now)
    group.assigned, group.past = True, False
    group.unsure = None if group.unsure is Lacking.COLD else group.unsure
    group.touch(now)
    return []


def _agree(group: Group, value: GroupMetadataValue) -> None:
    group.protocol_type, group.protocol = value.protocol_type, value.protocol or ""
    group.leader = value.leader or ""


def _confirm(group: Group, value: GroupMetadataValue, now: float) -> list[Fact]:
    """The generation that is known has been written down: its leader has synced, or its last member has gone."""
    if not value.members:
        return []
    told = {each.member_id: each for each in value.members if each.member_id not in group.departed}
    here = {**group.overdue, **group.members}
    if not group.leader:  # Signs of life do not tell it.
        _agree(group, value)
    if group.unsure is Lacking.COLD:  # Some of its members never passed by.
        group.members = {each: _member(here.get(each), told[each], group.protocol, now) for each in told}
        group.overdue = {}
        group.be_sure()
    elif told.keys() != here.keys():
        group.doubt(now)
    for member_id, member in here.items():
        if member_id in told:
            member.told(told[member_id].client_id, told[member_id].client_host)
            member.assignment = member.assignment if group.assigned else told[member_id].assignment
    group.assigned = True
    group.touch(now)
    if group.state is not GroupState.COMPLETING_REBALANCE:
        return interrupted(group, now)
    group.become(GroupState.STABLE)
    group.stable_at = now
    return completed(group, now)


def _member(member: Member | None, told: MemberMetadata, protocol: str, now: float) -> Member:
    if member is None:
        member = Member(member_id=told.member_id, since=now, instance_id=told.group_instance_id, sync_by=FOREVER)
    member.told(told.client_id, told.client_host)
    member.session_timeout_ms = told.session_timeout
    member.rebalance_timeout_ms = told.rebalance_timeout if told.rebalance_timeout >= 0 else told.session_timeout
    member.assignment = told.assignment
    member.protocols.setdefault(protocol, told.subscription)
    return member


def metadata_gone(group: Group, now: float) -> None:
    """The log has no generation of the group any more, but offsets."""
    group.kind, group.consumer, group.state = GroupKind.CLASSIC, None, GroupState.EMPTY
    group.protocol_type = "" if group.outlasts_members else group.protocol_type
    group.protocol = group.leader = ""
    group.members, group.overdue, group.generation = {}, {}, 0
    group.reservations.begin_generation(now)
    group.touch(now)


def consumer_group_logged(group: Group, view: ConsumerGroupView, now: float, *, news: bool) -> list[Fact]:
    """What the log says of a group of a newer protocol. `news`: as of `generation_logged`."""
    before, old = group.members, group.consumer
    order = old.members if old and old.ordered else ()
    group.kind, group.consumer, group.protocol_type = view.kind, view, str(view.kind)
    group.generation = view.epoch
    group.order(tuple(member.member_id for member in order))
    group.members = {told.member_id: before.get(told.member_id) or _newcomer(group, told, now) for told in view.members}
    for told in view.members:
        group.members[told.member_id].told(told.client_id, told.broker_host)
    group.reservations.arrivals.logged(group.members)
    group.touch(now)
    return changed(group, before, old, now) if news else []


def _newcomer(group: Group, told: ConsumerMemberView, now: float) -> Member:
    """A member that the log tells of first. Its heartbeat may have passed by, and await its reply."""
    return Member(
        member_id=told.member_id,
        since=now,
        instance_id=told.instance_id,
        client_id=told.client_id,
        true_host=group.reservations.arrivals.host_of(told.member_id),
        seen_at=FOREVER,
    )
