"""Requests and replies, to events.

Owns: what an exchange between a client and the broker says about groups. Must not know: the state
of any group. `sent` gives the events of a request that went to the broker, `replied` those of its
reply, `abandoned` those of a reply that will not come.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from construct import ConstructError

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
from group_sidecar.codecs.registry import APIS, ApiKey
from group_sidecar.codecs.schema import Struct
from group_sidecar.coordinator import wire_groups, wire_offsets
from group_sidecar.coordinator.events import LEAVING_EPOCH, AnyEvent, ConsumerJoinSent, JoinSent
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.coordinator.wire_groups import consumer_leaving, joining_of, leaving_of, newcomer


def sent(exchange: Exchange) -> Sequence[AnyEvent]:
    """The events of a request that goes to the broker: a join holds a place, of a leave others may be told first."""
    request = exchange.request
    if isinstance(request, JoinGroupRequest):
        joining = joining_of(exchange, request)
        return [JoinSent(group_id=request.group_id, sent_at=exchange.sent_at, joining=joining)]
    if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == 0:
        who = newcomer(exchange, request)
        where = exchange.client_host
        return [ConsumerJoinSent(group_id=request.group_id, sent_at=exchange.sent_at, who=who, client_host=where)]
    if isinstance(request, LeaveGroupRequest):
        return [leaving_of(exchange, request)]
    if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == LEAVING_EPOCH:
        return [consumer_leaving(exchange, request)]
    return ()


def replied(exchange: Exchange, reply: Struct, now: float) -> Sequence[AnyEvent]:
    """The events of a reply."""
    return list(_READERS[type(exchange.request)](exchange, exchange.request, reply, now))


def abandoned(exchange: Exchange) -> Sequence[AnyEvent]:
    """The events of a reply that will not come: the broker may have done as asked or not."""
    reader = _LOST.get(type(exchange.request))
    return list(reader(exchange, exchange.request)) if reader else ()


_READERS: dict[type[Struct], Callable[[Exchange, Any, Any, float], Iterable[AnyEvent]]] = {
    JoinGroupRequest: wire_groups.join,
    SyncGroupRequest: wire_groups.sync,
    HeartbeatRequest: wire_groups.heartbeat,
    LeaveGroupRequest: wire_groups.leave,
    OffsetCommitRequest: wire_offsets.commit,
    TxnOffsetCommitRequest: wire_offsets.txn_commit,
    EndTxnRequest: wire_offsets.end_txn,
    OffsetDeleteRequest: wire_offsets.offset_delete,
    DeleteGroupsRequest: wire_groups.delete_groups,
    ConsumerGroupHeartbeatRequest: wire_groups.consumer_heartbeat,
    ListGroupsRequest: wire_groups.list_groups,
    DescribeGroupsRequest: wire_groups.describe,
    ConsumerGroupDescribeRequest: wire_groups.describe_consumer_groups,
    OffsetFetchRequest: wire_offsets.fetched,
    ListOffsetsRequest: wire_offsets.list_offsets,
}
_LOST: dict[type[Struct], Callable[[Exchange, Any], Iterable[AnyEvent]]] = {
    JoinGroupRequest: wire_groups.lost,
    SyncGroupRequest: wire_groups.lost,
    LeaveGroupRequest: wire_groups.lost,
    ConsumerGroupHeartbeatRequest: wire_groups.lost,
    DeleteGroupsRequest: wire_groups.delete_groups_lost,
    OffsetCommitRequest: wire_offsets.commit_lost,
    TxnOffsetCommitRequest: wire_offsets.txn_commit_lost,
    OffsetDeleteRequest: wire_offsets.offset_delete_lost,
}
"""Of requests that only ask, of heartbeats and of EndTxn a lost reply leaves nothing open that is not open anyway."""
READ: frozenset[int] = frozenset(request.KEY for request in _READERS)
"""The API keys whose exchanges say something about groups."""
ANNOUNCED: frozenset[int] = frozenset({JoinGroupRequest.KEY, ConsumerGroupHeartbeatRequest.KEY, LeaveGroupRequest.KEY})
"""Those of which `sent` may tell something."""
WRITES = READ - {
    ListGroupsRequest.KEY,
    DescribeGroupsRequest.KEY,
    ConsumerGroupDescribeRequest.KEY,
    OffsetFetchRequest.KEY,
    ListOffsetsRequest.KEY,
}
"""Those that may change a group."""
NAMED_ONLY = frozenset({int(ApiKey.SHARE_GROUP_HEARTBEAT), int(ApiKey.STREAMS_GROUP_HEARTBEAT)})
"""Writes of which only the group is read, their first field in every version; all of these are flexible."""
SPARING_MEMBERS = frozenset({TxnOffsetCommitRequest.KEY, OffsetDeleteRequest.KEY, DeleteGroupsRequest.KEY})
"""Writes that change no group which has members, but for its offsets: Kafka deletes only groups without members."""
_GROUP_SECOND = frozenset({TxnOffsetCommitRequest.KEY, EndTxnRequest.KEY, DeleteGroupsRequest.KEY})


def group_named(api_key: int, frame: bytes) -> str | None:
    """The group that an undecodable request is about, as far as its first field tells; None where it does not."""
    if api_key in _GROUP_SECOND:
        return None
    flexible = api_key in NAMED_ONLY or APIS[api_key].flexible(int.from_bytes(frame[2:4], "big"))
    try:
        _, body = decode_request_header(frame, flexible)
        group: str = STRING.make(flexible, False).parse(body)
    except (DecodeError, ConstructError):
        return None
    return group
