"""Logs and returns the outcome that closes a connection because of a request or reply that must not pass.

The caller decides that the connection is closed, and the session closes it.
"""

from group_sidecar.codecs.api_registry import api_name
from group_sidecar.metrics.listener_counters import CloseReason
from group_sidecar.proxy.dataplane.outcomes import HangUp, Origin
from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log


class Disconnector:
    """Returns the `HangUp` for a reason and logs it, at most once in 30 seconds for each reason and API."""

    def __init__(self) -> None:
        self._log_throttle = LogThrottle()

    def close_for(self, reason: CloseReason, api_key: int, cause: str, origin: Origin | None = None) -> HangUp:
        """Returns the `HangUp`. `cause`: one clause for the log. `origin`: the client, or None if it is not known."""
        if times := self._log_throttle.due(reason, api_name(api_key)):
            fields = {"reason": reason, "api": api_name(api_key), "cause": cause, "times": times}
            log.warning("a connection is closed", **fields, **({"client": origin.client_host} if origin else {}))
        return HangUp(reason)
