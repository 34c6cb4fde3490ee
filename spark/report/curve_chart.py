"""Curves over time below one another, each on a scale of its own: small ones are not flattened by the largest.

Owns: the geometry, in units of the picture. Must not know: what the amounts are; SVG and colours, which are the
template's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from group_sidecar.spark.report.scales import LEFT, RIGHT, WIDTH, Linear, Span, Tick
from group_sidecar.spark.report.spelling import moment, rounded, shortened, visible

LANE, TOP, AXIS, GAP = 46.0, 6.0, 26.0, 8.0
"""Heights of a curve, of the edge above, of the axis below, and of what is free above a curve."""
NOTES = 210.0
LABEL_CHARACTERS = 32

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """What a curve is to show.

    Attributes:
        name: of whom.
        amounts: 0 or more, by the beginnings of steps; a step without one is a gap.
        words: what is said of each.
        note: what is said at the end.
    """

    name: str
    amounts: Mapping[int, float]
    words: Mapping[int, str]
    note: str


@dataclass(frozen=True, slots=True)
class Spot:
    """Where the reader is told of one amount: the stripe of its step."""

    x: float
    width: float
    told: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One curve. `lines`: its unbroken stretches. `bottom`: where 0 stands. `highest`: what its top stands for."""

    y: float
    label: str
    name: str
    lines: Sequence[Sequence[Point]]
    spots: Sequence[Spot]
    bottom: float
    highest: str
    note: str


@dataclass(frozen=True, slots=True)
class CurveChart:
    """All of it."""

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
    """A chart of these curves, from top to bottom."""
    right = WIDTH - RIGHT - NOTES
    lanes = [_lane(span, curve, TOP + index * LANE, right) for index, curve in enumerate(shown)]
    ticks = [Tick(span.x(tick.at, LEFT, right), tick.label) for tick in span.ticks(6)]
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
            Spot(
                span.x(at, LEFT, right),
                round(2 * half, 1),
                visible(f"{curve.name}, {moment(at)}: {curve.words[at]}"),
            )
            for at in stretch
        ]
    label = shortened(curve.name, LABEL_CHARACTERS)
    return Lane(y, label, visible(curve.name), lines, spots, bottom, rounded(highest), visible(curve.note))


def _stretches(span: Span, amounts: Mapping[int, float]) -> Iterator[list[int]]:
    """Steps that follow one another, and that have an amount."""
    stretch: list[int] = []
    for at in span.steps:
        if at in amounts:
            stretch.append(at)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch
