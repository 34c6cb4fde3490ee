"""Decides whether a series of samples is flat after its first tenth.

Two measures must both stay within the tolerance: the difference between the medians of the second and of the last
tenth, and the Theil-Sen slope. A step near the end shows in the medians only. The slope finds slow growth in a noisy
series.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

TOLERANCE = 0.05
"""The growth after the first tenth that counts as flat, as a share of the median of the second tenth."""
FEWEST_SAMPLES = 40
"""With fewer samples, a tenth has fewer than four of them."""
_TENTHS = 10
_BINS = 45
"""The slope is computed from the medians of this many parts, because its cost grows with the square of their number."""


@dataclass(frozen=True)
class Trend:
    """How a series changed after its first tenth.

    Attributes:
        name: the name of the series.
        early: the median of the second tenth.
        late: the median of the last tenth.
        by_slope: the growth from the middle of the second tenth to the middle of the last tenth, as the slope gives it.
        allowed: the growth that counts as flat, in the unit of the series.
    """

    name: str
    early: float
    late: float
    by_slope: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        """Whether neither measure shows more growth than allowed. A series that shrinks is flat."""
        return max(self.late - self.early, self.by_slope) <= self.allowed


def trend(name: str, values: Sequence[float], *, tolerance: float = TOLERANCE, floor: float = 0.0) -> Trend:
    """Returns the trend of a series of samples at equal intervals.

    Args:
        name: the name of the series.
        values: the samples from the beginning of the run on.
        tolerance: the allowed growth as a share of the early value.
        floor: the allowed growth in the unit of the series, if it is more than the tolerance allows. Small numbers
            need a floor: one descriptor more is 5 % of twenty.

    Raises:
        ValueError: there are fewer than FEWEST_SAMPLES samples.
    """
    count = len(values)
    if count < FEWEST_SAMPLES:
        raise ValueError(f"{name} has {count} samples, and at least {FEWEST_SAMPLES} are needed")
    after = values[count // _TENTHS :]
    tenth = count // _TENTHS
    early, late = median(after[:tenth]), median(after[-tenth:])
    between = len(after) - tenth
    return Trend(name, early, late, _slope(after) * between, max(tolerance * early, floor))


def _slope(values: Sequence[float]) -> float:
    """Returns the Theil-Sen slope per sample: the median of the slopes between all pairs."""
    bins = min(_BINS, len(values))
    edges = [len(values) * number // bins for number in range(bins + 1)]
    points = [((start + end - 1) / 2, median(values[start:end])) for start, end in pairwise(edges)]
    return median((other[1] - one[1]) / (other[0] - one[0]) for one, other in combinations(points, 2))
