"""What one broker speaks, and single questions in its newest versions.

Owns: reading a broker's ApiVersions, and the choice of a version. Must not know: what is asked.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from group_sidecar.codecs.messages.api_versions import ApiVersionsRequest
from group_sidecar.codecs.registry import APIS
from group_sidecar.codecs.schema import Struct
from tests.kafka.processes import PATIENCE, Address
from tests.kafka.wire import Wire, ask

_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Dialect:
    """The versions that a broker speaks, by API key."""

    spoken: Mapping[int, range]

    @classmethod
    def of(cls, address: Address) -> "Dialect":
        """Asks the broker at this address."""
        reply = ask(address, ApiVersionsRequest(), 0)
        return cls({api.api_key: range(api.min_version, api.max_version + 1) for api in reply.api_keys})

    def versions(self, key: int) -> range:
        """Those that both the broker and we know; empty where the broker does not know the API."""
        ours, its = APIS[key].versions, self.spoken.get(key, range(0))
        return range(max(ours.start, its.start), min(ours.stop, its.stop))

    def newest(self, key: int, at_most: int | None = None) -> int:
        """The newest version that both know, or the newest up to `at_most`. Asserts that there is one."""
        fitting = [version for version in self.versions(key) if at_most is None or version <= at_most]
        assert fitting, f"the broker speaks no such version of API {key}"
        return fitting[-1]


@dataclass(frozen=True)
class Client:
    """Asks one broker, each question over a connection of its own."""

    address: Address
    dialect: Dialect
    client_id: str = "client"

    def ask(self, request: Struct, at_most: int | None = None) -> Any:
        """The reply, in the newest version or the newest up to `at_most`."""
        return ask(self.address, request, self.dialect.newest(request.KEY, at_most), self.client_id)

    def wire(self) -> Wire:
        """A connection to keep."""
        return Wire(self.address, client_id=self.client_id)


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Asks a broker time and again until the condition holds. Asserts that it comes to hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting until {what}"
        time.sleep(_POLL_SECONDS)
