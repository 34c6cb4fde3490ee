"""The API versions that a broker supports, and a client that uses the newest of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.headers import split_reply
from group_sidecar.codecs.messages.api_versions import KAFKA_0_9, ApiVersionsRequest, ApiVersionsResponse
from group_sidecar.codecs.messages.describe_groups import DescribeGroupsRequest
from group_sidecar.codecs.schema import Struct, decode
from tests.kafka.processes import GIVE_UP_SECONDS, Address
from tests.kafka.wire import Wire, ask

_POLL_SECONDS = 0.01
_SOON_SECONDS = 0.5


@dataclass(frozen=True)
class Dialect:
    """The versions that a broker supports, by API key."""

    spoken: Mapping[int, range]

    @classmethod
    def of(cls, address: Address) -> "Dialect":
        """Reads the versions of the broker at this address. A broker that ignores ApiVersions is Kafka 0.9."""
        with Wire(address) as wire:
            number = wire.send_request(ApiVersionsRequest(), 0)
            if not wire.readable(_SOON_SECONDS):
                wire.send_request(DescribeGroupsRequest(groups=()), 0)
            frame = wire.receive()
        if int.from_bytes(frame[:4], "big") != number:
            return cls({key: range(lowest, highest + 1) for key, (lowest, highest) in KAFKA_0_9.items()})
        reply = decode(ApiVersionsResponse, 0, split_reply(frame, flexible=False))
        return cls({api.api_key: range(api.min_version, api.max_version + 1) for api in reply.api_keys})

    def versions(self, key: int) -> range:
        """Returns the versions that both the broker and the codecs support; empty if the broker lacks the API."""
        ours, its = APIS[key].versions, self.spoken.get(key, range(0))
        return range(max(ours.start, its.start), min(ours.stop, its.stop))

    def newest(self, key: int, at_most: int | None = None) -> int:
        """Returns the newest common version, or the newest up to `at_most`. Asserts that there is one."""
        fitting = [version for version in self.versions(key) if at_most is None or version <= at_most]
        assert fitting, f"the broker speaks no such version of API {key}"
        return fitting[-1]


@dataclass(frozen=True)
class Client:
    """Sends requests to one broker, each over its own connection. `host` is as in `Wire`."""

    address: Address
    dialect: Dialect
    client_id: str = "client"
    host: str = ""

    def ask(self, request: Struct, at_most: int | None = None) -> Any:
        """Returns the reply to a request in the newest version, or in the newest up to `at_most`."""
        return ask(self.address, request, self.dialect.newest(request.KEY, at_most), self.client_id, self.host)

    def wire(self) -> Wire:
        """Opens a connection that the caller keeps."""
        return Wire(self.address, client_id=self.client_id, host=self.host)


def until(condition: Callable[[], bool], what: str, seconds: float = GIVE_UP_SECONDS) -> None:
    """Evaluates a condition repeatedly until it is true. Asserts that it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting until {what}"
        time.sleep(_POLL_SECONDS)
