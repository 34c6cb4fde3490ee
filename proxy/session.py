"""One client connection and its upstream twin, without sockets.

Owns: the order of things. Which request each reply belongs to, whose turn it is, when a local answer may be computed,
when bytes pass without being parsed. Must not know: groups, policies, sockets, how raw SASL tokens are counted
(`raw_tokens`) and TLS is recognized (`tls_start`). What a frame means is the business of the desk (`Desk`), and what
bytes go where the shell's.

It has more than 400 lines because all of its parts change one queue of owed replies, which has one owner.

Rules:
- Replies leave in the order of requests. So they come, too: one that is not the next closes the connection.
- A local answer waits until everything before it has been answered, and is computed then. While it waits, nothing
  behind it is read: the broker too handles one request of a connection at a time.
- A forwarded frame goes on as the original bytes, unless the desk replaced it.
- What need not be understood before it goes on is understood when the sockets that were ready have been served, or
  before the desk decides anything. So no answer ever misses what an earlier reply told.
- A client that sends what cannot be, or ends within a frame, first gets the replies that it is owed, as from a broker.

It is longer than other files: requests, replies and turns change the same few fields, and each rule is about two of
them.
"""

from collections import deque
from typing import Any, Final, NamedTuple

from group_sidecar.codecs.headers import REPLY_HEAD, REQUEST_HEAD
from group_sidecar.codecs.registry import ApiKey
from group_sidecar.metrics.traffic import CloseReason, Traffic
from group_sidecar.proxy.acks import REACH, acks
from group_sidecar.proxy.commands import Close, Command, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.disposals import OPAQUE, Answer, Desk, Disposal, Forward, HangUp, Origin, Shown
from group_sidecar.proxy.framing import (
    BEGIN,
    LENGTH_BYTES,
    MORE,
    PASS,
    SHOW,
    TAKE,
    BadFrameLength,
    FrameWalker,
    Look,
    Run,
)
from group_sidecar.proxy.holding import SMALL_FRAME
from group_sidecar.proxy.raw_tokens import SMALLEST_REPLY, SMALLEST_REQUEST, RawTokens
from group_sidecar.proxy.tls_start import MOST_HELLO, TlsStart, is_client_hello

LONGEST_REPLY = 0x7FFFFFFF
MOST_EXPECTED = 4096
"""Replies owed on one connection beyond which its client is not read: what is remembered stays bounded."""
MOST_KEPT = 262_144
"""Bytes kept of requests whose replies are owed, beyond which the client is not read. The broker handles one request of
a connection at a time, so a client loses nothing by it."""
KEPT_BESIDE = 256
"""Bytes that a kept request takes beside its own, about."""
LONGEST_KEPT = SMALL_FRAME + KEPT_BESIDE
"""Bytes kept of one request that are no reason to forget it: such a request needs no room to be held."""
ANSWER_BYTES_AT_ONCE = 262_144
"""Bytes of answers that are made in one go: then the client has to take them, and other connections have their turn."""
SLOWEST_REQUEST = 16_384
"""Bytes a second that a request must come with to be held for long. 512 KiB then take the 30 s after which Kafka's
clients give up."""
REQUEST_COST, BYTE_COST = 4_096, 32
"""Bytes of answers that a request which is looked into counts as, and that each of its bytes counts as: it takes 30 us
and more, and more the longer it is."""
FETCH_SECONDS = 1.0
"""For so long after it looked into a Fetch reply the desk is not offered another: they are the bulk of all bytes."""
PRODUCE, FETCH, SASL_HANDSHAKE = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.SASL_HANDSHAKE)
RAW_TOKEN = -1
"""As an API key: a SASL token, which has no header."""
NOT_GLANCED: Final = object()
"""As a note: the desk is still to be asked."""

_tuple = tuple.__new__  # As NamedTuple's own, which costs twice as much.
_unpack_request, _unpack_reply = REQUEST_HEAD.unpack_from, REPLY_HEAD.unpack_from

_Expected = tuple[int, int, float, Any, bool, int]
"""A reply that is owed: its correlation id, the API key, when the request came, the desk's note, whether the request
was injected, and the bytes kept with the note. A bare tuple, because one is made for everything that passes."""


class _Turn(NamedTuple):
    answer: Answer
    request: bytes
    since: float


