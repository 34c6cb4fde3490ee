"""A way to a broker that notes what it is asked.

Owns: the heads of all requests that passed. Must not know: who asks, what the broker has.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.conformance.copying import CopyingProxy
from tests.kafka.processes import Address

_HEAD = 10
"""Bytes of a request before its client id: API key, version, correlation id, length of the client id."""


class Head(NamedTuple):
    """How a request begins. `client_id`: empty where there is none."""

    api_key: int
    version: int
    client_id: str


class RecordingProxy(CopyingProxy):
    """Listens at an address for the length of a with statement. A request is noted before the broker has it.

    Attributes:
        heads: of all requests, oldest first.
    """

    def __init__(self, at: Address, upstream: Address) -> None:
        super().__init__(at, upstream)
        self.heads: list[Head] = []

    def connected(self) -> bytearray:
        """What has come of the frame that is not whole yet."""
        return bytearray()

    def asked(self, own: bytearray, chunk: bytes) -> None:
        """See CopyingProxy."""
        own += chunk
        self.heads += _heads(own)


def _heads(data: bytearray) -> Iterator[Head]:
    """Of all whole frames, which are taken out of the data."""
    while len(data) >= 4 + (size := int.from_bytes(data[:4], "big")):
        frame = bytes(data[4 : 4 + size])
        del data[: 4 + size]
        length = max(0, int.from_bytes(frame[8:_HEAD], "big", signed=True))
        client_id = frame[_HEAD : _HEAD + length].decode()
        yield Head(int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big", signed=True), client_id)
