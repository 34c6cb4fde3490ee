"""A way to a broker that loses answers: the question gets there, and the connection breaks.

Owns: which answers are lost. Must not know: who asks, nor what; of a request only its API key.
"""

import threading

from tests.conformance.copying import CopyingProxy
from tests.kafka.processes import Address


class CuttingProxy(CopyingProxy):
    """Listens at an address for the length of a with statement.

    Args:
        at: where it listens.
        upstream: the broker.
        api_key: of the requests whose answers may be lost.

    Attributes:
        cuts: how many answers were lost.
    """

    def __init__(self, at: Address, upstream: Address, api_key: int) -> None:
        super().__init__(at, upstream)
        self.cuts = 0
        self._api_key = api_key
        self._left = 0
        self._lock = threading.Lock()

    def lose(self, answers: int) -> None:
        """Loses so many answers, the next ones."""
        with self._lock:
            self._left += answers

    def connected(self) -> list[int]:
        """The API key of the question that waits for its answer; one does at a time."""
        return []

    def asked(self, own: list[int], chunk: bytes) -> None:
        """See CopyingProxy."""
        if not own:
            own.append(int.from_bytes(chunk[4:6], "big"))

    def answered(self, own: list[int], chunk: bytes) -> bool:
        """See CopyingProxy."""
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
