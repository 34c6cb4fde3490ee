"""What is true of a fleet that was written, so that answers can be checked against it.

Owns: counts by what is asked, and the lag of every window, computed from the shape alone. Must not know: lines, files,
Spark, pandas.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.fleet_shape import EDGE, NEVER, STALE, Numbers, Shape

WINDOW = 300_000
"""Milliseconds of a window of the tables."""


class Boot(NamedTuple):
    """One start of a sidecar, as far as its records say."""

    first_seq: int
    last_seq: int
    records: int
    heartbeats: int


@dataclass
class Truth:
    """What was written. All counters add up over sidecars.

    Attributes:
        lines, bytes, segments: of all files, with what is there twice, and what is no record.
        kinds: records by kind, each once.
        faults: lines that are no record, by what is wrong with them; those of segments that came twice, twice.
        rebalances, lost: by group and cause: how many, and the sum of duration times members, in seconds.
        verdicts: by kind (refusal, audit), group, policy and error code.
        changes: by group and change: members.
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
        """Records, each once."""
        return self.kinds.total()

    def add(self, other: "Truth") -> None:
        """What another sidecar's records add."""
        self.lines += other.lines
        self.bytes += other.bytes
        self.segments += other.segments
        for name in ("kinds", "faults", "rebalances", "verdicts", "changes"):
            getattr(self, name).update(getattr(other, name))
        for why, seconds in other.lost.items():
            self.lost[why] += seconds
        self.boots.update(other.boots)


class Lag(NamedTuple):
    """Every partition of every group at the end of a window, by commit: whose `known` is false has no log end."""

    committed: Numbers
    log_end: Numbers
    known: np.ndarray
    lag: Numbers


class Words(NamedTuple):
    """Who speaks of which group in a window.

    Attributes:
        holder: by group: the sidecar whose word holds.
        speakers: by group: how many speak of it.
    """

    holder: Numbers
    speakers: Numbers


def last_restatements(shape: Shape, window: int) -> Numbers:
    """By sidecar: when it restated for the last time in a window, counted from the begin."""
    ends = (window + 1) * WINDOW - shape.phase - shape.skew
    return (-(-ends // shape.fleet.interval) - 1) * shape.fleet.interval + shape.phase


def words(shape: Shape, window: int) -> Words:
    """Who speaks of each group in a window: its home, where it moved to, or both for a while."""
    last = last_restatements(shape, window)
    moved = (shape.moved_at != NEVER) & (last[shape.moved_to] >= shape.moved_at)
    # Told for the last time before it is stale; in this window if that is not before its first restatement.
    first = _first_restatements(shape, window)[shape.home]
    at_home = ~moved | (first < np.where(shape.moved_at == NEVER, 0, shape.moved_at) + STALE)
    holder = np.where(moved, shape.moved_to, shape.home)
    return Words(holder, moved.astype(np.int64) + at_home)


def lag(shape: Shape, window: int) -> Lag:
    """The lag of every commit in a window."""
    last, told = last_restatements(shape, window), words(shape, window)
    commits = np.arange(len(shape.group))
    holder = told.holder[shape.group]
    away = holder == shape.home[shape.group]
    here = shape.committed_at(commits, last[holder])
    before = shape.committed_at(commits, last[holder], away=True)
    committed = shape.committed(commits, np.where(away, before, here))
    seen_at = last[shape.leader[shape.partition]] - LOG_END_AGE
    log_end = shape.log_end(shape.partition, seen_at)
    return Lag(committed, log_end, shape.seen[shape.partition], np.maximum(log_end - committed, 0))


def _first_restatements(shape: Shape, window: int) -> Numbers:
    return last_restatements(shape, window - 1) + shape.fleet.interval


LOG_END_AGE = 1_000
"""Milliseconds between a log end being seen and a restatement of it."""
assert LOG_END_AGE < EDGE
