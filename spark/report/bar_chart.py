"""Draws a chart of horizontal bars, one for each name. A bar has one part or several.

The module computes the geometry, in units of the picture. The template adds SVG and colours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from group_sidecar.spark.report.formatting import short_number, truncated, visible
from group_sidecar.spark.report.scales import LEFT, RIGHT, WIDTH, Linear, Tick, round_values

LANE, TOP, AXIS = 24.0, 6.0, 24.0
"""Heights in pixels: of a bar with the space around it, of the margin above, and of the axis below."""
NOTES = 210.0
"""Space on the right in pixels, for the note of each bar."""
LABEL_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class Amount:
    """One part of a bar. `series` is the index of the series that the part belongs to."""

    series: int
    amount: float
    tooltip: str


@dataclass(frozen=True, slots=True)
class BarRow:
    """The data of one bar: a name, its amounts, and the note at its end."""

    name: str
    amounts: Sequence[Amount]
    note: str


@dataclass(frozen=True, slots=True)
class Part:
    """A drawn rectangle of a bar."""

    x: float
    width: float
    series: int
    tooltip: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A drawn bar. `y` is its vertical centre."""

    y: float
    label: str
    name: str
    parts: Sequence[Part]
    note: str
    note_x: float


@dataclass(frozen=True, slots=True)
class BarChart:
    """A drawn bar chart. `series` contains the names of the series; empty if there is only one."""

    height: float
    bars: Sequence[Bar]
    ticks: Sequence[Tick]
    series: Sequence[str]

    @property
    def bottom(self) -> float:
        """The lower edge of the last bar."""
        return self.height - AXIS


def bars(rows: Sequence[BarRow], series: Sequence[str] = ()) -> BarChart:
    """Draws a bar for each row, from top to bottom. The amounts must not be negative."""
    values = round_values(max((sum(part.amount for part in row.amounts) for row in rows), default=0.0))
    scale = Linear(values[-1], LEFT, WIDTH - RIGHT - NOTES)
    drawn = [_bar(row, TOP + (index + 0.5) * LANE, scale) for index, row in enumerate(rows)]
    ticks = [Tick(scale(value), short_number(value)) for value in values]
    return BarChart(TOP + len(rows) * LANE + AXIS, drawn, ticks, series)


def _bar(row: BarRow, y: float, scale: Linear) -> Bar:
    parts = []
    reached = 0.0
    for part in row.amounts:
        left, right = scale(reached), scale(reached + part.amount)
        parts.append(Part(left, round(right - left, 1), part.series, visible(part.tooltip)))
        reached += part.amount
    return Bar(
        y, truncated(row.name, LABEL_CHARACTERS), visible(row.name), parts, visible(row.note), scale(reached) + 8
    )
