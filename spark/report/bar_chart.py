"""Bars from left to right, one a name, each of one part or several.

Owns: the geometry, in units of the picture. Must not know: what the amounts are; SVG and colours, which are the
template's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from group_sidecar.spark.report.scales import LEFT, RIGHT, WIDTH, Linear, Tick, round_values
from group_sidecar.spark.report.spelling import rounded, shortened, visible

LANE, TOP, AXIS = 24.0, 6.0, 24.0
"""Heights of a bar with the room around it, of the edge above and of the axis below."""
NOTES = 210.0
"""What is kept free on the right, for what is said of each bar."""
LABEL_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class Amount:
    """A part of a bar. `series`: which of the chart's series it is of, from 0 on."""

    series: int
    amount: float
    told: str


@dataclass(frozen=True, slots=True)
class Named:
    """What a bar is to show: a name, its amounts and what is said at its end."""

    name: str
    amounts: Sequence[Amount]
    note: str


@dataclass(frozen=True, slots=True)
class Part:
    """A rectangle of a bar."""

    x: float
    width: float
    series: int
    told: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the chart; `y` is its middle."""

    y: float
    label: str
    name: str
    parts: Sequence[Part]
    note: str
    note_x: float


@dataclass(frozen=True, slots=True)
class BarChart:
    """All of it. `series`: what each of the parts' series is called; none if there is one only."""

    height: float
    bars: Sequence[Bar]
    ticks: Sequence[Tick]
    series: Sequence[str]

    @property
    def bottom(self) -> float:
        """The lower edge of the last bar."""
        return self.height - AXIS


def bars(rows: Sequence[Named], series: Sequence[str] = ()) -> BarChart:
    """A chart of these rows, from top to bottom; their amounts are 0 or more."""
    values = round_values(max((sum(part.amount for part in row.amounts) for row in rows), default=0.0))
    scale = Linear(values[-1], LEFT, WIDTH - RIGHT - NOTES)
    drawn = [_bar(row, TOP + (index + 0.5) * LANE, scale) for index, row in enumerate(rows)]
    ticks = [Tick(scale(value), rounded(value)) for value in values]
    return BarChart(TOP + len(rows) * LANE + AXIS, drawn, ticks, series)


def _bar(row: Named, y: float, scale: Linear) -> Bar:
    parts = []
    reached = 0.0
    for part in row.amounts:
        left, right = scale(reached), scale(reached + part.amount)
        parts.append(Part(left, round(right - left, 1), part.series, visible(part.told)))
        reached += part.amount
    return Bar(
        y, shortened(row.name, LABEL_CHARACTERS), visible(row.name), parts, visible(row.note), scale(reached) + 8
    )
