"""Attempts at something that may fail for a long time: how long to wait between them, and what to say once.

Owns: the pauses, the condition that was last told, the setting that may help. Must not know: what is attempted.
"""

import random

from group_sidecar.proxy.client import BrokerError

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds between attempts: doubled each time, and shortened by up to a half lest a fleet march in step."""


class Attempts:
    """Attempts at one thing.

    Attributes:
        failures: how many failed in a row.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._condition = ""

    def pause(self) -> float:
        """Seconds until the next attempt."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.failures - 1, 16))
        return longest * random.uniform(0.5, 1.0)

    def enters(self, condition: str) -> bool:
        """Whether it was in another condition before, so that the new one is worth a line."""
        before, self._condition = self._condition, condition
        return condition != before


_REMEDIES = {"SASL": {"setting": "own_connection.sasl"}, "TLS": {"setting": "own_connection.tls"}}


def remedy(error: Exception) -> dict[str, str]:
    """For the log: the setting that gives a listener what it may want, where that may have been the reason."""
    return _REMEDIES.get(error.may_want, {}) if isinstance(error, BrokerError) else {}
