"""Recognizes TLS on a port where plain Kafka is expected.

A Kafka frame begins with its length. A TLS handshake begins with bytes that would be a length of 369 MB or more.
`TlsDetection` waits for the broker's first bytes, which confirm that the broker speaks TLS.
"""

MAX_HELLO_BYTES = 65_536
"""The maximum number of bytes of a TLS client that are sent to the broker before the broker has sent TLS. A ClientHello
takes at most a few records of at most 16 KiB (RFC 8446, 5.1)."""
_HANDSHAKE, _ALERT, _MAJOR_VERSION = 0x16, 0x15, 0x03


class TlsDetection:
    """The start of TLS on one connection.

    Attributes:
        hello_bytes: how many bytes of a TLS client were sent to the broker before the broker has sent anything. 0 if no
            TLS client waits for the broker.
    """

    def __init__(self) -> None:
        self.hello_bytes = 0

    def sent(self, size: int) -> None:
        """Counts bytes of the client that were sent to the broker."""
        self.hello_bytes += size

    def is_confirmed_by(self, chunk: bytes) -> bool:
        """Returns whether the broker's first bytes are TLS, and ends the wait for these bytes."""
        self.hello_bytes = 0
        return is_tls_reply(chunk)


def is_client_hello(start: bytes) -> bool:
    """Whether a client's stream with this start is TLS: a handshake record of any version since SSL 3."""
    return start[:2] == bytes((_HANDSHAKE, _MAJOR_VERSION))


def is_tls_reply(start: bytes) -> bool:
    """Whether a server's stream with this start is TLS: a handshake record or an alert."""
    return start[0] in (_HANDSHAKE, _ALERT) and start[1:2] in (b"", bytes((_MAJOR_VERSION,)))
