"""Runs each measurement (a row of the results) at several targets in rounds, and compares the targets in each round."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from benchmarks.targets import DIRECT, SIDECAR, Target
from benchmarks.workloads import FAILURES
from tests.kafka.processes import Address

T = TypeVar("T")


class Row(NamedTuple):
    """One measurement.

    Attributes:
        name: the name of the row.
        measure: the unit of the result.
        run: measures a target and returns the result. Raises one of FAILURES if the target cannot be measured.
        work: the units of work of one run, by which CPU time is divided.
        unit: the name of a unit of work.
        more_is_better: whether the result is a rate, not a time.
    """

    name: str
    measure: str
    run: Callable[[Address], float]
    work: float
    unit: str
    more_is_better: bool = True


class Sample(NamedTuple):
    """One run: the result, and the CPU seconds of the target."""

    figure: float
    cpu: float


class Spread(NamedTuple):
    """The minimum, median and maximum over the rounds."""

    least: float
    middle: float
    most: float


@dataclass
class Results:
    """All results.

    Attributes:
        samples: the samples of each row and target, one per round.
        failed: by row and target: why the target could not be measured. The target then has no samples of the row.
        resident: the maximum resident bytes of a target after any run.
    """

    rows: Sequence[Row]
    targets: Sequence[Target]
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=dict)
    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    resident: dict[str, int] = field(default_factory=dict)
    rounds: int = 0

    def ratios(self, row: Row, target: str, to: str = DIRECT) -> Spread | None:
        """Returns the spread over the rounds of `target`'s result divided by that of `to`; None without samples."""
        these, those = self.samples.get((row.name, target)), self.samples.get((row.name, to))
        if not these or not those:
            return None
        found = [this.figure / that.figure for this, that in zip(these, those, strict=True)]
        return Spread(min(found), statistics.median(found), max(found))

    def middle(self, row: Row, target: str) -> float | None:
        """Returns the median of a target's results."""
        samples = self.samples.get((row.name, target))
        return statistics.median(each.figure for each in samples) if samples else None

    def cpu(self, row: Row, target: str) -> float | None:
        """Returns the CPU seconds per unit of work over all rounds.

        A single round would be too short, because the kernel counts hundredths of a second.
        """
        samples = self.samples.get((row.name, target))
        return sum(each.cpu for each in samples) / (row.work * len(samples)) if samples else None


def rotated(items: Sequence[T], number: int) -> list[T]:
    """Returns the items in the order of a round. The items take turns to be first. Every second round is reversed."""
    start = number // 2 % len(items)
    turned = [*items[start:], *items[:start]]
    return turned[::-1] if number % 2 else turned


def measured(rows: Sequence[Row], targets: Sequence[Target], seconds: float, at_least: int) -> Results:
    """Runs at least `at_least` rounds, and further rounds as long as one more fits into `seconds`.

    A warm-up round comes first. Its samples are dropped, but its failures and its memory count.
    """
    ends = time.monotonic() + seconds
    results = Results(rows, targets)
    _round(results, 0, "warm-up")
    for samples in results.samples.values():
        samples.clear()
    longest = 0.0
    while results.rounds < at_least or time.monotonic() + longest < ends:
        began = time.monotonic()
        results.rounds += 1
        _round(results, results.rounds, f"round {results.rounds}")
        longest = max(longest, time.monotonic() - began)
    return results


def _round(results: Results, number: int, called: str) -> None:
    for row in results.rows:
        print(f"{called}: {row.name}", file=sys.stderr, flush=True)
        for target in rotated(results.targets, number):
            place = (row.name, target.name)
            if place in results.failed:
                continue
            try:
                results.samples.setdefault(place, []).append(_sample(row, target))
            except FAILURES as error:
                if target.name in (DIRECT, SIDECAR):
                    raise
                results.failed[place] = str(error)
                results.samples.pop(place, None)
            results.resident[target.name] = max(results.resident.get(target.name, 0), target.resident())


def _sample(row: Row, target: Target) -> Sample:
    before = target.cpu_seconds()
    figure = row.run(target.address)
    return Sample(figure, target.cpu_seconds() - before)
