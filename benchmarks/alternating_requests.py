"""Sends requests from one client to the broker and to the sidecar in turn, and times the replies."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.workloads import Asker, framed
from group_sidecar.codecs.schema import Struct

COMMIT = 8
"""The version of the OffsetCommit requests that change the offsets between two questions."""
VersionedRequest = tuple[Struct, int]
"""A request and its version."""


@dataclass
class Measurement:
    """One row of the table.

    Attributes:
        name: the name in the table.
        asked: the requests. Without `once`, only the first request is sent, again and again.
        times: requests per round.
        change: a request that is sent before each question; None to send no such request.
        once: whether each request is sent only once to each side.
        size: the size of the last reply in bytes.
        direct, sidecar: the seconds of each reply, by side.
    """

    name: str
    asked: Sequence[VersionedRequest]
    times: int
    change: Struct | None = None
    once: bool = False
    size: int = 0
    direct: list[float] = field(default_factory=list)
    sidecar: list[float] = field(default_factory=list)

    def turn(self) -> list[bytes]:
        """Returns the frames of the next round."""
        if not self.once:
            return [framed(*self.asked[0])] * self.times
        done = len(self.direct)
        return [framed(*each) for each in self.asked[done : done + self.times]]


@dataclass(frozen=True)
class Connections:
    """A connection to each side, and a third one, `fast_replacer`, for the requests that change offsets."""

    direct: Asker
    sidecar: Asker
    fast_replacer: Asker

    def close(self) -> None:
        """Closes the connections."""
        for asker in (self.direct, self.sidecar, self.fast_replacer):
            asker.close()


def ask_in_turn(questions: Sequence[Measurement], sides: Connections, rounds: int, called: str) -> None:
    """Runs the rounds. The sides take turns to be asked first. Requests that change offsets go through the sidecar."""
    for number in range(rounds):
        print(f"{called} {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for question in questions:
            frames, change = question.turn(), framed(question.change, COMMIT) if question.change else b""
            taken: dict[Asker, list[float]] = {}
            for side in (sides.direct, sides.sidecar)[:: 1 if number % 2 else -1]:
                taken[side] = _ask(side, frames, sides.fast_replacer, change)
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


def table(questions: Sequence[Measurement]) -> list[str]:
    """Returns the results as a Markdown table."""
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
    """Returns the given percentile of some values."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
