"""Plain counters that the data path bumps.

Owns: the numbers. Must not know: Prometheus, sockets, groups. No locks: one thread bumps and the same
thread reads. API names are looked up when the numbers are read, not when they are bumped.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import TypeVar

from group_sidecar.codecs.registry import api_name
from group_sidecar.coordinator.views import Lacking

K = TypeVar("K")

UNKNOWN = "unknown"
"""What `api_name` calls an API that Kafka has not."""
UNKNOWN_API = -1
"""Under this key all unknown APIs are counted, so that a client that makes up keys adds one row at most."""

REQUEST_SECONDS = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0)
"""Bucket bounds. A local answer takes well under a millisecond; a parked JoinGroup takes minutes."""


class CloseReason(StrEnum):
    """Why a client connection ended; the closed set of the label."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    BAD_FRAME_LENGTH = "bad_frame_length"
    TRUNCATED_FRAME = "truncated_frame"
    CORRELATION_MISMATCH = "correlation_mismatch"
    MALFORMED_REQUEST = "malformed_request"
    """One that only the sidecar could answer, and that it cannot read."""
    REQUEST_TOO_LONG = "request_too_long"
    """One that only the sidecar could answer or that a policy judges, and that is longer than what it looks into."""
    UNSUPPORTED_VERSION = "unsupported_version"
    """A request in a version unknown to the sidecar, where a policy judges it or its reply may carry addresses."""
    UNREADABLE = "unreadable"
    """A reply that must not leave as the broker sent it, and that the sidecar cannot read or rewrite."""
    UNAUTHENTICATED_FRAME = "unauthenticated_frame"
    """A request that is longer than Kafka reads before SASL is through."""
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    CONNECTION_LIMIT = "connection_limit"
    TLS_TO_GATEWAY = "tls_to_gateway"
    """TLS, which a gateway cannot read and so cannot rewrite addresses in."""
    IDLE = "idle"
    STALLED = "stalled"
    """The client sent a part of a request, and then nothing."""
    NO_REPLY = "no_reply"
    """The broker sent no reply, or the client did not take what it was sent."""
    ERROR = "error"
    SHUTDOWN = "shutdown"


class Verification(StrEnum):
    """What came of verifying an answer; the closed set of the label."""

    AGREED = "agreed"
    DIFFERENT = "different"
    """The broker said something else of a group that had not changed meanwhile."""
    INCONCLUSIVE = "inconclusive"
    """It said something else of a group that changed meanwhile, or was behind only."""
    SKIPPED = "skipped"
    """It does not tell the sidecar, or does not know the request's version."""
    LOST = "lost"
    """It was not asked, or did not answer."""


class Histogram:
    """Counts of values in fixed buckets. `bounds`: upper bounds, ascending, without infinity."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Counts `value` in the first bucket whose bound is not below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def add(self, other: "Histogram") -> None:
        """Adds what another one of the same bounds has counted."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def cumulative(self) -> list[tuple[str, float]]:
        """(bound, values at or below it) as Prometheus wants them, ``+Inf`` last."""
        bounds = [*(str(bound) for bound in self.bounds), "+Inf"]
        return list(zip(bounds, accumulate(self.counts), strict=True))


