"""Plain counters of the client connections of one listener.

The counters need no locks, because one thread increments and reads them.
"""

from enum import StrEnum


class CloseReason(StrEnum):
    """Why a client connection ended. The enum has all values of the label `reason`."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    BAD_FRAME_LENGTH = "bad_frame_length"
    TRUNCATED_FRAME = "truncated_frame"
    CORRELATION_MISMATCH = "correlation_mismatch"
    MALFORMED_REQUEST = "malformed_request"
    """A request that only the sidecar could answer, and that the sidecar cannot read."""
    REQUEST_TOO_LONG = "request_too_long"
    """A request that only the sidecar could answer or that a policy judges, and that is too long for the sidecar."""
    UNSUPPORTED_VERSION = "unsupported_version"
    """A request in a version unknown to the sidecar, if a policy judges it or its reply may contain addresses."""
    UNREADABLE = "unreadable"
    """A reply that must not be forwarded unchanged, and that the sidecar cannot read or rewrite."""
    UNAUTHENTICATED_FRAME = "unauthenticated_frame"
    """A request that is longer than Kafka accepts before SASL authentication is complete."""
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    CONNECTION_LIMIT = "connection_limit"
    ADDRESS_LIMIT = "address_limit"
    """The client's address has too many connections."""
    PRINCIPAL_LIMIT = "principal_limit"
    """The client's principal has too many connections: its SASL user, or the subject of its certificate."""
    AUTHENTICATION_TIMEOUT = "authentication_timeout"
    """The broker requires SASL and has not admitted the client in time."""
    TLS_HANDSHAKE = "tls_handshake"
    """The client's TLS handshake failed."""
    TLS_FAILED = "tls_failed"
    """The client sent something that is not TLS after the handshake, or that was changed on the way."""
    UPSTREAM_TLS = "upstream_tls"
    """The TLS handshake with the broker failed."""
    PROXY_HEADER = "proxy_header"
    """The client's connection did not begin with a PROXY header, although the listener requires one."""
    TLS_TO_GATEWAY = "tls_to_gateway"
    """The client began TLS at a gateway's listener without `tls`. The gateway could not rewrite addresses in bytes that
    it cannot decrypt."""
    IDLE = "idle"
    STALLED = "stalled"
    """The client sent a part of a request and did not send the rest in time."""
    NO_REPLY = "no_reply"
    """The broker sent no reply, or the client did not read its reply."""
    ERROR = "error"
    SHUTDOWN = "shutdown"


class ReadPause(StrEnum):
    """The limit at which the sidecar stops reading from a client. Each value of the label `limit` is a setting."""

    IN_FLIGHT_REQUESTS = "in_flight_requests"
    KEPT_BYTES = "kept_bytes"
    BUFFERED_BYTES = "buffered_bytes"


class TlsSide(StrEnum):
    """The side of a TLS handshake. The enum has all values of the label `side`."""

    CLIENT = "client"
    UPSTREAM = "upstream"


class TlsFailure(StrEnum):
    """Why a TLS handshake failed. The enum has all values of the label `reason`."""

    CERTIFICATE = "certificate"
    """One side does not accept the other side's certificate."""
    PLAINTEXT = "plaintext"
    """The peer does not speak TLS."""
    PROTOCOL = "protocol"
    """The two sides have no version or cipher in common, or the peer breaks the protocol."""
    SERVER_NAME = "server_name"
    """The client asks for no name, or for a name that leads to no broker of a gateway."""
    CLOSED = "closed"
    """The peer closed the connection."""
    TIMEOUT = "timeout"
    """The handshake took too long."""


class ListenerCounters:
    """Counters of one listener's client connections since the start of the process. The data path adds to them.

    Attributes:
        name: the listener's name, which is the label of its metrics.
        received_bytes: bytes received from clients.
        sent_bytes: bytes sent to clients.
        upstream_connect_failures: failed attempts to reach the broker.
        tls_passed: client connections that started with TLS at a listener without TLS.
        connections_opened: client connections accepted so far.
        connections_closed: client connections that have ended, by reason.
        open_connections: client connections open now.
        accept_throttled_seconds: seconds for which ports accepted no client, because they had reached their rate limit.
        read_pauses: how often reading from a client was paused, by the limit that was reached.
        tls_handshakes: completed TLS handshakes by side.
        tls_failures: failed TLS handshakes by side and reason.
    """

    __slots__ = (
        "accept_throttled_seconds",
        "connections_closed",
        "connections_opened",
        "name",
        "open_connections",
        "read_pauses",
        "received_bytes",
        "sent_bytes",
        "tls_failures",
        "tls_handshakes",
        "tls_passed",
        "upstream_connect_failures",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.received_bytes = 0
        self.sent_bytes = 0
        self.upstream_connect_failures = 0
        self.tls_passed = 0
        self.open_connections = 0
        self.accept_throttled_seconds = 0.0
        self.connections_opened = 0
        self.connections_closed = dict.fromkeys(CloseReason, 0)
        self.read_pauses = dict.fromkeys(ReadPause, 0)
        self.tls_handshakes = dict.fromkeys(TlsSide, 0)
        self.tls_failures = {(side, reason): 0 for side in TlsSide for reason in TlsFailure}

    def connection_opened(self) -> None:
        """Counts an accepted client connection."""
        self.connections_opened += 1
        self.open_connections += 1

    def handshake_done(self, side: TlsSide) -> None:
        """Counts a completed TLS handshake."""
        self.tls_handshakes[side] += 1

    def handshake_failed(self, side: TlsSide, failure: TlsFailure) -> None:
        """Counts a failed TLS handshake."""
        self.tls_failures[side, failure] += 1

    def connection_closed(self, reason: CloseReason) -> None:
        """Counts the end of an accepted client connection."""
        self.connections_closed[reason] += 1
        self.open_connections -= 1
