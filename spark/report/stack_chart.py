"""Columns over time, each of several parts that stand on one another.

Owns: the geometry, in units of the picture. Must not know: what the amounts are; SVG and colours, which are the
template's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from group_sidecar.spark.report.scales import Linear, Span, Tick, round_values
from group_sidecar.spark.report.spelling import moment, number, rounded, visible

LEFT, TOP, TALL, AXIS = 60.0, 8.0, 180.0, 26.0
"""What is kept free on the left, for the amounts, and heights of the edge above, the columns and the axis below."""
MOST_SERIES = 8
"""Series that have a colour of their own; the last of them is for all others."""
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle of a column."""

    x: float
    y: float
    width: float
    height: float
    series: int
    told: str


@dataclass(frozen=True, slots=True)
class StackChart:
    """All of it. `ticks` stand below, `values` on the left."""

    pieces: Sequence[Piece]
    ticks: Sequence[Tick]
    values: Sequence[Tick]
    series: Sequence[str]
    height: float = TOP + TALL + AXIS
    left: float = LEFT
    bottom: float = TOP + TALL


def stacks(span: Span, amounts: Mapping[str, Mapping[int, float]]) -> StackChart:
    """A column for each step of a time.

    Args:
        span: the time.
        amounts: for each name, its amounts (0 or more) by the beginnings of steps.
    """
    series = grouped(amounts)
    sums = [sum(by_step.get(at, 0.0) for by_step in series.values()) for at in span.steps]
    values = round_values(max(sums, default=0.0), 4)
    scale = Linear(values[-1], TOP + TALL, TOP)
    pieces = [piece for at in span.steps for piece in _column(span, at, series, scale)]
    ticks = [Tick(span.x(tick.at, LEFT), tick.label) for tick in span.ticks()]
    return StackChart(pieces, ticks, [Tick(scale(value), rounded(value)) for value in values], [*series])


def grouped(amounts: Mapping[str, Mapping[int, float]]) -> Mapping[str, Mapping[int, float]]:
    """The same with at most `MOST_SERIES` names, the largest first; the least of many are summed as `OTHERS`."""
    names = sorted(amounts, key=lambda name: (-sum(amounts[name].values()), name))
    if len(names) <= MOST_SERIES:
        return {name: amounts[name] for name in names}
    kept, others = names[: MOST_SERIES - 1], names[MOST_SERIES - 1 :]
    steps = {at for name in others for at in amounts[name]}
    rest = {at: sum(amounts[name].get(at, 0.0) for name in others) for at in steps}
    return {name: amounts[name] for name in kept} | {OTHERS: rest}


def _column(span: Span, at: int, series: Mapping[str, Mapping[int, float]], scale: Linear) -> list[Piece]:
    left, right = span.x(at, LEFT), span.x(at + span.step, LEFT)
    gap = min(1.0, (right - left) / 5)
    pieces = []
    reached = 0.0
    for index, (name, by_step) in enumerate(series.items()):
        if amount := by_step.get(at, 0.0):
            lower, upper = scale(reached), scale(reached + amount)
            told = visible(f"{moment(at)}: {name} {number(amount)}")
            pieces.append(Piece(left, upper, round(right - left - gap, 1), round(lower - upper, 1), index, told))
            reached += amount
    return pieces
