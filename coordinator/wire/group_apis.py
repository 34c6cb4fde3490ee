"""Turns requests and replies about members and groups into events.

The APIs are JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ListGroups, DescribeGroups, DeleteGroups,
ConsumerGroupHeartbeat and ConsumerGroupDescribe. No function here depends on the state of a group.
"""

from collections.abc import Iterable

from group_sidecar.codecs.errors import NONE, ErrorCode
from group_sidecar.codecs.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from group_sidecar.codecs.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from group_sidecar.coordinator.model.events import (
    AnyEvent,
    ConsumerGroupDescribed,
    ConsumerJoinAnswered,
    ConsumerMemberSeen,
    DescribedMember,
    GroupDeleted,
    GroupDescribed,
    GroupsListed,
    JoinAccepted,
    JoiningMember,
    JoinRejected,
    LeaveSent,
    MemberIdIssued,
    MembersLeft,
    MemberUnknown,
    OffsetsDoubted,
    ReplyLost,
    Synced,
)
from group_sidecar.coordinator.model.views import GroupKind, GroupState
from group_sidecar.coordinator.wire.exchange import Exchange, error_events, member_seen_event, not_coordinator_events

MEMBER_ID_REQUIRED_SINCE = 4
"""The JoinGroup version from which the broker assigns a dynamic member an id before the member joins (KIP-394)."""
MULTIPLE_MEMBERS_SINCE = 3
"""The LeaveGroup version from which one request can remove several members, by member id or instance id (KIP-345)."""
INSTANCE_IDS_DESCRIBED_SINCE = 4
"""The DescribeGroups version from which the reply contains the instance ids of static members (KIP-345)."""
UNCHANGED_TIMEOUT = -1
"""The rebalance timeout in a KIP-848 heartbeat that does not change the timeout."""
STATES = {state.value: state for state in GroupState} | {"AwaitingSync": GroupState.COMPLETING_REBALANCE}
"""The group state by the name in a broker's reply. Brokers before 1.1 called CompletingRebalance AwaitingSync."""


def joining_of(exchange: Exchange, request: JoinGroupRequest) -> JoiningMember:
    """Returns the fields of a JoinGroup request that describe its member."""
    first = exchange.version >= MEMBER_ID_REQUIRED_SINCE and not request.member_id and not request.group_instance_id
    return JoiningMember(
        token=exchange.token,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=exchange.client_id,
        client_host=exchange.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if exchange.version >= 1 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        will_park=not first,
        reason=request.reason or "",
        principal=exchange.principal,
    )


def leaving_of(exchange: Exchange, request: LeaveGroupRequest) -> LeaveSent:
    """Returns the event of a LeaveGroup request."""
    members = (
        request.members
        if exchange.version >= MULTIPLE_MEMBERS_SINCE
        else (MemberIdentity(member_id=request.member_id),)
    )
    return LeaveSent(
        group_id=request.group_id,
        sent_at=exchange.sent_at,
        members=tuple((each.member_id, each.group_instance_id) for each in members),
        reasons=tuple(each.reason or "" for each in members),
        client_id=exchange.client_id,
        client_host=exchange.client_host,
    )


def join(exchange: Exchange, request: JoinGroupRequest, reply: JoinGroupResponse, now: float) -> Iterable[AnyEvent]:
    """Yields the events of a JoinGroup reply."""
    group, joining = request.group_id, joining_of(exchange, request)
    if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        yield MemberIdIssued(group_id=group, sent_at=exchange.sent_at, joining=joining, member_id=reply.member_id)
    elif reply.error_code == ErrorCode.NONE:
        yield JoinAccepted(
            group_id=group,
            sent_at=exchange.sent_at,
            joining=joining,
            member_id=reply.member_id,
            generation=reply.generation_id,
            protocol_type=reply.protocol_type or request.protocol_type,
            protocol=reply.protocol_name or "",
            leader=reply.leader,
            roster=tuple((m.member_id, m.group_instance_id, m.metadata) for m in reply.members),
        )
    else:
        yield JoinRejected(group_id=group, sent_at=exchange.sent_at, joining=joining, error_code=reply.error_code)
        refused = reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED  # With this error, Kafka removes the member.
        if request.member_id and (refused or reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID):
            yield MemberUnknown(
                group_id=group,
                sent_at=exchange.sent_at,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                protocol=GroupKind.CLASSIC,
                is_join=True,
                group_is_full=refused,
            )
        yield from not_coordinator_events(exchange, group, reply.error_code)


