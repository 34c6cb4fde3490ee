"""Handles Fetch requests, and learns the ends of logs (high watermarks) from some of the replies.

The request is never decoded, because the sidecar needs only the high watermark, which a reply contains for each of its
partitions. A reply is forwarded before it is decoded. Only the first bytes of a long reply are decoded.

In a gateway, a reply of v16 or later ends with addresses, which are replaced before the reply is forwarded.
"""

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.proxy.broker.deferred_replies import DeferredReplies, DeferredReplyHandler
from group_sidecar.proxy.broker.tail_rewrite import has_tail
from group_sidecar.proxy.dataplane.frame_editor import FrameEditor
from group_sidecar.proxy.dataplane.framing import DEFER, PASS, PEEK, FrameAction
from group_sidecar.proxy.dataplane.outcomes import UNCHANGED, HangUp, Origin, Pending, PendingReply, Reply
from group_sidecar.proxy.handlers.api_handler import ApiHandler
from group_sidecar.proxy.handlers.observer import Observer
from group_sidecar.proxy.handlers.rewritten_replies import PendingTail, TailRewriter

MAX_WHOLE_FETCH_BYTES = 65_536
"""Maximum bytes of a Fetch reply that is decoded whole. Only the first bytes of a longer reply are decoded."""
HEAD_BYTES = 8_192
"""Maximum bytes of a long rewritten reply that are decoded, because decoding a truncated reply is slow."""
EMPTY_FETCH_BYTES = 18
"""Bytes of a Fetch reply without partitions. A reply with a partition is longer."""
FETCH_INSPECTION_INTERVAL = 0.01
"""Minimum seconds between two decoded Fetch replies of all connections of one listener to one broker."""
_FETCH = int(ApiKey.FETCH)


class Fetches(ApiHandler):
    """Handles Fetch.

    Args:
        observer: learns the ends of logs.
        longest: bytes of the longest reply that may be decoded whole. MAX_WHOLE_FETCH_BYTES is a bound too.
        deferred: queues the replies that are decoded after they were forwarded.
        tails: changes the addresses in replies; None if no address is rewritten.

    Attributes:
        largest_whole: bytes of the longest reply that is decoded whole.
    """

    def __init__(
        self, observer: Observer, longest: int, deferred: DeferredReplies, tails: TailRewriter | None = None
    ) -> None:
        super().__init__()
        self._observer = observer
        self.largest_whole = min(MAX_WHOLE_FETCH_BYTES, longest)
        self._inspection_due = 0.0
        self._deferred = deferred
        self._deferred_handler = _DeferredFetches(self)
        self._pending: dict[int, PendingReply] = {
            version: PendingFetch(self, version)
            if tails is None or not has_tail(_FETCH, version)
            else PendingRewrittenFetch(self, tails, version)
            for version in APIS[_FETCH].versions
        }
        """The pending replies by version. All requests share these objects, which hold no state of a request."""

    def undecoded(self, api_key: int, version: int, frame: bytes | None) -> PendingReply | None:
        """See ApiHandler."""
        return self._pending.get(version)

    def classify_reply(self, size: int, now: float) -> FrameAction:
        """Returns what to do with a reply. At most one reply in FETCH_INSPECTION_INTERVAL seconds is decoded."""
        if size <= EMPTY_FETCH_BYTES or now < self._inspection_due:
            return PASS
        self._inspection_due = now + FETCH_INSPECTION_INTERVAL
        return DEFER if size <= self.largest_whole else PEEK

    def is_inspected(self, size: int, now: float) -> bool:
        """Returns whether a rewritten reply is also decoded.

        After a True result, no other reply is decoded within FETCH_INSPECTION_INTERVAL seconds.
        """
        return self.classify_reply(size, now) is not PASS

    def defer(self, pending: PendingReply, frame: bytes, origin: Origin, now: float) -> None:
        """Has a reply decoded after it was forwarded. `frame`: without its length, or its first bytes."""
        self._deferred.add(self._deferred_handler, pending, frame, origin, now)

    def warn(self, error: Exception) -> None:
        """Logs a reply that cannot be decoded."""
        self._observer.warn("reply", _FETCH, error)

    def observe(self, version: int, frame: bytes, now: float, *, truncated: bool) -> None:
        """Learns the ends of logs from a reply. `truncated`: whether `frame` has only the reply's first bytes."""
        self._observer.observe_fetch(version, frame, now, truncated=truncated)


class PendingFetch(PendingReply):
    """The pending reply of a Fetch of one version. `truncated`: whether only the reply's first bytes are read."""

    __slots__ = ("_fetches", "_truncated", "_version")

    def __init__(self, fetches: Fetches, version: int, *, truncated: bool = False) -> None:
        self._fetches = fetches
        self._version = version
        self._truncated = truncated

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return _FETCH

    def classify_reply(self, size: int, now: float) -> FrameAction:
        """See PendingReply."""
        return self._fetches.classify_reply(size, now)

    def peeked(self) -> PendingReply:
        """See PendingReply."""
        return PendingFetch(self._fetches, self._version, truncated=True)

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        self._fetches.observe(self._version, frame, now, truncated=self._truncated)
        return UNCHANGED


class PendingRewrittenFetch(PendingTail):
    """The pending reply of a Fetch of one version in a gateway. The reply ends with addresses."""

    __slots__ = ("_fetches", "_truncated", "_whole")

    def __init__(self, fetches: Fetches, tails: TailRewriter, version: int) -> None:
        super().__init__(tails, _FETCH, version)
        self._fetches = fetches
        self._whole = PendingFetch(fetches, version)
        self._truncated = PendingFetch(fetches, version, truncated=True)

    def classify_reply(self, size: int, now: float) -> FrameAction | HangUp:
        """See PendingReply."""
        return PASS if size <= EMPTY_FETCH_BYTES else super().classify_reply(size, now)

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        changed = super().reply(frame, origin, now)
        if self._fetches.is_inspected(len(frame), now):
            whole = len(frame) <= self._fetches.largest_whole
            observed = self._whole if whole else self._truncated
            self._fetches.defer(observed, frame if whole else frame[:HEAD_BYTES], origin, now)
        return changed

    def editor(self, size: int, origin: Origin, now: float) -> FrameEditor:
        """See PendingReply."""
        editor = self._tails.editor(_FETCH, self._version, size)
        if self._fetches.is_inspected(size, now):
            editor.on_head = lambda head: self._fetches.defer(self._truncated, head[:HEAD_BYTES], origin, now)
        return editor


class _DeferredFetches(DeferredReplyHandler):
    """Decodes Fetch replies that were rewritten and forwarded."""

    def __init__(self, fetches: Fetches) -> None:
        self._fetches = fetches

    def handle_deferred(self, pending: Pending, frame: bytes, origin: Origin, now: float) -> None:
        """See DeferredReplyHandler."""
        assert isinstance(pending, PendingFetch)
        try:
            pending.reply(frame, origin, now)
        except Exception as error:  # noqa: BLE001  An error must not reach other connections.
            self._fetches.warn(error)
