"""Where the frames of one broker's clients are understood.

Owns: `BrokerDesk`: which requests are looked into, and what a reply teaches. Must not know: the order of
things on a connection (the session's), sockets, how state changes (the coordinator's), what may be answered
(`answering`) or refused (`enforcing`).

It fails open: whatever cannot be decoded goes on as it came, is counted, and marks its group.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from group_sidecar.codecs.errors import DecodeError, ErrorCode
from group_sidecar.codecs.headers import decode_request_header, split_reply
from group_sidecar.codecs.messages.api_versions import ApiVersionsResponse
from group_sidecar.codecs.messages.delete_groups import DeleteGroupsRequest
from group_sidecar.codecs.messages.metadata import MetadataResponse
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.codecs.registry import APIS, Api, ApiKey, api_name
from group_sidecar.codecs.schema import Struct, decode_start, encode
from group_sidecar.coordinator import wire
from group_sidecar.coordinator.events import LOST_SECONDS
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.proxy import rewrite
from group_sidecar.proxy.answering import Answering
from group_sidecar.proxy.broker_copy import LOCAL_APIS, BrokerCopy
from group_sidecar.proxy.broker_refusals import BrokerRefusals
from group_sidecar.proxy.enforcing import Enforcing
from group_sidecar.proxy.framing import Look
from group_sidecar.proxy.logs import Recurring, log
from group_sidecar.proxy.principals import UNAUTHENTICATED, Principals, Token
from group_sidecar.proxy.rights import RULE_CHANGES, followed, shown
from group_sidecar.proxy.session import OPAQUE, Answer, Disposal, Forward, Origin, Pass, Reply
from group_sidecar.proxy.withholding import Withheld

LARGEST_METADATA = 65_536
"""Bytes of a Metadata reply beyond which it is not read for topic ids alone: decoding holds up everyone."""
SASL = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
ADDRESSED = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.PRODUCE})
RAW_TOKENS = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""Tokens a client sends behind SaslHandshake v0, by mechanism. Of others the number is not known."""
CHANGING = wire.WRITES - {ApiKey.HEARTBEAT, ApiKey.END_TXN}
"""Writes that make the copy wrong if they are not followed. Without a heartbeat it takes a session for shorter than it
is; and where a group ever had offsets in a transaction, only the broker answers for them."""


class ReplyOnly(NamedTuple):
    """A note for a reply whose request need not be seen."""

    api_key: int
    version: int


class Handshake(NamedTuple):
    """A note for the reply to SaslHandshake. `mechanism` is empty where it could not be read."""

    mechanism: str
    version: int
    api_key: int = ApiKey.SASL_HANDSHAKE


class Unfollowed(NamedTuple):
    """A note for the reply to a write that was not decoded: by then the group has changed. None: who knows which."""

    api_key: int
    group: str | None = None


class RuleChange(NamedTuple):
    """A note for the reply to what may change who may see what."""

    api_key: int


