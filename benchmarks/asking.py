"""Questions put to the broker and to the sidecar in turn, by the same client.

Owns: one connection that asks, whose turn it is, and how long each answer took. Must not know: what is asked, nor how
groups come about.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.workloads import Asker, framed
from group_sidecar.codecs.schema import Struct

COMMIT = 8
"""The version of OffsetCommit that changes what is asked for."""
Asked = tuple[Struct, int]
"""A question and its version."""


@dataclass
class Question:
    """What is asked.

    Attributes:
        name: for the table.
        asked: what; the first one over and over, or where that is to be the first time, each once.
        times: so often in a round.
        change: sent before each question.
        once: whether each is asked once only, of each side.
        size: bytes of the last answer.
        direct, sidecar: seconds that each took.
    """

    name: str
    asked: Sequence[Asked]
    times: int
    change: Struct | None = None
    once: bool = False
    size: int = 0
    direct: list[float] = field(default_factory=list)
    sidecar: list[float] = field(default_factory=list)

    def turn(self) -> list[bytes]:
        """The frames of the next round."""
        if not self.once:
            return [framed(*self.asked[0])] * self.times
        done = len(self.direct)
        return [framed(*each) for each in self.asked[done : done + self.times]]


@dataclass(frozen=True)
class Sides:
    """A connection to each side, and the one that changes things."""

    direct: Asker
    sidecar: Asker
    changer: Asker

    def close(self) -> None:
        """Ends them."""
        for asker in (self.direct, self.sidecar, self.changer):
            asker.close()


def ask_in_turn(questions: Sequence[Question], sides: Sides, rounds: int, called: str) -> None:
    """Rounds; who is asked first changes with each. Changes go through the sidecar, whoever is asked then."""
    for number in range(rounds):
        print(f"{called} {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for question in questions:
            frames, change = question.turn(), framed(question.change, COMMIT) if question.change else b""
            taken: dict[Asker, list[float]] = {}
            for side in (sides.direct, sides.sidecar)[:: 1 if number % 2 else -1]:
                taken[side] = _ask(side, frames, sides.changer, change)
            assert sides.direct.size == sides.sidecar.size, f"{question.name}: the answers differ"
            question.size = sides.sidecar.size
            question.direct += taken[sides.direct]
            question.sidecar += taken[sides.sidecar]


def _ask(asker: Asker, frames: Sequence[bytes], changer: Asker, change: bytes) -> list[float]:
    taken = []
    for frame in frames:
        if change:
            changer.ask(change)
        taken.append(asker.ask(frame))
    return taken


def table(questions: Sequence[Question]) -> list[str]:
    """The figures as Markdown."""
    lines = [
        "| | asked | bytes | broker p50, us | sidecar p50, us | ratio | broker p99 | sidecar p99 | ratio |",
        "|---" + "|---:" * 8 + "|",
    ]
    for question in questions:
        cells = [question.name, f"{len(question.direct):,}", f"{question.size:,}"]
        for percent in (50, 99):
            direct, sidecar = (percentile(taken, percent) for taken in (question.direct, question.sidecar))
            cells += [f"{direct * 1e6:,.0f}", f"{sidecar * 1e6:,.0f}", f"**{sidecar / direct:.2f}**"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which so many percent lie."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
