"""Maps amounts and moments to positions in a chart, and chooses the labels of its axes.

Moments are seconds since the epoch, in UTC. A step is a whole number of the tables' windows, so that no window lies in
two steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

WIDTH, LEFT, RIGHT = 1120.0, 230.0, 12.0
"""Pixels: the width of a chart, and the space on its left, for names, and on its right."""
MAX_TICKS = 8
HOUR, DAY = 3600, 86400

_STEPS = (60, 300, 600, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY)
"""Round durations in seconds. Each divides a day or is a number of days."""


class Tick(NamedTuple):
    """A position on an axis and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear scale that maps amounts from 0 to `highest` to positions from `first` to `last`."""

    highest: float
    first: float
    last: float

    def __call__(self, amount: float) -> float:
        """Returns the position of an amount, to a tenth. An amount out of bounds is at the nearest end."""
        part = min(max(amount / self.highest, 0.0), 1.0) if self.highest > 0 else 0.0
        return round(self.first + part * (self.last - self.first), 1)


def round_values(highest: float, at_most: int = 5) -> Sequence[float]:
    """Returns round values from 0 to at least `highest`. The values are 1, 2 or 5 times a power of ten apart.

    Args:
        highest: the largest amount. If it is 0 or less, the values end at 1.
        at_most: the maximum number of steps.
    """
    if highest <= 0:
        return (0.0, 1.0)
    power = 10.0 ** math.floor(math.log10(highest / at_most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor * at_most >= highest)
    return [float(f"{index * step:.12g}") for index in range(math.ceil(highest / step - 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Span:
    """A period in equal steps.

    Attributes:
        since: the beginning, a multiple of `step`.
        until: the end, a later multiple of `step`.
        step: seconds per step.
    """

    since: int
    until: int
    step: int

    @property
    def steps(self) -> Sequence[int]:
        """Returns the beginnings of all steps."""
        return range(self.since, self.until, self.step)

    def x(self, at: float, left: float = LEFT, right: float = WIDTH - RIGHT) -> float:
        """Returns the horizontal position of a moment between `left` and `right`."""
        return Linear(self.until - self.since, left, right)(at - self.since)

    def ticks(self, left: float = LEFT, right: float = WIDTH - RIGHT, *, at_most: int = MAX_TICKS) -> Sequence[Tick]:
        """Returns ticks at round moments of this period, at most `at_most` plus one, between `left` and `right`."""
        whole = self.until - self.since
        step = next((step for step in _STEPS if whole / step <= at_most), DAY * math.ceil(whole / DAY / at_most))
        pattern = "%d %b" if step >= DAY else "%H:%M" if whole <= DAY else "%d %b %H:%M"
        first = math.ceil(self.since / step) * step
        return [
            Tick(self.x(at, left, right), f"{datetime.fromtimestamp(at, UTC):{pattern}}")
            for at in range(first, self.until + 1, step)
        ]


def divided(since: float, until: float, window: int, at_most: int, least: int = 0) -> Span:
    """Divides a period into at most `at_most` steps, or one more if the period has to be extended to whole steps.

    Args:
        since: the beginning.
        until: the end.
        window: the width of the tables' windows, in seconds.
        at_most: the maximum number of steps.
        least: the minimum seconds per step.
    """
    whole = max(until - since, 1)
    fitting = (step for step in (window, *_STEPS) if step % window == 0 and step >= max(window, least))
    step = next((step for step in fitting if whole / step <= at_most), DAY * math.ceil(whole / DAY / at_most))
    first = math.floor(since / step) * step
    return Span(first, max(math.ceil(until / step) * step, first + step), step)


def window_of(offsets: Sequence[int]) -> int:
    """Returns the largest window width, in seconds, that divides an hour and all these offsets.

    `offsets` are the beginnings of windows, in seconds after the full hour. The real width divides an hour and all
    offsets, so the result is a multiple of the real width.
    """
    return math.gcd(HOUR, *offsets)
