"""A proxy that records the heads of all requests to a broker."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.conformance.copying_proxy import CopyingProxy
from tests.kafka.processes import Address

_HEAD = 10
"""Bytes of a request before its client id: API key, version, correlation id, length of the client id."""


class Head(NamedTuple):
    """The beginning of a request. `client_id` is empty if there is none."""

    api_key: int
    version: int
    client_id: str


class RecordingProxy(CopyingProxy):
    """Listens on an address for the length of a with statement. Records each request before the broker receives it.

    Attributes:
        heads: the heads of all requests, oldest first.
    """

    def __init__(self, at: Address, upstream: Address) -> None:
        super().__init__(at, upstream)
        self.heads: list[Head] = []

    def connected(self) -> bytearray:
        """Returns the buffer for an incomplete frame."""
        return bytearray()

    def asked(self, own: bytearray, chunk: bytes) -> None:
        """Records the heads of complete requests."""
        own += chunk
        self.heads += _heads(own)


def _heads(data: bytearray) -> Iterator[Head]:
    """Removes all complete frames from the data and yields their heads."""
    while len(data) >= 4 + (size := int.from_bytes(data[:4], "big")):
        frame = bytes(data[4 : 4 + size])
        del data[: 4 + size]
        length = max(0, int.from_bytes(frame[8:_HEAD], "big", signed=True))
        client_id = frame[_HEAD : _HEAD + length].decode()
        yield Head(int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big", signed=True), client_id)
