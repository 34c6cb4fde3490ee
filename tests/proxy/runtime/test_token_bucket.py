"""A token bucket, with a clock that the test sets."""

from group_sidecar.proxy.runtime.token_bucket import TokenBucket


def taken(bucket: TokenBucket, now: float) -> int:
    """Takes all available tokens. Returns how many there were."""
    count = bucket.available(now)
    for _ in range(count):
        bucket.take()
    return count


def test_tokens_come_back_at_the_rate() -> None:
    """A full bucket allows a burst, and then as many tokens as the rate brings back."""
    bucket = TokenBucket(rate=10, burst=5, now=100.0)
    assert [taken(bucket, now) for now in (100.0, 100.0, 100.1, 100.25, 100.3, 200.0)] == [5, 0, 1, 1, 1, 5]


def test_seconds_to_next_token() -> None:
    """After the returned time there is a token again, whatever the rounding."""
    now = 0.1
    bucket = TokenBucket(rate=3, burst=1, now=now)
    for _ in range(1000):
        assert taken(bucket, now) == 1
        assert bucket.available(now) == 0
        now += bucket.seconds_to_next()


def test_token_given_back_fills_bucket() -> None:
    """A bucket is full at first, and again when the only token that was taken is given back."""
    bucket = TokenBucket(rate=1, burst=2, now=0.0)
    seen = [bucket.is_full]
    bucket.take()
    seen.append(bucket.is_full)
    bucket.give_back()
    bucket.give_back()
    assert [*seen, bucket.is_full] == [True, False, True]
    assert bucket.available(0.0) == 2
