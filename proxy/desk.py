"""Where the frames of one broker's clients are understood.

Owns: `BrokerDesk`: which requests are looked into, and what a reply teaches. Must not know: the order of
things on a connection (the session's), sockets, how state changes (the coordinator's), what may be answered
(`answering`) or refused (`enforcing`), how a reply is changed (`reply_rewriting`).

It fails open: whatever cannot be decoded goes on as it came, is counted, and marks its group.
It has more than 400 lines because it is the one place that says, for each request and reply, which part looks into it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from group_sidecar.codecs.errors import ErrorCode, TooManyElements
from group_sidecar.codecs.headers import decode_request_header
from group_sidecar.codecs.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from group_sidecar.codecs.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from group_sidecar.codecs.registry import APIS, Api, ApiKey
from group_sidecar.codecs.schema import Struct, decode_start
from group_sidecar.coordinator import wire
from group_sidecar.coordinator.exchange import Exchange
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.answering import Answering
from group_sidecar.proxy.broker_copy import LOCAL_APIS, BrokerCopy
from group_sidecar.proxy.closing import Closing
from group_sidecar.proxy.disposals import OPAQUE, Answer, Disposal, Forward, HangUp, Origin, Pass, Reply, Shown
from group_sidecar.proxy.drafted import Drafted
from group_sidecar.proxy.element_bounds import ElementBounds
from group_sidecar.proxy.enforcing import Enforcing
from group_sidecar.proxy.framing import BEGIN, PASS, SHOW, TAKE, Look
from group_sidecar.proxy.garbage import LONG_FRAME, Undisturbed
from group_sidecar.proxy.group_access import AccessProbe
from group_sidecar.proxy.holding import UNAUTHENTICATED_FRAME, Holding
from group_sidecar.proxy.learning import CLOSED, PASSED_ON, Fetching, Learning, Unfollowed
from group_sidecar.proxy.logs import log
from group_sidecar.proxy.offers import Offers
from group_sidecar.proxy.passable import PASSABLE
from group_sidecar.proxy.principals import ROUNDS, UNAUTHENTICATED, Handshake, Principals, Token
from group_sidecar.proxy.relaying import Relayed
from group_sidecar.proxy.reply_rewriting import ReplyOnly, ReplyRewriter, open_reply, rewritten_apis
from group_sidecar.proxy.rights import RULE_CHANGES
from group_sidecar.proxy.withholding import Withheld

LONGEST_FETCH = 65_536
"""Bytes of a Fetch reply beyond which only its beginning is read: it passes as it comes."""
NOTHING_FETCHED = 18
"""Bytes of a Fetch reply that may be all there is around its partitions: with one of them it is longer."""
FETCH_PAUSE = 0.01
"""Seconds between two looks into Fetch replies of any connections: with many, each is looked into less often."""
BEGIN_BYTES = 8_192
"""Of a reply of which only the beginning is read, which is slow."""
SASL = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
BEHIND = wire.READ - wire.ANNOUNCED - LOCAL_APIS
"""What is read with its reply, when both have gone on, unless a policy judges it. Not so a question, and not what
matters to its group from when it is sent."""
_API_VERSIONS, _DELETE_TOPICS = int(ApiKey.API_VERSIONS), int(ApiKey.DELETE_TOPICS)
_FETCH, _FIND_COORDINATOR = int(ApiKey.FETCH), int(ApiKey.FIND_COORDINATOR)


class RuleChange(NamedTuple):
    """A note for the reply to what may change who may see what."""

    api_key: int


_AS_IT_CAME = Reply()
_UNHELD = {
    CloseReason.REQUEST_TOO_LONG: "the request may not be held (limits.held_frames)",
    CloseReason.STALLED: "the request comes too slowly to be held",
}


class BrokerDesk:
    """The desk of one broker; all its clients' sessions share it."""

    def __init__(self, copy: BrokerCopy) -> None:
        self._copy = copy
        self._principals = Principals()
        self._learning = Learning(copy, self._principals)
        self._answering = Answering(copy, self._principals)
        self._enforcing = Enforcing(copy, self._principals)
        self._closing = Closing()
        self._drafted = Drafted(copy, self._learning, self._answering, self._closing)
        self._holding = Holding(copy.config.limits.held_frames)
        self._longest = copy.config.limits.inspected_frame
        self._bounds = ElementBounds(copy.config.limits.inspected_elements)
        self._reply_only = rewritten_apis(copy)
        decoded = wire.READ | LOCAL_APIS | self._reply_only
        self._offers = Offers(copy, decoded | SASL)
        self._rewriter = ReplyRewriter(copy, self._offers)
        self._glanced = decoded | RULE_CHANGES | SASL | wire.NAMED_ONLY | {ApiKey.DELETE_TOPICS, ApiKey.FETCH}
        self._fetch_due = 0.0
        self._behind: deque[tuple[Any, bytes, Origin, float]] = deque()
        self._taken = (wire.READ | LOCAL_APIS | SASL | wire.NAMED_ONLY) - self._reply_only
        self._passable = PASSABLE if copy.advertise else None
        self.sees_each = self._passable is not None

    # Requests.

    def glance(self, api_key: int, api_version: int, size: int) -> Any:
        """See Desk."""
        if self._passable is not None and not self._may_pass(api_key, api_version):
            return self._closing.because(CloseReason.UNSUPPORTED_VERSION, api_key, f"version {api_version}")
        if api_key not in self._glanced:
            return None
        if self._copy.is_kafka_0_9 and (passed_over := self._passed_over(api_key, api_version)):
            return passed_over
        judged = self._copy.rulebook.judging(api_key)
        if judged and api_version not in APIS[api_key].versions and self._copy.rulebook.enforcing(api_key):
            return self._closing.because(CloseReason.UNSUPPORTED_VERSION, api_key, f"version {api_version}")
        if size > self._longest:
            if self._only_here(api_key, api_version):
                return self._closing.because(CloseReason.REQUEST_TOO_LONG, api_key, f"a request of {size} bytes")
        else:
            if api_key in BEHIND and not judged:
                return SHOW
            if api_key in self._taken:
                return TAKE
        if api_key == _FIND_COORDINATOR and self._drafted.takes(api_version):
            return self._drafted.glance(size)
        return self._note(api_key, api_version)

    def _may_pass(self, api_key: int, api_version: int) -> bool:
        """Whether a gateway knows what the reply would carry. ApiVersions in any version is answered here."""
        assert self._passable is not None
        return 0 <= api_version <= self._passable.get(api_key, -1) or api_key == _API_VERSIONS

    def _passed_over(self, api_key: int, api_version: int) -> Look | HangUp | None:
        """Returns the outcome for a request that Kafka 0.9 would ignore, where later brokers close the connection."""
        if api_key == _API_VERSIONS:
            return TAKE
        return None if self._copy.speaks(api_key, api_version) else HangUp(CloseReason.MALFORMED_REQUEST)

    def hold(self, api_key: int, api_version: int, size: int, origin: Origin) -> Any:
        """See Desk."""
        copy = self._copy
        admitted = copy.open or self._principals.admitted(origin)
        if size > UNAUTHENTICATED_FRAME and not admitted:
            if copy.wants_sasl:  # The broker does the same.
                cause = f"a request of {size} bytes before authentication"
                return self._closing.because(CloseReason.UNAUTHENTICATED_FRAME, api_key, cause, origin)
        elif self._holding.holds(origin.number, origin.client_host, size, admitted=admitted):
            return TAKE
        return self._unheld(api_key, api_version, origin)

    def crowded_out(self) -> list[int]:
        """Returns the numbers of connections whose requests may not be held any longer, each once."""
        return self._holding.crowded_out()

    def let_go(self, api_key: int, api_version: int, origin: Origin, reason: CloseReason) -> Any:
        """See Desk."""
        self._holding.release(origin.number)
        return self._unheld(api_key, api_version, origin, reason)

    def forget(self, note: Any, origin: Origin, reason: CloseReason) -> Any:
        """See Desk."""
        if type(note) is Shown:
            return self._learning.undecoded(_key(note), note.frame)
        if type(note) is Unfollowed:
            return note
        # Joins and leaves count from when they are sent, and the reply to a question may have to be changed.
        return self._closing.because(reason, _key(note), _UNHELD[reason], origin)

    def release(self, origin: Origin) -> None:
        """See Desk."""
        self._holding.release(origin.number)

    def _only_here(self, api_key: int, version: int) -> bool:
        """Whether a request may not go on unread: no request gets past a policy by being long, the broker does not
        understand what the sidecar has added, and behind SaslHandshake v0 no policy could read anything any more.
        """
        if api_key == _API_VERSIONS:
            return self._copy.is_kafka_0_9 or version not in APIS[_API_VERSIONS].versions
        if api_key == ApiKey.SASL_HANDSHAKE:
            return version == 0 and self._enforces
        return self._copy.rulebook.enforcing(api_key) or self._copy.adds(api_key, version)

    def _unheld(
        self, api_key: int, api_version: int, origin: Origin, reason: CloseReason = CloseReason.REQUEST_TOO_LONG
    ) -> Any:
        """Returns the outcome for a request that may not be held. `reason`: why its connection ends, where it must."""
        if self._only_here(api_key, api_version):
            return self._closing.because(reason, api_key, _UNHELD[reason], origin)
        return self._note(api_key, api_version)

    def _note(self, api_key: int, api_version: int) -> Any:
        """For a request that is not looked into."""
        if api_key == _FETCH:
            return Fetching(api_version) if api_version in APIS[_FETCH].versions else None
        self.catch_up()
        if api_key == _API_VERSIONS and api_version not in APIS[_API_VERSIONS].versions:
            return TAKE
        if api_key in self._reply_only:
            return ReplyOnly(api_key, api_version) if self._rewriter.changes(api_key, api_version) else None
        if api_key in RULE_CHANGES:
            self._copy.rights.rules_change()
            return RuleChange(api_key)
        if api_key == _DELETE_TOPICS:
            return Unfollowed(api_key)
        if api_key in wire.NAMED_ONLY:
            return self._learning.unfollowed(api_key, None)
        return self._unread(api_key, api_version, None)

    def request(self, frame: bytes, origin: Origin, now: float) -> Disposal:
        """See Desk."""
        if len(frame) > LONG_FRAME:
            with Undisturbed():
                return self._considered(frame, origin, now)
        return self._considered(frame, origin, now)

    def _considered(self, frame: bytes, origin: Origin, now: float) -> Disposal:
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big", signed=True)
        if key == _API_VERSIONS:  # The broker would pass it over, or say what cannot be read here.
            number = int.from_bytes(frame[4:8], "big", signed=True)
            if self._copy.is_kafka_0_9:
                return Answer(lambda at: self._offers.instead(version, number))
            return Answer(lambda at: self._offers.unsupported(number, version))
        if key == _FIND_COORDINATOR:
            return self._drafted.consider(frame, origin, now)
        if key in wire.NAMED_ONLY:
            return Forward(self._learning.unfollowed(key, wire.group_named(key, frame)))
        if key in BEHIND and not self._copy.rulebook.judging(key):
            return Forward(Shown(frame, origin, now))
        try:
            return self._request(APIS[key], version, frame, origin, now)
        except Exception as error:  # noqa: BLE001  Whatever it is, the broker decides.
            if isinstance(error, TooManyElements) and self._only_here(key, version):
                return self._closing.because(CloseReason.REQUEST_TOO_LONG, key, str(error), origin)
            if self._copy.adds(key, version):  # The broker does the same with what it cannot read.
                self._copy.traffic.decode_failed(key)
                return self._closing.because(CloseReason.MALFORMED_REQUEST, key, str(error), origin)
            self._learning.warn("request", key, error)
        note = self._unread(key, version, frame)
        return Pass() if note is None else Forward(note)

    def _request(self, api: Api, version: int, frame: bytes, origin: Origin, now: float) -> Disposal:
        header, body = decode_request_header(frame, api.flexible(version))
        assert api.request is not None  # Produce alone has none, and is not taken.
        question = self._answering.read(api, version, body) if api.key in LOCAL_APIS else None
        most = self._bounds.request(api.key, judged=bool(self._copy.rulebook.judging(api.key)))
        request = question.request if question else decode_start(api.request, version, body, most)[0]
        if isinstance(request, SaslHandshakeRequest):
            return Forward(Handshake(request.mechanism, version))
        if isinstance(request, SaslAuthenticateRequest):
            return Forward(self._principals.token(request.auth_bytes, version, now))
        exchange = self._learning.exchange(request, version, header.correlation_id, header.client_id or "", origin, now)
        if question is not None:
            how = self._answering.consider(question, exchange, header, origin, now)
            return self._safely(how, exchange, partial(self._answering.ask, exchange, header))
        how = self._enforcing.consider(exchange, header, origin, now)
        return self._safely(how, exchange, lambda _: Forward(exchange))

    def _safely(self, how: Disposal, exchange: Exchange, otherwise: Callable[[float], Disposal]) -> Disposal:
        """The same; but where an answer turns out not to be possible, the broker is asked."""
        if not isinstance(how, Answer):
            return how

        def make(now: float) -> bytes | Disposal:
            try:
                return how.make(now)
            except Exception as error:  # noqa: BLE001  As in request.
                self._learning.warn("question", exchange.request.KEY, error)
                return otherwise(now)

        return how._replace(make=make)

    def _unread(self, api_key: int, version: int, frame: bytes | None) -> Handshake | Token | Unfollowed | None:
        """Notes that a request goes on unread. Gives the note for its reply."""
        unfollowed = self._learning.undecoded(api_key, frame)
        if api_key == ApiKey.SASL_HANDSHAKE:
            return Handshake("", version)
        return Token(version) if api_key == ApiKey.SASL_AUTHENTICATE else unfollowed

    # Replies.

    def bound_reply(self, api_key: int, size: int) -> Look | HangUp:
        """See Desk."""
        most = UNAUTHENTICATED_FRAME if api_key in SASL else self._copy.config.limits.largest_frame
        if size <= most:
            return TAKE
        return self._closing.because(CloseReason.UNREADABLE, api_key, f"a reply of {size} bytes")

    def glance_reply(self, note: Any, size: int, now: float) -> Look | HangUp:
        """See Desk."""
        kind = type(note)
        if size <= self._longest and (
            kind is Shown or (kind is Exchange and note.request.KEY not in self._rewriter.relocated_apis)
        ):
            return SHOW
        if kind is Fetching:
            return self._glance_fetched(size, now)
        self.catch_up()
        if kind is Unfollowed or kind is RuleChange:
            self._lost(note, now)
            return PASS
        if kind is Token or kind is Withheld:
            return self.bound_reply(_key(note), size)
        if self._rewriter.reads(note, size):
            return TAKE
        if self._rewriter.must_be_read(note):
            return self._closing.because(CloseReason.UNREADABLE, _key(note), f"a reply of {size} bytes")
        if size > self._longest:
            self._reply_unread(note, now)
        return PASS

    def _glance_fetched(self, size: int, now: float) -> Look:
        """A Fetch reply is looked into if it tells anything and the last such look is a while ago. It is never held
        for long: a short one until it is whole.
        """
        if size <= NOTHING_FETCHED or now < self._fetch_due:
            return PASS
        self._fetch_due = now + FETCH_PAUSE
        return SHOW if size <= min(LONGEST_FETCH, self._longest) else BEGIN

    def reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        """See Desk."""
        if len(frame) > LONG_FRAME or (type(note) is Shown and len(note.frame) > LONG_FRAME):
            with Undisturbed():
                return self._understood(note, frame, origin, now)
        return self._understood(note, frame, origin, now)

    def _understood(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        shown = type(note) is Shown
        if (shown or _key(note) not in UNAUTHENTICATED) and self._principals.served(origin):
            self._copy.learn_open()
        if shown:
            self._learning.learn(note, frame, now)
            return _AS_IT_CAME
        try:
            return self._reply(note, frame, origin, now)
        except Exception as error:  # noqa: BLE001  Whatever it is, the client gets what the broker sent.
            reply = self._misread(note, frame, origin, now)
            self._learning.warn("reply", _key(note), error, CLOSED if reply.hang_up else PASSED_ON)
            return reply

    def _misread(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        """What the client gets in place of a reply that cannot be read."""
        self._reply_unread(note, now)
        if _key(note) in SASL:
            self._principals.distrust(origin)
        if isinstance(note, Withheld):
            return Reply(note.unknown(int.from_bytes(frame[:4], "big", signed=True)))
        if self._rewriter.must_be_read(note):
            return Reply(hang_up=CloseReason.UNREADABLE)
        return self._tokens(OPAQUE if isinstance(note, Handshake) and note.version == 0 else 0)

    def _tokens(self, count: int) -> Reply:
        """The reply to a handshake. A connection that nobody could read any more ends in a gateway, whose addresses
        would leave, and where a policy is enforced, which would be passed.
        """
        unreadable = count == OPAQUE and (self._copy.advertise is not None or self._enforces)
        return Reply(hang_up=CloseReason.UNREADABLE) if unreadable else Reply(raw_tokens=count)

    @property
    def _enforces(self) -> bool:
        return any(policy.enforced for policy in self._copy.rulebook)

    def _reply(self, note: Any, frame: bytes, origin: Origin, now: float) -> Reply:
        if isinstance(note, Exchange):
            most = self._bounds.reply(note.request.KEY)
            if isinstance(note, Withheld):
                return self._merged(note, frame, most, origin, now)
            answer = open_reply(note.request.KEY, note.version, frame, most)
            self._learning.replied(note, answer.message, origin, now)
            told = self._rewriter.relocated(note.request.KEY, answer.message)
            return _AS_IT_CAME if told is answer.message else Reply(answer.sealed(told))
        if isinstance(note, Handshake):
            return self._tokens(self._shaken(note, open_reply(note.api_key, note.version, frame).message, origin))
        if isinstance(note, Token):
            answer = open_reply(note.api_key, note.version, frame)
            assert isinstance(answer.message, SaslAuthenticateResponse)
            self._principals.authenticated(origin, note, answer.message)
            return _AS_IT_CAME
        if isinstance(note, AccessProbe):
            note.take(open_reply(note.api_key, note.version, frame).message)
            return _AS_IT_CAME
        if isinstance(note, Fetching):
            self._learning.fetched(note, frame, now)
            return _AS_IT_CAME
        if isinstance(note, Relayed):
            message = open_reply(note.api_key, note.exchange.version, frame).message
            if note.api_key in wire.READ:
                self._learning.replied(note.exchange, message, origin, now)
            note.take(self._rewriter.relocated(note.api_key, message))
            return _AS_IT_CAME
        return Reply(self._rewriter.rewritten(note, frame))

    def _merged(self, note: Withheld, frame: bytes, most: int, origin: Origin, now: float) -> Reply:
        """The reply to what is left of a commit. It is decoded however long; more than `most` teach nothing."""
        answer = open_reply(note.request.KEY, note.version, frame)
        if note.elements <= most:
            self._learning.replied(note, answer.message, origin, now)
        else:
            self._learning.unread(note, now)
        return Reply(answer.sealed(note.merged(answer.message)))

    def _shaken(self, note: Handshake, reply: Struct, origin: Origin) -> int:
        """Follows who is on the connection. Gives how many raw tokens come next."""
        assert isinstance(reply, SaslHandshakeResponse)
        accepted = reply.error_code == ErrorCode.NONE
        self._copy.wants_sasl = self._copy.wants_sasl or accepted
        if accepted and note.version and note.mechanism:
            self._principals.shaken(origin, note.mechanism)
        else:
            self._principals.distrust(origin)
        return ROUNDS.get(note.mechanism, OPAQUE) if accepted and note.version == 0 else 0

    def tls_begins(self, origin: Origin) -> CloseReason | None:
        """See Desk."""
        copy = self._copy
        copy.traffic.tls_connections += 1
        if copy.traffic.tls_connections == 1:  # Once for the process: the metric counts them.
            log.warning(
                "a client speaks TLS where plain Kafka is expected",
                client=origin.client_host,
                outcome="passed unread" if copy.advertise is None else "closed",
            )
        # A gateway that cannot rewrite addresses would have clients go past it.
        return None if copy.advertise is None else CloseReason.TLS_TO_GATEWAY

    def longest_wait(self, note: Any) -> float:
        """See Desk."""
        return self._learning.longest_wait(note) if isinstance(note, Exchange) else 0.0

    def later(self, note: Any, frame: bytes, origin: Origin, now: float) -> None:
        """See Desk."""
        self._behind.append((note, frame, origin, now))

    def begun(self, note: Any, head: bytes, origin: Origin, now: float) -> None:
        """See Desk."""
        self._behind.append((note._replace(cut=True), head[:BEGIN_BYTES], origin, now))

    def catch_up(self) -> None:
        """See Desk."""
        behind = self._behind
        while behind:
            note, frame, origin, now = behind.popleft()
            try:
                self.reply(note, frame, origin, now)
            except Exception as error:  # noqa: BLE001  It must not reach other connections.
                self._learning.warn("reply", _key(note), error)

    def gone(self, notes: Sequence[Any], origin: Origin, now: float) -> None:
        """See Desk."""
        if not self._copy.losses.put_off(notes, now):
            with Undisturbed():
                for note in notes:
                    self._lost(note, now)
        if own := self._principals.gone(origin):
            self._copy.rights.drop(own)
        self._holding.release(origin.number)
        self._enforcing.gone(origin)
        self._learning.gone(origin)

    def follow_losses(self) -> bool:
        """Looks into some of what was lost with connections. Returns whether more waits."""
        with Undisturbed():
            for note, at in self._copy.losses.take():
                self._lost(note, at)
        return bool(self._copy.losses)

    def _reply_unread(self, note: Any, now: float) -> None:
        """A reply came and could not be read."""
        if isinstance(note, Shown):
            note = self._learning.understood(note)
        if isinstance(note, Exchange):
            self._learning.unread(note, now)
        elif isinstance(note, Unfollowed):
            self._learning.lost(note, now)
        elif note is not None:
            self._copy.traffic.decode_failed(_key(note))

    def _lost(self, note: Any, now: float) -> None:
        """What the broker made of a request is not known, nor whether it had it."""
        if isinstance(note, Shown):
            note = self._learning.understood(note)
        if isinstance(note, Exchange | Unfollowed):
            self._learning.lost(note, now)
        elif isinstance(note, RuleChange):
            self._copy.rights.rules_changed(self._copy.epoch(now))


def _key(note: Any) -> int:
    if type(note) is Shown:
        return int.from_bytes(note.frame[:2], "big")
    key: int = note.request.KEY if isinstance(note, Exchange) else note.api_key
    return key
