"""Handles the replies to group requests, which were decoded before they were forwarded or are decoded afterwards."""

from group_sidecar.coordinator.wire.exchange import Exchange
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.config.limits_section import Limits
from group_sidecar.proxy.dataplane.framing import DEFER, HOLD, PASS, FrameAction
from group_sidecar.proxy.dataplane.outcomes import UNCHANGED, DeferredRequest, HangUp, Origin, PendingReply, Reply
from group_sidecar.proxy.handlers.decode_limits import DecodeLimits
from group_sidecar.proxy.handlers.observer import Observer
from group_sidecar.proxy.handlers.reply_rewriter import ReplyRewriter, decode_reply


class ExchangeReplies:
    """Makes the pending replies of one broker's exchanges, and holds the objects that these replies share.

    Attributes:
        observer: applies replies to the copy.
        rewriter: puts the clients' own hosts into descriptions of groups, in place of the sidecar's host.
        decode_limits: limits the elements of a decoded reply.
        longest: maximum bytes of a reply that is decoded.
        longest_held: maximum bytes of a reply that is held.
    """

    def __init__(self, observer: Observer, rewriter: ReplyRewriter, limits: Limits) -> None:
        self.observer = observer
        self.rewriter = rewriter
        self.decode_limits = DecodeLimits(limits.inspected_elements)
        self.longest = limits.inspected_frame
        self.longest_held = limits.largest_frame

    def pending(self, exchange: Exchange) -> PendingReply:
        """Returns the pending reply of an exchange."""
        return PendingExchange(exchange, self)


class PendingExchange(PendingReply):
    """The pending reply of a decoded request.

    Args:
        exchange: the exchange of the request.
        replies: the object that all pending replies of the broker share.
    """

    __slots__ = ("_exchange", "_replies")

    def __init__(self, exchange: Exchange, replies: ExchangeReplies) -> None:
        self._exchange = exchange
        self._replies = replies

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return self._exchange.request.KEY

    def classify_reply(self, size: int, now: float) -> FrameAction | HangUp:
        """See PendingReply."""
        if size > self._replies.longest:
            self._replies.observer.note_unreadable_reply(self._exchange, now)
            return PASS
        return HOLD if self._exchange.request.KEY in self._replies.rewriter.relocated_apis else DEFER

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        exchange, key = self._exchange, self._exchange.request.KEY
        answer = decode_reply(key, exchange.version, frame, self._replies.decode_limits.reply(key))
        self._replies.observer.replied(exchange, answer.message, origin, now)
        relocated = self._replies.rewriter.relocated(key, answer.message)
        return UNCHANGED if relocated is answer.message else Reply(answer.encode_with(relocated))

    def unreadable(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        self._replies.observer.note_unknown_result(self._exchange, now)
        return UNCHANGED

    def lost(self, now: float) -> None:
        """See PendingReply."""
        self._replies.observer.note_lost(self._exchange, now)

    def max_reply_seconds(self) -> float:
        """See PendingReply."""
        return self._replies.observer.max_reply_seconds(self._exchange)


class PendingDeferredRequest(PendingReply):
    """The pending reply of a `DeferredRequest`, whose request is not decoded yet.

    The dispatcher passes nearly all replies to deferred requests directly to `Observer.observe_deferred`.
    """

    __slots__ = ("_deferred", "_replies")

    def __init__(self, deferred: DeferredRequest, replies: ExchangeReplies) -> None:
        self._deferred = deferred
        self._replies = replies

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return int.from_bytes(self._deferred.frame[:2], "big")

    def classify_reply(self, size: int, now: float) -> FrameAction:
        """See PendingReply."""
        if size <= self._replies.longest:
            return DEFER
        observer = self._replies.observer
        decoded = observer.decode_deferred(self._deferred)
        if isinstance(decoded, Exchange):
            observer.note_unreadable_reply(decoded, now)
        elif decoded is not None:
            decoded.lost(now)
        return PASS

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        self._replies.observer.observe_deferred(self._deferred, frame, now)
        return UNCHANGED

    def lost(self, now: float) -> None:
        """See PendingReply."""
        observer = self._replies.observer
        decoded = observer.decode_deferred(self._deferred)
        if isinstance(decoded, Exchange):
            observer.note_lost(decoded, now)
        elif decoded is not None:
            decoded.lost(now)

    def evict(self, reason: CloseReason) -> PendingReply | None:
        """See PendingReply. The request counts as undecoded."""
        return self._replies.observer.note_undecoded(self.api_key, self._deferred.frame)
