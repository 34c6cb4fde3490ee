"""A token bucket, which limits how often something happens and allows short bursts."""

_ROUNDING = 1e-9
"""A token counts as whole if less than this share of it is missing, because sums of times are not exact."""


class TokenBucket:
    """Tokens that are taken, and come back at a constant rate. The bucket is full at first.

    All times are seconds on one clock, which never goes back.

    Args:
        rate: how many tokens come back in a second.
        burst: the maximum number of tokens in the bucket.
        now: the present time.
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def available(self, now: float) -> int:
        """Returns how many tokens may be taken."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return int(self._tokens + _ROUNDING)

    def take(self) -> None:
        """Takes one token. After a call of `available`, at most as many tokens may be taken as it returned."""
        self._tokens -= 1

    def give_back(self) -> None:
        """Returns one token that was taken."""
        self._tokens = min(self._burst, self._tokens + 1)

    def seconds_to_next(self) -> float:
        """Returns how many seconds after the last call of `available` the next token can be taken."""
        return max(0.0, (1 - self._tokens) / self._rate)

    @property
    def is_full(self) -> bool:
        """Whether no token was missing at the last call of `available`."""
        return self._tokens + _ROUNDING >= self._burst
