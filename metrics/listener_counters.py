"""Plain counters of the client connections of one listener.

The counters need no locks, because one thread increments and reads them.
"""

from enum import StrEnum


class CloseReason(StrEnum):
    """Why a client connection ended. These are all values of the label."""

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
    TLS_TO_GATEWAY = "tls_to_gateway"
    """A TLS connection to a gateway. A gateway cannot rewrite addresses inside TLS."""
    IDLE = "idle"
    STALLED = "stalled"
    """The client sent a part of a request and did not send the rest in time."""
    NO_REPLY = "no_reply"
    """The broker sent no reply, or the client did not read its reply."""
    ERROR = "error"
    SHUTDOWN = "shutdown"


class ListenerCounters:
    """Counters of one listener's client connections since the start of the process. The data path adds to them.

    Attributes:
        name: the listener's name, which is the label of its metrics.
        received_bytes: bytes received from clients.
        sent_bytes: bytes sent to clients.
        upstream_connect_failures: failed attempts to reach the broker.
        tls_passed: client connections that started with TLS at a listener without TLS.
        open_connections: client connections open now.
    """

    __slots__ = (
        "connections_closed",
        "connections_opened",
        "name",
        "open_connections",
        "received_bytes",
        "sent_bytes",
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
        self.connections_opened = 0
        self.connections_closed = dict.fromkeys(CloseReason, 0)

    def connection_opened(self) -> None:
        """Counts an accepted client connection."""
        self.connections_opened += 1
        self.open_connections += 1

    def connection_closed(self, reason: CloseReason) -> None:
        """Counts the end of an accepted client connection."""
        self.connections_closed[reason] += 1
        self.open_connections -= 1
