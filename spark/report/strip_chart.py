"""Draws strips over time, which show the steps in which a sidecar sent records.

The module computes the geometry, in units of the picture, and joins equal steps. The template adds SVG and colours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from group_sidecar.spark.report.formatting import moment, truncated, visible
from group_sidecar.spark.report.scales import LEFT, RIGHT, WIDTH, Span, Tick

LANE, TOP, AXIS = 24.0, 6.0, 26.0
NOTES = 250.0
LABEL_CHARACTERS = 32


class Presence(StrEnum):
    """The kind of records that a sidecar sent in a step.

    `ALIVE`: records with a heartbeat. `RECORDS_ONLY`: records without a heartbeat. `GAP`: no record, between two
    records. `SILENT`: no record, after the sidecar's last record.
    """

    ALIVE = "alive"
    RECORDS_ONLY = "records"
    GAP = "gap"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Strip:
    """The data of one strip.

    Attributes:
        name: the sidecar's name.
        presence_by_step: `ALIVE` or `RECORDS_ONLY`, by the beginning of the step.
        restarts: the beginnings of the steps in which the sidecar was restarted.
        note: the text at the end of the strip.
        silent: whether the steps after the last record count as silence. If not, their records may still arrive.
    """

    name: str
    presence_by_step: Mapping[int, Presence]
    restarts: Sequence[int]
    note: str
    silent: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive steps with the same presence."""

    x: float
    width: float
    presence: Presence
    tooltip: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a restart."""

    x: float
    tooltip: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A drawn strip. `y` is its vertical centre."""

    y: float
    label: str
    name: str
    runs: Sequence[Run]
    marks: Sequence[Mark]
    note: str


@dataclass(frozen=True, slots=True)
class StripChart:
    """A drawn chart of strips."""

    height: float
    lanes: Sequence[Lane]
    ticks: Sequence[Tick]
    right: float = WIDTH - RIGHT - NOTES

    @property
    def bottom(self) -> float:
        """The lower edge of the last strip."""
        return self.height - AXIS


def strips(span: Span, shown: Sequence[Strip]) -> StripChart:
    """Draws these strips from top to bottom."""
    right = WIDTH - RIGHT - NOTES
    lanes = [
        Lane(
            TOP + (index + 0.5) * LANE,
            truncated(strip.name, LABEL_CHARACTERS),
            visible(strip.name),
            _runs(span, strip, right),
            [Mark(span.x(at, LEFT, right), visible(f"{strip.name}: restarted, {moment(at)}")) for at in strip.restarts],
            visible(strip.note),
        )
        for index, strip in enumerate(shown)
    ]
    ticks = span.ticks(LEFT, right, at_most=6)
    return StripChart(TOP + len(lanes) * LANE + AXIS, lanes, ticks)


def _runs(span: Span, strip: Strip, right: float) -> list[Run]:
    known = strip.presence_by_step
    if not known:
        return []
    first, last = min(known), max(known)
    after = Presence.SILENT if strip.silent else None
    presences = [(at, known.get(at, Presence.GAP if at < last else after)) for at in span.steps if at >= first]
    runs = []
    for presence, steps in groupby(presences, key=lambda pair: pair[1]):
        if presence is not None:
            beginnings = [at for at, _ in steps]
            since, until = beginnings[0], beginnings[-1] + span.step
            left = span.x(since, LEFT, right)
            tooltip = visible(f"{strip.name}: {_WORDS[presence]}, {moment(since)} to {moment(until)}")
            runs.append(Run(left, round(span.x(until, LEFT, right) - left, 1), presence, tooltip))
    return runs


_WORDS = {
    Presence.ALIVE: "heartbeats",
    Presence.RECORDS_ONLY: "records without a heartbeat",
    Presence.GAP: "no records",
    Presence.SILENT: "silent",
}
