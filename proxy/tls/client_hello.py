"""The ClientHello, the first message of a client, and the server name in it (SNI).

The name chooses the certificate, and each certificate has a TLS context of its own. OpenSSL looks for a session to
resume before it reports the name. If OpenSSL got the bytes first, a client could resume the session of one name and ask
for another name. So this module reads the name before OpenSSL gets the first byte.

The thread of the data path reads the name, so the work is bounded. The module reads at most MAX_RECORDS records and
MAX_EXTENSIONS extensions, and copies each byte once. This module reports no fault, because OpenSSL gets all bytes
afterwards and refuses malformed bytes.
"""

from typing import Final

from group_sidecar.proxy.dataplane.tls_records import HEADER_BYTES, LENGTH_AT

MAX_RECORDS: Final = 32
"""How many records a ClientHello may have. Clients use one record, or a few records."""
MAX_HELLO_BYTES: Final = 32_768
"""The size in bytes of the longest ClientHello that is waited for. OpenSSL gets a longer ClientHello at once and
refuses it."""
MAX_EXTENSIONS: Final = 100
"""How many extensions are searched for the name. Browsers send about 20 extensions, and IANA lists about 60."""
_HANDSHAKE: Final = 22
"""The type of a record with handshake messages (RFC 8446, 5.1)."""
_MAX_RECORD_BYTES: Final = 16_384
_CLIENT_HELLO: Final = 1
"""The type of the message (RFC 8446, 4)."""
_MESSAGE_HEADER_BYTES: Final = 4
_VERSION_AND_RANDOM_BYTES: Final = 34
_SERVER_NAME: Final = 0
"""The type of the extension `server_name`, and the type `host_name` of its entries (RFC 6066, 3). Both types are 0."""


class ClientHelloReader:
    """Collects the bytes of a client until its ClientHello is complete.

    Attributes:
        received: all bytes that the client has sent.
        is_complete: whether no more bytes are needed: the ClientHello is complete or too long, or the bytes are
            something else.
    """

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_complete = False
        self._bodies: list[tuple[int, int]] = []
        """The positions in `received` of the records' bodies, which together are the message."""
        self._header = b""
        """The header of the message, as far as it has arrived."""
        self._message_bytes = 0
        self._next_record = 0

    def feed(self, data: bytes) -> None:
        """Adds bytes of the client."""
        received, start = self.received, self._next_record
        received += data
        while not self.is_complete and start < len(received):
            body = start + HEADER_BYTES
            size = int.from_bytes(received[start + LENGTH_AT : body], "big") if body <= len(received) else 0
            if received[start] != _HANDSHAKE or size > _MAX_RECORD_BYTES:
                self.is_complete = True
                break
            if body > len(received) or body + size > len(received):
                break
            start = body + size
            self._bodies.append((body, start))
            self._message_bytes += size
            self._header += received[body : min(start, body + _MESSAGE_HEADER_BYTES - len(self._header))]
            self.is_complete = not self._may_go_on()
        self._next_record = start

    @property
    def is_client_hello(self) -> bool:
        """Whether the bytes begin as a ClientHello does."""
        return self._header[:1] == bytes((_CLIENT_HELLO,))

    def server_name(self) -> str | None:
        """Returns the name that the client asks for, in lower case and without a dot at its end; None if it asks for
        none.

        The ClientHello must be complete.
        """
        try:
            message = b"".join(self.received[start:end] for start, end in self._bodies)
            name = _host_name(message[_MESSAGE_HEADER_BYTES:]).decode("ascii")
        except (IndexError, UnicodeDecodeError):
            return None
        return name.lower().removesuffix(".") or None

    def _may_go_on(self) -> bool:
        """Whether more of the ClientHello may follow."""
        header = self._header
        if len(self._bodies) == MAX_RECORDS or (header and header[0] != _CLIENT_HELLO):
            return False
        if len(header) < _MESSAGE_HEADER_BYTES:
            return True
        whole = _MESSAGE_HEADER_BYTES + int.from_bytes(header[1:], "big")
        return self._message_bytes < whole <= MAX_HELLO_BYTES


def _host_name(hello: bytes) -> bytes:
    """Returns the server name of a ClientHello without its header; empty if it has none. May raise IndexError."""
    start = _VERSION_AND_RANDOM_BYTES
    for length_bytes in (1, 2, 1):  # The session id, the ciphers, and the methods of compression.
        _, start = _vector(hello, start, length_bytes)
    extensions, _ = _vector(hello, start, 2)
    start = 0
    for _ in range(MAX_EXTENSIONS):
        if start == len(extensions):
            break
        kind = int.from_bytes(extensions[start : start + 2], "big")
        content, start = _vector(extensions, start + 2, 2)
        if kind == _SERVER_NAME:
            names, _ = _vector(content, 0, 2)
            name, _ = _vector(names, 1, 2)
            return name if names[0] == _SERVER_NAME else b""
    return b""


def _vector(data: bytes, start: int, length_bytes: int) -> tuple[bytes, int]:
    """Returns the content of a vector (RFC 8446, 3.4) and the position after it. Raises IndexError if bytes are
    missing.
    """
    body = start + length_bytes
    end = body + int.from_bytes(data[start:body], "big")
    if end > len(data) or body > len(data):
        raise IndexError
    return data[body:end], end