def sync(exchange: Exchange, request: SyncGroupRequest, reply: SyncGroupResponse, now: float) -> Iterable[AnyEvent]:
    """Yields the events of a SyncGroup reply."""
    if reply.error_code == ErrorCode.NONE:
        yield Synced(
            group_id=request.group_id,
            sent_at=exchange.sent_at,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            client_id=exchange.client_id,
            client_host=exchange.client_host,
            principal=exchange.principal,
            assignment=reply.assignment,
            assignments={a.member_id: a.assignment for a in request.assignments},
        )
    yield from error_events(
        exchange,
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        reply.error_code,
    )


def heartbeat(
    exchange: Exchange, request: HeartbeatRequest, reply: HeartbeatResponse, now: float
) -> Iterable[AnyEvent]:
    """Returns the events of a Heartbeat reply."""
    group, member, instance = request.group_id, request.member_id, request.group_instance_id
    if reply.error_code == NONE:
        return (member_seen_event(exchange, group, member, instance, request.generation_id, True),)
    return error_events(exchange, group, member, instance, request.generation_id, reply.error_code, is_heartbeat=True)


def leave(exchange: Exchange, request: LeaveGroupRequest, reply: LeaveGroupResponse, now: float) -> Iterable[AnyEvent]:
    """Yields the events of a LeaveGroup reply.

    Up to v2 the reply's error is the error of the only member. From v3 on it is the group's error (KIP-345).
    """
    group = request.group_id
    outcomes = [(m.member_id, m.group_instance_id, reply.error_code or m.error_code) for m in reply.members]
    if exchange.version < MULTIPLE_MEMBERS_SINCE:
        outcomes = [(request.member_id, None, reply.error_code)]
    left = tuple((member, instance) for member, instance, error in outcomes if error == ErrorCode.NONE)
    if left:
        reasons = {(each.member_id, each.group_instance_id): each.reason or "" for each in request.members}
        yield MembersLeft(
            group_id=group,
            sent_at=exchange.sent_at,
            members=left,
            reasons=tuple(reasons.get(each, "") for each in left),
            client_id=exchange.client_id,
            client_host=exchange.client_host,
            removed=exchange.removing,
        )
    for member, instance, error in outcomes:
        if error == ErrorCode.UNKNOWN_MEMBER_ID and member:
            yield MemberUnknown(
                group_id=group,
                sent_at=exchange.sent_at,
                member_id=member,
                instance_id=instance,
                protocol=GroupKind.CLASSIC,
            )
    yield from not_coordinator_events(exchange, group, reply.error_code)


def delete_groups(
    exchange: Exchange, request: DeleteGroupsRequest, reply: DeleteGroupsResponse, now: float
) -> Iterable[AnyEvent]:
    """Yields the events of a DeleteGroups reply. A group that the broker did not have counts as deleted."""
    for result in reply.results:
        if result.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            existed = result.error_code == ErrorCode.NONE
            yield GroupDeleted(group_id=result.group_id, sent_at=exchange.sent_at, existed=existed)
        yield from not_coordinator_events(exchange, result.group_id, result.error_code)


def delete_groups_lost(exchange: Exchange, request: DeleteGroupsRequest) -> Iterable[AnyEvent]:
    """Yields the events of a DeleteGroups request whose reply was lost."""
    for group in request.groups_names:
        yield ReplyLost(group_id=group, sent_at=exchange.sent_at, token=exchange.token, may_create_group=False)
        yield OffsetsDoubted(group_id=group, sent_at=exchange.sent_at, partitions=None)


def member_reply_lost(
    exchange: Exchange, request: JoinGroupRequest | SyncGroupRequest | LeaveGroupRequest | ConsumerGroupHeartbeatRequest
) -> Iterable[AnyEvent]:
    """Yields the event of a member's request whose reply was lost."""
    may_create_group = isinstance(request, JoinGroupRequest | ConsumerGroupHeartbeatRequest)
    if isinstance(request, LeaveGroupRequest):
        # A leave by instance id may remove a member from a group that is created after the request was sent.
        may_create_group = any(member.group_instance_id for member in request.members)
    yield ReplyLost(
        group_id=request.group_id, sent_at=exchange.sent_at, token=exchange.token, may_create_group=may_create_group
    )


