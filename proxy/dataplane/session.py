"""The protocol state of one client connection and its broker connection, without sockets.

A session matches replies to requests, decides when a local answer may be computed, and decides which bytes pass without
being parsed. A session knows no groups, policies or sockets. The dispatcher (`Dispatcher`) knows what a frame means.
The connection (`connection.py`) executes the commands that the session returns.

Rules:
- Replies leave in the order of the requests. The broker's replies must arrive in this order too. Any other correlation
  id closes the connection.
- A local answer is computed when all earlier requests have their replies. Until then the session reads no later
  request. A broker also handles one request of a connection at a time.
- A frame is forwarded as the original bytes, unless the dispatcher replaced the frame.
- A reply that need not be decoded before it is forwarded is decoded later: after all ready sockets were served, or
  before the dispatcher's next decision. So every local answer includes the effects of all earlier replies.
- A client that sends an impossible length, or closes within a frame, first gets the replies to its earlier requests. A
  broker treats such a client in the same way.

The file has more than 400 lines, because requests, replies and local answers all change one queue of in-flight
requests, and one class owns this queue.
"""

from collections import deque
from typing import Final, NamedTuple, cast

from group_sidecar.codecs.api_registry import ApiKey
from group_sidecar.codecs.headers import REPLY_HEAD, REQUEST_HEAD
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.dataplane.commands import Close, Command, ShutUpstream, ToClient, ToUpstream
from group_sidecar.proxy.dataplane.frame_editor import FrameEditError
from group_sidecar.proxy.dataplane.framing import (
    DEFER,
    EDIT,
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
from group_sidecar.proxy.dataplane.held_request_budget import SMALL_FRAME
from group_sidecar.proxy.dataplane.outcomes import (
    OPAQUE,
    AnswerInOrder,
    DeferredRequest,
    Dispatcher,
    Forward,
    HangUp,
    Origin,
    Pending,
    RequestOutcome,
)
from group_sidecar.proxy.dataplane.produce_acks import ACKS_SEARCH_BYTES, acks
from group_sidecar.proxy.dataplane.raw_sasl_tokens import SMALLEST_REPLY, SMALLEST_REQUEST, RawSaslTokens
from group_sidecar.proxy.dataplane.tls_detection import MAX_HELLO_BYTES, TlsDetection, is_client_hello
from group_sidecar.proxy.runtime.logging import log

LONGEST_REPLY: Final = 0x7FFFFFFF
KEPT_REQUEST_OVERHEAD: Final = 256
"""The approximate memory in bytes that a kept request takes in addition to its own bytes."""
LONGEST_KEPT = SMALL_FRAME + KEPT_REQUEST_OVERHEAD
"""A request that takes at most this many bytes is never evicted: `HeldRequestBudget` does not count small frames."""
WORK_PER_TURN: Final = 65_536
"""After this much work the session pauses, until the client has accepted the answers and other connections had their
turn. Work is counted in bytes: the bytes of local answers, and the costs below for each decoded request and reply."""
MAX_UNCOUNTED_WORK: Final = WORK_PER_TURN // 4
"""A connection that has lately caused more work than this is read only in turns of the poller (`Poller.add_turn`), so
that clients that cause little work are served first. When the replies in one chunk have caused this much work, the
chunk's remaining replies wait for a turn. When the requests in one chunk have caused this much work, the next request
that would be forwarded and decoded later (DEFER) waits, and so do all requests after it."""
FORGOTTEN_WORK_PER_SECOND: Final = 65_536
"""The amount of a connection's work that is forgotten each second: about 12 short decoded requests, or 50 pipelined
Heartbeats with their replies. A client that causes less work, without bursts above MAX_UNCOUNTED_WORK, is never read in
turns, not even while the sidecar is overloaded."""
MAX_COUNTED_WORK: Final = 131_072
"""More work is not counted, so that a connection is read in turns for at most two seconds after its last work."""
MIN_REQUEST_BYTES_PER_SECOND = 16_384
"""The minimum rate in bytes per second at which a held request must arrive. At this rate 512 KiB take 32 s, about the
30 s of the clients' default `request.timeout.ms`."""
REQUEST_COST, BYTE_COST = 4_096, 32
"""A decoded request counts towards WORK_PER_TURN as REQUEST_COST bytes, and each of its bytes as BYTE_COST
bytes. Decoding a request takes at least 30 us, and more for a long request."""
DEFERRED_COST, DEFERRED_BYTE_COST = 512, 4
"""Like REQUEST_COST and BYTE_COST, for a request or a reply that is decoded later, together with others. A Heartbeat
with its reply takes 3 us, and a commit of 100 partitions 120 us (`python -m benchmarks.group_traffic`)."""
FETCH_INSPECTION_SECONDS: Final = 1.0
"""For this many seconds after a Fetch reply was inspected, the connection's new Fetch requests and their replies pass
unread. Fetch replies are the bulk of all bytes. If the dispatcher must classify all requests, each Fetch is classified.
"""
PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
RECORD_APIS: Final = frozenset({FETCH, int(ApiKey.SHARE_FETCH), int(ApiKey.SHARE_ACKNOWLEDGE)})
"""APIs of which a gateway decodes only the replies' ends. A held reply of these APIs counts as DEFERRED_COST."""
SASL_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)
RAW_TOKEN: Final = -1
"""Stands for the API key of a raw SASL token, which has no header."""

