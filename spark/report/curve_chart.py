"""Draws curves over time, one below the other. Each curve has its own scale, so that small amounts remain visible.

The module computes the geometry, in units of the picture. The template adds SVG and colours.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from group_sidecar.spark.report.formatting import moment, short_number, truncated, visible
from group_sidecar.spark.report.scales import LEFT, RIGHT, WIDTH, Linear, Span, Tick

LANE, TOP, AXIS, GAP = 46.0, 6.0, 26.0, 8.0
"""Heights in pixels: of a curve, of the margin above, of the axis below, and of the gap above each curve."""
NOTES = 210.0
LABEL_CHARACTERS = 32

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """The data of one curve.

    Attributes:
        name: the name beside the curve.
        amounts: amounts of 0 or more, by the beginning of their step. A step without an amount is a gap.
        words: the text for each amount.
        note: the text at the end of the curve.
    """

    name: str
    amounts: Mapping[int, float]
    words: Mapping[int, str]
    note: str


@dataclass(frozen=True, slots=True)
class HoverStripe:
    """The stripe of one step, which shows the step's amount when the pointer is over it."""

    x: float
    width: float
    tooltip: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A drawn curve. `lines` are its unbroken parts, `bottom` is the position of 0, and `highest` is the amount at its
    top.
    """

    y: float
    label: str
    name: str
    lines: Sequence[Sequence[Point]]
    spots: Sequence[HoverStripe]
    bottom: float
    highest: str
    note: str


@dataclass(frozen=True, slots=True)
class CurveChart:
    """A drawn chart of curves."""

    height: float
    lanes: Sequence[Lane]
    ticks: Sequence[Tick]
    lane: float = LANE
    right: float = WIDTH - RIGHT - NOTES

    @property
    def bottom(self) -> float:
        """The lower edge of the last curve."""
        return self.height - AXIS


def curves(span: Span, shown: Sequence[Curve]) -> CurveChart:
    """Draws these curves from top to bottom."""
    right = WIDTH - RIGHT - NOTES
    lanes = [_lane(span, curve, TOP + index * LANE, right) for index, curve in enumerate(shown)]
    ticks = span.ticks(LEFT, right, at_most=6)
    return CurveChart(TOP + len(lanes) * LANE + AXIS, lanes, ticks)


def _lane(span: Span, curve: Curve, y: float, right: float) -> Lane:
    highest = max(curve.amounts.values(), default=0.0)
    bottom = y + LANE
    scale = Linear(highest, bottom, y + GAP)
    half = (span.x(span.since + span.step, LEFT, right) - LEFT) / 2
    spots = []
    lines = []
    for stretch in _stretches(span, curve.amounts):
        lines.append([(round(span.x(at, LEFT, right) + half, 1), scale(curve.amounts[at])) for at in stretch])
        spots += [
            HoverStripe(
                span.x(at, LEFT, right),
                round(2 * half, 1),
                visible(f"{curve.name}, {moment(at)}: {curve.words[at]}"),
            )
            for at in stretch
        ]
    label = truncated(curve.name, LABEL_CHARACTERS)
    return Lane(y, label, visible(curve.name), lines, spots, bottom, short_number(highest), visible(curve.note))


def _stretches(span: Span, amounts: Mapping[int, float]) -> Iterator[list[int]]:
    """Yields the runs of consecutive steps that have an amount."""
    stretch: list[int] = []
    for at in span.steps:
        if at in amounts:
            stretch.append(at)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch
