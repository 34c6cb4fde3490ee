"""A client's connections to the brokers. They find the broker that coordinates a group or a transaction.

A reply that does not come in time leaves the result of its request unknown. `Unanswered` and `NotSent` tell the two
kinds of failures apart.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from group_sidecar.codecs.errors import ErrorCode
from group_sidecar.codecs.messages.find_coordinator import FindCoordinatorRequest
from group_sidecar.codecs.schema import Struct
from tests.kafka.processes import Address
from tests.kafka.wire import Wire

REQUEST_SECONDS = 4.0
"""A reply that takes longer does not count any more. The longest pauses of the schedule exceed this time."""
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""
_FIND_VERSION = 3
_STALL_SECONDS = 1.0
_STUBBORN = 0.5
"""The share of failures after which a client connects again to the coordinator that it knows, instead of asking for the
coordinator. Such a client may reach a coordinator that was replaced and does not know it yet."""


class NotSent(Exception):
    """Raised when a request did not reach a broker, so it has no effect. The text is the kind of error."""


class Unanswered(Exception):
    """Raised when a request was sent and got no reply, so it may have an effect. The text is the kind of error."""


class Progress:
    """Counts the successes and errors of clients of one kind, and measures the gaps between successes.

    Attributes:
        operations: how many were successful.
        errors: how often each error occurred.
        stalled: the seconds in gaps of more than one second between two successes.
        longest: the longest such gap in seconds.
    """

    def __init__(self) -> None:
        self.operations = 0
        self.errors: Counter[str] = Counter()
        self.stalled = 0.0
        self.longest = 0.0
        self._last = time.monotonic()

    def succeeded(self) -> None:
        """Counts a success."""
        self.operations += 1
        self.waited()

    def waited(self) -> None:
        """Measures the time since the last success. Called with each success, and at the end of the run."""
        gap = time.monotonic() - self._last
        self._last += gap
        if gap > _STALL_SECONDS:
            self.stalled += gap
            self.longest = max(self.longest, gap)

    def failed(self, error: int | str) -> None:
        """Counts an error by its name or its code."""
        if isinstance(error, int):
            known = error in {*ErrorCode}
            error = ErrorCode(error).name if known else f"error {error}"
        self.errors[error] += 1

    def summary(self) -> dict[str, Any]:
        """Returns the figures for a report in JSON."""
        figures = {"operations": self.operations, "errors": dict(self.errors)}
        return {**figures, "stalled": round(self.stalled, 1), "longest": round(self.longest, 1)}


class Connections:
    """One client's connections, at most one to each broker.

    Args:
        bootstrap: the addresses of all brokers for clients.
        client_id: the client id in the header of each request.
        random: decides where the client asks for a coordinator.
    """

    def __init__(self, bootstrap: Sequence[Address], client_id: str, random: random.Random) -> None:
        self._bootstrap = [(host, port) for host, port in bootstrap]
        self._client_id = client_id
        self._random = random
        self._wires: dict[Address, Wire] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    def ask(self, key_type: int, key: str, request: Struct, version: int) -> Any:
        """Returns the reply of the coordinator of a key. Raises NotSent or Unanswered."""
        place = (key_type, key)
        address = self._coordinators.get(place) or self._find(key_type, key)
        self._coordinators[place] = address
        try:
            return self._ask_at(address, request, version)
        except (NotSent, Unanswered):
            if self._random.random() > _STUBBORN:
                self.forget(key_type, key)
            raise

    def forget(self, key_type: int, key: str) -> None:
        """Forgets the coordinator of a key. The next request asks for it again."""
        self._coordinators.pop((key_type, key), None)

    def close(self) -> None:
        """Closes all connections."""
        for address in [*self._wires]:
            self._drop(address)

    def _find(self, key_type: int, key: str) -> Address:
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        try:
            reply = self._ask_at(self._random.choice(self._bootstrap), request, _FIND_VERSION)
        except Unanswered as error:
            raise NotSent(f"FindCoordinator: {error}") from error
        if reply.error_code:
            raise NotSent(f"FindCoordinator: error {reply.error_code}")
        return (reply.host, reply.port)

    def _ask_at(self, address: Address, request: Struct, version: int) -> Any:
        try:
            if address not in self._wires:
                self._wires[address] = Wire(address, client_id=self._client_id, seconds=REQUEST_SECONDS)
        except OSError as error:
            raise NotSent(_kind(error)) from error
        try:
            return self._wires[address].ask(request, version)
        except OSError as error:
            self._drop(address)
            raise Unanswered(_kind(error)) from error
        except BaseException:
            self._drop(address)
            raise

    def _drop(self, address: Address) -> None:
        self._wires.pop(address).__exit__(None, None, None)


def _kind(error: OSError) -> str:
    """Returns the kind of a failure without its details, so that equal failures are counted together."""
    if isinstance(error, TimeoutError):
        return "timeout"
    return "refused" if isinstance(error, ConnectionRefusedError) else "connection lost"
