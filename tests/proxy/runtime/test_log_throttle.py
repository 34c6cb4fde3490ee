"""Tests how often a repeated line is logged."""

from group_sidecar.proxy.runtime.log_throttle import MAX_CAUSES, LogThrottle


class Clock:
    """A clock that a test sets, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_throttled_cause_is_due_with_count() -> None:
    """A cause is due once in each interval, with the number of times it occurred."""
    clock = Clock()
    log_throttle = LogThrottle(30, clock)
    assert [log_throttle.due("a") for _ in range(5)] == [1, 0, 0, 0, 0]
    assert log_throttle.due("b") == 1
    clock.now = 29.9
    assert log_throttle.due("a") == 0
    clock.now = 30
    assert log_throttle.due("a") == 6
    assert log_throttle.due("a") == 0


def test_ended_cause_is_due_at_once() -> None:
    """A cause that ended is due again at once, and its end is reported once."""
    log_throttle = LogThrottle(30, Clock())
    assert not log_throttle.ended("a")
    log_throttle.due("a")
    assert log_throttle.ended("a")
    assert not log_throttle.ended("a")
    assert log_throttle.due("a") == 1


def test_throttle_bounds_remembered_causes() -> None:
    """The throttle forgets the oldest cause when it knows too many."""
    log_throttle = LogThrottle(30, Clock())
    for number in range(MAX_CAUSES + 1):
        assert log_throttle.due(str(number)) == 1
    assert log_throttle.due(str(MAX_CAUSES)) == 0
    assert log_throttle.due("0") == 1