class Traffic:
    """Everything that passed through, in numbers; all since the start of the process.

    Attributes:
        received_bytes: bytes received from clients; the data path adds to it directly.
        sent_bytes: bytes sent to clients; likewise.
        upstream_connect_failures: failed attempts to reach the broker; likewise.
        tls_connections: client connections that began with TLS; likewise.
        distrusted_groups: groups of which the broker was found to say something else; what finds them adds to it and
            takes off.
        remembered_bytes: bytes of questions and encoded answers kept now; what keeps them adds to it and takes off.
        remembered_rights: grants of authorizers remembered now; likewise.
        durations: API key -> histogram of seconds of requests that had a reply.
        unanswered: API key -> requests done that have no reply.
    """

    __slots__ = (
        "answers",
        "broker_rejections",
        "connections_closed",
        "connections_opened",
        "decode_failures",
        "distrusted_groups",
        "durations",
        "fallbacks",
        "policy_audits",
        "policy_confirmations",
        "policy_evaluations",
        "policy_rejections",
        "recalls",
        "received_bytes",
        "relays",
        "remembered_bytes",
        "remembered_rights",
        "sent_bytes",
        "tls_connections",
        "unanswered",
        "upstream_connect_failures",
        "verifications",
    )

    def __init__(self) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0
        self.upstream_connect_failures = 0
        self.tls_connections = 0
        self.distrusted_groups = 0
        self.remembered_bytes = 0
        self.remembered_rights = 0
        self.connections_opened = 0
        self.connections_closed = dict.fromkeys(CloseReason, 0)
        self.durations: dict[int, Histogram] = {}
        self.unanswered: dict[int, int] = {}
        self.decode_failures: dict[int, int] = {}
        self.answers: dict[int, int] = {}
        self.relays: dict[int, int] = {}
        self.recalls: dict[int, int] = {}
        self.fallbacks: dict[tuple[int, Lacking], int] = {}
        self.verifications: dict[tuple[int, Verification], int] = {}
        self.policy_evaluations: dict[str, int] = {}
        self.policy_rejections: dict[tuple[str, int], int] = {}
        self.policy_audits: dict[tuple[str, int], int] = {}
        self.policy_confirmations: dict[str, int] = {}
        self.broker_rejections: dict[tuple[str, int], int] = {}

    @property
    def client_connections(self) -> int:
        """Client connections open now."""
        return self.connections_opened - sum(self.connections_closed.values())

    def connection_opened(self) -> None:
        """A client was accepted."""
        self.connections_opened += 1

    def connection_closed(self, reason: CloseReason) -> None:
        """A client connection that was opened is over."""
        self.connections_closed[reason] += 1

    def request_done(self, api_key: int, seconds: float) -> None:
        """A client's request got its reply, from whomever, `seconds` after it came."""
        durations = self.durations.get(api_key)
        if durations is None:
            durations = self.durations.setdefault(_countable(api_key), Histogram(REQUEST_SECONDS))
        durations.observe(seconds)

    def request_unanswered(self, api_key: int) -> None:
        """A client's request went to the broker that has no reply (Produce with acks=0)."""
        _bump(self.unanswered, _countable(api_key))

    def decode_failed(self, api_key: int) -> None:
        """A request or reply did not decode and was forwarded as it came."""
        _bump(self.decode_failures, _countable(api_key))

    def answered(self, api_key: int) -> None:
        """A request was answered from the copy of the coordinator."""
        _bump(self.answers, _countable(api_key))

    def relayed(self, api_key: int) -> None:
        """The broker was asked in a version that it has, to answer a request in one that it lacks."""
        _bump(self.relays, _countable(api_key))

    def remembered(self, api_key: int) -> None:
        """A request that was answered was given an answer as it had been encoded before."""
        _bump(self.recalls, _countable(api_key))

    def verified(self, api_key: int, outcome: Verification) -> None:
        """An answer from the copy was chosen to be compared with the broker's, and this came of it."""
        _bump(self.verifications, (_countable(api_key), outcome))

    def fell_back(self, api_key: int, reason: Lacking) -> None:
        """A request that could have been answered was left to the broker."""
        _bump(self.fallbacks, (_countable(api_key), reason))

    def expect_policy(self, policy: str, error_codes: Iterable[int]) -> None:
        """Makes a policy's counters stand at 0 before it has judged anything."""
        self.policy_evaluations.setdefault(policy, 0)
        self.policy_confirmations.setdefault(policy, 0)
        for error_code in error_codes:
            self.policy_rejections.setdefault((policy, error_code), 0)
            self.policy_audits.setdefault((policy, error_code), 0)

    def policy_evaluated(self, policy: str) -> None:
        """A policy judged a request."""
        _bump(self.policy_evaluations, policy)

    def policy_rejected(self, policy: str, error_code: int) -> None:
        """A policy refused a request with a Kafka error code."""
        _bump(self.policy_rejections, (policy, error_code))

    def policy_audited(self, policy: str, error_code: int) -> None:
        """A policy that only reports would have refused a request with a Kafka error code."""
        _bump(self.policy_audits, (policy, error_code))

    def policy_confirmed(self, policy: str) -> None:
        """A policy had the broker asked about the group of a request, and judges it again."""
        _bump(self.policy_confirmations, policy)

    def expect_broker_rejections(self, policy: str, error_code: int) -> None:
        """Makes the counter of a broker's refusals stand at 0 before there was one."""
        self.broker_rejections.setdefault((policy, error_code), 0)

    def broker_rejected(self, policy: str, error_code: int) -> None:
        """The broker refused a request, or a part of it, by the rule that a policy has from it."""
        _bump(self.broker_rejections, (policy, error_code))


def _bump(counts: dict[K, int], key: K) -> None:
    counts[key] = counts.get(key, 0) + 1


def _countable(api_key: int) -> int:
    return UNKNOWN_API if api_name(api_key) == UNKNOWN else api_key
