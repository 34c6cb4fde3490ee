"""The rules of the log: how its records change a group, and which facts follow.

A broker writes a generation to the log when the group's leader has synced, and when the group has become Empty. The
broker writes the same generation again when a static member joins again under another member id (KIP-345).

`log.follower` removes a group that has no records in the log any more.
"""

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.offsets_topic import decode_as
from group_sidecar.codecs.offsets_topic_values import GroupMetadataValue, MemberMetadata
from group_sidecar.coordinator.model.events import FOREVER, NEVER
from group_sidecar.coordinator.model.facts import Fact, RebalanceCause, RebalanceStarted
from group_sidecar.coordinator.model.state_transitions import SETTLED
from group_sidecar.coordinator.model.views import (
    ConsumerGroupView,
    ConsumerMemberView,
    FallbackReason,
    GroupKind,
    GroupState,
)
from group_sidecar.coordinator.rules.causes import (
    adjust_for_coordinator_move,
    cause_of_departure,
    departure_of_missing,
)
from group_sidecar.coordinator.rules.consumer_rebalances import rebalance_facts
from group_sidecar.coordinator.rules.fact_builder import (
    complete_rebalance,
    conclude_rebalance,
    member_gone_facts,
    member_joined_facts,
    member_returned_facts,
)
from group_sidecar.coordinator.rules.internal_events import (
    BrokerLost,
    ConsumerGroupLogged,
    DescriptionAwaited,
    GenerationLogged,
    GroupFound,
    GroupLoaded,
    GroupVanished,
    LogCaughtUp,
    RecordsUnreadable,
)
from group_sidecar.coordinator.rules.partition_moves import save_owners
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.lifecycle import UNKNOWN_GENERATION
from group_sidecar.coordinator.state.member import Member
from group_sidecar.coordinator.state.rebalance import CauseDetails, Rebalance


def group_found(group: Group, event: GroupFound, now: float) -> list[Fact]:
    """Makes a Dead group Empty, because the broker has the group."""
    if group.state is GroupState.DEAD:
        group.lifecycle.create()
        group.touch(now)
    return []


def group_loaded(group: Group, event: GroupLoaded, now: float) -> list[Fact]:
    """Notes since when the broker leads the partition of the group.

    Members may have joined again before the load was seen, so the cause of their rebalance may have to be corrected.
    """
    group.begin_leader_term(event.leader_term)
    if (rebalance := group.rebalance) is not None and rebalance.cause_details.token:
        group.rebalances.correct(adjust_for_coordinator_move(group, rebalance.cause_details, rebalance.started_at))
    return []


def generation_logged(group: Group, event: GenerationLogged, now: float) -> list[Fact]:
    """Applies the last generation of a classic group in the log, or its deletion."""
    before = group.logged_state.set_metadata(event.metadata)
    if event.metadata is None:
        if before is not None or group.kind is not GroupKind.CLASSIC:
            _lose_metadata(group, now)
        return []
    if event.metadata is before:
        return []
    try:
        value = decode_as(GroupMetadataValue, event.metadata)
    except DecodeError:
        group.completeness.note_undecoded_write()
        group.touch(now)
        return []
    return _take_generation(group, value, now, is_live=event.is_live)


def _take_generation(group: Group, value: GroupMetadataValue, now: float, *, is_live: bool) -> list[Fact]:
    """Applies a generation from the log. The members of a generation that is older than the copy's are ignored."""
    group.logged_state.drop_view()
    converted = group.kind is not GroupKind.CLASSIC
    if converted:
        group.lifecycle.become_classic()
        group.roster.doubt_client_ids()  # Joins in a KIP-848 group change the client ids of its members.
    known = group.generation_at != NEVER or group.members
    if known and (value.generation < group.generation or value.generation == group.lifecycle.passed_generation):
        return []
    if not known or value.generation > group.generation:
        described = known and group.generation == UNKNOWN_GENERATION
        facts = (
            _adopt_with_facts(group, value, now, converted=converted) if is_live else _adopt_history(group, value, now)
        )
        if described:
            group.doubt(now)  # A description by the broker may be newer than this record.
        if converted:
            group.roster.note_heartbeat_interval(None)
        if converted and value.members:
            group.doubt(now)  # Members may have joined the converted group already.
        return facts
    return _confirm(group, value, now)


