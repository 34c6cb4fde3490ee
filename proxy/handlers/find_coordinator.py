"""Handles FindCoordinator requests, and the GroupMetadata requests of KIP-40's draft, which have the same API key."""

from group_sidecar.metrics.traffic_counters import TrafficCounters
from group_sidecar.proxy.dataplane.framing import HOLD
from group_sidecar.proxy.dataplane.outcomes import HeldOrForwarded, Origin, RequestOutcome
from group_sidecar.proxy.handlers.kip40_group_metadata import Kip40GroupMetadata
from group_sidecar.proxy.handlers.reply_rewriter import ReplyRewriter
from group_sidecar.proxy.handlers.rewritten_replies import RewrittenReplies


class FindCoordinatorRequests(RewrittenReplies):
    """Handles FindCoordinator. Only requests of KIP-40's draft are held."""

    def __init__(self, rewriter: ReplyRewriter, traffic: TrafficCounters, kip40: Kip40GroupMetadata) -> None:
        super().__init__(rewriter, traffic)
        self._kip40 = kip40

    def must_be_decoded(self, api_key: int, version: int) -> bool:
        """See ApiHandler."""
        return self._kip40.is_kip40_request(version)

    def classify(self, api_key: int, version: int, size: int) -> HeldOrForwarded:
        """See ApiHandler."""
        if self._kip40.is_kip40_request(version):
            return HOLD
        return self.undecoded(api_key, version, None)

    def decide(self, frame: bytes, version: int, origin: Origin, now: float) -> RequestOutcome:
        """See ApiHandler."""
        return self._kip40.decide(frame, origin, now)
