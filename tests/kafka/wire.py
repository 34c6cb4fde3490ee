"""A Kafka client of bare frames, for what no real client would send.

Owns: one blocking connection, frames on it, and single questions by our own codecs. Must not know: what is asked.
"""

import select
import socket
from types import TracebackType
from typing import Any, Self

from group_sidecar.codecs.headers import RequestHeader, encode_request, split_reply
from group_sidecar.codecs.registry import APIS
from group_sidecar.codecs.schema import Struct, decode
from tests.kafka.processes import PATIENCE, Address


class Wire:
    """One connection to a broker, or to what stands before it, for the length of a with statement.

    `host`: the address of this machine that it comes from; empty for what the system chooses.
    """

    def __init__(self, address: Address, *, client_id: str = "wire", seconds: float = PATIENCE, host: str = "") -> None:
        place = (host, 0) if host else None
        self._socket = socket.create_connection(address, timeout=seconds, source_address=place)
        self._client_id = client_id
        self._correlation = 0

    def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self._socket.sendall(data)

    def send_token(self, token: bytes) -> None:
        """Sends bytes behind their length: a frame, or a SASL token."""
        self.send(len(token).to_bytes(4, "big") + token)

    def receive(self) -> bytes:
        """The next frame or token, without its length. Raises ConnectionError where the connection ends before."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def readable(self, seconds: float) -> bool:
        """Whether there is something to receive, or the connection ends, within so many seconds."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def closed(self) -> bool:
        """Whether the other side ends the connection rather than sending more; waits for either."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def send_request(self, request: Struct, version: int) -> int:
        """Sends a request and returns its correlation id."""
        self._correlation += 1
        header = RequestHeader(request.KEY, version, self._correlation, self._client_id)
        self.send(encode_request(request, header))
        return self._correlation

    def receive_reply(self, request: Struct, version: int, correlation: int) -> Any:
        """The reply to a request, decoded. Asserts that it carries the correlation id."""
        frame = self.receive()
        response = APIS[request.KEY].response
        assert int.from_bytes(frame[:4], "big") == correlation, "a reply to another request"
        return decode(response, version, split_reply(frame, version >= response.HEADER_FLEXIBLE))

    def ask(self, request: Struct, version: int) -> Any:
        """Sends a request and waits for its reply."""
        return self.receive_reply(request, version, self.send_request(request, version))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self._socket.recv(count - len(data))
            if not chunk:
                raise ConnectionError(f"closed after {len(data)} of {count} bytes")
            data += chunk
        return data


def ask(address: Address, request: Struct, version: int, client_id: str = "wire", host: str = "") -> Any:
    """Asks one question over a connection of its own. `host`: as of a `Wire`."""
    with Wire(address, client_id=client_id, host=host) as wire:
        return wire.ask(request, version)
