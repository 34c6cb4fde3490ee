"""One socket of a connection whose bytes are encrypted with TLS.

OpenSSL works on memory (`ssl.MemoryBIO`), and this module moves the encrypted bytes between memory and socket. The
handshake is complete before the data path gets the socket (`proxy/tls/handshake.py`).
"""

import os
import ssl
from typing import Any, Final, NamedTuple

from group_sidecar.proxy.dataplane.endpoint_socket import MAX_READ_BYTES, EndpointSocket

ENCRYPT_BYTES: Final = 65_536
"""How many bytes are encrypted at a time. More bytes would leave the processor's cache before they are sent."""
RECORD_BYTES: Final = 16_640
"""The longest record of TLS (RFC 8446, 5.2: 16,384 bytes and 256)."""

_plain: Final = bytearray(MAX_READ_BYTES + RECORD_BYTES)
"""All connections share the buffer of decrypted bytes. It has room for one read and the record that it completes."""
_view: Final = memoryview(_plain)


class TlsState(NamedTuple):
    """The state of TLS on one socket.

    Attributes:
        tls: OpenSSL's state.
        incoming: encrypted bytes of the peer that OpenSSL has not read yet.
        outgoing: encrypted bytes that OpenSSL has written.
    """

    tls: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO


class TlsEndpoint(EndpointSocket):
    """One socket with TLS, as a non-blocking descriptor.

    `read` and `send` take plain bytes. The backlog consists of encrypted bytes.
    """

    __slots__ = ("_ended", "_incoming", "_outgoing", "_tls")

    def __init__(self, fd: int, state: TlsState) -> None:
        super().__init__(fd)
        self.is_plain = False
        self._tls = state.tls
        self._incoming = state.incoming
        self._outgoing = state.outgoing
        self._ended = False

    def read(self) -> bytes:
        """See EndpointSocket. Raises ssl.SSLError, which is an OSError, if the peer breaks TLS.

        What OpenSSL itself has to send after a read, such as an alert, leaves with the next records or at `close`.
        """
        chunk = b"" if self._ended else super().read()
        if chunk:
            self._incoming.write(chunk)
        else:
            self._incoming.write_eof()
        count = self._decrypt()
        if count:
            self.may_have_more = self.may_have_more or self._ended
            return bytes(_view[:count])
        if self._ended:
            return b""
        raise BlockingIOError

    def _decrypt(self) -> int:
        """Decrypts the records that have arrived into the shared buffer. Returns how many bytes there are."""
        count: int = 0
        read: Any = self._tls.read  # It returns a number if it gets a buffer, but is declared to return bytes.
        try:
            while got := read(len(_plain) - count, _view[count:]):
                count += got
                if not (self._incoming.pending or self._incoming.eof or self._tls.pending()):
                    return count  # Another read would raise SSLWantReadError, which takes longer than this check.
            self._ended = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):  # Some peers close without ending TLS first.
            self._ended = True
        return count

    def read_rest(self) -> bytes:
        """See EndpointSocket. A client's first request may arrive together with the end of its handshake."""
        count = self._decrypt()
        return bytes(_view[:count])

    def send(self, data: bytes) -> None:
        """See EndpointSocket."""
        view = memoryview(data)
        for start in range(0, len(data), ENCRYPT_BYTES):
            self.send_wire(self.encrypt(view[start : start + ENCRYPT_BYTES]))

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """Returns records of TLS with these bytes. `send_wire` must be called with all records in order."""
        self._tls.write(data)
        return self._outgoing.read()

    def shut(self) -> None:
        """See EndpointSocket. Ends TLS first."""
        self._end_tls()
        super().shut()

    def close(self) -> None:
        """See EndpointSocket. Ends TLS first, if the peer has accepted all earlier bytes."""
        if not self.backlog:
            self._end_tls()
        super().close()

    def _end_tls(self) -> None:
        try:
            self._tls.unwrap()
        except OSError:  # It waits for the end from the peer, or TLS is broken.
            pass
        try:
            os.write(self.fd, self._outgoing.read())
        except OSError:  # The peer accepts no bytes, and misses only the notice of the end.
            pass
