"""How TLS begins, on a port where plain Kafka is expected.

Owns: telling the first bytes of TLS records from a Kafka frame's length, and `TlsStart`, which waits for the broker's
first bytes. Must not know: connections, what is done with TLS.

A Kafka frame begins with its length. The first bytes of a TLS handshake would be a length of 369 MB and more.
"""

MOST_HELLO = 65_536
"""Bytes of a client that go to the broker before the broker has spoken TLS. A ClientHello is one record or a few, of
16 KiB each at most (RFC 8446, 5.1)."""
_HANDSHAKE, _ALERT, _MAJOR_VERSION = 0x16, 0x15, 0x03


class TlsStart:
    """The start of TLS on one connection.

    Attributes:
        hello_bytes: bytes of a TLS client that went to the broker before the broker has spoken; 0 where no TLS client
            waits for that.
    """

    def __init__(self) -> None:
        self.hello_bytes = 0

    def sent(self, size: int) -> None:
        """So many more bytes of the client went to the broker."""
        self.hello_bytes += size

    def is_spoken(self, chunk: bytes) -> bool:
        """Returns whether the broker's first bytes are TLS. The wait for them is over."""
        self.hello_bytes = 0
        return is_tls_reply(chunk)


def is_client_hello(start: bytes) -> bool:
    """Whether a stream that begins so is a TLS client's: a handshake record of any version since SSL 3."""
    return start[:2] == bytes((_HANDSHAKE, _MAJOR_VERSION))


def is_tls_reply(start: bytes) -> bool:
    """Whether a stream that begins so is a TLS server's: its handshake, or an alert."""
    return start[0] in (_HANDSHAKE, _ALERT) and start[1:2] in (b"", bytes((_MAJOR_VERSION,)))
