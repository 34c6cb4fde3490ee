"""Ends connections because of a request or a reply that must not pass.

Owns: the line in the log, once for many. Must not know: why (`dispatcher`, `kip40_group_metadata`), how a connection
ends (`session`).
"""

from group_sidecar.codecs.api_registry import api_name
from group_sidecar.metrics.traffic_counters import CloseReason
from group_sidecar.proxy.dataplane.outcomes import HangUp, Origin
from group_sidecar.proxy.runtime.logging import LogThrottle, log


class Disconnector:
    """Gives the `HangUp` for a reason, and logs it: each reason and API at most once in a while."""

    def __init__(self) -> None:
        self._log_throttle = LogThrottle()

    def close_for(self, reason: CloseReason, api_key: int, cause: str, origin: Origin | None = None) -> HangUp:
        """The connection is to end. `cause`: one clause for the log. `origin`: the client, where it is known."""
        if times := self._log_throttle.due(reason, api_name(api_key)):
            fields = {"reason": reason, "api": api_name(api_key), "cause": cause, "times": times}
            log.warning("a connection is closed", **fields, **({"client": origin.client_host} if origin else {}))
        return HangUp(reason)
