"""Applies group requests and the broker's replies to the copy.

The observer decodes deferred requests, and turns replies into events. If a request or reply is not decoded, the
observer notes it in the copy, and the group is in doubt.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from group_sidecar.codecs.api_registry import APIS, ApiKey, api_name
from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.fast_instances import fast_replacer
from group_sidecar.codecs.headers import decode_request_header, split_reply
from group_sidecar.codecs.messages import fetch
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.coordinator.model.events import (
    AnyEvent,
    MemberSeen,
    MemberUnknown,
    NotCoordinatorReplied,
    RebalanceSeen,
)
from group_sidecar.coordinator.wire import exchange_events, offset_apis
from group_sidecar.coordinator.wire.exchange import Exchange, new_exchange
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.answer_settings import LOCAL_APIS
from group_sidecar.proxy.broker.authorization_cache import granted_rights, without_omissions
from group_sidecar.proxy.broker.client_access import ClientAccess
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.broker.topic_names import TopicNames
from group_sidecar.proxy.config.limits_section import Limits
from group_sidecar.proxy.dataplane.outcomes import DeferredRequest, Origin
from group_sidecar.proxy.handlers.broker_refusals import BrokerRefusals
from group_sidecar.proxy.handlers.decode_limits import DecodeLimits
from group_sidecar.proxy.handlers.undecoded_writes import UndecodedWrite
from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log

TRACKED_WRITES = exchange_events.GROUP_WRITE_KEYS - {ApiKey.HEARTBEAT, ApiKey.END_TXN}
"""Writes that make the copy wrong if they are not decoded. A missed Heartbeat or EndTxn is harmless. Without a
Heartbeat, the copy only assumes that the member's session ends earlier. `__consumer_offsets` also contains the end of
each transaction. If the sidecar does not read this log, the broker answers questions about the offsets of a group that
had a transaction."""
_HEARTBEAT = int(ApiKey.HEARTBEAT)
JOIN_SLACK_SECONDS = 60.0
"""Seconds that a join may wait beyond its own timeouts, because one rebalance may follow another."""
MAX_HEARTBEAT_BYTES = 1_024
"""Maximum bytes of a heartbeat that is kept to recognize its repetitions."""
_WITH_SENT_AT: Mapping[type[Any], Callable[[Any, float], AnyEvent]] = {
    event: fast_replacer(event, "sent_at")
    for event in (MemberSeen, MemberUnknown, RebalanceSeen, NotCoordinatorReplied)
}
"""Functions that copy an event with another `sent_at`, for the events that a heartbeat may lead to."""
PASSED_ON, CLOSED = "was passed on", "its connection is closed"
"""Texts for the log. Each text describes what happens to a request or reply that is not understood."""
_unpack_start = struct.Struct(">hhi").unpack_from
"""API key, version and correlation id."""


class _Heartbeat(NamedTuple):
    """A connection's last heartbeat. The next heartbeats usually differ only in their correlation ids.

    `request`, `reply`: the frames without correlation ids. `event`: returns the heartbeat's event with another
    `sent_at`.
    """

    request: bytes
    reply: bytes
    event: Callable[[float], AnyEvent]

    @classmethod
    def from_frames(cls, request: bytes, reply: bytes, event: AnyEvent) -> "_Heartbeat":
        """Returns what is kept of a heartbeat. `request`, `reply`: without their lengths. `event`: the heartbeat's only
        event.
        """
        return cls(request[:4] + request[8:], reply[4:], partial(_WITH_SENT_AT[type(event)], event))

    def repeats(self, request: bytes, reply: bytes) -> bool:
        """Whether a request and its reply are equal to the request and the reply of this heartbeat."""
        return self.reply == reply[4:] and self.request == request[:4] + request[8:]


class Observer:
    """Learns about one broker's groups from the traffic of its clients.

    Args:
        copy: learns from requests and replies.
        access: learns which rights the broker has granted.
        topic_names: names the topics of requests and replies that have only ids.
        traffic: counts what cannot be decoded.
        limits: how much of a message is decoded.
    """

    def __init__(
        self,
        copy: CoordinatorCopy,
        access: ClientAccess,
        topic_names: TopicNames,
        traffic: TrafficCounters,
        limits: Limits,
    ) -> None:
        self._copy = copy
        self._access = access
        self._topic_names = topic_names
        self._names = topic_names.by_id
        self._traffic = traffic
        self._decode_limits = DecodeLimits(limits.inspected_elements)
        self._broker_refusals = BrokerRefusals(traffic)
        self._log_throttle = LogThrottle()
        self._heartbeats: dict[int, _Heartbeat] = {}
        """The last heartbeat of each connection, by the connection's number."""

    # Requests.

    def exchange(
        self, request: Struct, version: int, correlation: int, client_id: str, origin: Origin, now: float
    ) -> Exchange:
        """Returns the exchange of a request that has no reply yet."""
        return new_exchange(
            request=request,
            version=version,
            token=f"{origin.number}:{correlation}",
            client_id=client_id,
            client_host=origin.inet_address,
            principal=self._access.user_of(origin),
            sent_at=self._copy.epoch(now),
            names=self._names,
        )

    def decode_deferred(self, deferred: DeferredRequest) -> Exchange | UndecodedWrite | None:
        """Decodes a request that was forwarded before.

        Returns its exchange. If the request cannot be decoded, returns its pending reply, or None if its reply does not
        matter.
        """
        frame, origin, now = deferred
        key, version, correlation = _unpack_start(frame)
        try:
            request, client_id = _decoded(frame, self._decode_limits.request(key))
            return self.exchange(request, version, correlation, client_id, origin, now)
        except Exception as error:  # noqa: BLE001  Whatever the error is, the broker decides.
            self.warn("request", key, error)
        return self.note_undecoded(key, frame)

    def note_undecoded(self, api_key: int, frame: bytes | None) -> UndecodedWrite | None:
        """Notes that a request is not decoded. Returns its pending reply, or None if the reply does not matter."""
        self._traffic.decode_failed(api_key)
        if api_key not in TRACKED_WRITES:
            return None
        return self.note_undecoded_write(api_key, exchange_events.group_in_frame(api_key, frame) if frame else None)

    def note_undecoded_write(self, api_key: int, group: str | None) -> UndecodedWrite:
        """Notes that a write is not decoded. Only `__consumer_offsets` then shows what happens to the group."""
        self._copy.manager.note_unread_write(group, members=api_key not in exchange_events.MEMBER_PRESERVING_WRITES)
        return UndecodedWrite(self._copy, api_key, group)

    # Replies.

    def replied(self, exchange: Exchange, reply: Struct, origin: Origin, now: float) -> Sequence[AnyEvent]:
        """Applies a reply of the broker to the copy. Returns the reply's events."""
        copy, access, key = self._copy, self._access, exchange.request.KEY
        self._broker_refusals.count(key, reply)
        events = exchange_events.reply_events(exchange, reply, copy.epoch(now))
        copy.apply(without_omissions(events) if access.may_have_authorizer else events, now)
        if key in LOCAL_APIS and (principal := access.principals.principal_of(origin, now)):
            access.rights.grant(principal, granted_rights(exchange, reply), exchange.sent_at)
        return events

    def observe_deferred(self, deferred: DeferredRequest, frame: bytes, now: float) -> None:
        """Decodes a request that was forwarded undecoded, and its reply `frame` without its length. Applies both."""
        last = self._heartbeats.get(deferred.origin.number)
        if last is not None and last.repeats(deferred.frame, frame):
            self._copy.apply((last.event(self._copy.epoch(deferred.at)),), now)
            return
        exchange = self.decode_deferred(deferred)
        if not isinstance(exchange, Exchange):
            if exchange is not None:
                exchange.lost(now)
            return
        try:
            key = exchange.request.KEY
            response = APIS[key].response
            body = split_reply(frame, exchange.version >= response.HEADER_FLEXIBLE)
            reply, _ = decode_start(response, exchange.version, body, self._decode_limits.reply(key))
            events = self.replied(exchange, reply, deferred.origin, now)
        except Exception as error:  # noqa: BLE001  Whatever the error is, the client gets the reply.
            self.warn("reply", exchange.request.KEY, error)
            self.note_unreadable_reply(exchange, now)
            return
        if exchange.request.KEY == _HEARTBEAT and len(events) == 1 and len(deferred.frame) <= MAX_HEARTBEAT_BYTES:
            self._heartbeats[deferred.origin.number] = _Heartbeat.from_frames(deferred.frame, frame, events[0])

    def observe_fetch(self, version: int, frame: bytes, now: float, *, truncated: bool) -> None:
        """Learns the ends of logs from a Fetch reply. Raises DecodeError if a whole reply cannot be decoded.

        `truncated`: whether `frame` has only the reply's first bytes.
        """
        if truncated:
            topics: Iterable[fetch.FetchableTopicResponse] = _topics_of_head(version, frame)
        else:
            body = split_reply(frame, version >= fetch.FetchResponse.HEADER_FLEXIBLE)
            topics = decode_start(fetch.FetchResponse, version, body)[0].responses
        seen, unnamed = offset_apis.log_ends_fetched(topics, self._names)
        self._topic_names.request(unnamed)
        self._copy.apply([seen], now)

    def max_reply_seconds(self, exchange: Exchange) -> float:
        """Returns how many seconds the broker may park a join; 0 for any other request."""
        request = exchange.request
        if not isinstance(request, JoinGroupRequest):
            return 0.0
        return max(request.rebalance_timeout_ms, request.session_timeout_ms) / 1000 + JOIN_SLACK_SECONDS

    def note_unreadable_reply(self, exchange: Exchange, now: float) -> None:
        """Notes that a reply was not decoded, and counts it."""
        self._traffic.decode_failed(exchange.request.KEY)
        self.note_unknown_result(exchange, now)

    def note_unknown_result(self, exchange: Exchange, now: float) -> None:
        """Notes that the broker has handled a request, and that the result is not known.

        A SyncGroup is not noted as an undecoded write, for two reasons: the next generation replaces its assignments,
        and an unreadable reply may be an error that the broker writes in a layout other than Kafka's.
        """
        key = exchange.request.KEY
        self.note_lost(exchange, now)
        if key in TRACKED_WRITES and key != ApiKey.SYNC_GROUP:
            members = key not in exchange_events.MEMBER_PRESERVING_WRITES
            for group in _groups(exchange.request):
                self._copy.manager.note_unread_write(group, members=members)
                self._copy.manager.note_unread_write(group, self._copy.epoch(now), members=members)

    def gone(self, origin: Origin) -> None:
        """Forgets the heartbeat of a connection that has ended."""
        self._heartbeats.pop(origin.number, None)

    def note_lost(self, exchange: Exchange, now: float) -> None:
        """Notes that a reply will not come, so it is not known whether the broker carried out the request."""
        self._copy.apply(exchange_events.lost_reply_events(exchange), now)

    def warn(self, what: str, api_key: int, error: Exception, outcome: str = PASSED_ON) -> None:
        """Logs that a request, a reply or a question was not understood, and its outcome. The line is throttled, and
        contains the number of occurrences.
        """
        event = f"a {what} was not understood, and {outcome}"
        log_method = log.warning if isinstance(error, DecodeError) else log.exception
        if times := self._log_throttle.due(f"{event}: {api_name(api_key)}"):
            log_method(event, api=api_name(api_key), cause=str(error), times=times)


def _decoded(frame: bytes, max_elements: int) -> tuple[Struct, str]:
    """Returns a decoded request and its client id. Raises DecodeError if the request cannot be decoded."""
    key, version, _ = _unpack_start(frame)
    api = APIS[key]
    assert api.request is not None  # Only Produce has no request schema, and Produce is never deferred.
    header, body = decode_request_header(frame, api.flexible(version))
    return decode_start(api.request, version, body, max_elements)[0], header.client_id or ""


def _topics_of_head(version: int, head: bytes) -> Iterable[fetch.FetchableTopicResponse]:
    """Returns the topics in the first bytes of a Fetch reply; none if these end within the reply's header."""
    try:
        return fetch.partitions_with_high_watermark(
            version, split_reply(head, version >= fetch.FetchResponse.HEADER_FLEXIBLE)
        )
    except DecodeError:
        return ()


def _groups(request: Struct) -> Sequence[str | None]:
    if isinstance(request, DeleteGroupsRequest):
        return request.groups_names
    return (getattr(request, "group_id", None),)
