"""Writes the sealed segments of a simulated fleet, with damaged lines, duplicate segments and late segments."""

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fleet_shape import Fleet
from benchmarks.fleet_truth import Truth
from group_sidecar.metrics.records import VERSION, timestamp

AGAIN = "again"
"""The folder of duplicate segments."""
AGAIN_SECONDS, LATE_SECONDS = 60, 7_200
"""Seconds between the sealing of a segment and the arrival of its duplicate, or of the segment itself if it is late."""
LINES_AT_ONCE = 20_000
"""Lines of a snapshot that are written to a segment at once. A segment may have more lines."""


def _without(cells: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in cells.items() if name != "offset"}


FAULTS: Sequence[tuple[str, Callable[[dict[str, Any]], object]]] = (
    ("not_json_object", lambda cells: list(cells)),
    ("unknown_version", lambda cells: cells | {"version": 99}),
    ("unknown_kind", lambda cells: cells | {"kind": "gossip"}),
    ("wrong_type", lambda cells: cells | {"offset": "far"}),
    ("missing_column", _without),
    ("out_of_range", lambda cells: cells | {"offset": -5}),
    ("in_future", lambda cells: cells | {"emitted_at": "2999-01-01T00:00:00.000Z"}),
)
"""The faults of damaged lines, each with the function that damages a valid line."""


class Sealed:
    """The segments of one sidecar."""

    def __init__(self, folder: Path, fleet: Fleet, sidecar: str, seed: int) -> None:
        self._fleet, self._sidecar = fleet, sidecar
        self._folder, self._again = folder / sidecar, folder / AGAIN / sidecar
        for each in (self._folder, self._again):
            each.mkdir(parents=True, exist_ok=True)
        self._random = np.random.default_rng((fleet.seed, seed, 1))
        self._pieces: list[bytes] = []
        self._size, self._opened_at, self._number, self._boot = 0, 0, 0, ""
        self.truth = Truth()

    def begin(self, boot: str, moment: int) -> None:
        """Seals the open segment, and begins another boot of the sidecar."""
        self.seal(moment)
        self._boot, self._number = boot, 0

    def write(self, lines: list[str], moment: int) -> None:
        """Adds lines, and seals the open segment if it is large or old enough."""
        for at in range(0, len(lines), LINES_AT_ONCE):
            some = lines[at : at + LINES_AT_ONCE]
            piece = "".join(some).encode()
            if self._size and self._size + len(piece) > self._fleet.segment_bytes:
                self.seal(moment)
            if not self._pieces:
                self._opened_at = moment
            self._pieces.append(piece)
            self._size += len(piece)
            self.truth.lines += len(some)
        if moment - self._opened_at >= (self._fleet.segment_seconds - self._fleet.interval_seconds) * 1000:
            self.seal(moment)

    def seal(self, moment: int) -> None:
        """Seals the open segment, if there is one.

        Some segments get damaged lines, are written twice, or arrive late.
        """
        if not self._pieces:
            return
        broken = self._break_lines()
        content = b"".join(self._pieces)
        name = f"segment-{self._boot}-{self._number:08}.jsonl"
        chance = self._random.random()
        late = LATE_SECONDS if chance < self._fleet.damage else 0
        self._put(self._folder / name, content, moment, late)
        if chance > 1 - self._fleet.damage:
            self.truth.lines += content.count(b"\n")
            self.truth.faults.update(broken)
            self._put(self._again / name, content, moment, AGAIN_SECONDS)
        self._pieces, self._size, self._number = [], 0, self._number + 1

    def _put(self, path: Path, content: bytes, moment: int, late: int) -> None:
        path.write_bytes(content)
        arrived = ((self._fleet.begin + late) * 1000 + moment) * 1_000_000
        os.utime(path, ns=(arrived, arrived))
        self.truth.bytes += len(content)
        self.truth.segments += 1

    def _break_lines(self) -> Counter[str]:
        """Adds lines that are not records. Returns their number by fault."""
        lines = sum(piece.count(b"\n") for piece in self._pieces)
        broken: Counter[str] = Counter()
        for _ in range(self._random.poisson(lines * self._fleet.damage / 100)):
            fault, spoil = FAULTS[int(self._random.integers(len(FAULTS)))]
            opened_at = timestamp(self._fleet.begin + self._opened_at / 1000)
            cells = {"version": VERSION, "kind": "log_end", "sidecar": self._sidecar, "boot": self._boot, "seq": 1}
            cells |= {"observed_at": opened_at, "emitted_at": opened_at, "topic": "broken", "partition": 0, "offset": 0}
            self._pieces.append(json.dumps(spoil(cells)).encode() + b"\n")
            broken[fault] += 1
        self.truth.faults.update(broken)
        self.truth.lines += broken.total()
        return broken