def consumer_heartbeat(
    exchange: Exchange, request: ConsumerGroupHeartbeatRequest, reply: ConsumerGroupHeartbeatResponse, now: float
) -> Iterable[AnyEvent]:
    """Yields the events of a ConsumerGroupHeartbeat reply (KIP-848)."""
    group, member = request.group_id, reply.member_id or request.member_id
    if request.member_epoch == 0:
        yield ConsumerJoinAnswered(group_id=group, sent_at=exchange.sent_at, token=exchange.token)
    if reply.error_code == ErrorCode.NONE:
        may_change_group = (
            _may_change_group(request) or reply.assignment is not None or reply.member_epoch != request.member_epoch
        )
        yield ConsumerMemberSeen(
            group_id=group,
            sent_at=exchange.sent_at,
            member_id=member,
            instance_id=request.instance_id,
            epoch=reply.member_epoch,
            client_id=exchange.client_id,
            client_host=exchange.client_host,
            principal=exchange.principal,
            is_join=request.member_epoch == 0,
            may_change_group=may_change_group,
            content_hash=_content_hash(exchange, request, reply) if may_change_group else None,
            heartbeat_seconds=reply.heartbeat_interval_ms / 1000,
        )
    else:
        yield from error_events(
            exchange,
            group,
            member,
            request.instance_id,
            request.member_epoch,
            reply.error_code,
            protocol=GroupKind.CONSUMER,
        )


def consumer_leaving(exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> LeaveSent:
    """Returns the event of a heartbeat by which a member leaves a KIP-848 group."""
    return LeaveSent(
        group_id=request.group_id,
        sent_at=exchange.sent_at,
        members=((request.member_id, request.instance_id),),
        client_id=exchange.client_id,
        client_host=exchange.client_host,
    )


def _may_change_group(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a heartbeat joins, leaves, or contains changed fields. Unchanged fields are null or -1.

    The instance id is not compared. It never changes after the join, and clients repeat it in each heartbeat.
    """
    optional_fields = (
        request.rack_id,
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.server_assignor,
        request.topic_partitions,
    )
    changes_timeout = request.rebalance_timeout_ms != UNCHANGED_TIMEOUT
    return request.member_epoch <= 0 or changes_timeout or any(each is not None for each in optional_fields)


def _content_hash(
    exchange: Exchange, request: ConsumerGroupHeartbeatRequest, reply: ConsumerGroupHeartbeatResponse
) -> int | None:
    """Returns a hash of everything in a heartbeat and its reply that can change the member.

    The hash is None if the heartbeat joins or leaves, or if its reply changes the epoch.
    """
    if request.member_epoch <= 0 or reply.member_epoch != request.member_epoch:
        return None
    return hash((exchange.client_id, exchange.client_host, request, reply.assignment))


def list_groups(
    exchange: Exchange, request: ListGroupsRequest, reply: ListGroupsResponse, now: float
) -> Iterable[AnyEvent]:
    """Yields the event of a ListGroups reply, if the request had no filter."""
    if reply.error_code == ErrorCode.NONE and not (request.states_filter or request.types_filter):
        listed = frozenset(group.group_id for group in reply.groups)
        yield GroupsListed(groups=listed, sent_at=exchange.sent_at, as_of=exchange.note_count)


def describe(
    exchange: Exchange, request: DescribeGroupsRequest, reply: DescribeGroupsResponse, now: float
) -> Iterable[AnyEvent]:
    """Yields the events of a DescribeGroups reply."""
    for group in reply.groups:
        state = STATES.get(group.group_state)
        if group.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) and state is not None:
            yield _described(exchange, group, state)
        yield from not_coordinator_events(exchange, group.group_id, group.error_code)


def describe_consumer_groups(
    exchange: Exchange, request: ConsumerGroupDescribeRequest, reply: ConsumerGroupDescribeResponse, now: float
) -> Iterable[AnyEvent]:
    """Yields the events of a ConsumerGroupDescribe reply (KIP-848)."""
    for group in reply.groups:
        if group.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            yield ConsumerGroupDescribed(
                group_id=group.group_id,
                sent_at=exchange.sent_at,
                assignor=group.assignor_name,
                has_error_message=group.error_message is not None,
                members=tuple(member.member_id for member in group.members),
                as_of=exchange.as_of.get(group.group_id, (0, 0))[0],
            )
        yield from not_coordinator_events(exchange, group.group_id, group.error_code)


def _described(exchange: Exchange, group: DescribedGroup, state: GroupState) -> GroupDescribed:
    members = tuple(
        DescribedMember(
            member_id=m.member_id,
            instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            metadata=m.member_metadata,
            assignment=m.member_assignment,
        )
        for m in group.members
    )
    return GroupDescribed(
        group_id=group.group_id,
        sent_at=exchange.sent_at,
        state=state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=members,
        as_of=exchange.as_of.get(group.group_id, (0, 0))[0],
        has_instance_ids=exchange.version >= INSTANCE_IDS_DESCRIBED_SINCE,
    )
