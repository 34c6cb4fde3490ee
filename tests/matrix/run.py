"""Runs the clients against one broker, first directly and then through the sidecar, and compares the routes."""

import secrets
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.kafka.broker import KafkaBroker
from tests.kafka.processes import Address, host_port
from tests.kafka.sidecar_process import SidecarProcess
from tests.matrix.outcomes import Cell, Outcome, Verdict
from tests.matrix.programs import run_steps
from tests.matrix.rows import Program, Row
from tests.matrix.stage import make_topics, running_broker, running_sidecar

BROKERS = ("4.4.0", "4.3.1", "3.9.1", "2.8.2", "1.1.1", "0.10.2.2", "0.10.1.1")
"""The versions of the brokers, newest first."""
DIRECT, THROUGH = "direct", "through"
Outcomes = Mapping[str, Outcome]


@dataclass(frozen=True)
class BrokerResult:
    """The cells of one broker, by client and step, and how many questions the sidecar answered from its copy."""

    cells: Mapping[str, Mapping[str, Cell]]
    local_answers: int
    forwarded_questions: int


class BrokerRun:
    """The run of several clients against one broker.

    Args:
        folder: an empty folder for the logs.
        version: the broker's version.
        programs: the programs of the clients.
        jobs: how many clients run at a time.
    """

    def __init__(self, folder: Path, version: str, programs: dict[Row, Program], jobs: int) -> None:
        self._folder, self._version, self._programs, self._jobs = folder, version, programs, jobs

    def result(self) -> BrokerResult:
        """Starts the broker, runs all clients on both routes, and returns their cells."""
        with running_broker(self._folder, self._version) as broker:
            direct = self._all(broker, broker.direct, DIRECT)
            with running_sidecar(self._folder, broker) as sidecar:
                through = self._all(broker, broker.sidecar, THROUGH)
                cells = {
                    row.name: self._compared(broker, row, direct[row.name], through[row.name]) for row in self._programs
                }
                return BrokerResult(cells, *_questions(sidecar))

    def _all(self, broker: KafkaBroker, address: Address, route: str) -> dict[str, Outcomes]:
        prefixes = {row.name: _prefix(row, route) for row in self._programs}
        make_topics(broker, prefixes.values())
        pool = ThreadPoolExecutor(self._jobs)
        try:
            rows = reversed(self._programs)  # The frameworks take longest, so they start first.
            runs = {row.name: pool.submit(self._one, row, prefixes[row.name], address, route) for row in rows}
            return {name: run.result() for name, run in runs.items()}
        finally:
            pool.shutdown(cancel_futures=True)

    def _one(self, row: Row, prefix: str, address: Address, route: str) -> Outcomes:
        begun, program = time.monotonic(), self._programs[row]
        log = self._folder / f"{prefix}.log"
        place = (host_port(address), prefix, f"{prefix}-group")
        scratch = self._folder / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = {**program.environment, "TMPDIR": str(scratch)}
        outcomes = run_steps(program.command, place, row.steps, row.arguments(self._version), log, environment)
        good = sum(outcome.ok for outcome in outcomes.values())
        say(f"{self._version} {row.name} {route}: {good} of {len(row.steps)} steps, {time.monotonic() - begun:.0f} s")
        for step, outcome in outcomes.items():
            if not outcome.ok:
                say(f"    {step}: {outcome.error[:300]}")
        return outcomes

    def _compared(self, broker: KafkaBroker, row: Row, direct: Outcomes, through: Outcomes) -> dict[str, Cell]:
        """Returns the cells of a client. Where the routes differ, the client runs once more, on both routes."""
        cells = {step: Cell(direct[step], through[step]) for step in row.steps}
        if not any(_differs(cell) for cell in cells.values()):
            return cells
        say(f"{self._version} {row.name}: the routes differ, once more")
        prefixes = [_prefix(row, route) for route in (DIRECT, THROUGH)]
        make_topics(broker, prefixes)
        second = self._one(row, prefixes[1], broker.sidecar, THROUGH)
        first = self._one(row, prefixes[0], broker.direct, DIRECT)
        return {
            step: Cell(first[step], second[step], again=_differs(cells[step]) and first[step].ok and second[step].ok)
            for step in row.steps
        }


def run_broker(version: str, programs: dict[Row, Program], jobs: int, keep: Path | None = None) -> BrokerResult:
    """Runs the clients against a broker of a version. `keep` is a folder for the logs. Without it, they are removed."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        return BrokerRun(keep, version, programs, jobs).result()
    with tempfile.TemporaryDirectory() as folder:
        return BrokerRun(Path(folder), version, programs, jobs).result()


def failures(cells: Mapping[str, Mapping[str, Cell]]) -> Sequence[str]:
    """Returns a line for each step that works directly and not through the sidecar."""
    return [
        f"{client} {step}: {cell.through.error}"
        for client, steps in cells.items()
        for step, cell in steps.items()
        if cell.verdict is Verdict.FAIL
    ]


def say(line: str) -> None:
    """Prints a line of progress."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _differs(cell: Cell) -> bool:
    return cell.direct.ok != cell.through.ok


def _prefix(row: Row, route: str) -> str:
    """Returns a name that is unique to a run of a client, for its topics and groups."""
    return f"{row.name}-{route}-{secrets.token_hex(2)}"


def _questions(sidecar: SidecarProcess) -> tuple[int, int]:
    """Returns how many questions about groups the sidecar answered from its copy, and how many it forwarded."""
    names = ("group_sidecar_mirror_answers_total", "group_sidecar_mirror_fallbacks_total")
    local, forwarded = (int(sidecar.metric(name)) for name in names)
    return local, forwarded
