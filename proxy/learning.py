"""What group requests and the broker's replies teach the copy, and what is not understood takes from it.

Owns: reading requests that went on unread, turning replies into events, the marks that the unread leaves. Must not
know: what goes to whom, and when (`desk`, `session`), how state changes (the coordinator's).
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from group_sidecar.codecs.errors import DecodeError
from group_sidecar.codecs.headers import decode_request_header, split_reply
from group_sidecar.codecs.instances import changer
from group_sidecar.codecs.messages import fetch
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.join_group import JoinGroupRequest
from group_sidecar.codecs.registry import APIS, ApiKey, api_name
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.coordinator import wire, wire_offsets
from group_sidecar.coordinator.events import (
    LOST_SECONDS,
    AnyEvent,
    CoordinatorMoved,
    MemberSeen,
    MemberUnknown,
    RebalanceSeen,
)
from group_sidecar.coordinator.exchange import Exchange, begin_exchange
from group_sidecar.proxy.broker_copy import LOCAL_APIS, BrokerCopy
from group_sidecar.proxy.broker_refusals import BrokerRefusals
from group_sidecar.proxy.disposals import Origin, Shown
from group_sidecar.proxy.element_bounds import ElementBounds
from group_sidecar.proxy.logs import Recurring, log
from group_sidecar.proxy.principals import Principals
from group_sidecar.proxy.rights import followed, shown

CHANGING = wire.WRITES - {ApiKey.HEARTBEAT, ApiKey.END_TXN}
"""Writes that make the copy wrong if they are not followed. Without a heartbeat it takes a session for shorter than it
is; and where a group ever had offsets in a transaction, only the broker answers for them."""
_DELETE_TOPICS = int(ApiKey.DELETE_TOPICS)
_HEARTBEAT = int(ApiKey.HEARTBEAT)
JOIN_SLACK_SECONDS = 60.0
"""How much longer than its own timeouts a join may wait: a rebalance may follow another one."""
LONGEST_HEARTBEAT = 1_024
"""Bytes of a request beyond which it is not kept to be known again."""
_CHANGERS: Mapping[type[Any], Callable[[Any, float], AnyEvent]] = {
    event: changer(event, "sent_at") for event in (MemberSeen, MemberUnknown, RebalanceSeen, CoordinatorMoved)
}
"""What makes the same event of another time, of those that a heartbeat may be."""
PASSED_ON, CLOSED = "passed on", "its connection is closed"
"""What becomes of a request or reply that is not understood, for the log."""
_unpack_start = struct.Struct(">hhi").unpack_from
"""API key, version and correlation id."""


class Unfollowed(NamedTuple):
    """A note for the reply to a write that was not decoded: by then the group has changed. None: who knows which."""

    api_key: int
    group: str | None = None


class Fetching(NamedTuple):
    """A note for the reply to a Fetch, whose request need not be seen: a follower's tells the same as a consumer's.

    `cut`: of the reply only the first bytes are shown.
    """

    version: int
    cut: bool = False
    api_key: int = ApiKey.FETCH


class _Heartbeat(NamedTuple):
    """A connection's last heartbeat. The next ones are mostly the same, but for their correlation ids.

    `request`, `reply`: without the correlation id. `event`: what they say, of one that was sent at another time.
    """

    request: bytes
    reply: bytes
    event: Callable[[float], AnyEvent]

    @classmethod
    def of(cls, request: bytes, reply: bytes, said: AnyEvent) -> "_Heartbeat":
        """What is kept of whole frames, without their lengths, and of what they said."""
        return cls(request[:4] + request[8:], reply[4:], partial(_CHANGERS[type(said)], said))

    def repeats(self, request: bytes, reply: bytes) -> bool:
        """Whether this is it again."""
        return self.reply == reply[4:] and self.request == request[:4] + request[8:]


class Learning:
    """What is learnt about one broker's groups from its clients."""

    def __init__(self, copy: BrokerCopy, principals: Principals) -> None:
        self._copy = copy
        self._bounds = ElementBounds(copy.config.limits.inspected_elements)
        self._principals = principals
        self._broker_refusals = BrokerRefusals(copy.traffic)
        self._recurring = Recurring()
        self._heartbeats: dict[int, _Heartbeat] = {}
        """By the number of their connection."""

    # Requests.

    def exchange(
        self, request: Struct, version: int, correlation: int, client_id: str, origin: Origin, now: float
    ) -> Exchange:
        """A request on its way."""
        return begin_exchange(
            request=request,
            version=version,
            token=f"{origin.number}:{correlation}",
            client_id=client_id,
            client_host=origin.inet_address,
            sent_at=self._copy.epoch(now),
            names=self._copy.names,
        )

    def understood(self, went: Shown) -> Exchange | Unfollowed | None:
        """The note that a request would have got, had it been read before it went on."""
        frame, origin, now = went
        key, version, correlation = _unpack_start(frame)
        try:
            request, client_id = _decoded(frame, self._bounds.request(key))
            return self.exchange(request, version, correlation, client_id, origin, now)
        except Exception as error:  # noqa: BLE001  Whatever it is, the broker decides.
            self.warn("request", key, error)
        return self.undecoded(key, frame)

    def undecoded(self, api_key: int, frame: bytes | None) -> Unfollowed | None:
        """Notes that a request goes on unread. Gives the note for its reply."""
        self._copy.traffic.decode_failed(api_key)
        if api_key not in CHANGING:
            return None
        return self.unfollowed(api_key, wire.group_named(api_key, frame) if frame else None)

    def unfollowed(self, api_key: int, group: str | None) -> Unfollowed:
        """A write that is not described, or not understood: what it does to its group, the log will tell."""
        self._copy.manager.obscure(group, members=api_key not in wire.SPARING_MEMBERS)
        return Unfollowed(api_key, group)

    # Replies.

    def replied(self, x: Exchange, reply: Struct, origin: Origin, now: float) -> Sequence[AnyEvent]:
        """The broker answered. Gives what that says."""
        copy, key = self._copy, x.request.KEY
        self._broker_refusals.count(key, reply)
        events = wire.replied(x, reply, copy.epoch(now))
        copy.apply(followed(events) if copy.hides else events, now)
        if key in LOCAL_APIS and (principal := self._principals.of(origin, now)):
            copy.rights.grant(principal, shown(x, reply), x.sent_at)
        return events

    def learn(self, went: Shown, frame: bytes, now: float) -> None:
        """The broker answered what went on unread. `frame`: its reply, without its length."""
        last = self._heartbeats.get(went.origin.number)
        if last is not None and last.repeats(went.frame, frame):
            self._copy.apply((last.event(self._copy.epoch(went.at)),), now)
            return
        x = self.understood(went)
        if not isinstance(x, Exchange):
            self.lost(x, now)
            return
        try:
            key = x.request.KEY
            response = APIS[key].response
            body = split_reply(frame, x.version >= response.HEADER_FLEXIBLE)
            reply, _ = decode_start(response, x.version, body, self._bounds.reply(key))
            events = self.replied(x, reply, went.origin, now)
        except Exception as error:  # noqa: BLE001  As above.
            self.warn("reply", x.request.KEY, error)
            self.unread(x, now)
            return
        if x.request.KEY == _HEARTBEAT and len(events) == 1 and len(went.frame) <= LONGEST_HEARTBEAT:
            self._heartbeats[went.origin.number] = _Heartbeat.of(went.frame, frame, events[0])

    def fetched(self, note: Fetching, frame: bytes, now: float) -> None:
        """A Fetch reply told how far logs go. Raises DecodeError where a whole one cannot be read."""
        copy, version = self._copy, note.version
        if note.cut:
            topics: Iterable[fetch.FetchableTopicResponse] = _begun(version, frame)
        else:
            body = split_reply(frame, version >= fetch.FetchResponse.HEADER_FLEXIBLE)
            topics = decode_start(fetch.FetchResponse, version, body)[0].responses
        seen, unnamed = wire_offsets.log_ends_fetched(topics, copy.names)
        copy.want_names(unnamed)
        copy.apply([seen], now)

    def longest_wait(self, x: Exchange) -> float:
        """How many seconds the broker may park a join; 0 for any other request."""
        request = x.request
        if not isinstance(request, JoinGroupRequest):
            return 0.0
        return max(request.rebalance_timeout_ms, request.session_timeout_ms) / 1000 + JOIN_SLACK_SECONDS

    def unread(self, x: Exchange, now: float) -> None:
        """A reply came and could not be read: what the broker made of the request is not known.

        Of a sync the next generation makes good; not every broker writes its errors as Kafka does.
        """
        key = x.request.KEY
        self._copy.traffic.decode_failed(key)
        self.lost(x, now)
        if key in CHANGING and key != ApiKey.SYNC_GROUP:
            members = key not in wire.SPARING_MEMBERS
            for group in _groups(x.request):
                self._copy.manager.obscure(group, members=members)
                self._copy.manager.obscure(group, self._copy.epoch(now), members=members)

    def gone(self, origin: Origin) -> None:
        """A client's connection is over."""
        self._heartbeats.pop(origin.number, None)

    def lost(self, note: Exchange | Unfollowed | None, now: float) -> None:
        """What the broker made of a request is not known, nor whether it had it."""
        if isinstance(note, Exchange):
            self._copy.apply(wire.abandoned(note), now)
        elif note is not None and note.api_key == _DELETE_TOPICS:
            self._copy.manager.disturb_offsets(self._copy.epoch(now))
        elif note is not None:
            until, members = self._copy.epoch(now) + LOST_SECONDS, note.api_key not in wire.SPARING_MEMBERS
            self._copy.manager.obscure(note.group, until, members=members)

    def warn(self, what: str, api_key: int, error: Exception, outcome: str = PASSED_ON) -> None:
        """Says that a request, a reply or a question was not understood, and what became of it: once, and then how
        often.
        """
        event = f"a {what} was not understood and {outcome}"
        tell = log.warning if isinstance(error, DecodeError) else log.exception
        if times := self._recurring.due(f"{event}: {api_name(api_key)}"):
            tell(event, api=api_name(api_key), cause=str(error), times=times)


def _decoded(frame: bytes, most: int) -> tuple[Struct, str]:
    """A request and its client id. Raises DecodeError where it cannot be read."""
    key, version, _ = _unpack_start(frame)
    api = APIS[key]
    assert api.request is not None  # Produce alone has none, and is not shown.
    header, body = decode_request_header(frame, api.flexible(version))
    return decode_start(api.request, version, body, most)[0], header.client_id or ""


def _begun(version: int, head: bytes) -> Iterable[fetch.FetchableTopicResponse]:
    """What the first bytes of a Fetch reply tell; nothing where they end within its header."""
    try:
        return fetch.begun(version, split_reply(head, version >= fetch.FetchResponse.HEADER_FLEXIBLE))
    except DecodeError:
        return ()


def _groups(request: Struct) -> Sequence[str | None]:
    if isinstance(request, DeleteGroupsRequest):
        return request.groups_names
    return (getattr(request, "group_id", None),)
