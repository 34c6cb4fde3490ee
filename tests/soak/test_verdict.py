"""Tests the verdict on made-up series, flat ones and growing ones."""

import random
from collections.abc import Sequence

import pytest

from tests.soak.verdict import FEWEST_SAMPLES, trend

COUNT = 400


def noisy(level: float, noise: float) -> list[float]:
    """Returns a flat series with uniform noise. Each tenth value is an outlier."""
    chosen = random.Random(1)
    return [level * (3 if n % 10 == 0 else 1) + chosen.uniform(-noise, noise) for n in range(COUNT)]


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        ([100.0] * COUNT, True),
        (noisy(100, 30), True),
        ([100 - 0.1 * n for n in range(COUNT)], True),
        ([20.0 + n for n in range(COUNT // 10)] + [60.0] * (COUNT * 9 // 10), True),
        ([100 + 0.01 * n for n in range(COUNT)], True),
        ([100 + 0.02 * n for n in range(COUNT)], False),
        ([value + 0.06 * n for n, value in enumerate(noisy(100, 10))], False),
        ([100.0] * 350 + [106.0] * 50, False),
        ([100.0] * 100 + [106.0] * 300, False),
        ([100 + 20 * ((n // 20) % 2) + 0.05 * n for n in range(COUNT)], False),
    ],
    ids=[
        "constant",
        "noise and outliers",
        "shrinks",
        "grows in the first tenth",
        "grows by 3.6 %",
        "grows by 6.4 %",
        "grows below noise",
        "late step",
        "early step",
        "saw teeth that rise",
    ],
)
def test_growth_above_tolerance_is_not_flat(values: Sequence[float], flat: bool) -> None:
    """A series is flat if it grows by no more than 5 % after its first tenth."""
    assert trend("series", values).is_flat is flat


def test_slope_finds_growth_that_medians_miss() -> None:
    """The slope is positive although the last tenth falls back to the first level, as after a restart of the broker."""
    values = [100 + 0.5 * n for n in range(COUNT * 9 // 10)] + [100.0] * (COUNT // 10)
    found = trend("series", values)
    assert found.late < found.early
    assert not found.is_flat


def test_floor_allows_growth_of_small_numbers() -> None:
    """Growth from 4 to 6 is within a floor of 2 and not within one of 1."""
    values = [4.0] * (COUNT // 2) + [6.0] * (COUNT // 2)
    assert trend("series", values, floor=2).is_flat
    assert not trend("series", values, floor=1).is_flat


def test_too_few_samples_give_no_verdict() -> None:
    """A series with too few samples raises an error and does not count as flat."""
    with pytest.raises(ValueError, match="39 samples"):
        trend("series", [1.0] * (FEWEST_SAMPLES - 1))
