"""A proxy that drops replies: the request reaches the broker, and then the connection is closed."""

import threading

from tests.conformance.copying_proxy import CopyingProxy
from tests.kafka.processes import Address


class CuttingProxy(CopyingProxy):
    """Listens on an address for the length of a with statement.

    Args:
        at: the address that it listens on.
        upstream: the broker's address.
        api_key: the API key of the requests whose replies may be dropped.

    Attributes:
        cuts: how many replies were dropped.
    """

    def __init__(self, at: Address, upstream: Address, api_key: int) -> None:
        super().__init__(at, upstream)
        self.cuts = 0
        self._api_key = api_key
        self._left = 0
        self._lock = threading.Lock()

    def lose(self, answers: int) -> None:
        """Drops this number of the next replies."""
        with self._lock:
            self._left += answers

    def connected(self) -> list[int]:
        """Returns a list for the API key of the pending request. At most one request is pending."""
        return []

    def asked(self, own: list[int], chunk: bytes) -> None:
        """Notes the API key of the request."""
        if not own:
            own.append(int.from_bytes(chunk[4:6], "big"))

    def answered(self, own: list[int], chunk: bytes) -> bool:
        """Drops the reply if `lose` requires that."""
        if own == [self._api_key] and self._cuts():
            return False
        own.clear()
        return True

    def _cuts(self) -> bool:
        with self._lock:
            if not self._left:
                return False
            self._left -= 1
            self.cuts += 1
            return True