def _adopt_with_facts(group: Group, value: GroupMetadataValue, now: float, *, converted: bool) -> list[Fact]:
    """Adopts a new generation. Returns the facts that follow from its differences to the previous generation.

    If the broker has converted a KIP-848 group, it begins the sessions of the remaining members and a rebalance
    (`GroupMetadataManager.convertToClassicGroup`). Otherwise the record shows the end of a rebalance.
    """
    facts = conclude_rebalance(group, now)
    save_owners(group)
    under_way, left_ids = group.rebalance, set(group.left_member_ids)
    here = {each: member for each, member in group.overdue.items() if not member.is_reported_gone} | group.members
    _adopt(group, value, now)
    joined_members = [member for member_id, member in group.members.items() if member_id not in here]
    left_members = [
        here[member_id] for member_id in here if member_id not in group.members and member_id not in left_ids
    ]
    joined_facts = member_joined_facts(group, joined_members, now)
    causes = [CauseDetails(cause=RebalanceCause.NEW_MEMBER, member=member.info) for member in joined_members]
    static = group.roster.static_members() if left_members else {}
    for member in left_members:
        departure, reason = departure_of_missing(group, member, now, static)
        facts += member_gone_facts(group, member, departure, now, reason)
        causes.append(cause_of_departure(member, departure, reason))
    facts += joined_facts
    if not group.members:
        group.rebalances.forget()
        return facts
    if under_way is None:
        details = causes[0] if causes else CauseDetails()
        under_way = Rebalance(cause_details=details, started_at=now, waiting_since=now)
        facts.append(
            RebalanceStarted(
                group_id=group.group_id, at=now, cause=details.cause, by=details.member, said=details.reason
            )
        )
    group.rebalances.resume(under_way)
    if converted:
        group.roster.begin_sessions(now)
        group.lifecycle.prepare_rebalance()
        return facts
    return facts + complete_rebalance(group, now)


def _adopt_history(group: Group, value: GroupMetadataValue, now: float) -> list[Fact]:
    """Adopts a generation that was not written just now. Only members that were reported as gone cause facts.

    A rebalance that the wire has shown goes on if a join waits. The broker began it after this generation.
    """
    under_way = group.rebalance if group.state is GroupState.PREPARING_REBALANCE else None
    _adopt(group, value, now)
    if under_way is not None and group.rebalancing_join is not None:
        group.lifecycle.prepare_rebalance()
        group.rebalances.resume(under_way)
    return member_returned_facts(group, group.members.values(), now)


def _adopt(group: Group, value: GroupMetadataValue, now: float) -> None:
    """Adopts a generation that the wire has not shown."""
    group.roster.forget_metadata()
    before, protocol = group.roster.known(), value.protocol or ""
    members = (
        _member(before.get(logged_member.member_id), logged_member, protocol, now) for logged_member in value.members
    )
    group.adopt_logged(value, {member.member_id: member for member in members}, now)


def _confirm(group: Group, value: GroupMetadataValue, now: float) -> list[Fact]:
    """Confirms the copy's generation, which the log now contains.

    A record with members shows that the leader has synced. A record without members changes nothing.
    """
    if not value.members:
        return []
    logged_members = {each.member_id: each for each in value.members if each.member_id not in group.left_member_ids}
    here = {**group.overdue, **group.members}
    if not group.leader:  # The generation was learned from a heartbeat, which does not name the leader.
        group.lifecycle.take_names(value)
    if group.incomplete_reason is FallbackReason.COLD:  # Some members have sent no request.
        group.roster.replace(
            {each: _member(here.get(each), logged_members[each], group.protocol, now) for each in logged_members}
        )
        group.apply_former(now)
        group.mark_complete()
    elif logged_members.keys() != here.keys():
        group.doubt(now)
    for member_id, member in here.items():
        if member_id in logged_members:
            member.learn_instance_id(logged_members[member_id].group_instance_id)
            member.adopt_description(logged_members[member_id].client_id, logged_members[member_id].client_host)
            member.learn_metadata(group.protocol, logged_members[member_id].subscription)
            if not group.assignments_known:
                member.assign(logged_members[member_id].assignment)
    group.lifecycle.know_assignments()
    group.touch(now)
    facts = member_returned_facts(group, group.members.values(), now)
    if group.state is not GroupState.COMPLETING_REBALANCE:
        return facts + conclude_rebalance(group, now)
    group.lifecycle.confirm_logged(now)
    return facts + complete_rebalance(group, now)


