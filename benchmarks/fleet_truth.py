"""Computes the truth about a simulated fleet, against which tables can be checked.

The lag of every window follows from the shape alone.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.fleet_shape import EDGE, NEVER, STALE, Numbers, Shape

WINDOW = 300_000
"""The width of the tables' windows in milliseconds."""


class Boot(NamedTuple):
    """One boot of a sidecar, as its records show it."""

    first_seq: int
    last_seq: int
    records: int
    heartbeats: int


@dataclass
class Truth:
    """The contents of the written records. All counters can be added up over sidecars.

    Attributes:
        lines, bytes, segments: counts over all files, including duplicates and damaged lines.
        kinds: records by kind, without duplicates.
        faults: damaged lines by fault. A damaged line in a duplicate segment counts twice.
        rebalances, lost: by group and cause: the number of rebalances, and the sum of duration times members, in
            seconds.
        verdicts: by kind (refusal, audit), group, policy and error code.
        changes: by group and change: the number of members.
        boots: by sidecar and boot.
    """

    lines: int = 0
    bytes: int = 0
    segments: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    rebalances: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: dict[tuple[str, str], float] = field(default_factory=partial(defaultdict, float))
    verdicts: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    boots: dict[tuple[str, str], Boot] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The number of records, without duplicates."""
        return self.kinds.total()

    def add(self, other: "Truth") -> None:
        """Adds the truth of another sidecar's records."""
        self.lines += other.lines
        self.bytes += other.bytes
        self.segments += other.segments
        for name in ("kinds", "faults", "rebalances", "verdicts", "changes"):
            getattr(self, name).update(getattr(other, name))
        for why, seconds in other.lost.items():
            self.lost[why] += seconds
        self.boots.update(other.boots)


class Lag(NamedTuple):
    """The lag of every commit at the end of a window. `known` is false for a partition without a log end."""

    committed: Numbers
    log_end: Numbers
    known: np.ndarray
    lag: Numbers


class GroupReporters(NamedTuple):
    """The sidecars that report each group in a window.

    Attributes:
        holder: by group: the sidecar whose report counts.
        speakers: by group: how many sidecars report it.
    """

    holder: Numbers
    speakers: Numbers


def last_snapshots(shape: Shape, window: int) -> Numbers:
    """Returns for each sidecar its last snapshot in a window, in milliseconds since the beginning."""
    ends = (window + 1) * WINDOW - shape.phase - shape.skew
    return (-(-ends // shape.fleet.interval) - 1) * shape.fleet.interval + shape.phase


def group_reporters(shape: Shape, window: int) -> GroupReporters:
    """Returns which sidecars report each group in a window.

    A group is reported by its home sidecar, by the sidecar that it moved to, or by both for a while.
    """
    last = last_snapshots(shape, window)
    moved = (shape.moved_at != NEVER) & (last[shape.moved_to] >= shape.moved_at)
    # The home sidecar reports a moved group if its first snapshot in this window is before the group is stale.
    first = _first_snapshots(shape, window)[shape.home]
    at_home = ~moved | (first < np.where(shape.moved_at == NEVER, 0, shape.moved_at) + STALE)
    holder = np.where(moved, shape.moved_to, shape.home)
    return GroupReporters(holder, moved.astype(np.int64) + at_home)


def lag(shape: Shape, window: int) -> Lag:
    """Returns the lag of every commit in a window."""
    last, reporters = last_snapshots(shape, window), group_reporters(shape, window)
    commits = np.arange(len(shape.group))
    holder = reporters.holder[shape.group]
    away = holder == shape.home[shape.group]
    here = shape.committed_at(commits, last[holder])
    before = shape.committed_at(commits, last[holder], away=True)
    committed = shape.committed(commits, np.where(away, before, here))
    seen_at = last[shape.leader[shape.partition]] - LOG_END_AGE
    log_end = shape.log_end(shape.partition, seen_at)
    return Lag(committed, log_end, shape.seen[shape.partition], np.maximum(log_end - committed, 0))


def _first_snapshots(shape: Shape, window: int) -> Numbers:
    return last_snapshots(shape, window - 1) + shape.fleet.interval


LOG_END_AGE = 1_000
"""Milliseconds between the observation of a log end and its snapshot."""
assert LOG_END_AGE < EDGE
