"""Exchanges about members and groups, to events.

Owns: what JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, DeleteGroups and
ConsumerGroupHeartbeat say. Must not know: the state of any group.
"""

from collections.abc import Iterable

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from group_sidecar.codecs.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from group_sidecar.codecs.messages.join_group import JoinGroupRequest, JoinGroupResponse
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from group_sidecar.coordinator.events import (
    AnyEvent,
    ConsumerMemberSeen,
    DescribedMember,
    GroupDeleted,
    GroupDescribed,
    JoinAccepted,
    Joining,
    JoinRejected,
    MemberIdIssued,
    MembersLeft,
    MemberUnknown,
    Synced,
)
from group_sidecar.coordinator.exchange import LOST, Exchange, moved, seen, trouble
from group_sidecar.coordinator.views import GroupState

MEMBER_ID_REQUIRED_SINCE = 4
"""The JoinGroup version from which a dynamic member is first given an id (KIP-394)."""
_STATES = {state.value: state for state in GroupState} | {"AwaitingSync": GroupState.COMPLETING_REBALANCE}


def joining_of(exchange: Exchange, request: JoinGroupRequest) -> Joining:
    """What a join says of its member."""
    first = exchange.version >= MEMBER_ID_REQUIRED_SINCE and not request.member_id and not request.group_instance_id
    return Joining(
        token=exchange.token,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=exchange.client_id,
        client_host=exchange.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if exchange.version >= 1 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        parks=not first,
    )


def join(x: Exchange, request: JoinGroupRequest, reply: JoinGroupResponse, now: float) -> Iterable[AnyEvent]:
    """A join was answered."""
    group, joining = request.group_id, joining_of(x, request)
    if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        yield MemberIdIssued(group_id=group, joining=joining, member_id=reply.member_id)
    elif reply.error_code == ErrorCode.NONE:
        yield JoinAccepted(
            group_id=group,
            joining=joining,
            member_id=reply.member_id,
            generation=reply.generation_id,
            protocol_type=reply.protocol_type or request.protocol_type,
            protocol=reply.protocol_name or "",
            leader=reply.leader,
            roster=tuple((m.member_id, m.group_instance_id, m.metadata) for m in reply.members),
        )
    else:
        yield JoinRejected(group_id=group, joining=joining, error_code=reply.error_code)
        removed = reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED  # Kafka's coordinator drops whom it refuses.
        if request.member_id and (removed or reply.error_code in LOST):
            yield MemberUnknown(group_id=group, member_id=request.member_id)
        yield from moved(group, reply.error_code)


def sync(x: Exchange, request: SyncGroupRequest, reply: SyncGroupResponse, now: float) -> Iterable[AnyEvent]:
    """A member synced, or could not."""
    if reply.error_code == ErrorCode.NONE:
        yield Synced(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            assignment=reply.assignment,
            assignments={a.member_id: a.assignment for a in request.assignments} or None,
            seen_at=now,  # The broker's timer starts anew when it answers, not when it parked the request.
        )
    yield from trouble(x, request.group_id, request.member_id, reply.error_code)


def heartbeat(x: Exchange, request: HeartbeatRequest, reply: HeartbeatResponse, now: float) -> Iterable[AnyEvent]:
    """A heartbeat was answered."""
    if reply.error_code == ErrorCode.NONE:
        yield seen(x, request.group_id, request.member_id, request.group_instance_id, request.generation_id, True)
    yield from trouble(x, request.group_id, request.member_id, reply.error_code)


def leave(x: Exchange, request: LeaveGroupRequest, reply: LeaveGroupResponse, now: float) -> Iterable[AnyEvent]:
    """Members left, or could not."""
    group = request.group_id
    left: list[tuple[str, str | None]] = []
    if reply.error_code == ErrorCode.NONE and x.version < 3:
        left = [(request.member_id, None)]
    elif reply.error_code == ErrorCode.NONE:
        left = [(m.member_id, m.group_instance_id) for m in reply.members if m.error_code == ErrorCode.NONE]
    elif reply.error_code in LOST and request.member_id:
        yield MemberUnknown(group_id=group, member_id=request.member_id)
    if left:
        yield MembersLeft(group_id=group, members=tuple(left), removed=x.removing)
    yield from moved(group, reply.error_code)


def delete_groups(
    x: Exchange, request: DeleteGroupsRequest, reply: DeleteGroupsResponse, now: float
) -> Iterable[AnyEvent]:
    """Groups were deleted, or could not be."""
    for result in reply.results:
        if result.error_code == ErrorCode.NONE:
            yield GroupDeleted(group_id=result.group_id)
        yield from moved(result.group_id, result.error_code)


def consumer_heartbeat(
    x: Exchange, request: ConsumerGroupHeartbeatRequest, reply: ConsumerGroupHeartbeatResponse, now: float
) -> Iterable[AnyEvent]:
    """A KIP-848 heartbeat was answered."""
    if reply.error_code == ErrorCode.NONE:
        yield ConsumerMemberSeen(
            group_id=request.group_id,
            member_id=reply.member_id or request.member_id,
            instance_id=request.instance_id,
            epoch=reply.member_epoch,
            client_id=x.client_id,
            client_host=x.client_host,
        )
    yield from trouble(x, request.group_id, request.member_id, reply.error_code)


def describe(
    x: Exchange, request: DescribeGroupsRequest, reply: DescribeGroupsResponse, now: float
) -> Iterable[AnyEvent]:
    """The broker described groups."""
    for group in reply.groups:
        state = _STATES.get(group.group_state)
        if group.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) and state is not None:
            yield _described(group, state, x.as_of.get(group.group_id, (0, 0))[0])
        yield from moved(group.group_id, group.error_code)


def _described(group: DescribedGroup, state: GroupState, as_of: int) -> GroupDescribed:
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
        state=state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=members,
        as_of=as_of,
    )
