"""Exchanges about members and groups, to events.

Owns: what JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ListGroups, DescribeGroups, DeleteGroups and
ConsumerGroupHeartbeat say. Must not know: the state of any group.
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
from group_sidecar.coordinator.events import (
    AnyEvent,
    ConsumerGroupDescribed,
    ConsumerJoinAnswered,
    ConsumerMemberSeen,
    DescribedMember,
    GroupDeleted,
    GroupDescribed,
    GroupsListed,
    JoinAccepted,
    Joining,
    JoinRejected,
    LeaveSent,
    MemberIdIssued,
    MembersLeft,
    MemberUnknown,
    OffsetsDoubted,
    ReplyLost,
    Synced,
)
from group_sidecar.coordinator.exchange import Exchange, moved, seen, trouble
from group_sidecar.coordinator.views import GroupState

MEMBER_ID_REQUIRED_SINCE = 4
"""The JoinGroup version from which a dynamic member is first given an id (KIP-394)."""
MANY_LEAVE_SINCE = 3
"""The LeaveGroup version from which members leave together, and an instance id may name one (KIP-345)."""
STATES = {state.value: state for state in GroupState} | {"AwaitingSync": GroupState.COMPLETING_REBALANCE}
"""By the name that a broker has for them; before 1.1 one had another."""


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
        said=request.reason or "",
    )


def leaving_of(x: Exchange, request: LeaveGroupRequest) -> LeaveSent:
    """What a leave says."""
    members = request.members if x.version >= MANY_LEAVE_SINCE else (MemberIdentity(member_id=request.member_id),)
    return LeaveSent(
        group_id=request.group_id,
        sent_at=x.sent_at,
        members=tuple((each.member_id, each.group_instance_id) for each in members),
        said=tuple(each.reason or "" for each in members),
        client_id=x.client_id,
        client_host=x.client_host,
    )


def join(x: Exchange, request: JoinGroupRequest, reply: JoinGroupResponse, now: float) -> Iterable[AnyEvent]:
    """A join was answered."""
    group, joining = request.group_id, joining_of(x, request)
    if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        yield MemberIdIssued(group_id=group, sent_at=x.sent_at, joining=joining, member_id=reply.member_id)
    elif reply.error_code == ErrorCode.NONE:
        yield JoinAccepted(
            group_id=group,
            sent_at=x.sent_at,
            joining=joining,
            member_id=reply.member_id,
            generation=reply.generation_id,
            protocol_type=reply.protocol_type or request.protocol_type,
            protocol=reply.protocol_name or "",
            leader=reply.leader,
            roster=tuple((m.member_id, m.group_instance_id, m.metadata) for m in reply.members),
        )
    else:
        yield JoinRejected(group_id=group, sent_at=x.sent_at, joining=joining, error_code=reply.error_code)
        refused = reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED  # Kafka's coordinator drops whom it refuses.
        if request.member_id and (refused or reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID):
            yield MemberUnknown(group_id=group, sent_at=x.sent_at, member_id=request.member_id, refused=refused)
        yield from moved(x, group, reply.error_code)


def sync(x: Exchange, request: SyncGroupRequest, reply: SyncGroupResponse, now: float) -> Iterable[AnyEvent]:
    """A member synced, or could not."""
    if reply.error_code == ErrorCode.NONE:
        yield Synced(
            group_id=request.group_id,
            sent_at=x.sent_at,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            client_id=x.client_id,
            client_host=x.client_host,
            assignment=reply.assignment,
            assignments={a.member_id: a.assignment for a in request.assignments},
        )
    yield from trouble(x, request.group_id, request.member_id, request.generation_id, reply.error_code)


def heartbeat(x: Exchange, request: HeartbeatRequest, reply: HeartbeatResponse, now: float) -> Iterable[AnyEvent]:
    """A heartbeat was answered."""
    group, member, generation = request.group_id, request.member_id, request.generation_id
    if reply.error_code == NONE:
        return (seen(x, group, member, request.group_instance_id, generation, True),)
    return trouble(x, group, member, generation, reply.error_code, alive=True)


def leave(x: Exchange, request: LeaveGroupRequest, reply: LeaveGroupResponse, now: float) -> Iterable[AnyEvent]:
    """Members left, or could not. Up to v2 the error is the one member's, from v3 on the group's (KIP-345)."""
    group = request.group_id
    outcomes = [(m.member_id, m.group_instance_id, reply.error_code or m.error_code) for m in reply.members]
    if x.version < MANY_LEAVE_SINCE:
        outcomes = [(request.member_id, None, reply.error_code)]
    left = tuple((member, instance) for member, instance, error in outcomes if error == ErrorCode.NONE)
    if left:
        said = {(each.member_id, each.group_instance_id): each.reason or "" for each in request.members}
        yield MembersLeft(
            group_id=group,
            sent_at=x.sent_at,
            members=left,
            said=tuple(said.get(each, "") for each in left),
            client_id=x.client_id,
            client_host=x.client_host,
            removed=x.removing,
        )
    for member, _, error in outcomes:
        if error == ErrorCode.UNKNOWN_MEMBER_ID and member:
            yield MemberUnknown(group_id=group, sent_at=x.sent_at, member_id=member)
    yield from moved(x, group, reply.error_code)


def delete_groups(
    x: Exchange, request: DeleteGroupsRequest, reply: DeleteGroupsResponse, now: float
) -> Iterable[AnyEvent]:
    """Groups were deleted, or could not be. One that the broker does not have is gone too."""
    for result in reply.results:
        if result.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            existed = result.error_code == ErrorCode.NONE
            yield GroupDeleted(group_id=result.group_id, sent_at=x.sent_at, existed=existed)
        yield from moved(x, result.group_id, result.error_code)


def delete_groups_lost(x: Exchange, request: DeleteGroupsRequest) -> Iterable[AnyEvent]:
    """Whether groups were deleted will not be known."""
    for group in request.groups_names:
        yield ReplyLost(group_id=group, sent_at=x.sent_at, token=x.token, creates=False)
        yield OffsetsDoubted(group_id=group, sent_at=x.sent_at, partitions=None)


def lost(
    x: Exchange, request: JoinGroupRequest | SyncGroupRequest | LeaveGroupRequest | ConsumerGroupHeartbeatRequest
) -> Iterable[AnyEvent]:
    """What became of a member's request will not be known."""
    creates = isinstance(request, JoinGroupRequest | ConsumerGroupHeartbeatRequest)
    if isinstance(request, LeaveGroupRequest):
        # By its instance id a member may be taken out of a group that is made after this was sent.
        creates = any(member.group_instance_id for member in request.members)
    yield ReplyLost(group_id=request.group_id, sent_at=x.sent_at, token=x.token, creates=creates)


