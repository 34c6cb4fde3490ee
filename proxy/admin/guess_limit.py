"""Limits how many wrong tokens a client address may send to the admin port.

Each address has a bucket of guesses. A request with a token takes a guess before the token is compared, so requests at
the same time do not get more guesses. A right token gives its guess back. An address without guesses is refused, even
if its next token would be the right one. Other addresses are not affected.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address

import trio

from group_sidecar.metrics.admin_counters import AdminCounters, TokenRefusal
from group_sidecar.proxy.runtime.addresses import format_host, network_of
from group_sidecar.proxy.runtime.log_throttle import LogThrottle
from group_sidecar.proxy.runtime.logging import log
from group_sidecar.proxy.runtime.token_bucket import TokenBucket

FREE_GUESSES = 10
"""How many wrong tokens an address may send at once. A person mistypes a token a few times."""
MAX_ADDRESSES = 4_096
"""The maximum number of addresses whose wrong tokens are remembered, in about 1 MB. The address whose last token is the
oldest is evicted first. An address whose guesses have all come back is forgotten."""


class GuessLimit:
    """The guesses of all client addresses. All addresses of an IPv6 network of 64 bits count as one.

    Args:
        per_minute: how many guesses come back in a minute.
        counters: counts wrong and throttled tokens.
        clock: returns the present time in seconds.
    """

    def __init__(
        self, per_minute: int, counters: AdminCounters, clock: Callable[[], float] = trio.current_time
    ) -> None:
        self._rate = per_minute / 60
        self._counters = counters
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._log_throttle = LogThrottle()

    def __len__(self) -> int:
        """Returns how many addresses are remembered."""
        return len(self._buckets)

    def take_guess(self, host: str) -> int:
        """Takes one guess from a client address. Returns 0, or the seconds to wait if the address has no guess left."""
        network, now = _network_of(host), self._clock()
        self._forget_oldest(now)
        bucket = self._buckets.setdefault(network, TokenBucket(self._rate, FREE_GUESSES, now))
        self._buckets.move_to_end(network)
        if not bucket.available(now):
            self._counters.token_refusals[TokenRefusal.THROTTLED] += 1
            return max(1, math.ceil(bucket.seconds_to_next()))
        bucket.take()
        return 0

    def was_right(self, host: str) -> None:
        """Gives the guess of a right token back."""
        if bucket := self._buckets.get(_network_of(host)):
            bucket.give_back()

    def was_wrong(self, host: str) -> None:
        """Counts and logs a wrong token."""
        self._counters.token_refusals[TokenRefusal.WRONG] += 1
        if times := self._log_throttle.due(host):
            log.warning("the admin port got a wrong token", client=host, times=times)

    def _forget_oldest(self, now: float) -> None:
        """Forgets addresses whose guesses have all come back, a few at each call, and keeps the table bounded."""
        for _ in range(2):
            if not self._buckets:
                return
            network, bucket = next(iter(self._buckets.items()))
            bucket.available(now)
            if not bucket.is_full and len(self._buckets) < MAX_ADDRESSES:
                return
            del self._buckets[network]


def _network_of(host: str) -> str:
    """Returns the part of a client's address that the client cannot choose freely."""
    try:
        return network_of(format_host(ip_address(host.partition("%")[0]).packed))
    except ValueError:
        return host
