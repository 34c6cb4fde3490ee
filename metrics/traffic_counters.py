"""Plain counters of the data path.

The counters need no locks, because one thread increments and reads them. API names are looked up when the counters are
read, not when they are incremented.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import TypeVar

from group_sidecar.codecs.api_registry import api_name
from group_sidecar.coordinator.model.views import FallbackReason
from group_sidecar.metrics.listener_counters import ListenerCounters

K = TypeVar("K")

UNKNOWN = "unknown"
"""The name that `api_name` returns for an API that Kafka does not have."""
UNKNOWN_API = -1
"""The key under which all unknown APIs are counted. A client with invented keys can therefore add only one row."""

REQUEST_SECONDS = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0)
"""Bucket bounds in seconds. A local answer takes well under a millisecond. A parked JoinGroup takes minutes."""


class Verification(StrEnum):
    """The result of verifying an answer. The enum has all values of the label `result`."""

    AGREED = "agreed"
    DIFFERENT = "different"
    """The broker's answer differs, and the group had not changed meanwhile."""
    INCONCLUSIVE = "inconclusive"
    """The answers differed at first, but agreed later, or the sidecar meanwhile left such questions to the broker."""
    SKIPPED = "skipped"
    """The broker does not authorize the sidecar, or does not support the request's version."""
    LOST = "lost"
    """The broker was not asked, or did not answer."""


class Histogram:
    """Counts of values in fixed buckets. `bounds`: upper bounds, ascending, without infinity."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Counts `value` in the first bucket whose bound is at least `value`."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def add(self, other: "Histogram") -> None:
        """Adds the counts of another histogram with the same bounds."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def cumulative(self) -> list[tuple[str, float]]:
        """Returns (bound, number of values up to the bound) in Prometheus' form, ``+Inf`` last."""
        bounds = [*(str(bound) for bound in self.bounds), "+Inf"]
        return list(zip(bounds, accumulate(self.counts), strict=True))


