"""Strips over time: of which steps something was heard, and of which not.

Owns: the geometry, in units of the picture, and which steps are drawn as one. Must not know: who is heard; SVG and
colours, which are the template's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from group_sidecar.spark.report.scales import LEFT, RIGHT, WIDTH, Span, Tick
from group_sidecar.spark.report.spelling import moment, shortened, visible

LANE, TOP, AXIS = 24.0, 6.0, 26.0
NOTES = 250.0
LABEL_CHARACTERS = 32


class Heard(StrEnum):
    """What was heard in a step; `SILENT` after the last of which anything was heard, `GAP` between two."""

    ALIVE = "alive"
    RECORDS_ONLY = "records"
    GAP = "gap"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Strip:
    """What a strip is to show.

    Attributes:
        name: of whom.
        heard: by the beginnings of steps: `ALIVE` or `RECORDS_ONLY`.
        restarts: the beginnings of steps in which it was started anew.
        note: what is said at the end.
        silent: whether the steps after the last count as silence, and not only as not yet told.
    """

    name: str
    heard: Mapping[int, Heard]
    restarts: Sequence[int]
    note: str
    silent: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Steps that follow one another and are alike."""

    x: float
    width: float
    heard: Heard
    told: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A start."""

    x: float
    told: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One strip; `y` is its middle."""

    y: float
    label: str
    name: str
    runs: Sequence[Run]
    marks: Sequence[Mark]
    note: str


@dataclass(frozen=True, slots=True)
class StripChart:
    """All of it."""

    height: float
    lanes: Sequence[Lane]
    ticks: Sequence[Tick]
    right: float = WIDTH - RIGHT - NOTES

    @property
    def bottom(self) -> float:
        """The lower edge of the last strip."""
        return self.height - AXIS


def strips(span: Span, shown: Sequence[Strip]) -> StripChart:
    """A chart of these strips, from top to bottom."""
    right = WIDTH - RIGHT - NOTES
    lanes = [
        Lane(
            TOP + (index + 0.5) * LANE,
            shortened(strip.name, LABEL_CHARACTERS),
            visible(strip.name),
            _runs(span, strip, right),
            [Mark(span.x(at, LEFT, right), visible(f"{strip.name}: restarted, {moment(at)}")) for at in strip.restarts],
            visible(strip.note),
        )
        for index, strip in enumerate(shown)
    ]
    ticks = [Tick(span.x(tick.at, LEFT, right), tick.label) for tick in span.ticks(6)]
    return StripChart(TOP + len(lanes) * LANE + AXIS, lanes, ticks)


def _runs(span: Span, strip: Strip, right: float) -> list[Run]:
    if not strip.heard:
        return []
    first, last = min(strip.heard), max(strip.heard)
    after = Heard.SILENT if strip.silent else None
    told = [(at, strip.heard.get(at, Heard.GAP if at < last else after)) for at in span.steps if at >= first]
    runs = []
    for what, steps in groupby(told, key=lambda pair: pair[1]):
        if what is not None:
            places = [at for at, _ in steps]
            since, until = places[0], places[-1] + span.step
            left = span.x(since, LEFT, right)
            words = visible(f"{strip.name}: {_WORDS[what]}, {moment(since)} to {moment(until)}")
            runs.append(Run(left, round(span.x(until, LEFT, right) - left, 1), what, words))
    return runs


_WORDS = {
    Heard.ALIVE: "heartbeats",
    Heard.RECORDS_ONLY: "records without a heartbeat",
    Heard.GAP: "nothing was heard",
    Heard.SILENT: "silent",
}
