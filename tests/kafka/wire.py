"""A Kafka client that sends raw frames, including frames that no real client would send.

It has one blocking connection and uses the project's codecs.
"""

import select
import socket
import ssl
from types import TracebackType
from typing import Any, Self

from group_sidecar.codecs.api_registry import APIS
from group_sidecar.codecs.headers import RequestHeader, encode_request, split_reply
from group_sidecar.codecs.schema import Struct, decode
from tests.kafka.processes import GIVE_UP_SECONDS, Address


class Wire:
    """A connection to a broker or to a proxy, for the length of a with statement.

    `host` is the local address of the connection; empty to let the system choose it. With `tls`, the connection is
    encrypted.
    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str = "wire",
        seconds: float = GIVE_UP_SECONDS,
        host: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        place = (host, 0) if host else None
        self._socket = socket.create_connection(address, timeout=seconds, source_address=place)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        self._client_id = client_id
        self._correlation = 0

    def send(self, data: bytes) -> None:
        """Sends bytes unchanged."""
        self._socket.sendall(data)

    def send_token(self, token: bytes) -> None:
        """Sends bytes after their length, as a frame or a SASL token."""
        self.send(len(token).to_bytes(4, "big") + token)

    def receive(self) -> bytes:
        """Returns the next frame or token without its length. Raises ConnectionError if the connection ends first."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def readable(self, seconds: float) -> bool:
        """Whether bytes arrive or the connection ends within `seconds`."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def closed(self) -> bool:
        """Waits for the next bytes or the end of the connection. Returns whether the connection ended."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def send_request(self, request: Struct, version: int) -> int:
        """Sends a request. Returns its correlation id."""
        self._correlation += 1
        header = RequestHeader(request.KEY, version, self._correlation, self._client_id)
        self.send(encode_request(request, header))
        return self._correlation

    def receive_reply(self, request: Struct, version: int, correlation: int) -> Any:
        """Returns the decoded reply to a request. Asserts that its correlation id is right."""
        frame = self.receive()
        response = APIS[request.KEY].response
        assert int.from_bytes(frame[:4], "big") == correlation, "the reply belongs to another request"
        return decode(response, version, split_reply(frame, version >= response.HEADER_FLEXIBLE))

    def ask(self, request: Struct, version: int) -> Any:
        """Sends a request. Returns its reply."""
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
    """Sends a request over its own connection. Returns the reply. `host` is as in `Wire`."""
    with Wire(address, client_id=client_id, host=host) as wire:
        return wire.ask(request, version)
