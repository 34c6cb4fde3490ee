"""Ends connections because of a request or a reply that must not pass.

Owns: the line in the log, once for many. Must not know: why (`desk`, `drafted`), how a connection ends (`session`).
"""

from group_sidecar.codecs.registry import api_name
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.disposals import HangUp, Origin
from group_sidecar.proxy.logs import Recurring, log


class Closing:
    """Gives the `HangUp` for a reason, and logs it: each reason and API at most once in a while."""

    def __init__(self) -> None:
        self._recurring = Recurring()

    def because(self, reason: CloseReason, api_key: int, cause: str, origin: Origin | None = None) -> HangUp:
        """The connection is to end. `cause`: one clause for the log. `origin`: the client, where it is known."""
        if times := self._recurring.due(reason, api_name(api_key)):
            told = {"reason": reason, "api": api_name(api_key), "cause": cause, "times": times}
            log.warning("a connection is closed", **told, **({"client": origin.client_host} if origin else {}))
        return HangUp(reason)