class TrafficCounters:
    """Counters of all traffic since the start of the process.

    Other modules increase and decrease `distrusted_groups`, `reply_cache_bytes` and `cached_authorizations`.

    Attributes:
        listeners: the counters of the listeners' connections.
        distrusted_groups: groups for which verification found a difference.
        reply_cache_bytes: current size of cached questions and encoded answers.
        cached_authorizations: current number of cached grants of authorizers.
        durations: API key -> histogram of seconds of requests that had a reply.
        unanswered: API key -> completed requests without a reply.

    The other attributes count by API key, by policy, or by one of these and a reason, result or error code.
    """

    __slots__ = (
        "answers",
        "broker_rejections",
        "cached_answers",
        "cached_authorizations",
        "decode_failures",
        "distrusted_groups",
        "durations",
        "fallbacks",
        "listeners",
        "policy_audits",
        "policy_confirmations",
        "policy_evaluations",
        "policy_rejections",
        "relays",
        "reply_cache_bytes",
        "unanswered",
        "verifications",
    )

    def __init__(self) -> None:
        self.listeners: list[ListenerCounters] = []
        self.distrusted_groups = 0
        self.reply_cache_bytes = 0
        self.cached_authorizations = 0
        self.durations: dict[int, Histogram] = {}
        self.unanswered: dict[int, int] = {}
        self.decode_failures: dict[int, int] = {}
        self.answers: dict[int, int] = {}
        self.relays: dict[int, int] = {}
        self.cached_answers: dict[int, int] = {}
        self.fallbacks: dict[tuple[int, FallbackReason], int] = {}
        self.verifications: dict[tuple[int, Verification], int] = {}
        self.policy_evaluations: dict[str, int] = {}
        self.policy_rejections: dict[tuple[str, int], int] = {}
        self.policy_audits: dict[tuple[str, int], int] = {}
        self.policy_confirmations: dict[str, int] = {}
        self.broker_rejections: dict[tuple[str, int], int] = {}

    def add_listener(self, name: str) -> ListenerCounters:
        """Adds the counters of a listener."""
        counters = ListenerCounters(name)
        self.listeners.append(counters)
        return counters

    @property
    def client_connections(self) -> int:
        """Client connections open now, at all listeners."""
        return sum(listener.open_connections for listener in self.listeners)

    @property
    def connections_opened(self) -> int:
        """Client connections accepted so far, at all listeners."""
        return sum(listener.connections_opened for listener in self.listeners)

    def request_done(self, api_key: int, seconds: float) -> None:
        """Counts a request that was answered, by the broker or the sidecar, `seconds` after it was received."""
        durations = self.durations.get(api_key)
        if durations is None:
            durations = self.durations.setdefault(_counter_key(api_key), Histogram(REQUEST_SECONDS))
        durations.observe(seconds)

    def request_unanswered(self, api_key: int) -> None:
        """Counts a forwarded request that has no reply (Produce with acks=0)."""
        _bump(self.unanswered, _counter_key(api_key))

    def decode_failed(self, api_key: int) -> None:
        """Counts a request or reply that the sidecar did not decode because of its content or its length."""
        _bump(self.decode_failures, _counter_key(api_key))

    def answered(self, api_key: int) -> None:
        """Counts a request that was answered from the copy of the coordinator."""
        _bump(self.answers, _counter_key(api_key))

    def relayed(self, api_key: int) -> None:
        """Counts a request that was relayed in another version, because the broker lacks the version of the request."""
        _bump(self.relays, _counter_key(api_key))

    def answered_from_cache(self, api_key: int) -> None:
        """Counts a request that was answered from the reply cache."""
        _bump(self.cached_answers, _counter_key(api_key))

    def verified(self, api_key: int, outcome: Verification) -> None:
        """Counts an answer that was chosen for verification, by the outcome."""
        _bump(self.verifications, (_counter_key(api_key), outcome))

    def fell_back(self, api_key: int, reason: FallbackReason) -> None:
        """Counts a request that the sidecar could answer but left to the broker."""
        _bump(self.fallbacks, (_counter_key(api_key), reason))

    def expect_policy(self, policy: str, error_codes: Iterable[int]) -> None:
        """Sets a policy's counters to 0 before it has judged a request."""
        self.policy_evaluations.setdefault(policy, 0)
        self.policy_confirmations.setdefault(policy, 0)
        for error_code in error_codes:
            self.policy_rejections.setdefault((policy, error_code), 0)
            self.policy_audits.setdefault((policy, error_code), 0)

    def policy_evaluated(self, policy: str) -> None:
        """Counts a request that a policy judged."""
        _bump(self.policy_evaluations, policy)

    def policy_rejected(self, policy: str, error_code: int) -> None:
        """Counts a request that a policy refused with a Kafka error code."""
        _bump(self.policy_rejections, (policy, error_code))

    def policy_audited(self, policy: str, error_code: int) -> None:
        """Counts a request that a policy in audit mode would have refused with a Kafka error code."""
        _bump(self.policy_audits, (policy, error_code))

    def policy_confirmed(self, policy: str) -> None:
        """Counts a request whose group the broker had to describe before the policy could judge."""
        _bump(self.policy_confirmations, policy)

    def expect_broker_rejections(self, policy: str, error_code: int) -> None:
        """Sets the counter of a broker's refusals to 0 before the first refusal."""
        self.broker_rejections.setdefault((policy, error_code), 0)

    def broker_rejected(self, policy: str, error_code: int) -> None:
        """Counts a request that the broker refused, wholly or in part, by the same rule as a policy."""
        _bump(self.broker_rejections, (policy, error_code))


def _bump(counts: dict[K, int], key: K) -> None:
    counts[key] = counts.get(key, 0) + 1


def _counter_key(api_key: int) -> int:
    return UNKNOWN_API if api_name(api_key) == UNKNOWN else api_key
