"""One socket of a connection whose bytes are encrypted with TLS.

OpenSSL works on memory (`ssl.MemoryBIO`), and this module moves the encrypted bytes between memory and socket. The
handshake is complete before the data path gets the socket (`proxy/tls/handshake.py`).

OpenSSL gets a few records at a time, and other connections have their turn before the next records. Decrypting a short
record takes 1 us, a key update (RFC 8446, 4.6.3) takes 30 us, and one read may contain 20,000 records.
"""

import os
import ssl
from typing import Any, Final, NamedTuple

from group_sidecar.proxy.dataplane.endpoint_socket import MAX_READ_BYTES, EndpointSocket
from group_sidecar.proxy.dataplane.tls_records import RecordWalker

ENCRYPT_BYTES: Final = 65_536
"""How many bytes are encrypted at a time. More bytes would leave the processor's cache before they are sent."""
RECORD_BYTES: Final = 16_640
"""The longest record of TLS (RFC 8446, 5.2: 16,384 bytes and 256)."""
MAX_RECORDS: Final = 32
"""How many records are decrypted at a time: at most 1 ms of work. 32 of the longest records fill a whole read."""
MAX_REPLY_BYTES: Final = 1_024
"""The maximum number of bytes of OpenSSL's own replies that wait for the next bytes to the peer: the replies to 38 key
updates. Without this bound, a peer could make the sidecar keep any number of replies."""

_plain: Final = bytearray(MAX_READ_BYTES + RECORD_BYTES)
"""All connections share this buffer of decrypted bytes. The buffer has room for one read and the record that the read
completes."""
_view: Final = memoryview(_plain)


class TlsState(NamedTuple):
    """The state of TLS on one socket.

    Attributes:
        tls: OpenSSL's state.
        incoming: encrypted bytes of the peer that OpenSSL has not read yet.
        outgoing: encrypted bytes that OpenSSL has written.
        rest: encrypted bytes that the peer sent after its handshake, and that were not written to `incoming` yet.
        records: the position in the peer's records where `rest` begins; None at the beginning of a record.
    """

    tls: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    rest: bytes = b""
    records: RecordWalker | None = None


class TlsEndpoint(EndpointSocket):
    """One socket with TLS, as a non-blocking descriptor.

    `read` returns plain bytes, and `send` takes plain bytes. The backlog consists of encrypted bytes.
    """

    __slots__ = ("_chunk", "_ended", "_incoming", "_outgoing", "_position", "_records", "_tls")

    def __init__(self, fd: int, state: TlsState) -> None:
        super().__init__(fd)
        self.is_plain = False
        self._tls = state.tls
        self._incoming = state.incoming
        self._outgoing = state.outgoing
        self._records = state.records or RecordWalker()
        self._chunk = state.rest
        self._position = 0
        self._ended = False
        self.is_read_ahead = bool(state.rest)

    @property
    def read_ahead_bytes(self) -> int:
        """See EndpointSocket. The bytes are those of `_chunk` from `_position` on."""
        return len(self._chunk) - self._position

    def read(self) -> bytes:
        """See EndpointSocket. Raises ssl.SSLError, which is an OSError, if the peer breaks TLS.

        After a read, OpenSSL may have bytes of its own to send, such as an alert. These bytes are sent with the next
        records or at `close`.
        """
        self.control_records = 0
        had_ended = self._ended
        if had_ended:
            self._chunk, self._position, self.is_read_ahead = b"", 0, False
            return b""
        if self.is_read_ahead:
            self.may_have_more = True  # Epoll does not report the bytes that the socket may still have.
        else:
            self._chunk, self._position = super().read(), 0
        count = self._decrypt_next()
        if count:
            return bytes(_view[:count])
        if self._ended:
            self.is_read_ahead = False
            return b""
        raise BlockingIOError

    def _decrypt_next(self) -> int:
        """Decrypts the next records of the chunk, or ends the stream after an empty chunk. See `_decrypt`."""
        chunk, start = self._chunk, self._position
        if chunk:
            end = self._records.walk(chunk, start, MAX_RECORDS)
            if end - start == len(chunk):
                self._incoming.write(chunk)
            else:
                self._incoming.write(memoryview(chunk)[start:end])
            self._position = end
            if end == len(chunk):
                self._chunk, self._position = b"", 0
        else:
            self._incoming.write_eof()
            self._records.ended = 0
        count = self._decrypt()
        if self._outgoing.pending > MAX_REPLY_BYTES:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the peer demands too many replies of TLS itself")
        return count

    def _decrypt(self) -> int:
        """Decrypts the records in `_incoming`. Returns how many bytes were written to the shared buffer."""
        count: int = 0
        read_records = 0
        read: Any = self._tls.read  # `read` returns a number if it gets a buffer, but is declared to return bytes.
        try:
            while got := read(len(_plain) - count, _view[count:]):
                count += got
                read_records += 1
                if not (self._incoming.pending or self._incoming.eof or self._tls.pending()):
                    break  # Another read would raise SSLWantReadError, which takes longer than this check.
            else:
                self._ended = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):  # Some peers close without ending TLS first.
            self._ended = True
        self.is_read_ahead = bool(self._chunk) or self._ended
        self.control_records = max(0, self._records.ended - read_records)
        return count

    def read_rest(self) -> bytes:
        """See EndpointSocket. A client's first request may arrive together with the end of its handshake."""
        count = self._decrypt_next() if self._chunk else self._decrypt()
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
        """See EndpointSocket. Sends the end of TLS first."""
        self._end_tls()
        super().shut()

    def close(self) -> None:
        """See EndpointSocket. Sends the end of TLS first, if the peer has accepted all earlier bytes."""
        if not self.backlog:
            self._end_tls()
        super().close()

    def _end_tls(self) -> None:
        try:
            self._tls.unwrap()
        except OSError:  # The peer has not ended TLS yet, or TLS is broken.
            pass
        try:
            os.write(self.fd, self._outgoing.read())
        except OSError:  # The peer accepts no bytes, and misses only the notice of the end.
            pass
