"""Scales: where amounts and moments stand in a chart, and which of them are written beside it.

Owns: the time that a report is about, its division into steps, round numbers. Must not know: what is drawn.

Moments are seconds since the epoch, in UTC. A step is a whole number of the tables' windows, so that no window lies in
two of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

WIDTH, LEFT, RIGHT = 1120.0, 230.0, 12.0
"""A chart's width, and what is kept free on both sides: names stand on the left."""
MOST_TICKS = 8
HOUR, DAY = 3600, 86400

_STEPS = (60, 300, 600, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY)
"""Round lengths of time, each of which divides a day or is made of days."""


class Tick(NamedTuple):
    """A place on an axis, and what is written there."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Linear:
    """Amounts from 0 to `highest`, on a line from `first` to `last`."""

    highest: float
    first: float
    last: float

    def __call__(self, amount: float) -> float:
        """Where an amount stands, to a tenth; one that is out of bounds, at the end."""
        part = min(max(amount / self.highest, 0.0), 1.0) if self.highest > 0 else 0.0
        return round(self.first + part * (self.last - self.first), 1)


def round_values(highest: float, most: int = 5) -> Sequence[float]:
    """Round values from 0 on, of which the last is not below `highest`: 1, 2 or 5 times a power of ten apart.

    Args:
        highest: what has to fit; the values end at 1 if it is 0 or less.
        most: how many steps there may be.
    """
    if highest <= 0:
        return (0.0, 1.0)
    power = 10.0 ** math.floor(math.log10(highest / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor * most >= highest)
    return [float(f"{index * step:.12g}") for index in range(math.ceil(highest / step - 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Span:
    """A time in equal steps.

    Attributes:
        since: where it begins: a multiple of `step`.
        until: where it ends: another, and later.
        step: seconds.
    """

    since: int
    until: int
    step: int

    @property
    def steps(self) -> Sequence[int]:
        """The beginnings of all steps."""
        return range(self.since, self.until, self.step)

    def x(self, at: float, left: float = LEFT, right: float = WIDTH - RIGHT) -> float:
        """Where a moment stands between two places of a chart."""
        return Linear(self.until - self.since, left, right)(at - self.since)

    def ticks(self, most: int = MOST_TICKS) -> Sequence[Tick]:
        """Round moments of this time, at most so many."""
        whole = self.until - self.since
        step = next((step for step in _STEPS if whole / step <= most), DAY * math.ceil(whole / DAY / most))
        spelled = "%d %b" if step >= DAY else "%H:%M" if whole <= DAY else "%d %b %H:%M"
        first = math.ceil(self.since / step) * step
        return [Tick(at, f"{datetime.fromtimestamp(at, UTC):{spelled}}") for at in range(first, self.until + 1, step)]


def divided(since: float, until: float, window: int, most: int, least: int = 0) -> Span:
    """A time in at most `most` steps, or one more where it is widened to whole ones.

    Args:
        since: where it begins.
        until: where it ends.
        window: seconds of the tables' windows.
        most: how many steps are wanted.
        least: seconds that a step has at least.
    """
    whole = max(until - since, 1)
    fitting = (step for step in (window, *_STEPS) if step % window == 0 and step >= max(window, least))
    step = next((step for step in fitting if whole / step <= most), DAY * math.ceil(whole / DAY / most))
    first = math.floor(since / step) * step
    return Span(first, max(math.ceil(until / step) * step, first + step), step)


def window_of(offsets: Sequence[int]) -> int:
    """The longest window, in seconds, that could have begun at all of these seconds of an hour.

    It is never shorter than the one that was used: that divides an hour, and so divides this.
    """
    return math.gcd(HOUR, *offsets)
