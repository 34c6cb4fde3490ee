"""Draws a heat map with a row for each name and a cell for each step. A cell with a larger amount
stands out more from the background.

The module computes the geometry, in units of the picture, and the level of each amount. The template adds SVG and
colours.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from group_sidecar.spark.report.formatting import moment, number, short_number, truncated, visible
from group_sidecar.spark.report.scales import LEFT, RIGHT, WIDTH, Span, Tick

LANE, TOP, AXIS = 22.0, 6.0, 26.0
LEVELS = 5
ROOM_FOR_NUMBER = 24.0
"""The width, in units of the picture, from which a cell shows its number."""
LABEL_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class HeatCell:
    """The amount in one step, and the text that explains it."""

    number: int
    tooltip: str


@dataclass(frozen=True, slots=True)
class DrawnCell:
    """A drawn cell with an amount. `level` is from 1 to `LEVELS`, and `text` is its number if the cell is wide
    enough.
    """

    x: float
    level: int
    text: str
    tooltip: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A drawn row. `y` is its upper edge."""

    y: float
    label: str
    name: str
    squares: Sequence[DrawnCell]


@dataclass(frozen=True, slots=True)
class Level:
    """One shade, and the range of numbers that it stands for."""

    level: int
    label: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A drawn heat map. `square` is the width of a cell."""

    height: float
    lanes: Sequence[Lane]
    ticks: Sequence[Tick]
    levels: Sequence[Level]
    square: float
    lane: float = LANE

    @property
    def bottom(self) -> float:
        """The lower edge of the last row."""
        return self.height - AXIS


def heat_map(span: Span, rows: Mapping[str, Mapping[int, HeatCell]]) -> HeatMap:
    """Draws these rows from top to bottom. Each row maps the beginnings of steps to cells."""
    bounds = level_bounds(max((heat.number for row in rows.values() for heat in row.values()), default=0))
    square = round((WIDTH - RIGHT - LEFT) * span.step / (span.until - span.since), 2)
    lanes = [
        Lane(TOP + index * LANE, truncated(name, LABEL_CHARACTERS), visible(name), _squares(span, row, bounds, square))
        for index, (name, row) in enumerate(rows.items())
    ]
    ticks = span.ticks()
    return HeatMap(TOP + len(lanes) * LANE + AXIS, lanes, ticks, _levels(bounds), square)


def level_bounds(highest: int) -> Sequence[int]:
    """Returns the smallest number of each level, from 1 on, without duplicates.

    The numbers grow by an equal ratio, so that the last level ends at `highest`.
    """
    ratios = (math.ceil(round((1 + highest) ** (index / LEVELS), 9)) for index in range(LEVELS))
    return sorted({bound for bound in ratios if bound <= highest})


def _squares(span: Span, row: Mapping[int, HeatCell], bounds: Sequence[int], square: float) -> list[DrawnCell]:
    return [
        DrawnCell(
            span.x(at),
            bisect_right(bounds, heat.number),
            short_number(heat.number) if square >= ROOM_FOR_NUMBER else "",
            visible(f"{moment(at)}: {heat.tooltip}"),
        )
        for at, heat in sorted(row.items())
        if heat.number and span.since <= at < span.until
    ]


def _levels(bounds: Sequence[int]) -> list[Level]:
    ends = [*(bound - 1 for bound in bounds[1:]), None]
    return [Level(index, _range(first, last)) for index, (first, last) in enumerate(zip(bounds, ends, strict=True), 1)]


def _range(first: int, last: int | None) -> str:
    if last is None:
        return f"{number(first)} and more"
    return number(first) if first == last else f"{number(first)} to {number(last)}"