def consumer_heartbeat(
    x: Exchange, request: ConsumerGroupHeartbeatRequest, reply: ConsumerGroupHeartbeatResponse, now: float
) -> Iterable[AnyEvent]:
    """A KIP-848 heartbeat was answered."""
    group, member = request.group_id, reply.member_id or request.member_id
    if request.member_epoch == 0:
        yield ConsumerJoinAnswered(group_id=group, sent_at=x.sent_at, who=newcomer(x, request))
    if reply.error_code == ErrorCode.NONE:
        yield ConsumerMemberSeen(
            group_id=group,
            sent_at=x.sent_at,
            member_id=member,
            instance_id=request.instance_id,
            epoch=reply.member_epoch,
            client_id=x.client_id,
            client_host=x.client_host,
            joins=request.member_epoch == 0,
            changes=_tells_more(request) or reply.assignment is not None or reply.member_epoch != request.member_epoch,
        )
    else:
        yield from trouble(x, group, member, request.member_epoch, reply.error_code)


def consumer_leaving(x: Exchange, request: ConsumerGroupHeartbeatRequest) -> LeaveSent:
    """A member of KIP-848 leaves."""
    return LeaveSent(
        group_id=request.group_id,
        sent_at=x.sent_at,
        members=((request.member_id, request.instance_id),),
        client_id=x.client_id,
        client_host=x.client_host,
    )


def newcomer(x: Exchange, request: ConsumerGroupHeartbeatRequest) -> str:
    """What a new member of a KIP-848 group is known by before it is in."""
    return request.member_id or x.token


def _tells_more(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it says more than that its member is alive. What has not changed since the last one is null."""
    said = (request.subscribed_topic_names, request.subscribed_topic_regex, request.topic_partitions)
    return request.member_epoch <= 0 or any(each is not None for each in said)


def list_groups(x: Exchange, request: ListGroupsRequest, reply: ListGroupsResponse, now: float) -> Iterable[AnyEvent]:
    """The broker listed its groups: all of them, where it was not asked for some."""
    if reply.error_code == ErrorCode.NONE and not (request.states_filter or request.types_filter):
        listed = frozenset(group.group_id for group in reply.groups)
        yield GroupsListed(groups=listed, sent_at=x.sent_at, as_of=x.notings)


def describe(
    x: Exchange, request: DescribeGroupsRequest, reply: DescribeGroupsResponse, now: float
) -> Iterable[AnyEvent]:
    """The broker described groups."""
    for group in reply.groups:
        state = STATES.get(group.group_state)
        if group.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) and state is not None:
            yield _described(x, group, state)
        yield from moved(x, group.group_id, group.error_code)


def describe_consumer_groups(
    x: Exchange, request: ConsumerGroupDescribeRequest, reply: ConsumerGroupDescribeResponse, now: float
) -> Iterable[AnyEvent]:
    """The broker described groups of KIP-848."""
    for group in reply.groups:
        if group.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            yield ConsumerGroupDescribed(
                group_id=group.group_id,
                sent_at=x.sent_at,
                assignor=group.assignor_name,
                explained=group.error_message is not None,
                members=tuple(member.member_id for member in group.members),
                as_of=x.as_of.get(group.group_id, (0, 0))[0],
            )
        yield from moved(x, group.group_id, group.error_code)


def _described(x: Exchange, group: DescribedGroup, state: GroupState) -> GroupDescribed:
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
        sent_at=x.sent_at,
        state=state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=members,
        as_of=x.as_of.get(group.group_id, (0, 0))[0],
    )
