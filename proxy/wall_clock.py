"""The system's clock, as far as it differs from the one that the copies of coordinators run on.

Owns: `WallClock`. The copies count in seconds since the epoch on a clock that does not jump: trio's, plus what the
system's clock said at the start. Sessions, freshness and the order of events depend on that. People and records get the
system's time. It may have been wrong at the start, be set later, or go on while the machine is suspended.
"""

import time
from dataclasses import replace
from typing import TypeVar

import trio

from group_sidecar.coordinator.facts import Fact, OffsetsExpired

AnyFact = TypeVar("AnyFact", bound=Fact | OffsetsExpired)

NOISE_SECONDS = 0.05
"""A smaller change of the difference is not followed: the two clocks are read one after the other."""


class WallClock:
    """Attributes:
    epoch_of_zero: what trio's clock reads as zero, in seconds since the epoch, as first measured. It stays.
    drift: seconds by which the system's clock is ahead of the copies', as last measured.
    """

    def __init__(self) -> None:
        self.epoch_of_zero = time.time() - trio.current_time()
        self.drift = 0.0

    def measure(self) -> None:
        """Compares the clocks again; to be called every few seconds."""
        drift = time.time() - self.steady()
        if abs(drift - self.drift) > NOISE_SECONDS:
            self.drift = drift if abs(drift) > NOISE_SECONDS else 0.0

    def steady(self) -> float:
        """Seconds since the epoch on the clock of the copies."""
        return trio.current_time() + self.epoch_of_zero

    def now(self) -> float:
        """Seconds since the epoch as the system has them."""
        return self.steady() + self.drift

    def stamped(self, fact: AnyFact) -> AnyFact:
        """The fact at the system's time."""
        return replace(fact, at=fact.at + self.drift) if self.drift else fact
