"""A heat map: a row for each name, a cell for each step of a time, the darker the more.

Owns: the geometry, in units of the picture, and how amounts become levels. Must not know: what is counted; SVG and
colours, which are the template's.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from group_sidecar.spark.report.scales import LEFT, RIGHT, WIDTH, Span, Tick
from group_sidecar.spark.report.spelling import moment, number, rounded, shortened, visible

LANE, TOP, AXIS = 22.0, 6.0, 26.0
LEVELS = 5
ROOM_FOR_NUMBER = 24.0
"""Cells that are at least so wide say their number."""
LABEL_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class Heat:
    """How much there was in a step, and of what."""

    number: int
    told: str


@dataclass(frozen=True, slots=True)
class Square:
    """A cell in which there was something. `level`: from 1 to `LEVELS`. `text`: its number, where there is room."""

    x: float
    level: int
    text: str
    told: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One row; `y` is its upper edge."""

    y: float
    label: str
    name: str
    squares: Sequence[Square]


@dataclass(frozen=True, slots=True)
class Level:
    """One darkness, and the numbers it stands for."""

    level: int
    label: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """All of it. `square`: a cell's width."""

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


def heat_map(span: Span, rows: Mapping[str, Mapping[int, Heat]]) -> HeatMap:
    """A map of rows from top to bottom, each of which has its heat by the beginnings of steps."""
    bounds = level_bounds(max((heat.number for row in rows.values() for heat in row.values()), default=0))
    square = round((WIDTH - RIGHT - LEFT) * span.step / (span.until - span.since), 2)
    lanes = [
        Lane(TOP + index * LANE, shortened(name, LABEL_CHARACTERS), visible(name), _squares(span, row, bounds, square))
        for index, (name, row) in enumerate(rows.items())
    ]
    ticks = [Tick(span.x(tick.at), tick.label) for tick in span.ticks()]
    return HeatMap(TOP + len(lanes) * LANE + AXIS, lanes, ticks, _levels(bounds), square)


def level_bounds(highest: int) -> Sequence[int]:
    """The least number of each level, from 1 on: in equal ratios up to the highest, and none twice."""
    ratios = (math.ceil(round((1 + highest) ** (index / LEVELS), 9)) for index in range(LEVELS))
    return sorted({bound for bound in ratios if bound <= highest})


def _squares(span: Span, row: Mapping[int, Heat], bounds: Sequence[int], square: float) -> list[Square]:
    return [
        Square(
            span.x(at),
            bisect_right(bounds, heat.number),
            rounded(heat.number) if square >= ROOM_FOR_NUMBER else "",
            visible(f"{moment(at)}: {heat.told}"),
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
