"""Handles Fetch requests, and reads from some of their replies how far the logs reach.

The request is never decoded, because the reply to a follower contains the same as the reply to a consumer. A reply is
forwarded before it is decoded. Only the first bytes of a long reply are decoded.
"""

from group_sidecar.codecs.api_registry import APIS, ApiKey
from group_sidecar.proxy.dataplane.framing import COPY, PASS, PEEK, FrameAction
from group_sidecar.proxy.dataplane.outcomes import UNCHANGED, Origin, PendingReply, Reply
from group_sidecar.proxy.handlers.api_handler import ApiHandler
from group_sidecar.proxy.handlers.observer import Observer

MAX_WHOLE_FETCH_BYTES = 65_536
"""Maximum bytes of a Fetch reply that is decoded whole. Only the first bytes of a longer reply are decoded."""
EMPTY_FETCH_BYTES = 18
"""Bytes of a Fetch reply without partitions. A reply with a partition is longer."""
FETCH_INSPECTION_INTERVAL = 0.01
"""Minimum seconds between two decoded Fetch replies, of all connections together."""
_FETCH = int(ApiKey.FETCH)


class Fetches(ApiHandler):
    """Handles Fetch. `longest`: bytes of the longest reply that is decoded."""

    def __init__(self, observer: Observer, longest: int) -> None:
        super().__init__()
        self._observer = observer
        self._largest_whole = min(MAX_WHOLE_FETCH_BYTES, longest)
        self._inspection_due = 0.0
        self._pending = {version: PendingFetch(self, version) for version in APIS[_FETCH].versions}
        """The pending replies by version. They hold no state of a request, so all requests share them."""

    def undecoded(self, api_key: int, version: int, frame: bytes | None) -> PendingReply | None:
        """See ApiHandler."""
        return self._pending.get(version)

    def classify_reply(self, size: int, now: float) -> FrameAction:
        """Returns what to do with a reply. One with partitions is decoded, unless another was decoded very recently."""
        if size <= EMPTY_FETCH_BYTES or now < self._inspection_due:
            return PASS
        self._inspection_due = now + FETCH_INSPECTION_INTERVAL
        return COPY if size <= self._largest_whole else PEEK

    def observe(self, version: int, frame: bytes, now: float, *, truncated: bool) -> None:
        """Learns how far the logs reach from a reply."""
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