class BrokerDesk:
    """The desk of one broker; all its clients' sessions share it."""

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy
        self._principals = Principals()
        self._answering = Answering(copy, self._principals)
        self._enforcing = Enforcing(copy)
        self._broker_refusals = BrokerRefusals(copy.traffic)
        self._recurring = Recurring()
        self._longest = copy.config.limits.inspected_frame
        self._reply_only = frozenset({ApiKey.API_VERSIONS, *(ADDRESSED if copy.advertise else {ApiKey.METADATA})})
        self._decoded = frozenset({*wire.READ, *LOCAL_APIS, *self._reply_only})
        self._glanced = self._decoded | RULE_CHANGES | SASL | wire.NAMED_ONLY | {ApiKey.DELETE_TOPICS}

    # Requests.

    def glance(self, api_key: int, api_version: int, size: int) -> Any:
        """See Desk."""
        if api_key not in self._glanced:
            return None
        if api_key in self._reply_only:
            return ReplyOnly(api_key, api_version)
        if api_key == ApiKey.DELETE_TOPICS:
            return Unfollowed(api_key)
        if api_key in wire.NAMED_ONLY and size > self._longest:
            return Unfollowed(api_key)
        if api_key in RULE_CHANGES:
            self._copy.rights.rules_change()
            return RuleChange(api_key)
        if size <= self._longest or self._copy.rulebook.judging(api_key):
            return Look.TAKE  # Nobody gets past a policy by being long.
        return self._undecoded(api_key, api_version, None)

    def request(self, frame: bytes, origin: Origin, now: float) -> Disposal:
        """See Desk."""
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big", signed=True)
        if key in wire.NAMED_ONLY:
            return self._unfollowed(key, frame)
        try:
            return self._request(APIS[key], version, frame, origin, now)
        except Exception as error:  # noqa: BLE001  Whatever it is, the broker decides.
            self._warn("request", key, error)
        note = self._undecoded(key, version, frame)
        return Pass() if note is None else Forward(note)

    def _unfollowed(self, api_key: int, frame: bytes) -> Forward:
        """A write that is not described: what it does to its group, the log will tell."""
        note = Unfollowed(api_key, wire.group_named(api_key, frame))
        self._copy.manager.obscure(note.group)
        return Forward(note)

    def _request(self, api: Api, version: int, frame: bytes, origin: Origin, now: float) -> Disposal:
        header, body = decode_request_header(frame, api.flexible(version))
        assert api.request is not None  # Produce alone has none, and is not taken.
        question = self._answering.read(api, version, body) if api.key in LOCAL_APIS else None
        request = question.request if question else decode_start(api.request, version, body)[0]
        if isinstance(request, SaslHandshakeRequest):
            return Forward(Handshake(request.mechanism, version))
        if isinstance(request, SaslAuthenticateRequest):
            return Forward(self._principals.token(request.auth_bytes, version, now))
        exchange = Exchange(
            request=request,
            version=version,
            token=f"{origin.number}:{header.correlation_id}",
            client_id=header.client_id or "",
            client_host="/" + origin.client_host,
            sent_at=self._copy.epoch(now),
            names=self._copy.names,
        )
        if question is not None:
            return self._safely(self._answering.consider(question, exchange, header, origin, now), exchange)
        return self._safely(self._enforcing.consider(exchange, header, origin, now), exchange)

    def _safely(self, how: Disposal, exchange: Exchange) -> Disposal:
        """The same; but where an answer turns out not to be possible, the broker's is awaited."""
        if not isinstance(how, Answer):
            return how

        def make(now: float) -> bytes | Disposal:
            try:
                return how.make(now)
            except Exception as error:  # noqa: BLE001  As in request.
                self._warn("question", exchange.request.KEY, error)
                return Forward(exchange) if exchange.request.KEY in wire.READ else Pass()

        return how._replace(make=make)

    def _undecoded(self, api_key: int, version: int, frame: bytes | None) -> Handshake | Token | Unfollowed | None:
        """Notes that a request goes on unread. Gives the note for its reply."""
        self._copy.traffic.decode_failed(api_key)
        if api_key == ApiKey.SASL_HANDSHAKE:
            return Handshake("", version)
        if api_key == ApiKey.SASL_AUTHENTICATE:
            return Token(version)
        if api_key not in CHANGING:
            return None
        note = Unfollowed(api_key, wire.group_named(api_key, frame) if frame else None)
        self._copy.manager.obscure(note.group)
        return note

    def _warn(self, what: str, api_key: int, error: Exception) -> None:
        event = f"a {what} was not understood and passed on"
        tell = log.warning if isinstance(error, DecodeError) else log.exception
        if times := self._recurring.due(f"{event}: {api_name(api_key)}"):
            tell(event, api=api_name(api_key), cause=str(error), times=times)

    # Replies.

    def glance_reply(self, note: Any, size: int, now: float) -> bool:
        """See Desk."""
        if isinstance(note, Unfollowed | RuleChange):
            self._lost(note, now)
            return False
        if isinstance(note, Token | Withheld):
            return True
        if size > self._longest:
            self._unread(note, now)
            return False
        return self._copy.advertise is not None or _key(note) != ApiKey.METADATA or size <= LARGEST_METADATA

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        """See Desk."""
        if _key(note) not in UNAUTHENTICATED and self._principals.served(origin):
            self._copy.learn_open()
        try:
            return self._reply(note, frame, origin, now)
        except Exception as error:  # noqa: BLE001  Whatever it is, the client gets what the broker sent.
            self._warn("reply", _key(note), error)
        self._unread(note, now)
        if _key(note) in SASL:
            self._principals.distrust(origin)
        if isinstance(note, Withheld):
            return Reply(note.unknown(int.from_bytes(frame[:4], "big", signed=True)))
        return Reply(raw_tokens=OPAQUE if isinstance(note, Handshake) and note.version == 0 else 0)

    def _reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        if isinstance(note, Exchange):
            answer = _open(APIS[note.request.KEY], note.version, frame)
            self._broker_refusals.count(note.request.KEY, answer.message)
            events = wire.replied(note, answer.message, self._copy.epoch(now))
            self._copy.apply(followed(events) if self._copy.hides else events, now)
            if note.request.KEY in LOCAL_APIS and (principal := self._principals.of(origin, now)):
                self._copy.rights.grant(principal, shown(note, answer.message), note.sent_at)
            return Reply(answer.sealed(note.merged(answer.message))) if isinstance(note, Withheld) else Reply()
        if isinstance(note, Handshake):
            return Reply(raw_tokens=self._shaken(note, _open(APIS[note.api_key], note.version, frame).message, origin))
        if isinstance(note, Token):
            answer = _open(APIS[note.api_key], note.version, frame)
            assert isinstance(answer.message, SaslAuthenticateResponse)
            self._principals.authenticated(origin, note, answer.message)
            return Reply()
        if note.api_key == ApiKey.API_VERSIONS:
            # A broker that does not know the version answers in v0, which begins with this error.
            unsupported = frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
            answer = _open(APIS[note.api_key], 0 if unsupported else note.version, frame)
            changed = self._offered(answer.message)
        else:
            answer = _open(APIS[note.api_key], note.version, frame)
            changed = self._addressed(answer.message)
        return Reply() if changed == answer.message else Reply(answer.sealed(changed))

    def _shaken(self, note: Handshake, reply: Struct, origin: Origin) -> int:
        """Follows who is on the connection. Gives how many raw tokens come next."""
        assert isinstance(reply, SaslHandshakeResponse)
        accepted = reply.error_code == ErrorCode.NONE
        if accepted and note.version and note.mechanism:
            self._principals.shaken(origin, note.mechanism)
        else:
            self._principals.distrust(origin)
        return RAW_TOKENS.get(note.mechanism, OPAQUE) if accepted and note.version == 0 else 0

    def _offered(self, reply: Struct) -> Struct:
        assert isinstance(reply, ApiVersionsResponse)
        known = reply.error_code == ErrorCode.NONE
        if known:
            self._copy.learn_versions({v.api_key: (v.min_version, v.max_version) for v in reply.api_keys})
        gateway = self._copy.advertise is not None
        serve = known and self._copy.config.answers.enabled and not self._copy.hides
        return rewrite.api_versions(reply, self._decoded, gateway=gateway, serve=serve)

    def _addressed(self, reply: Struct) -> Struct:
        if isinstance(reply, MetadataResponse):
            self._copy.learn_names({t.topic_id: t.name for t in reply.topics if t.name and t.topic_id.int})
        return rewrite.addresses(reply, self._copy.advertise) if self._copy.advertise else reply

    def gone(self, notes: Sequence[Any], origin: Origin, now: float) -> None:
        """See Desk."""
        for note in notes:
            self._lost(note, now)
        self._copy.rights.drop(self._principals.gone(origin))
        self._enforcing.gone(origin)

    def _unread(self, note: Any, now: float) -> None:
        """A reply came and could not be read: what the broker made of the request is not known.

        Of a sync the next generation makes good; not every broker writes its errors as Kafka does.
        """
        self._copy.traffic.decode_failed(_key(note))
        self._lost(note, now)
        if isinstance(note, Exchange) and note.request.KEY in CHANGING - {ApiKey.SYNC_GROUP}:
            for group in _groups(note.request):
                self._copy.manager.obscure(group, self._copy.epoch(now))

    def _lost(self, note: Any, now: float) -> None:
        """What the broker made of a request is not known, nor whether it had it."""
        if isinstance(note, Exchange):
            self._copy.apply(wire.abandoned(note), now)
        elif isinstance(note, Unfollowed) and note.api_key == ApiKey.DELETE_TOPICS:
            self._copy.manager.disturb_offsets(self._copy.epoch(now))
        elif isinstance(note, RuleChange):
            self._copy.rights.rules_changed(self._copy.epoch(now))
        elif isinstance(note, Unfollowed):
            self._copy.manager.obscure(note.group, self._copy.epoch(now) + LOST_SECONDS)


def _key(note: Any) -> int:
    key: int = note.request.KEY if isinstance(note, Exchange) else note.api_key
    return key


def _groups(request: Struct) -> Sequence[str | None]:
    if isinstance(request, DeleteGroupsRequest):
        return request.groups_names
    return (getattr(request, "group_id", None),)


class _Opened(NamedTuple):
    """A reply, and what stands around it: the header as it came, and bytes that are not described."""

    version: int
    head: bytes
    message: Struct
    rest: bytes

    def sealed(self, message: Struct) -> bytes:
        """A whole frame with another message in the same place."""
        payload = self.head + encode(message, self.version) + self.rest
        return len(payload).to_bytes(4, "big") + payload


def _open(api: Api, version: int, frame: bytes) -> _Opened:
    body = split_reply(frame, version >= api.response.HEADER_FLEXIBLE)
    message, rest = decode_start(api.response, version, body)
    return _Opened(version, frame[: len(frame) - len(body)], message, rest)
