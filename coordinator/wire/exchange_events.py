"""Turns requests and their replies into events.

`request_events` returns the events of a request that is sent to the broker. `reply_events` returns the events of its
reply. `lost_reply_events` returns the events of a reply that will not arrive.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from construct import ConstructError

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.headers import decode_request_header
from group_sidecar.codecs.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from group_sidecar.codecs.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.messages.end_txn import EndTxnRequest
from group_sidecar.codecs.messages.heartbeat import HeartbeatRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.codecs.messages.leave_group import LeaveGroupRequest
from group_sidecar.codecs.messages.list_groups import ListGroupsRequest
from group_sidecar.codecs.messages.list_offsets import ListOffsetsRequest
from group_sidecar.codecs.messages.offset_commit import OffsetCommitRequest
from group_sidecar.codecs.messages.offset_delete import OffsetDeleteRequest
from group_sidecar.codecs.messages.offset_fetch import OffsetFetchRequest
from group_sidecar.codecs.messages.sync_group import SyncGroupRequest
from group_sidecar.codecs.messages.txn_offset_commit import TxnOffsetCommitRequest
from group_sidecar.codecs.primitives import STRING
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator.model.events import LEAVE_GROUP_MEMBER_EPOCH, AnyEvent, ConsumerJoinSent, JoinSent
from group_sidecar.coordinator.wire import group_apis, offset_apis
from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.coordinator.wire.group_apis import consumer_leaving, joining_of, leaving_of


def request_events(exchange: Exchange) -> Sequence[AnyEvent]:
    """Returns the events of a request that is sent to the broker.

    A join counts towards the group's size from then on. A leave is an event when it is sent, because the reply to
    another member may show the departure before the leaving member has its reply.
    """
    request = exchange.request
    if isinstance(request, JoinGroupRequest):
        joining = joining_of(exchange, request)
        return [JoinSent(group_id=request.group_id, sent_at=exchange.sent_at, joining=joining)]
    if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == 0:
        return [
            ConsumerJoinSent(
                group_id=request.group_id,
                sent_at=exchange.sent_at,
                token=exchange.token,
                member_key=request.member_id or exchange.token,
                client_host=exchange.client_host,
                principal=exchange.principal,
            )
        ]
    if isinstance(request, LeaveGroupRequest):
        return [leaving_of(exchange, request)]
    if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
        return [consumer_leaving(exchange, request)]
    return ()


def reply_events(exchange: Exchange, reply: Struct, now: float) -> Sequence[AnyEvent]:
    """Returns the events of a reply."""
    return list(_READERS[type(exchange.request)](exchange, exchange.request, reply, now))


def lost_reply_events(exchange: Exchange) -> Sequence[AnyEvent]:
    """Returns the events of a reply that will not arrive. The broker may or may not have executed the request."""
    reader = _LOST.get(type(exchange.request))
    return list(reader(exchange, exchange.request)) if reader else ()


_READERS: dict[type[Struct], Callable[[Exchange, Any, Any, float], Iterable[AnyEvent]]] = {
    JoinGroupRequest: group_apis.join,
    SyncGroupRequest: group_apis.sync,
    HeartbeatRequest: group_apis.heartbeat,
    LeaveGroupRequest: group_apis.leave,
    OffsetCommitRequest: offset_apis.commit,
    TxnOffsetCommitRequest: offset_apis.txn_commit,
    EndTxnRequest: offset_apis.end_txn,
    OffsetDeleteRequest: offset_apis.offset_delete,
    DeleteGroupsRequest: group_apis.delete_groups,
    ConsumerGroupHeartbeatRequest: group_apis.consumer_heartbeat,
    ListGroupsRequest: group_apis.list_groups,
    DescribeGroupsRequest: group_apis.describe,
    ConsumerGroupDescribeRequest: group_apis.describe_consumer_groups,
    OffsetFetchRequest: offset_apis.fetched,
    ListOffsetsRequest: offset_apis.list_offsets,
}
_LOST: dict[type[Struct], Callable[[Exchange, Any], Iterable[AnyEvent]]] = {
    JoinGroupRequest: group_apis.member_reply_lost,
    SyncGroupRequest: group_apis.member_reply_lost,
    LeaveGroupRequest: group_apis.member_reply_lost,
    ConsumerGroupHeartbeatRequest: group_apis.member_reply_lost,
    DeleteGroupsRequest: group_apis.delete_groups_lost,
    OffsetCommitRequest: offset_apis.commit_lost,
    TxnOffsetCommitRequest: offset_apis.txn_commit_lost,
    OffsetDeleteRequest: offset_apis.offset_delete_lost,
}
"""Requests whose lost reply puts the group or its offsets in doubt. Read-only requests, Heartbeat and EndTxn do not."""
GROUP_API_KEYS: frozenset[int] = frozenset(request.KEY for request in _READERS)
"""The API keys whose exchanges lead to events."""
REQUEST_EVENT_KEYS: frozenset[int] = frozenset(
    {JoinGroupRequest.KEY, ConsumerGroupHeartbeatRequest.KEY, LeaveGroupRequest.KEY}
)
"""The API keys of requests for which `request_events` may return events."""
GROUP_WRITE_KEYS = GROUP_API_KEYS - {
    ListGroupsRequest.KEY,
    DescribeGroupsRequest.KEY,
    ConsumerGroupDescribeRequest.KEY,
    OffsetFetchRequest.KEY,
    ListOffsetsRequest.KEY,
}
"""The API keys of requests that may change a group."""
GROUP_ONLY_KEYS = frozenset(
    map(int, (ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.ALTER_SHARE_GROUP_OFFSETS))
)
"""Write requests whose group id is the only field that is read. The group id is their first field in every version, and
all versions are flexible."""
MEMBER_PRESERVING_WRITES = frozenset({TxnOffsetCommitRequest.KEY, OffsetDeleteRequest.KEY, DeleteGroupsRequest.KEY})
"""Write requests that never change the members of a group. Kafka deletes only groups without members."""
_OTHER_FIRST_FIELD = frozenset({TxnOffsetCommitRequest.KEY, EndTxnRequest.KEY, DeleteGroupsRequest.KEY})
"""Write requests whose first field is not the id of one group."""


def group_in_frame(api_key: int, frame: bytes) -> str | None:
    """Returns the group that an undecodable request names in its first field, or None if that field is not a group."""
    if api_key in _OTHER_FIRST_FIELD:
        return None
    flexible = api_key in GROUP_ONLY_KEYS or APIS[api_key].flexible(int.from_bytes(frame[2:4], "big"))
    try:
        _, body = decode_request_header(frame, flexible)
        group: str = STRING.make(flexible, False).parse(body)
    except (DecodeError, ConstructError):
        return None
    return group
