"""Converts between the system's clock and the clock of the coordinator copies.

The copies use seconds since the epoch on a clock that does not jump: trio's clock, plus its difference from the
system's clock at the start. Sessions, freshness and the order of events depend on a clock that does not jump. Users and
records get the system's time. The system's clock may be wrong at the start, may be set later, or may go on while the
machine is suspended.
"""

import time
from dataclasses import replace
from typing import TypeVar

import trio

from group_sidecar.coordinator.model.facts import Fact, OffsetsExpired

AnyFact = TypeVar("AnyFact", bound=Fact | OffsetsExpired)

NOISE_SECONDS = 0.05
"""Changes of the drift up to this many seconds are ignored, because the clocks are read one after the other."""


class WallClock:
    """The system's clock and the clock of the copies.

    Attributes:
        clock_offset: the time at which trio's clock reads zero, in seconds since the epoch, as first measured. Never
            changes.
        drift: seconds by which the system's clock is ahead of the copies' clock, as last measured.
    """

    def __init__(self) -> None:
        self.clock_offset = time.time() - trio.current_time()
        self.drift = 0.0

    def measure(self) -> None:
        """Compares the clocks again. Call it every few seconds."""
        drift = time.time() - self.steady()
        if abs(drift - self.drift) > NOISE_SECONDS:
            self.drift = drift if abs(drift) > NOISE_SECONDS else 0.0

    def steady(self) -> float:
        """Returns seconds since the epoch on the clock of the copies."""
        return trio.current_time() + self.clock_offset

    def now(self) -> float:
        """Returns seconds since the epoch on the system's clock."""
        return self.steady() + self.drift

    def with_wall_time(self, fact: AnyFact) -> AnyFact:
        """Returns the fact with its time on the system's clock."""
        return replace(fact, at=fact.at + self.drift) if self.drift else fact
