"""The rules of the members of KIP-848 groups: what their heartbeats change, and which facts follow.

If the log is read, its records show the members and their assignments (`log_records`, `consumer_rebalances`).
"""

from group_sidecar.coordinator.model.events import (
    LEAVE_GROUP_MEMBER_EPOCH,
    ConsumerJoinAnswered,
    ConsumerJoinSent,
    ConsumerMemberSeen,
)
from group_sidecar.coordinator.model.facts import Departure, Fact
from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.coordinator.rules.causes import cause_of_departure
from group_sidecar.coordinator.rules.fact_builder import member_gone_facts, member_joined_facts
from group_sidecar.coordinator.rules.membership import after_departure
from group_sidecar.coordinator.rules.session_timeouts import refresh
from group_sidecar.coordinator.state.group import Group
from group_sidecar.coordinator.state.member import Member
from group_sidecar.coordinator.state.rebalance import CauseDetails

CONSUMER_SESSION_MS = 45_000
"""The default of `group.consumer.session.timeout.ms`. The broker does not report this timeout to KIP-848 clients."""
_LEAVE_EPOCH, _LEAVE_STATIC_EPOCH = LEAVE_GROUP_MEMBER_EPOCH, -2
"""Member epochs with which a heartbeat leaves. With -2, a static member announces a restart, and stays a member."""


def consumer_join_sent(group: Group, event: ConsumerJoinSent, now: float) -> list[Fact]:
    """Counts a new member of a KIP-848 group whose first heartbeat has no reply yet."""
    group.pending_joins.unlogged_members.add_join(
        event.token, event.member_key, now, event.client_host, event.principal
    )
    return []


def consumer_join_answered(group: Group, event: ConsumerJoinAnswered, now: float) -> list[Fact]:
    """Removes a KIP-848 join that has its reply. If the broker accepted the member, another event adds the member."""
    group.pending_joins.unlogged_members.end_join(event.token)
    return []


def consumer_member_seen(group: Group, event: ConsumerMemberSeen, now: float) -> list[Fact]:
    """Applies the heartbeat of a KIP-848 member that is alive, joins, or leaves. The log shows everything else."""
    if event.heartbeat_seconds:
        group.roster.note_heartbeat_interval(event.heartbeat_seconds)
    _note_unlogged_members(group, event, now)
    # A librdkafka client without partitions repeats all fields in each heartbeat. If each repetition were a doubt, the
    # doubt might never end, because a Fetch of the log waits up to half a second for records.
    if event.may_change_group and not group.repeats_heartbeat(event.member_id, event.content_hash, now):
        group.doubt(max(event.sent_at, now))
    if group.consumer is not None or event.epoch == _LEAVE_STATIC_EPOCH:
        if (known := group.members.get(event.member_id)) is not None:
            if event.client_id not in ("", known.client_id):
                group.doubt(max(event.sent_at, now))  # The broker writes the new client id to the log.
            group.record_activity(known, event.sent_at)
            group.set_client(known, event.client_host, event.principal)
        return []  # The log shows the rest.
    if group.kind is GroupKind.CLASSIC and event.sent_at < group.generation_at:
        return []  # The broker has converted the group since the heartbeat was sent.
    group.lifecycle.become_consumer(event.epoch)
    if event.epoch == _LEAVE_EPOCH:
        return _consumer_member_left(group, event.member_id, now)
    group.lifecycle.report(GroupState.STABLE)
    facts = refresh(group, event.member_id, event.sent_at, now, event.client_host, event.principal)
    if event.member_id in group.members:
        return facts
    member = Member(
        member_id=event.member_id,
        since=now,
        instance_id=event.instance_id,
        client_id=event.client_id,
        true_host=event.client_host,
        principal=event.principal,
        session_timeout_ms=CONSUMER_SESSION_MS,
        seen_at=event.sent_at,
        seen_on_wire=True,
    )
    group.roster.include(member)
    group.touch(now)
    return member_joined_facts(group, [member], now)


def _note_unlogged_members(group: Group, event: ConsumerMemberSeen, now: float) -> None:
    """Notes the member that joins or leaves with a heartbeat, and the static member that it replaces."""
    if event.is_join:
        group.roster.forget_departure(event.member_id)
        group.pending_joins.unlogged_members.add_joined(event.member_id, now, event.client_host, event.principal)
        if event.instance_id and (old := group.roster.predecessor(event.instance_id, event.member_id)) is not None:
            group.pending_joins.unlogged_members.add_leaving(old.member_id, now)
    elif event.epoch == _LEAVE_EPOCH:
        group.pending_joins.unlogged_members.add_leaving(event.member_id, now)


def _consumer_member_left(group: Group, member_id: str, now: float) -> list[Fact]:
    """Removes a KIP-848 member that has left, from a group without records in the log."""
    member = group.members.get(member_id)
    group.drop(member_id, now)
    group.touch(now)
    if member is None:
        return after_departure(group, CauseDetails(), now)
    facts = member_gone_facts(group, member, Departure.LEFT, now)
    return facts + after_departure(group, cause_of_departure(member, Departure.LEFT), now)