class Session:
    """Feeds on bytes from both sides and says what to send.

    Args:
        desk: understands frames.
        traffic: is told of requests that were answered.
        origin: the client.
        largest_frame: longest request in bytes that is accepted (the broker's `socket.request.max.bytes`).

    Attributes:
        at_ease: nothing is held, nobody's turn is awaited, and the client is to be read. Then most of what comes is one
            whole frame, and goes the short way: that of `short_way`, or the same in `receive_client` and
            `receive_upstream`.
        expected: the replies that are owed, in their order.
        fetch_due: when a Fetch reply may be looked into again.
        kept_bytes: what is kept of requests until their replies have come, or until they are answered here.
        paused: requests wait here until the client has taken what was made for it; `resume` says that it has.
    """

    def __init__(self, desk: Desk, traffic: Traffic, origin: Origin, largest_frame: int) -> None:
        self.desk = desk
        self.traffic = traffic
        self.origin = origin
        self.at_ease = True
        self.expected: deque[_Expected] = deque()
        self.fetch_due = 0.0
        self.kept_bytes = 0
        self.paused = False
        self._answer_bytes = 0
        self._now = 0.0
        self._out: list[Command] = []
        self._requests = FrameWalker(REQUEST_HEAD.size, SMALLEST_REQUEST, largest_frame, self._look_at_request)
        self._replies = FrameWalker(REPLY_HEAD.size, SMALLEST_REPLY, LONGEST_REPLY, self._look_at_reply)
        self._turn: _Turn | None = None
        self._held_since: float | None = None  # When the request began that is held until it is whole.
        self._tokens = RawTokens(self._requests, self._replies)
        self._tls = TlsStart()
        self._client_ended = False
        self._fault: CloseReason | None = None  # The client's: it waits for the replies that are owed.
        self._failed: CloseReason | None = None
        self._over = False
        self._stopping = False

    @property
    def wants_client(self) -> bool:
        """Whether the shell should read from the client: not while an answer waits for its turn."""
        return (
            self._turn is None
            and not self.paused
            and not self._tokens.handshaking
            and self._fault is None
            and not self._over
            and self._tls.hello_bytes < MOST_HELLO
            and self._has_room
            and not (self._stopping and not self._requests.passing)
        )

    @property
    def _has_room(self) -> bool:
        """Whether a further reply may be owed."""
        return len(self.expected) < MOST_EXPECTED and self.kept_bytes < MOST_KEPT

    @property
    def at_rest(self) -> bool:
        """Whether neither side has to hear anything more."""
        return self._nothing_owed and self._fault is None

    @property
    def opaque(self) -> bool:
        """Whether bytes pass without being parsed, for good."""
        return self._tokens.left == OPAQUE

    @property
    def within_request(self) -> bool:
        """Whether the client owes the rest of a request."""
        return self.wants_client and not self._requests.between_frames

    def lags(self, now: float, seconds: float, *, flowing: bool) -> bool:
        """Returns whether a request that is held comes too slowly: later than `seconds` after it has begun, and slower
        than SLOWEST_REQUEST since. `flowing`: whether the client is read; the time in which it is not does not count.
        """
        if self._held_since is None:
            return False
        if not flowing:
            self._held_since = now
        return self._requests.held_bytes < (now - self._held_since - seconds) * SLOWEST_REQUEST

    def longest_wait(self, seconds: float) -> float:
        """How long the broker may take for the reply that comes next, where that is more than `seconds`."""
        return max(seconds, self.desk.longest_wait(self.expected[0][3])) if self.expected else seconds

    def stop(self) -> bool:
        """Takes no request any more that the broker has had no byte of. Returns whether all others have their replies,
        or nobody knows: the connection may end.
        """
        self._stopping = True
        self.at_ease = False
        return self.opaque or (self._nothing_owed and self._turn is None and not self._requests.passing)

    @property
    def passing_replies(self) -> int:
        """How many of the broker's next bytes go on whatever they are."""
        return self._replies.passing

    def drop(self, kept: int) -> None:
        """So many bytes of a request need not be kept any longer."""
        self.kept_bytes -= kept
        if kept and not self.kept_bytes:
            self.desk.release(self.origin)

    @property
    def held_bytes(self) -> int:
        """Bytes held in this session, for the metric that shows it."""
        return self._requests.held_bytes + self._replies.held_bytes + self.kept_bytes

    def receive_client(self, chunk: bytes, now: float) -> list[Command]:
        """What the client sent. `now` in seconds of the shell's clock."""
        self._now = now
        if self.at_ease and self._requests.is_frame(chunk):
            return self._receive_request(chunk, self._look_at_request(chunk, 0, len(chunk)))
        return self._receive_any(chunk)

    def glanced(self, request: bytes, note: Any, now: float) -> list[Command]:
        """The client sent one whole request while all was at ease, and the desk has glanced at it and gave a note."""
        self._now = now
        return self._receive_request(request, self._look_at_request(request, 0, len(request), note))

    def _receive_request(self, request: bytes, look: Look) -> list[Command]:
        if look is PASS:
            self.at_ease = self._has_room
            return [_tuple(ToUpstream, (request,))]
        if look is TAKE:
            self._take(request)
            return self._commands()
        return self._receive_any(request)

    def _receive_any(self, chunk: bytes) -> list[Command]:
        if self._tokens.left == OPAQUE:
            return [ToUpstream(chunk)]
        if self._over:
            return []
        if self._tls.hello_bytes:
            self._tls.sent(len(chunk))
            self._out.append(ToUpstream(chunk))
        else:
            self._serve_requests(chunk)
        return self._commands()

    def receive_upstream(self, chunk: bytes, now: float) -> list[Command]:
        """What the broker sent."""
        self._now = now
        if self.at_ease and self._replies.is_frame(chunk):
            look = self._look_at_reply(chunk, 0, len(chunk))
            if look is PASS:
                return [_tuple(ToClient, (chunk,))]
            if look is TAKE:
                self._settle(chunk)
                return self._commands()
        if self._tokens.left == OPAQUE:
            return [ToClient(chunk)]
        if self._over:
            return []
        if self._tls.hello_bytes:
            return self._begin_tls(chunk)
        self._serve_replies(chunk)
        return self._commands()

    def passed_reply(self, count: int, now: float) -> list[Command]:
        """The shell has passed on so many of `passing_replies`."""
        self._now = now
        self._replies.passing -= count
        if not self._replies.passing:
            self._go_on()
        return self._commands()

    def resume(self, now: float) -> list[Command]:
        """The client has taken all that it was sent, and other connections have had their turn."""
        self._now = now
        self.paused = False
        if not self._over:
            self._serve_requests()
        return self._commands()

    def give_way(self, now: float, reason: CloseReason) -> list[Command]:
        """The request that is held may not be held any longer, for a reason. It goes on unread, in what has come, or
        the connection ends. A request that is whole and waits for its reply is forgotten, or the connection ends.
        """
        self._now, self._held_since = now, None
        if begun := b"" if self._over else self._requests.let_go():
            _, key, version, correlation = _unpack_request(begun)
            note = self.desk.let_go(key, version, self.origin, reason)
            if type(note) is HangUp:
                self._fault = note.reason
            else:
                self.expected.append((correlation, key, now, note, False, 0))
                self._out.append(ToUpstream(begun))
        elif self.kept_bytes:
            self._forget(reason)
        return self._commands()

    def _forget(self, reason: CloseReason) -> None:
        """Keeps no long request any more. The replies to those that were forwarded go on unread."""
        self.desk.catch_up()
        if self._turn is not None and len(self._turn.request) > LONGEST_KEPT:
            self._failed = reason  # It was not forwarded, and perhaps only the sidecar can answer it.
            return
        for place, (correlation, key, since, note, injected, kept) in enumerate(list(self.expected)):
            if kept <= LONGEST_KEPT:
                continue
            half_come = place == 0 and self._replies.held_bytes > 0  # It is held, to be read with its request.
            note = HangUp(reason) if half_come else self.desk.forget(note, self.origin, reason)
            if type(note) is HangUp:
                self._failed = note.reason
                return
            self.expected[place] = correlation, key, since, note, injected, 0
            self.drop(kept)
        self._go_on()

    def client_closed(self, now: float) -> list[Command]:
        """The client will send no more. What it sent before is still served."""
        if self._over:
            return []
        self._now = now
        self._client_ended = True
        self._serve_requests()
        return self._commands()

    def upstream_closed(self, now: float) -> list[Command]:
        """The broker will send no more."""
        if self._over:
            return []
        self._now = now
        between = self._replies.between_frames
        ended = CloseReason.BROKER_CLOSED if between else CloseReason.TRUNCATED_FRAME
        self._failed = self._failed or self._fault or ended
        return self._commands()

    def close(self, now: float) -> list[Command]:
        """The connection is over, whoever ended it; to be called once at least. Nothing is sent."""
        if not self._over:
            self._over = True
            self._requests.end()
            self._replies.end()
            self.desk.catch_up()
            self.desk.gone([note for _, _, _, note, *_ in self.expected if note is not None], self.origin, now)
            self._turn = None
            self.expected.clear()
            self.kept_bytes = 0
        return []

    def _commands(self) -> list[Command]:
        if self._fault and self._nothing_owed:
            self._failed = self._failed or self._fault
        if self._failed:
            self.close(self._now)
            self._out.append(Close(self._failed))
        self.at_ease = (
            self.wants_client
            and not (self._tokens.left or self._client_ended or self._tls.hello_bytes)
            and self._requests.between_frames
            and self._replies.between_frames
        )
        self._answer_bytes = 0
        out, self._out = self._out, []
        return out

    # From the client.

    def _serve_requests(self, chunk: bytes = b"") -> None:
        requests = self._requests
        if self._stopping:
            chunk = chunk[: requests.passing]
        try:
            if not self.wants_client:
                requests.push(chunk)
                item = None
            else:
                item = requests.first(chunk) if chunk else requests.next()
            while item is not None:
                if isinstance(item, Run):
                    self._out.append(ToUpstream(item.data))
                else:
                    self._take(item.data)
                    self._end_turn()
                item = requests.next() if requests.has_more and self.wants_client else None
        except BadFrameLength:
            self._fault = self._fault_of_start()
        if self._client_ended and self.wants_client:
            self._end_requests()

    def _fault_of_start(self) -> CloseReason | None:
        """Why a connection ends whose client sent a length that cannot be. None: it is TLS, and passes."""
        if self.expected or not is_client_hello(self._requests.start):
            return CloseReason.BAD_FRAME_LENGTH
        if refused := self.desk.tls_begins(self.origin):
            return refused
        hello = self._requests.rest()
        self._tls.sent(len(hello))
        self._out.append(ToUpstream(hello))
        return None

    def _begin_tls(self, chunk: bytes) -> list[Command]:
        """The broker has spoken to a TLS client. From a broker that speaks TLS, all passes from here on."""
        if self._tls.is_spoken(chunk):
            self._tokens.pass_all()
            self._out.append(ToClient(chunk))
        else:
            self._failed = CloseReason.BAD_FRAME_LENGTH
        return self._commands()

    def _end_turn(self) -> None:
        """Pauses where enough was made, unless nothing more waits."""
        if self._answer_bytes >= ANSWER_BYTES_AT_ONCE and self._requests.has_more:
            self.paused = True

    def _take(self, request: bytes) -> None:
        self._answer_bytes += REQUEST_COST + BYTE_COST * len(request)
        self._held_since = None
        self.desk.catch_up()
        self._dispose(self.desk.request(request[LENGTH_BYTES:], self.origin, self._now), request)
        if not self.kept_bytes:
            self.desk.release(self.origin)

    def _end_requests(self) -> None:
        self._client_ended = False
        cut = not self._requests.between_frames
        if cut:
            self._fault = CloseReason.TRUNCATED_FRAME
        if not cut or self._requests.passing:
            # Of a frame that was passed on in part the broker must learn that no more comes: it owes no reply to it.
            self._out.append(ShutUpstream())

    def _look_at_request(self, buffer: bytes, start: int, end: int, note: object = NOT_GLANCED) -> Look:
        if self._tokens.left or not self._has_room:
            # What was read in one go may hold thousands of requests: the rest waits, as what is not read.
            return self._look_at_token() if self._has_room else MORE
        size, key, version, correlation = _unpack_request(buffer, start)
        if key == PRODUCE:
            wanted = acks(version, buffer, start + LENGTH_BYTES, min(end, start + LENGTH_BYTES + size))
            if wanted is None and end - start < min(LENGTH_BYTES + size, REACH):
                return MORE
            if wanted == 0:
                self.traffic.request_unanswered(key)
                return PASS
        if note is NOT_GLANCED:
            note = None if key == FETCH and self._now < self.fetch_due else self.desk.glance(key, version, size)
        stop = start + LENGTH_BYTES + size
        if stop > end and (note is TAKE or note is SHOW):
            note = self.desk.hold(key, version, size, self.origin)
            self._held_since = self._now if note is TAKE else None
        if note is TAKE:
            return TAKE
        kept = 0
        if note is SHOW:
            note = _tuple(Shown, (buffer[start + LENGTH_BYTES : stop], self.origin, self._now))
            kept = size + KEPT_BESIDE
            self.kept_bytes += kept
        elif type(note) is HangUp:
            self._fault = note.reason
            return MORE
        self.expected.append((correlation, key, self._now, note, False, kept))
        return PASS

    def _look_at_token(self) -> Look:
        self.expected.append((0, RAW_TOKEN, self._now, None, False, 0))
        self._tokens.sent()
        return PASS

    def _dispose(self, how: Disposal, request: bytes, since: float | None = None) -> None:
        since = self._now if since is None else since
        if isinstance(how, Answer):
            for data, note in how.inject:
                self._send(data, note, self._now, injected=True)
            self._turn = _Turn(how, request, since)
            self.kept_bytes += len(request)
            self._take_turn()
        elif isinstance(how, Forward):
            self._send(how.frame or request, how.note, since)
        elif isinstance(how, HangUp):
            self._fault = how.reason
        else:
            self._send(request, None, since)

    def _send(self, data: bytes, note: Any, since: float, *, injected: bool = False) -> None:
        _, key, version, correlation = REQUEST_HEAD.unpack_from(data)
        kept = len(data) + KEPT_BESIDE if note is not None else 0
        self.kept_bytes += kept
        self.expected.append((correlation, key, since, note, injected, kept))
        self._out.append(ToUpstream(data))
        self._tokens.handshaking = key == SASL_HANDSHAKE and version == 0 and note is not None

    @property
    def _nothing_owed(self) -> bool:
        """Whether all replies to what was forwarded have come and gone on, to their last byte."""
        return not self.expected and not self._replies.passing

    def _take_turn(self) -> None:
        if self._turn is None or not self._nothing_owed:
            return
        (answer, request, since), self._turn = self._turn, None
        self.desk.catch_up()
        made = answer.make(self._now)
        if isinstance(made, bytes):
            self._out.append(ToClient(made))
            self._answer_bytes += len(made)
            self.traffic.request_done(REQUEST_HEAD.unpack_from(request)[1], self._now - since)
        else:
            self._dispose(made, request, since)
        self.drop(len(request))

    # From the broker.

    def _serve_replies(self, chunk: bytes) -> None:
        replies = self._replies
        try:
            item = replies.first(chunk)
            while item is not None:
                if isinstance(item, Run):
                    self._out.append(ToClient(item.data))
                else:
                    self._settle(item.data)
                item = replies.next() if replies.has_more and not self._failed else None
        except BadFrameLength:
            self._failed = CloseReason.BAD_FRAME_LENGTH
        if not self._failed:
            self._go_on()

    def _go_on(self) -> None:
        """What waited for a reply may have its turn."""
        self._take_turn()
        self._end_turn()
        if self._requests.has_more or self._client_ended or self._fault:
            self._serve_requests()

    def _look_at_reply(self, buffer: bytes, start: int, end: int) -> Look:
        if not self.expected:
            return self._mismatch()
        expected, key, since, note, injected, kept = self.expected[0]
        if key == RAW_TOKEN:
            return self._look_at_token_reply()
        size, correlation = _unpack_reply(buffer, start)
        if correlation != expected:
            return self._mismatch()
        if note is not None:
            if injected or key == SASL_HANDSHAKE:
                return self._hold_reply(self.desk.bound_reply(key, size))
            look = self.desk.glance_reply(note, size, self._now)
            stop = start + LENGTH_BYTES + size
            if key == FETCH and look is not PASS and not self.desk.sees_each:
                self.fetch_due = self._now + FETCH_SECONDS
            if look is SHOW and stop <= end:
                self.desk.later(note, buffer[start + LENGTH_BYTES : stop], self.origin, self._now)
            elif look is BEGIN:
                self.desk.begun(note, buffer[start + LENGTH_BYTES : min(stop, end)], self.origin, self._now)
            elif look is not PASS:
                return self._hold_reply(look)
        self.expected.popleft()
        self.drop(kept)
        self.traffic.request_done(key, self._now - since)
        return PASS

    def _hold_reply(self, look: Look | HangUp) -> Look:
        if not isinstance(look, HangUp):
            return TAKE
        self._failed = look.reason
        return MORE

    def _mismatch(self) -> Look:
        self._failed = CloseReason.CORRELATION_MISMATCH
        return MORE

    def _look_at_token_reply(self) -> Look:
        self.expected.popleft()
        self._tokens.answered(more_owed=bool(self.expected) and self.expected[0][1] == RAW_TOKEN)
        return PASS

    def _settle(self, frame: bytes) -> None:
        _, key, since, note, injected, kept = self.expected.popleft()
        self.drop(kept)
        self.desk.catch_up()
        reply = self.desk.reply(note, frame[LENGTH_BYTES:], self.origin, self._now)
        if injected:
            return
        if reply.hang_up:
            self._failed = reply.hang_up
            return
        self.traffic.request_done(key, self._now - since)
        self._out.append(ToClient(reply.frame or frame))
        if key == SASL_HANDSHAKE and not (self._tokens.handshaking and self.expected):
            # A handshake v0 that is waited for is the last request.
            self._begin_raw_tokens(reply.raw_tokens)

    def _begin_raw_tokens(self, tokens: int) -> None:
        self._tokens.begin(tokens)
        if tokens == OPAQUE:
            if rest := self._requests.rest():
                self._out.append(ToUpstream(rest))
            if rest := self._replies.rest():
                self._out.append(ToClient(rest))