_tuple: Final = tuple.__new__  # Makes a NamedTuple at half the cost of the NamedTuple's own __new__.
_unpack_request: Final = REQUEST_HEAD.unpack_from
_unpack_reply: Final = REPLY_HEAD.unpack_from

_InFlight = tuple[int, int, float, Pending | None, bool, int]
"""An in-flight request. The items are: its correlation id, its API key, the time of its arrival, its pending reply
(None if the reply passes unread), whether it was injected, and how many bytes are kept until the reply. A plain tuple
is faster than a NamedTuple, and every request that passes needs one."""


class SessionLimits(NamedTuple):
    """The limits of one connection.

    Attributes:
        largest_frame: the length in bytes of the longest request that is accepted (the broker's
            `socket.request.max.bytes`).
        in_flight: the maximum number of in-flight requests. At this number the client is not read.
        kept_bytes: if this many bytes of in-flight requests are kept, the client is not read.
    """

    largest_frame: int
    in_flight: int
    kept_bytes: int


class _PendingAnswer(NamedTuple):
    answer: AnswerInOrder
    request: bytes
    since: float


class Session:
    """Receives bytes from both sides, and returns the commands that say what to send.

    Args:
        dispatcher: classifies and handles frames.
        traffic: counts the requests that have their replies.
        origin: the client.
        limits: the limits of the connection.

    Attributes:
        can_use_fast_path: whether no frame is incomplete, no local answer waits, the client is read, and the connection
            is not read in turns. Most chunks are then one whole frame, and `inspect_request` or `inspect_reply` decides
            whether the frame passes.
        in_flight: the forwarded requests that have no reply yet, in order.
        fetch_inspection_due: the time from which Fetch requests are classified again.
        kept_bytes: how many bytes of requests are kept until the broker's reply or the local answer.
        paused: whether requests or replies wait in a buffer, until the client has accepted all bytes and other
            connections had their turn. `resume` ends the pause.
        replies_wait: whether replies wait in a buffer. The broker must not be read then.
        takes_turns: whether the connection has lately caused so much work that its sockets are read only in turns of
            the poller.
        max_in_flight: the maximum number of in-flight requests.
        has_passed_reply: whether a reply has passed unread. The broker sends no such reply before authentication.
    """

    def __init__(self, dispatcher: Dispatcher, traffic: TrafficCounters, origin: Origin, limits: SessionLimits) -> None:
        self.dispatcher = dispatcher
        self.traffic = traffic
        self.origin = origin
        self.can_use_fast_path = True
        self.in_flight: deque[_InFlight] = deque()
        self.fetch_inspection_due = 0.0
        self.kept_bytes = 0
        self.paused = False
        self.replies_wait = False
        self.takes_turns = False
        self._recent_work = 0.0
        self._recent_work_at = 0.0
        self.has_passed_reply = False
        self.max_in_flight = limits.in_flight
        self._max_kept_bytes = limits.kept_bytes
        self._requests_wait = False
        self._work = 0
        self._now = 0.0
        self._out: list[Command] = []
        self._requests = FrameWalker(REQUEST_HEAD.size, SMALLEST_REQUEST, limits.largest_frame, self._look_at_request)
        self._replies = FrameWalker(REPLY_HEAD.size, SMALLEST_REPLY, LONGEST_REPLY, self._look_at_reply)
        self._pending_answer: _PendingAnswer | None = None
        self._held_since: float | None = None  # When the first bytes of the incomplete held request arrived.
        self._tokens = RawSaslTokens(self._requests, self._replies)
        self._tls = TlsDetection()
        self._client_ended = False
        self._client_fault: CloseReason | None = None  # Why the connection ends after the last reply.
        self._close_reason: CloseReason | None = None
        self._closed = False
        self._stopping = False

    @property
    def should_read_client(self) -> bool:
        """Whether the connection should read from the client now. False, for example, while a local answer waits."""
        return (
            self._pending_answer is None
            and not self.paused
            and not self._tokens.handshaking
            and self._client_fault is None
            and not self._closed
            and self._tls.hello_bytes < MAX_HELLO_BYTES
            and self.has_room
            and not (self._stopping and not self._requests.passing)
        )

    @property
    def has_room(self) -> bool:
        """Whether one more request may be in flight."""
        return len(self.in_flight) < self.max_in_flight and self.kept_bytes < self._max_kept_bytes

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight, and the connection does not end because of a fault of the client."""
        return self._has_no_in_flight and self._client_fault is None

    @property
    def opaque(self) -> bool:
        """Whether all further bytes pass without being parsed."""
        return self._tokens.tokens_left == OPAQUE

    @property
    def is_admitted(self) -> bool:
        """Whether the broker serves the client, as far as the broker's replies show. True if replies are not parsed."""
        return self.has_passed_reply or self.opaque or self.dispatcher.is_admitted(self.origin)

    @property
    def within_request(self) -> bool:
        """Whether the client is read, and has sent only a part of a request."""
        return self.should_read_client and not self._requests.between_frames

    def is_too_slow(self, now: float, seconds: float, *, flowing: bool) -> bool:
        """Returns whether the held request arrives too slowly.

        A request has a grace of `seconds`. For each second after the grace, MIN_REQUEST_BYTES_PER_SECOND must have
        arrived. `flowing`: whether both sides are read. If not, the grace starts again.
        """
        if self._held_since is None:
            return False
        if not flowing:
            self._held_since = now
        return self._requests.held_bytes < (now - self._held_since - seconds) * MIN_REQUEST_BYTES_PER_SECOND

    def max_reply_seconds(self, seconds: float) -> float:
        """Returns how many seconds the broker may take for the next reply: at least `seconds`, longer for a join."""
        return max(seconds, self.dispatcher.max_reply_seconds(self.in_flight[0][3])) if self.in_flight else seconds

    def stop(self) -> bool:
        """Takes no further requests, except the rest of a request that was forwarded in part.

        Returns whether the connection may end: all requests have their replies, or the connection is not parsed.
        """
        self._stopping = True
        self.can_use_fast_path = False
        return self.opaque or (self._has_no_in_flight and self._pending_answer is None and not self._requests.passing)

    @property
    def passthrough_reply_bytes(self) -> int:
        """How many of the broker's next bytes belong to a reply that passes, and are forwarded without inspection."""
        return self._replies.passing

    def release_kept(self, kept: int) -> None:
        """Stops counting the `kept` bytes of a request, because they are not kept any longer."""
        self.kept_bytes -= kept
        if kept and not self.kept_bytes:
            self.dispatcher.release(self.origin)

    @property
    def held_bytes(self) -> int:
        """How many bytes this session holds."""
        return self._requests.held_bytes + self._replies.held_bytes + self.kept_bytes

    @property
    def partial_request_bytes(self) -> int:
        """How many bytes of the client were read and not handled yet."""
        return self._requests.held_bytes

    @property
    def partial_reply_bytes(self) -> int:
        """How many bytes of a reply are held until the reply is complete."""
        return self._replies.held_bytes

    def receive_client(self, chunk: bytes, now: float) -> list[Command]:
        """Receives a chunk of the client. `now`: the time in seconds on the poller's clock."""
        if self.can_use_fast_path:
            return self.receive_inspected_request(chunk, self.inspect_request(chunk, now))
        self._now = now
        return self._receive_any(chunk)

    def inspect_request(self, chunk: bytes, now: float) -> FrameAction:
        """Returns PASS if a chunk of the client is one whole request that is forwarded unchanged.

        Must only be called while `can_use_fast_path`. After PASS the request counts as in flight, and the caller must
        send the chunk. After any other action the caller must call `receive_inspected_request`.
        """
        self._now = now
        action = self._look_at_request(chunk, 0, len(chunk)) if self._requests.is_frame(chunk) else NEED_MORE
        if action is PASS:
            self._work = 0  # A chunk of one request counts as no work, even if many such chunks follow.
            self.can_use_fast_path = self.has_room
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
        """Receives a chunk of the broker."""
        if self.can_use_fast_path:
            return self.receive_inspected_reply(chunk, self.inspect_reply(chunk, now))
        self._now = now
        return self._receive_any_reply(chunk)

    def inspect_reply(self, chunk: bytes, now: float) -> FrameAction:
        """Returns PASS if a chunk of the broker is one whole reply that is forwarded unchanged.

        After PASS the caller must send the chunk. After any other action it must call `receive_inspected_reply`.
        """
        self._now = now
        action = self._look_at_reply(chunk, 0, len(chunk)) if self._replies.is_frame(chunk) else NEED_MORE
        self._work = 0  # A chunk of one reply counts as no work, even if many such chunks follow.
        return action

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
        """Notes that the connection has forwarded `count` of the `passthrough_reply_bytes` by itself."""
        self._now = now
        self._replies.passing -= count
        if not self._replies.passing:
            self._go_on()
        return self._commands()

    def resume(self, now: float) -> list[Command]:
        """Ends a pause: the client has accepted all bytes, and other connections had their turn."""
        self._now = now
        self.paused = False
        if self._closed:
            return []
        if self.replies_wait:
            self.replies_wait = False
            self._serve_replies()
        elif not self.paused:
            self._serve_requests()
        return self._commands()

    def evict_held_request(self, now: float, reason: CloseReason) -> list[Command]:
        """Gives up the incomplete request. If there is none, gives up the long requests that wait for their replies.

        The incomplete request is forwarded unread, or the connection ends with `reason`. If a waiting request is given
        up, its reply is handled without the request or passes unread, or the connection ends.
        """
        self._now, self._held_since = now, None
        if arrived := b"" if self._closed else self._requests.evict_partial():
            _, key, version, correlation = _unpack_request(arrived)
            outcome = self.dispatcher.evict_partial(key, version, self.origin, reason)
            if type(outcome) is HangUp:
                self._client_fault = outcome.reason
            else:
                self.in_flight.append((correlation, key, now, outcome, False, 0))
                self._out.append(ToUpstream(arrived))
        elif self.kept_bytes:
            self._evict_kept(reason)
        return self._commands()

    def _evict_kept(self, reason: CloseReason) -> None:
        """Stops keeping all long requests. The dispatcher decides for each request what happens to its reply."""
        if self._pending_answer is not None and len(self._pending_answer.request) > LONGEST_KEPT:
            self._close_reason = reason  # The request was not forwarded, and perhaps only the sidecar can answer it.
            return
        for position, (correlation, key, since, pending, injected, kept) in enumerate(list(self.in_flight)):
            if pending is None or kept <= LONGEST_KEPT:
                continue
            # A held reply that has arrived in part cannot be handled without its request. An edited reply can: only its
            # end is held, and the editor changes the end without the request.
            reply_held = position == 0 and self._replies.held_bytes > 0 and self._replies.editor is None
            outcome = HangUp(reason) if reply_held else self.dispatcher.evict_kept(pending, self.origin, reason)
            if type(outcome) is HangUp:
                self._close_reason = outcome.reason
                return
            self.in_flight[position] = correlation, key, since, outcome, injected, 0
            self.release_kept(kept)
        self._go_on()

    def client_closed(self, now: float) -> list[Command]:
        """Handles the end of the client's stream. Requests that the client sent before are still served."""
        if self._closed:
            return []
        self._now = now
        self._client_ended = True
        self._serve_requests()
        return self._commands()

    def upstream_closed(self, now: float) -> list[Command]:
        """Handles the end of the broker's stream, which ends the connection."""
        if self._closed:
            return []
        self._now = now
        between = self._replies.between_frames
        broker_reason = CloseReason.BROKER_CLOSED if between else CloseReason.TRUNCATED_FRAME
        self._close_reason = self._close_reason or self._client_fault or broker_reason
        return self._commands()

    def close(self, now: float) -> list[Command]:
        """Ends the session when either side has ended the connection. Returns no commands.

        Must be called at least once for each session. Further calls have no effect.
        """
        if not self._closed:
            self._closed = True
            self._requests.end()
            self._replies.end()
            lost = [pending for _, _, _, pending, *_ in self.in_flight if pending is not None]
            try:
                self.dispatcher.gone(lost, self.origin, now)
            except Exception:  # noqa: BLE001  A connection that fails is closed, so closing it must not fail.
                log.exception("a connection failed while it was closed", client=self.origin.client_host)
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
        if self._work or self._recent_work:
            self._count_work()
        self.can_use_fast_path = (
            self.should_read_client
            and not self.takes_turns
            and not (self._tokens.tokens_left or self._client_ended or self._tls.hello_bytes)
            and self._requests.between_frames
            and self._replies.between_frames
        )
        out, self._out = self._out, []
        return out

    def add_work(self, work: int, now: float) -> None:
        """Counts work that this connection has caused outside of the session, in bytes."""
        self._now = now
        self._work += work
        self._count_work()
        self.can_use_fast_path = self.can_use_fast_path and not self.takes_turns

    def _count_work(self) -> None:
        """Adds the work since the last call to the recent work, and decides whether the connection is read only in
        turns.
        """
        forgotten = (self._now - self._recent_work_at) * FORGOTTEN_WORK_PER_SECOND
        recent_work = max(0.0, self._recent_work - forgotten) + self._work
        self._recent_work, self._recent_work_at = min(recent_work, MAX_COUNTED_WORK), self._now
        self.takes_turns = recent_work > MAX_UNCOUNTED_WORK and self._tokens.tokens_left != OPAQUE
        self._work = 0

    # Bytes of the client.

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
        if self._requests_wait:
            self._requests_wait, self.paused = False, True
        if self._client_ended and self.should_read_client:
            self._end_requests()

    def _client_fault_at_start(self) -> CloseReason | None:
        """Returns why the connection ends after an impossible length. If the bytes are TLS and may pass, forwards them
        and returns None.
        """
        if self.in_flight or not is_client_hello(self._requests.start):
            return CloseReason.BAD_FRAME_LENGTH
        if refused := self.dispatcher.check_tls_client(self.origin):
            return refused
        hello = self._requests.rest()
        self._tls.sent(len(hello))
        self._out.append(ToUpstream(hello))
        return None

    def _begin_tls(self, chunk: bytes) -> list[Command]:
        """Handles the broker's first bytes to a TLS client. If they are TLS, all further bytes pass unparsed."""
        if self._tls.is_confirmed_by(chunk):
            self._tokens.make_opaque()
            self._out.append(ToClient(chunk))
        else:
            self._close_reason = CloseReason.BAD_FRAME_LENGTH
        return self._commands()

    def _pause_if_enough(self) -> None:
        """Pauses if the work since the last count has reached WORK_PER_TURN and more requests wait."""
        if self._work >= WORK_PER_TURN and self._requests.has_more:
            self.paused = True

    def _handle_request(self, request: bytes) -> None:
        self._work += REQUEST_COST + BYTE_COST * len(request)
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
            # The broker never replies to a request that was forwarded in part. The broker must learn that no more bytes
            # follow.
            self._out.append(ShutUpstream())

    def _look_at_request(self, buffer: bytes, start: int, end: int) -> FrameAction:
        if self._tokens.tokens_left or not self.has_room:
            # One read may contain thousands of requests. The requests beyond the limits wait in the buffer.
            return self._look_at_token() if self.has_room else NEED_MORE
        size, key, version, correlation = _unpack_request(buffer, start)
        if key == PRODUCE:
            required_acks = acks(version, buffer, start + LENGTH_BYTES, min(end, start + LENGTH_BYTES + size))
            if required_acks is None and end - start < min(LENGTH_BYTES + size, ACKS_SEARCH_BYTES):
                return NEED_MORE
            if required_acks == 0:
                self.traffic.request_unanswered(key)
                return PASS
        classified: object = (
            None
            if key == FETCH and self._now < self.fetch_inspection_due
            else self.dispatcher.classify(key, version, size)
        )
        stop = start + LENGTH_BYTES + size
        if stop > end and (classified is HOLD or classified is DEFER):
            classified = self.dispatcher.hold(key, version, size, self.origin)
            self._held_since = self._now if classified is HOLD else None
        if classified is HOLD:
            return HOLD
        kept = 0
        if classified is DEFER:
            if self._work >= MAX_UNCOUNTED_WORK:
                self._requests_wait = True
                return NEED_MORE
            self._work += DEFERRED_COST + DEFERRED_BYTE_COST * size
            pending: Pending | None = _tuple(
                DeferredRequest, (buffer[start + LENGTH_BYTES : stop], self.origin, self._now)
            )
            kept = size + KEPT_REQUEST_OVERHEAD
            self.kept_bytes += kept
        elif type(classified) is HangUp:
            self._client_fault = classified.reason
            return NEED_MORE
        else:
            pending = cast("Pending | None", classified)
        self.in_flight.append((correlation, key, self._now, pending, False, kept))
        return PASS

    def _look_at_token(self) -> FrameAction:
        self.in_flight.append((0, RAW_TOKEN, self._now, None, False, 0))
        self._tokens.sent()
        return PASS

    def _apply_outcome(self, outcome: RequestOutcome, request: bytes, since: float | None = None) -> None:
        since = self._now if since is None else since
        if isinstance(outcome, AnswerInOrder):
            for frame, pending in outcome.inject:
                self._send(frame, pending, self._now, injected=True)
            self._pending_answer = _PendingAnswer(outcome, request, since)
            self.kept_bytes += len(request)
            self._send_pending_answer()
        elif isinstance(outcome, Forward):
            self._send(outcome.frame or request, outcome.pending, since)
        elif isinstance(outcome, HangUp):
            self._client_fault = outcome.reason
        else:
            self._send(request, None, since)

    def _send(self, frame: bytes, pending: Pending | None, since: float, *, injected: bool = False) -> None:
        _, key, version, correlation = REQUEST_HEAD.unpack_from(frame)
        kept = len(frame) + KEPT_REQUEST_OVERHEAD if pending is not None else 0
        self.kept_bytes += kept
        self.in_flight.append((correlation, key, since, pending, injected, kept))
        self._out.append(ToUpstream(frame))
        self._tokens.handshaking = key == SASL_HANDSHAKE and version == 0 and pending is not None

    @property
    def _has_no_in_flight(self) -> bool:
        """Whether the replies to all forwarded requests have arrived, to their last byte."""
        return not self.in_flight and not self._replies.is_forwarding

    def _send_pending_answer(self) -> None:
        if self._pending_answer is None or not self._has_no_in_flight:
            return
        (answer, request, since), self._pending_answer = self._pending_answer, None
        made = answer.make(self._now)
        if isinstance(made, bytes):
            self._out.append(ToClient(made))
            self._work += len(made)
            self.traffic.request_done(REQUEST_HEAD.unpack_from(request)[1], self._now - since)
        else:
            self._apply_outcome(made, request, since)
        self.release_kept(len(request))

    # Bytes of the broker.

    def _serve_replies(self, chunk: bytes = b"") -> None:
        replies = self._replies
        try:
            item = replies.feed(chunk) if chunk else replies.next()
            while item is not None:
                if isinstance(item, PassedBytes):
                    self._out.append(ToClient(item.data))
                else:
                    self._handle_reply(item.data)
                item = replies.next() if replies.has_more and not self._close_reason else None
        except BadFrameLength:
            self._close_reason = CloseReason.BAD_FRAME_LENGTH
        except FrameEditError:
            self._close_reason = CloseReason.UNREADABLE
        if not self._close_reason:
            self._go_on()
        if self.replies_wait:
            self.paused = True

    def _go_on(self) -> None:
        """Serves what waited for a reply: the local answer, and requests that were not handled yet."""
        self._send_pending_answer()
        self._pause_if_enough()
        if self.takes_turns and self._requests.has_more:
            self.paused = True
        if not self.paused and (self._requests.has_more or self._client_ended or self._client_fault):
            self._serve_requests()

    def _look_at_reply(self, buffer: bytes, start: int, end: int) -> FrameAction:
        if not self.in_flight:
            return self._mismatch()
        if self._work >= MAX_UNCOUNTED_WORK:
            self.replies_wait = True
            return NEED_MORE
        expected, key, since, pending, injected, kept = self.in_flight[0]
        if key == RAW_TOKEN:
            return self._look_at_token_reply()
        size, correlation = _unpack_reply(buffer, start)
        if correlation != expected:
            return self._mismatch()
        if pending is not None:
            if injected or key == SASL_HANDSHAKE:
                return self._hold_reply(self.dispatcher.check_reply_size(key, size))
            action = self._look_at_pending_reply(pending, key, size, buffer, start, end)
            if action is not PASS and action is not EDIT:
                return action
        else:
            self.has_passed_reply = True
            action = PASS
        self.in_flight.popleft()
        self.release_kept(kept)
        self.traffic.request_done(key, self._now - since)
        return action

    def _look_at_pending_reply(
        self, pending: Pending, key: int, size: int, buffer: bytes, start: int, end: int
    ) -> FrameAction:
        """Returns what happens to a reply for which the session keeps a `pending` object."""
        action = self.dispatcher.classify_reply(pending, size, self._now)
        stop = start + LENGTH_BYTES + size
        if key == FETCH and action is not PASS and not self.dispatcher.must_classify_all:
            self.fetch_inspection_due = self._now + FETCH_INSPECTION_SECONDS
        if action is DEFER and stop <= end:
            self._work += DEFERRED_COST + DEFERRED_BYTE_COST * size
            self.dispatcher.defer_reply(pending, buffer[start + LENGTH_BYTES : stop], self.origin, self._now)
        elif action is PEEK:
            head = buffer[start + LENGTH_BYTES : min(stop, end)]
            self.dispatcher.defer_reply_head(pending, head, self.origin, self._now)
        elif action is EDIT and stop > end:
            self._replies.editor = self.dispatcher.editor(pending, size, self.origin, self._now)
            return EDIT
        elif action is EDIT:
            return HOLD  # The whole reply has arrived, so it is changed at once.
        elif action is not PASS:
            return self._hold_reply(action)
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
        _, key, since, pending, injected, kept = self.in_flight.popleft()
        self.release_kept(kept)
        self._work += DEFERRED_COST if key in RECORD_APIS else REQUEST_COST + DEFERRED_BYTE_COST * len(frame)
        assert pending is not None  # Without a pending reply, the broker's reply always passes.
        reply = self.dispatcher.reply(pending, frame[LENGTH_BYTES:], self.origin, self._now)
        if injected:
            return
        if reply.hang_up:
            self._close_reason = reply.hang_up
            return
        self.traffic.request_done(key, self._now - since)
        self._out.append(ToClient(reply.frame or frame))
        if key == SASL_HANDSHAKE and not (self._tokens.handshaking and self.in_flight):
            # No request is forwarded while a SaslHandshake v0 awaits its reply, so its reply is always the last one.
            self._begin_raw_tokens(reply.raw_tokens)

    def _begin_raw_tokens(self, tokens: int) -> None:
        self._tokens.begin(tokens)
        if tokens == OPAQUE:
            if rest := self._requests.rest():
                self._out.append(ToUpstream(rest))
            if rest := self._replies.rest():
                self._out.append(ToClient(rest))
