"""Handles requests that are forwarded unread, and changes their replies.

The APIs are Metadata, DescribeCluster, Produce and ApiVersions. `find_coordinator` handles FindCoordinator in this way.
`ReplyRewriter` changes a reply. In a gateway, `RewrittenTails` handles the APIs whose replies end with addresses.
"""

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.broker.address_rewrite import Advertise
from group_sidecar.proxy.broker.broker_versions import BrokerVersions
from group_sidecar.proxy.broker.tail_rewrite import (
    MAX_HELD_BYTES,
    RESERVED_BYTES,
    TailEditor,
    has_tail,
    rewrite_held,
)
from group_sidecar.proxy.dataplane.frame_editor import FrameEditor
from group_sidecar.proxy.dataplane.framing import EDIT, HOLD, PASS, FrameAction
from group_sidecar.proxy.dataplane.outcomes import (
    UNCHANGED,
    AnswerInOrder,
    HangUp,
    HeldOrForwarded,
    Origin,
    PendingReply,
    Reply,
)
from group_sidecar.proxy.handlers.api_handler import ApiHandler
from group_sidecar.proxy.handlers.api_versions import ApiVersionsReplies
from group_sidecar.proxy.handlers.observer import CLOSED, Observer
from group_sidecar.proxy.handlers.reply_rewriter import ReplyRewriter

LONGEST_EDITED = 0x7FFFFFFF - RESERVED_BYTES
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class RewrittenReplies(ApiHandler):
    """Handles APIs whose replies may be changed."""

    def __init__(self, rewriter: ReplyRewriter, traffic: TrafficCounters) -> None:
        super().__init__()
        self._rewriter = rewriter
        self._traffic = traffic

    def undecoded(self, api_key: int, version: int, frame: bytes | None) -> PendingReply | None:
        """See ApiHandler."""
        if not self._rewriter.changes(api_key, version):
            return None
        return PendingRewrite(self._rewriter, self._traffic, api_key, version)


class PendingRewrite(PendingReply):
    """The pending reply to a request that was not read."""

    __slots__ = ("_api_key", "_rewriter", "_traffic", "_version")

    def __init__(self, rewriter: ReplyRewriter, traffic: TrafficCounters, api_key: int, version: int) -> None:
        self._rewriter = rewriter
        self._traffic = traffic
        self._api_key = api_key
        self._version = version

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return self._api_key

    def classify_reply(self, size: int, now: float) -> FrameAction | HangUp:
        """See PendingReply."""
        if self._rewriter.reads(self._api_key, size):
            return HOLD
        if self._rewriter.must_be_read(self._api_key):
            return HangUp(CloseReason.UNREADABLE)
        if self._rewriter.is_too_long(size):
            self._traffic.decode_failed(self._api_key)
        return PASS

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        return Reply(self._rewriter.rewritten(self._api_key, self._version, frame))

    def unreadable(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        return Reply(hang_up=CloseReason.UNREADABLE) if self._rewriter.must_be_read(self._api_key) else UNCHANGED


class ApiVersionsRequests(RewrittenReplies):
    """Handles ApiVersions.

    The sidecar answers the request itself if the broker would ignore the request (Kafka 0.9), or if the
    sidecar does not know the version of the request.
    """

    def __init__(
        self,
        rewriter: ReplyRewriter,
        traffic: TrafficCounters,
        versions: BrokerVersions,
        replies: ApiVersionsReplies,
    ) -> None:
        super().__init__(rewriter, traffic)
        self._versions = versions
        self._replies = replies

    def must_be_decoded(self, api_key: int, version: int) -> bool:
        """See ApiHandler."""
        return self._versions.is_kafka_0_9 or version not in APIS[_API_VERSIONS].versions

    def classify(self, api_key: int, version: int, size: int) -> HeldOrForwarded:
        """See ApiHandler."""
        return self.undecoded(api_key, version, None) if version in APIS[_API_VERSIONS].versions else HOLD

    def decide(self, frame: bytes, version: int, origin: Origin, now: float) -> AnswerInOrder:
        """See ApiHandler."""
        number = int.from_bytes(frame[4:8], "big", signed=True)
        if self._versions.is_kafka_0_9:
            return AnswerInOrder(lambda at: self._replies.reply_for_kafka_0_9(version, number))
        return AnswerInOrder(lambda at: self._replies.unsupported(number, version))


class TailRewriter:
    """Changes the replies of a gateway that end with addresses.

    Args:
        advertise: returns the address that replaces a broker's.
        observer: logs replies that cannot be changed.
        traffic: counts replies that cannot be changed.
    """

    def __init__(self, advertise: Advertise, observer: Observer, traffic: TrafficCounters) -> None:
        self._advertise = advertise
        self._observer = observer
        self._traffic = traffic

    def rewritten(self, api_key: int, version: int, frame: bytes) -> bytes | None:
        """See `rewrite_held`."""
        return rewrite_held(api_key, version, frame, self._advertise)

    def editor(self, api_key: int, version: int, size: int) -> TailEditor:
        """Returns the editor that changes a long reply of `size` bytes while the reply is forwarded."""

        def failed(error: Exception) -> None:
            self._traffic.decode_failed(api_key)
            self._observer.warn("reply", api_key, error, CLOSED)

        return TailEditor(api_key, version, size, self._advertise, failed)


class RewrittenTails(ApiHandler):
    """Handles APIs of a gateway whose replies end with addresses: ShareFetch, ShareAcknowledge and DescribeQuorum."""

    def __init__(self, tails: TailRewriter) -> None:
        super().__init__()
        self._tails = tails

    def undecoded(self, api_key: int, version: int, frame: bytes | None) -> PendingReply | None:
        """See ApiHandler."""
        return PendingTail(self._tails, api_key, version) if has_tail(api_key, version) else None


class PendingTail(PendingReply):
    """The pending reply to a request that was not read. The reply ends with addresses."""

    __slots__ = ("_api_key", "_tails", "_version")

    def __init__(self, tails: TailRewriter, api_key: int, version: int) -> None:
        self._tails = tails
        self._api_key = api_key
        self._version = version

    @property
    def api_key(self) -> int:
        """See PendingReply."""
        return self._api_key

    def classify_reply(self, size: int, now: float) -> FrameAction | HangUp:
        """See PendingReply."""
        if size <= MAX_HELD_BYTES:
            return HOLD
        return EDIT if size <= LONGEST_EDITED else HangUp(CloseReason.UNREADABLE)

    def reply(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        return Reply(self._tails.rewritten(self._api_key, self._version, frame))

    def unreadable(self, frame: bytes, origin: Origin, now: float) -> Reply:
        """See PendingReply."""
        return Reply(hang_up=CloseReason.UNREADABLE)

    def editor(self, size: int, origin: Origin, now: float) -> FrameEditor:
        """See PendingReply."""
        return self._tails.editor(self._api_key, self._version, size)
