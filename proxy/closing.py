"""Ending a connection for what its client asked or its broker answered.

Owns: the line in the log, once for many. Must not know: why (`desk`, `drafted`), how a connection ends (`session`).
"""

from group_sidecar.codecs.registry import api_name
from group_sidecar.metrics.traffic import CloseReason
from group_sidecar.proxy.disposals import HangUp
from group_sidecar.proxy.logs import Recurring, log


class Closing:
    """Gives the `HangUp` for a reason, and logs it: each reason and API at most once in a while."""

    def __init__(self) -> None:
        self._recurring = Recurring()

    def because(self, reason: CloseReason, api_key: int, cause: str) -> HangUp:
        """The connection is to end. `cause`: one clause for the log."""
        if times := self._recurring.due(reason, api_name(api_key)):
            log.warning("a connection is closed", reason=reason, api=api_name(api_key), cause=cause, times=times)
        return HangUp(reason)
