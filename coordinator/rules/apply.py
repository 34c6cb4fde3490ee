"""Changes a group by an event: applies the rule of the event's kind.

Requests of clients, records of the log and the passing of time are all events. Some changes have no event:
`coordinator.state.group_cache` decides whether a new group is complete, and makes groups incomplete after writes that
could not be decoded. A test checks that no module outside the rules and `coordinator.state` changes a group.
"""

from collections.abc import Callable, Mapping
from typing import Any

from group_sidecar.coordinator.model.events import (
    ConsumerJoinAnswered,
    ConsumerJoinSent,
    ConsumerMemberSeen,
    Event,
    GroupDescribed,
    JoinAccepted,
    JoinRejected,
    JoinSent,
    LeaveSent,
    MemberIdIssued,
    MemberSeen,
    MembersLeft,
    MemberUnknown,
    RebalanceSeen,
    ReplyLost,
    Synced,
)
from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.coordinator.rules.consumer_members import (
    consumer_join_answered,
    consumer_join_sent,
    consumer_member_seen,
)
from group_sidecar.coordinator.rules.descriptions import (
    described,
    instance_ids_missing,
    members_ordered,
    size_described,
)
from group_sidecar.coordinator.rules.internal_events import (
    BrokerLost,
    ConsumerGroupLogged,
    DescriptionAwaited,
    GenerationLogged,
    GroupFound,
    GroupLoaded,
    GroupVanished,
    InstanceIdsMissing,
    InternalEvent,
    LogCaughtUp,
    MembersOrdered,
    MetadataDropped,
    RecordsUnreadable,
    RequestsCrossed,
    SizeDescribed,
    TimePassed,
)
from group_sidecar.coordinator.rules.joins import join_accepted, join_rejected, join_sent, member_id_issued, reply_lost
from group_sidecar.coordinator.rules.log_records import (
    broker_lost,
    caught_up,
    consumer_group_logged,
    description_awaited,
    generation_logged,
    group_found,
    group_loaded,
    group_vanished,
    records_unreadable,
)
from group_sidecar.coordinator.rules.membership import (
    leave_sent,
    member_seen,
    member_unknown,
    members_left,
    metadata_dropped,
    rebalance_seen,
    requests_crossed,
    synced,
)
from group_sidecar.coordinator.rules.session_timeouts import expire
from group_sidecar.coordinator.state.group import Group

Rule = Callable[[Group, Any, float], list[Fact]]
"""Applies an event to a group at a time, in seconds since the epoch. Returns the facts that follow."""

WIRE_RULES: Mapping[type[Event], Rule] = {
    JoinSent: join_sent,
    ReplyLost: reply_lost,
    JoinRejected: join_rejected,
    MemberIdIssued: member_id_issued,
    JoinAccepted: join_accepted,
    Synced: synced,
    MemberSeen: member_seen,
    RebalanceSeen: rebalance_seen,
    MemberUnknown: member_unknown,
    LeaveSent: leave_sent,
    MembersLeft: members_left,
    GroupDescribed: described,
    ConsumerJoinSent: consumer_join_sent,
    ConsumerJoinAnswered: consumer_join_answered,
    ConsumerMemberSeen: consumer_member_seen,
}
"""The rules of the events that requests and replies show."""

INTERNAL_RULES: Mapping[type[InternalEvent], Rule] = {
    GroupFound: group_found,
    GroupLoaded: group_loaded,
    GenerationLogged: generation_logged,
    ConsumerGroupLogged: consumer_group_logged,
    RecordsUnreadable: records_unreadable,
    GroupVanished: group_vanished,
    LogCaughtUp: caught_up,
    DescriptionAwaited: description_awaited,
    BrokerLost: broker_lost,
    InstanceIdsMissing: instance_ids_missing,
    RequestsCrossed: requests_crossed,
    TimePassed: expire,
    MetadataDropped: metadata_dropped,
    SizeDescribed: size_described,
    MembersOrdered: members_ordered,
}
"""The rules of log records and of the copy's own events. These rules count the changes of the group themselves."""

QUIET = frozenset(
    {JoinSent, LeaveSent, MemberSeen, RebalanceSeen, ConsumerJoinSent, ConsumerJoinAnswered, ConsumerMemberSeen}
)
"""Frequent wire events that rarely change the group. Their rules count the changes themselves. Every other wire event
counts as a change."""


RULES: Mapping[type[Any], Rule] = {**WIRE_RULES, **INTERNAL_RULES}
"""The rule of each kind of event."""


def apply(group: Group, event: Event | InternalEvent, now: float) -> list[Fact]:
    """Applies an event to its group at the time `now`. Returns the facts that follow."""
    kind = type(event)
    facts = RULES[kind](group, event, now)
    if kind in WIRE_RULES:
        if kind not in QUIET:
            group.touch(now)
        group.observe(now)
    return facts


def apply_seen(group: Group, event: MemberSeen, now: float) -> list[Fact]:
    """Applies a `MemberSeen`, the most frequent kind of event, as `apply` does, but without a look-up of its rule."""
    facts = member_seen(group, event, now)
    group.observe(now)
    return facts