def _member(member: Member | None, logged_member: MemberMetadata, protocol: str, now: float) -> Member:
    if member is None:
        member = Member(
            member_id=logged_member.member_id, since=now, instance_id=logged_member.group_instance_id, sync_by=FOREVER
        )
    member.learn_instance_id(logged_member.group_instance_id)
    member.adopt_description(logged_member.client_id, logged_member.client_host)
    member.take_record(
        session_timeout_ms=logged_member.session_timeout,
        rebalance_timeout_ms=logged_member.rebalance_timeout,
        protocol=protocol,
        metadata=logged_member.subscription,
        assignment=logged_member.assignment,
    )
    return member


def _lose_metadata(group: Group, now: float) -> None:
    """Makes the group Empty, because the log has only offsets of the group and no generation any more."""
    group.logged_state.drop_view()
    group.lifecycle.lose_metadata(kept=group.kept_when_empty)
    group.roster.replace({})
    group.pending_joins.forget_descriptions()
    group.touch(now)


def consumer_group_logged(group: Group, event: ConsumerGroupLogged, now: float) -> list[Fact]:
    """Applies the log's records of a group of a newer protocol."""
    group.logged_state.set_metadata(event.metadata)
    if event.view is None:
        return []
    group.logged_state.note_decoded(event.changes)
    return _take_view(group, event.view, now, is_live=event.is_live)


def records_unreadable(group: Group, event: RecordsUnreadable, now: float) -> list[Fact]:
    """Makes a group of a newer protocol incomplete, because its records could not be decoded."""
    group.logged_state.set_metadata(event.metadata)
    group.logged_state.note_decoded(event.changes)
    group.completeness.note_undecoded_write()
    group.touch(now)
    return []


def group_vanished(group: Group, event: GroupVanished, now: float) -> list[Fact]:
    """Puts the group in doubt, because the log does not contain it any more. The broker may have deleted the group."""
    group.logged_state.set_metadata(None)
    group.doubt(now)
    group.touch(now)
    return []


def logged_members(group: Group) -> tuple[MemberMetadata, ...]:
    """Returns the members in the log's record of the current generation; empty if there is no such record."""
    if group.logged_metadata is None:
        return ()
    try:
        value = decode_as(GroupMetadataValue, group.logged_metadata)
    except DecodeError:
        return ()
    return value.members if value.generation == group.generation else ()


def caught_up(group: Group, event: LogCaughtUp, now: float) -> list[Fact]:
    """Marks the members of a group as complete, because the log was read far enough.

    The log contains the members of a classic group only while no rebalance is in progress.
    """
    if group.kind is GroupKind.CLASSIC:
        logged_ids = {member.member_id for member in logged_members(group)}
        if group.joins or group.state not in SETTLED or group.members.keys() != logged_ids:
            return []
    group.completeness.all_known()
    group.touch(now)
    return []


def description_awaited(group: Group, event: DescriptionAwaited, now: float) -> list[Fact]:
    """Notes that the broker will be asked for the unobserved members."""
    group.completeness.will_be_described()
    return []


def broker_lost(group: Group, event: BrokerLost, now: float) -> list[Fact]:
    """Puts a classic group in doubt, because its members may have changed at the broker."""
    group.doubt(now)
    group.touch(now)
    return []


def _take_view(group: Group, view: ConsumerGroupView, now: float, *, is_live: bool) -> list[Fact]:
    before, old = group.members, group.consumer
    group.lifecycle.follow_log(view)
    group.logged_state.set_view(view)
    logged_members = {
        logged.member_id: before.get(logged.member_id) or _new_member(group, logged, now) for logged in view.members
    }
    # The wire may show several new members before the log shows the first of them.
    joining_ids = before.keys() & {*group.pending_joins.unlogged_members.joining_ids(now)} - logged_members.keys()
    group.roster.follow_log({**logged_members, **{member_id: before[member_id] for member_id in joining_ids}})
    for logged in view.members:
        member = group.members[logged.member_id]
        member.adopt_consumer_record(logged.client_id, logged.broker_host)
        if not logged.classic:
            member.forget_session_timeout()
    group.pending_joins.unlogged_members.reconcile_with_log(group.members)
    group.touch(now)
    return rebalance_facts(group, before, old, now) if is_live else []


def _new_member(group: Group, member_view: ConsumerMemberView, now: float) -> Member:
    """Returns a new member that the log contains. The reply to its first heartbeat may not have been seen yet."""
    true_host, principal = group.pending_joins.unlogged_members.client_of(member_view.member_id)
    return Member(
        member_id=member_view.member_id,
        since=now,
        instance_id=member_view.instance_id,
        client_id=member_view.client_id,
        true_host=true_host,
        principal=principal,
        seen_at=now,
        seen_on_wire=bool(true_host),
    )
