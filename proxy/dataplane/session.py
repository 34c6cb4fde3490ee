"""One client connection and its upstream twin, without sockets.

Owns: the order of things. Which request each reply belongs to, whose turn it is, when a local answer may be computed,
when bytes pass without being parsed. Must not know: groups, policies, sockets, how raw SASL tokens are counted
(`sasl_tokens`) and TLS is recognized (`tls_detection`). What a frame means is the business of the desk (`Dispatcher`),
and what bytes go where the shell's.

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
from typing import Final, NamedTuple, cast

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.headers import REPLY_HEAD, REQUEST_HEAD
from group_sidecar.metrics.traffic_counters import CloseReason, TrafficCounters
from group_sidecar.proxy.dataplane.commands import Close, Command, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.framing import (
    COPY,
    HOLD,
    LENGTH_BYTES,
    NEED_MORE,
    PASS,
    PEEK,
    BadFrameLength,
    FrameAction,
    FrameWalker,
    PassedBytes,
)
from group_sidecar.proxy.dataplane.held_requests import SMALL_FRAME
from group_sidecar.proxy.dataplane.outcomes import (
    OPAQUE,
    Answer,
    CopiedRequest,
    Dispatcher,
    Forward,
    HangUp,
    Origin,
    Pending,
    RequestOutcome,
)
from group_sidecar.proxy.dataplane.produce_acks import ACKS_SEARCH_BYTES, acks
from group_sidecar.proxy.dataplane.sasl_tokens import SMALLEST_REPLY, SMALLEST_REQUEST, RawSaslTokens
from group_sidecar.proxy.dataplane.tls_detection import MAX_HELLO_BYTES, TlsDetection, is_client_hello

LONGEST_REPLY: Final = 0x7FFFFFFF
MAX_IN_FLIGHT: Final = 4096
"""Replies owed on one connection beyond which its client is not read: what is remembered stays bounded."""
MAX_KEPT_BYTES: Final = 262_144
"""Bytes kept of requests whose replies are owed, beyond which the client is not read. The broker handles one request of
a connection at a time, so a client loses nothing by it."""
KEPT_REQUEST_OVERHEAD: Final = 256
"""Bytes that a kept request takes beside its own, about."""
LONGEST_KEPT = SMALL_FRAME + KEPT_REQUEST_OVERHEAD
"""Bytes kept of one request that are no reason to forget it: such a request needs no room to be held."""
ANSWER_BYTES_PER_TURN = 262_144
"""Bytes of answers that are made in one go: then the client has to take them, and other connections have their turn."""
MIN_REQUEST_BYTES_PER_SECOND = 16_384
"""Bytes a second that a request must come with to be held for long. 512 KiB then take the 30 s after which Kafka's
clients give up."""
REQUEST_COST, BYTE_COST = 4_096, 32
"""Bytes of answers that a request which is looked into counts as, and that each of its bytes counts as: it takes 30 us
and more, and more the longer it is."""
FETCH_INSPECTION_SECONDS: Final = 1.0
"""For so long after it looked into a Fetch reply the desk is not offered another: they are the bulk of all bytes."""
PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
SASL_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)
RAW_TOKEN: Final = -1
"""As an API key: a SASL token, which has no header."""

_tuple: Final = tuple.__new__  # As NamedTuple's own, which costs twice as much.
_unpack_request: Final = REQUEST_HEAD.unpack_from
_unpack_reply: Final = REPLY_HEAD.unpack_from

_InFlight = tuple[int, int, float, Pending | None, bool, int]
"""A reply that is owed: its correlation id, the API key, when the request came, the pending reply, whether the request
was injected, and the bytes kept for the reply. A bare tuple, because one is made for everything that passes."""


class _PendingAnswer(NamedTuple):
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
        can_use_fast_path: whether nothing is held, no reply waits for its turn, and the client is read. Most chunks are
            then one whole frame, and `inspect_request` or `inspect_reply` decides whether the frame passes.
        in_flight: the replies that are owed, in their order.
        fetch_inspection_due: when a Fetch reply may be looked into again.
        kept_bytes: what is kept of requests until their replies have come, or until they are answered here.
        paused: requests wait here until the client has taken what was made for it; `resume` says that it has.
    """

    def __init__(self, dispatcher: Dispatcher, traffic: TrafficCounters, origin: Origin, largest_frame: int) -> None:
        self.dispatcher = dispatcher
        self.traffic = traffic
        self.origin = origin
        self.can_use_fast_path = True
        self.in_flight: deque[_InFlight] = deque()
        self.fetch_inspection_due = 0.0
        self.kept_bytes = 0
        self.paused = False
        self._answer_bytes = 0
        self._now = 0.0
        self._out: list[Command] = []
        self._requests = FrameWalker(REQUEST_HEAD.size, SMALLEST_REQUEST, largest_frame, self._look_at_request)
        self._replies = FrameWalker(REPLY_HEAD.size, SMALLEST_REPLY, LONGEST_REPLY, self._look_at_reply)
        self._pending_answer: _PendingAnswer | None = None
        self._held_since: float | None = None  # When the request began that is held until it is whole.
        self._tokens = RawSaslTokens(self._requests, self._replies)
        self._tls = TlsDetection()
        self._client_ended = False
        self._client_fault: CloseReason | None = None  # The client's: it waits for the replies that are owed.
        self._close_reason: CloseReason | None = None
        self._closed = False
        self._stopping = False

    @property
    def should_read_client(self) -> bool:
        """Whether the shell should read from the client: not while an answer waits for its turn."""
        return (
            self._pending_answer is None
            and not self.paused
            and not self._tokens.handshaking
            and self._client_fault is None
            and not self._closed
            and self._tls.hello_bytes < MAX_HELLO_BYTES
            and self._has_room
            and not (self._stopping and not self._requests.passing)
        )

    @property
    def _has_room(self) -> bool:
        """Whether a further reply may be owed."""
        return len(self.in_flight) < MAX_IN_FLIGHT and self.kept_bytes < MAX_KEPT_BYTES

    @property
    def is_idle(self) -> bool:
        """Whether neither side has to hear anything more."""
        return self._has_no_in_flight and self._client_fault is None

    @property
    def opaque(self) -> bool:
        """Whether bytes pass without being parsed, for good."""
        return self._tokens.tokens_left == OPAQUE

    @property
    def within_request(self) -> bool:
        """Whether the client owes the rest of a request."""
        return self.should_read_client and not self._requests.between_frames

    def is_too_slow(self, now: float, seconds: float, *, flowing: bool) -> bool:
        """Returns whether a request that is held comes too slowly: later than `seconds` after it has begun, and slower
        than SLOWEST_REQUEST since. `flowing`: whether the client is read; the time in which it is not does not count.
        """
        if self._held_since is None:
            return False
        if not flowing:
            self._held_since = now
        return self._requests.held_bytes < (now - self._held_since - seconds) * MIN_REQUEST_BYTES_PER_SECOND

    def max_reply_seconds(self, seconds: float) -> float:
        """How long the broker may take for the reply that comes next, where that is more than `seconds`."""
        return max(seconds, self.dispatcher.max_reply_seconds(self.in_flight[0][3])) if self.in_flight else seconds

    def stop(self) -> bool:
        """Takes no request any more that the broker has had no byte of. Returns whether all others have their replies,
        or nobody knows: the connection may end.
        """
        self._stopping = True
        self.can_use_fast_path = False
        return self.opaque or (self._has_no_in_flight and self._pending_answer is None and not self._requests.passing)

    @property
    def passthrough_reply_bytes(self) -> int:
        """How many of the broker's next bytes go on whatever they are."""
        return self._replies.passing

    def release_kept(self, kept: int) -> None:
        """So many bytes of a request need not be kept any longer."""
        self.kept_bytes -= kept
        if kept and not self.kept_bytes:
            self.dispatcher.release(self.origin)

    @property
    def held_bytes(self) -> int:
        """Bytes held in this session, for the metric that shows it."""
        return self._requests.held_bytes + self._replies.held_bytes + self.kept_bytes

    def receive_client(self, chunk: bytes, now: float) -> list[Command]:
        """What the client sent. `now` in seconds of the shell's clock."""
        if self.can_use_fast_path:
            return self.receive_inspected_request(chunk, self.inspect_request(chunk, now))
        self._now = now
        return self._receive_any(chunk)

    def inspect_request(self, chunk: bytes, now: float) -> FrameAction:
        """Returns PASS if a chunk of the client is one whole request that goes to the broker unchanged.

        Must only be called while `can_use_fast_path`. After PASS the reply is owed, and the caller must send the chunk.
        After any other action the caller must call `receive_inspected_request`.
        """
        self._now = now
        action = self._look_at_request(chunk, 0, len(chunk)) if self._requests.is_frame(chunk) else NEED_MORE
        if action is PASS:
            self.can_use_fast_path = self._has_room
        return action

    def receive_inspected_request(self, chunk: bytes, action: FrameAction) -> list[Command]:
        """Receives a chunk of the client for which `inspect_request` has just returned this action."""
        if action is PASS:
            return [_tuple(ToUpstream, (chunk,))]
        if action is HOLD:
            self._handle_request(chunk)
            return self._commands()
        return self._receive_any(chunk)

    def _receive_any(self, chunk: bytes) -> list[Command]:
        if self._tokens.tokens_left == OPAQUE:
            return [ToUpstream(chunk)]
        if self._closed:
            return []
        if self._tls.hello_bytes:
            self._tls.sent(len(chunk))
            self._out.append(ToUpstream(chunk))
        else:
            self._serve_requests(chunk)
        return self._commands()

    def receive_upstream(self, chunk: bytes, now: float) -> list[Command]:
        """What the broker sent."""
        if self.can_use_fast_path:
            return self.receive_inspected_reply(chunk, self.inspect_reply(chunk, now))
        self._now = now
        return self._receive_any_reply(chunk)

    def inspect_reply(self, chunk: bytes, now: float) -> FrameAction:
        """As `inspect_request`, for a chunk of the broker."""
        self._now = now
        return self._look_at_reply(chunk, 0, len(chunk)) if self._replies.is_frame(chunk) else NEED_MORE

    def receive_inspected_reply(self, chunk: bytes, action: FrameAction) -> list[Command]:
        """Receives a chunk of the broker for which `inspect_reply` has just returned this action."""
        if action is PASS:
            return [_tuple(ToClient, (chunk,))]
        if action is HOLD:
            self._handle_reply(chunk)
            return self._commands()
        return self._receive_any_reply(chunk)

    def _receive_any_reply(self, chunk: bytes) -> list[Command]:
        if self._tokens.tokens_left == OPAQUE:
            return [ToClient(chunk)]
        if self._closed:
            return []
        if self._tls.hello_bytes:
            return self._begin_tls(chunk)
        self._serve_replies(chunk)
        return self._commands()

    def forwarded_reply_bytes(self, count: int, now: float) -> list[Command]:
        """The shell has passed on so many of `passthrough_reply_bytes`."""
        self._now = now
        self._replies.passing -= count
        if not self._replies.passing:
            self._go_on()
        return self._commands()

    def resume(self, now: float) -> list[Command]:
        """The client has taken all that it was sent, and other connections have had their turn."""
        self._now = now
        self.paused = False
        if not self._closed:
            self._serve_requests()
        return self._commands()

    def evict_held_request(self, now: float, reason: CloseReason) -> list[Command]:
        """The request that is held may not be held any longer, for a reason. It goes on unread, in what has come, or
        the connection ends. A request that is whole and waits for its reply is forgotten, or the connection ends.
        """
        self._now, self._held_since = now, None
        if defer_reply_head := b"" if self._closed else self._requests.evict_partial():
            _, key, version, correlation = _unpack_request(defer_reply_head)
            note = self.dispatcher.evict_partial(key, version, self.origin, reason)
            if type(note) is HangUp:
                self._client_fault = note.reason
            else:
                self.in_flight.append((correlation, key, now, note, False, 0))
                self._out.append(ToUpstream(defer_reply_head))
        elif self.kept_bytes:
            self._evict_kept(reason)
        return self._commands()

    def _evict_kept(self, reason: CloseReason) -> None:
        """Keeps no long request any more. The replies to those that were forwarded go on unread."""
        if self._pending_answer is not None and len(self._pending_answer.request) > LONGEST_KEPT:
            self._close_reason = reason  # It was not forwarded, and perhaps only the sidecar can answer it.
            return
        for place, (correlation, key, since, note, injected, kept) in enumerate(list(self.in_flight)):
            if note is None or kept <= LONGEST_KEPT:
                continue
            half_come = place == 0 and self._replies.held_bytes > 0  # It is held, to be read with its request.
            left = HangUp(reason) if half_come else self.dispatcher.evict_kept(note, self.origin, reason)
            if type(left) is HangUp:
                self._close_reason = left.reason
                return
            self.in_flight[place] = correlation, key, since, left, injected, 0
            self.release_kept(kept)
        self._go_on()

    def client_closed(self, now: float) -> list[Command]:
        """The client will send no more. What it sent before is still served."""
        if self._closed:
            return []
        self._now = now
        self._client_ended = True
        self._serve_requests()
        return self._commands()

    def upstream_closed(self, now: float) -> list[Command]:
        """The broker will send no more."""
        if self._closed:
            return []
        self._now = now
        between = self._replies.between_frames
        ended = CloseReason.BROKER_CLOSED if between else CloseReason.TRUNCATED_FRAME
        self._close_reason = self._close_reason or self._client_fault or ended
        return self._commands()

    def close(self, now: float) -> list[Command]:
        """The connection is over, whoever ended it; to be called once at least. Nothing is sent."""
        if not self._closed:
            self._closed = True
            self._requests.end()
            self._replies.end()
            self.dispatcher.gone([note for _, _, _, note, *_ in self.in_flight if note is not None], self.origin, now)
            self._pending_answer = None
            self.in_flight.clear()
            self.kept_bytes = 0
        return []

    def _commands(self) -> list[Command]:
        if self._client_fault and self._has_no_in_flight:
            self._close_reason = self._close_reason or self._client_fault
        if self._close_reason:
            self.close(self._now)
            self._out.append(Close(self._close_reason))
        self.can_use_fast_path = (
            self.should_read_client
            and not (self._tokens.tokens_left or self._client_ended or self._tls.hello_bytes)
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
            if not self.should_read_client:
                requests.push(chunk)
                item = None
            else:
                item = requests.feed(chunk) if chunk else requests.next()
            while item is not None:
                if isinstance(item, PassedBytes):
                    self._out.append(ToUpstream(item.data))
                else:
                    self._handle_request(item.data)
                    self._pause_if_enough()
                item = requests.next() if requests.has_more and self.should_read_client else None
        except BadFrameLength:
            self._client_fault = self._client_fault_at_start()
        if self._client_ended and self.should_read_client:
            self._end_requests()

    def _client_fault_at_start(self) -> CloseReason | None:
        """Why a connection ends whose client sent a length that cannot be. None: it is TLS, and passes."""
        if self.in_flight or not is_client_hello(self._requests.start):
            return CloseReason.BAD_FRAME_LENGTH
        if refused := self.dispatcher.check_tls_client(self.origin):
            return refused
        hello = self._requests.rest()
        self._tls.sent(len(hello))
        self._out.append(ToUpstream(hello))
        return None

    def _begin_tls(self, chunk: bytes) -> list[Command]:
        """The broker has spoken to a TLS client. From a broker that speaks TLS, all passes from here on."""
        if self._tls.is_confirmed_by(chunk):
            self._tokens.make_opaque()
            self._out.append(ToClient(chunk))
        else:
            self._close_reason = CloseReason.BAD_FRAME_LENGTH
        return self._commands()

    def _pause_if_enough(self) -> None:
        """Pauses where enough was made, unless nothing more waits."""
        if self._answer_bytes >= ANSWER_BYTES_PER_TURN and self._requests.has_more:
            self.paused = True

    def _handle_request(self, request: bytes) -> None:
        self._answer_bytes += REQUEST_COST + BYTE_COST * len(request)
        self._held_since = None
        self._apply_outcome(self.dispatcher.request(request[LENGTH_BYTES:], self.origin, self._now), request)
        if not self.kept_bytes:
            self.dispatcher.release(self.origin)

    def _end_requests(self) -> None:
        self._client_ended = False
        cut = not self._requests.between_frames
        if cut:
            self._client_fault = CloseReason.TRUNCATED_FRAME
        if not cut or self._requests.passing:
            # Of a frame that was passed on in part the broker must learn that no more comes: it owes no reply to it.
            self._out.append(ShutUpstream())

    def _look_at_request(self, buffer: bytes, start: int, end: int) -> FrameAction:
        if self._tokens.tokens_left or not self._has_room:
            # What was read in one go may hold thousands of requests: the rest waits, as what is not read.
            return self._look_at_token() if self._has_room else NEED_MORE
        size, key, version, correlation = _unpack_request(buffer, start)
        if key == PRODUCE:
            wanted = acks(version, buffer, start + LENGTH_BYTES, min(end, start + LENGTH_BYTES + size))
            if wanted is None and end - start < min(LENGTH_BYTES + size, ACKS_SEARCH_BYTES):
                return NEED_MORE
            if wanted == 0:
                self.traffic.request_unanswered(key)
                return PASS
        note: object = (
            None
            if key == FETCH and self._now < self.fetch_inspection_due
            else self.dispatcher.classify(key, version, size)
        )
        stop = start + LENGTH_BYTES + size
        if stop > end and (note is HOLD or note is COPY):
            note = self.dispatcher.hold(key, version, size, self.origin)
            self._held_since = self._now if note is HOLD else None
        if note is HOLD:
            return HOLD
        kept = 0
        if note is COPY:
            pending: Pending | None = _tuple(
                CopiedRequest, (buffer[start + LENGTH_BYTES : stop], self.origin, self._now)
            )
            kept = size + KEPT_REQUEST_OVERHEAD
            self.kept_bytes += kept
        elif type(note) is HangUp:
            self._client_fault = note.reason
            return NEED_MORE
        else:
            pending = cast("Pending | None", note)
        self.in_flight.append((correlation, key, self._now, pending, False, kept))
        return PASS

    def _look_at_token(self) -> FrameAction:
        self.in_flight.append((0, RAW_TOKEN, self._now, None, False, 0))
        self._tokens.sent()
        return PASS

    def _apply_outcome(self, outcome: RequestOutcome, request: bytes, since: float | None = None) -> None:
        since = self._now if since is None else since
        if isinstance(outcome, Answer):
            for data, note in outcome.inject:
                self._send(data, note, self._now, injected=True)
            self._pending_answer = _PendingAnswer(outcome, request, since)
            self.kept_bytes += len(request)
            self._send_pending_answer()
        elif isinstance(outcome, Forward):
            self._send(outcome.frame or request, outcome.pending, since)
        elif isinstance(outcome, HangUp):
            self._client_fault = outcome.reason
        else:
            self._send(request, None, since)

    def _send(self, data: bytes, note: Pending | None, since: float, *, injected: bool = False) -> None:
        _, key, version, correlation = REQUEST_HEAD.unpack_from(data)
        kept = len(data) + KEPT_REQUEST_OVERHEAD if note is not None else 0
        self.kept_bytes += kept
        self.in_flight.append((correlation, key, since, note, injected, kept))
        self._out.append(ToUpstream(data))
        self._tokens.handshaking = key == SASL_HANDSHAKE and version == 0 and note is not None

    @property
    def _has_no_in_flight(self) -> bool:
        """Whether all replies to what was forwarded have come and gone on, to their last byte."""
        return not self.in_flight and not self._replies.passing

    def _send_pending_answer(self) -> None:
        if self._pending_answer is None or not self._has_no_in_flight:
            return
        (answer, request, since), self._pending_answer = self._pending_answer, None
        made = answer.make(self._now)
        if isinstance(made, bytes):
            self._out.append(ToClient(made))
            self._answer_bytes += len(made)
            self.traffic.request_done(REQUEST_HEAD.unpack_from(request)[1], self._now - since)
        else:
            self._apply_outcome(made, request, since)
        self.release_kept(len(request))

    # From the broker.

    def _serve_replies(self, chunk: bytes) -> None:
        replies = self._replies
        try:
            item = replies.feed(chunk)
            while item is not None:
                if isinstance(item, PassedBytes):
                    self._out.append(ToClient(item.data))
                else:
                    self._handle_reply(item.data)
                item = replies.next() if replies.has_more and not self._close_reason else None
        except BadFrameLength:
            self._close_reason = CloseReason.BAD_FRAME_LENGTH
        if not self._close_reason:
            self._go_on()

    def _go_on(self) -> None:
        """What waited for a reply may have its turn."""
        self._send_pending_answer()
        self._pause_if_enough()
        if self._requests.has_more or self._client_ended or self._client_fault:
            self._serve_requests()

    def _look_at_reply(self, buffer: bytes, start: int, end: int) -> FrameAction:
        if not self.in_flight:
            return self._mismatch()
        in_flight, key, since, note, injected, kept = self.in_flight[0]
        if key == RAW_TOKEN:
            return self._look_at_token_reply()
        size, correlation = _unpack_reply(buffer, start)
        if correlation != in_flight:
            return self._mismatch()
        if note is not None:
            if injected or key == SASL_HANDSHAKE:
                return self._hold_reply(self.dispatcher.check_reply_size(key, size))
            action = self.dispatcher.classify_reply(note, size, self._now)
            stop = start + LENGTH_BYTES + size
            if key == FETCH and action is not PASS and not self.dispatcher.must_classify_all:
                self.fetch_inspection_due = self._now + FETCH_INSPECTION_SECONDS
            if action is COPY and stop <= end:
                self.dispatcher.defer_reply(note, buffer[start + LENGTH_BYTES : stop], self.origin, self._now)
            elif action is PEEK:
                self.dispatcher.defer_reply_head(
                    note, buffer[start + LENGTH_BYTES : min(stop, end)], self.origin, self._now
                )
            elif action is not PASS:
                return self._hold_reply(action)
        self.in_flight.popleft()
        self.release_kept(kept)
        self.traffic.request_done(key, self._now - since)
        return PASS

    def _hold_reply(self, action: FrameAction | HangUp) -> FrameAction:
        if not isinstance(action, HangUp):
            return HOLD
        self._close_reason = action.reason
        return NEED_MORE

    def _mismatch(self) -> FrameAction:
        self._close_reason = CloseReason.CORRELATION_MISMATCH
        return NEED_MORE

    def _look_at_token_reply(self) -> FrameAction:
        self.in_flight.popleft()
        self._tokens.answered(more_owed=bool(self.in_flight) and self.in_flight[0][1] == RAW_TOKEN)
        return PASS

    def _handle_reply(self, frame: bytes) -> None:
        _, key, since, note, injected, kept = self.in_flight.popleft()
        self.release_kept(kept)
        assert note is not None  # Only replies that are classified are held.
        reply = self.dispatcher.reply(note, frame[LENGTH_BYTES:], self.origin, self._now)
        if injected:
            return
        if reply.hang_up:
            self._close_reason = reply.hang_up
            return
        self.traffic.request_done(key, self._now - since)
        self._out.append(ToClient(reply.frame or frame))
        if key == SASL_HANDSHAKE and not (self._tokens.handshaking and self.in_flight):
            # A handshake v0 that is waited for is the last request.
            self._begin_raw_tokens(reply.raw_tokens)

    def _begin_raw_tokens(self, tokens: int) -> None:
        self._tokens.begin(tokens)
        if tokens == OPAQUE:
            if rest := self._requests.rest():
                self._out.append(ToUpstream(rest))
            if rest := self._replies.rest():
                self._out.append(ToClient(rest))
