"""Draws a chart of columns over time. Each column consists of parts stacked on one another.

The module computes the geometry, in units of the picture. The template adds SVG and colours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from group_sidecar.spark.report.formatting import moment, number, short_number, visible
from group_sidecar.spark.report.scales import Linear, Span, Tick, round_values

LEFT, TOP, TALL, AXIS = 60.0, 8.0, 180.0, 26.0
"""Pixels: the space on the left for amounts, and the heights of the margin above, the columns and the axis below."""
MAX_SERIES = 8
"""The maximum number of series, each with its own colour. If there are more names, the last series has the others."""
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """A drawn rectangle of a column."""

    x: float
    y: float
    width: float
    height: float
    series: int
    tooltip: str


@dataclass(frozen=True, slots=True)
class StackChart:
    """A drawn chart of stacked columns. `ticks` are below it and `values` to its left."""

    pieces: Sequence[ColumnPart]
    ticks: Sequence[Tick]
    values: Sequence[Tick]
    series: Sequence[str]
    height: float = TOP + TALL + AXIS
    left: float = LEFT
    bottom: float = TOP + TALL


def stacks(span: Span, amounts: Mapping[str, Mapping[int, float]]) -> StackChart:
    """Draws a column for each step of a period.

    Args:
        span: the period.
        amounts: for each name, its amounts (0 or more) by the beginning of their step.
    """
    series = grouped(amounts)
    sums = [sum(by_step.get(at, 0.0) for by_step in series.values()) for at in span.steps]
    values = round_values(max(sums, default=0.0), 4)
    scale = Linear(values[-1], TOP + TALL, TOP)
    pieces = [piece for at in span.steps for piece in _column(span, at, series, scale)]
    ticks = span.ticks(LEFT)
    return StackChart(pieces, ticks, [Tick(scale(value), short_number(value)) for value in values], [*series])


def grouped(amounts: Mapping[str, Mapping[int, float]]) -> Mapping[str, Mapping[int, float]]:
    """Keeps the names with the largest amounts, at most `MAX_SERIES`, and sums all others as `OTHERS`."""
    names = sorted(amounts, key=lambda name: (-sum(amounts[name].values()), name))
    if len(names) <= MAX_SERIES:
        return {name: amounts[name] for name in names}
    kept, others = names[: MAX_SERIES - 1], names[MAX_SERIES - 1 :]
    steps = {at for name in others for at in amounts[name]}
    rest = {at: sum(amounts[name].get(at, 0.0) for name in others) for at in steps}
    return {name: amounts[name] for name in kept} | {OTHERS: rest}


def _column(span: Span, at: int, series: Mapping[str, Mapping[int, float]], scale: Linear) -> list[ColumnPart]:
    left, right = span.x(at, LEFT), span.x(at + span.step, LEFT)
    gap = min(1.0, (right - left) / 5)
    pieces = []
    reached = 0.0
    for index, (name, by_step) in enumerate(series.items()):
        if amount := by_step.get(at, 0.0):
            lower, upper = scale(reached), scale(reached + amount)
            tooltip = visible(f"{moment(at)}: {name} {number(amount)}")
            pieces.append(
                ColumnPart(left, upper, round(right - left - gap, 1), round(lower - upper, 1), index, tooltip)
            )
            reached += amount
    return pieces
