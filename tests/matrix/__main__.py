"""Runs the compatibility matrix and writes docs/compatibility.md: ``python -m tests.matrix``."""

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.matrix.page import page
from tests.matrix.results import Results
from tests.matrix.rows import ROWS, Program, Row
from tests.matrix.run import BROKERS, failures, run_broker, say
from tests.matrix.toolchains import Missing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/compatibility.md"
QUICK_BROKERS = BROKERS[:1]
QUICK_CLIENTS = ("librdkafka", "kafka-python", "java-4.4")


def main(arguments: Sequence[str]) -> int:
    """Runs the matrix. Returns 1 if a step works directly and not through the sidecar, otherwise 0."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # The exit ends all child processes.
    results = Results(options.results)
    if options.fresh:
        results.clear()
    programs = _prepared([ROWS[name] for name in options.clients], results)
    failed = []
    for version in options.brokers:
        say(f"Kafka {version}: {len(programs)} clients")
        keep = options.logs / version if options.logs else None
        result = run_broker(version, programs, options.jobs, keep)
        results.add(version, result)
        failed += [f"Kafka {version}: {line}" for line in failures(result.cells)]
    if options.page:
        options.page.write_text(page(results), "utf-8")
    for line in failed:
        say(f"works directly, and not through the sidecar: {line}")
    return 1 if failed else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--brokers", type=_names(BROKERS), help="versions, separated by commas")
    parser.add_argument("--clients", type=_names(ROWS), help="names, separated by commas")
    parser.add_argument("--quick", action="store_true", help="one broker and three clients, unless they are named")
    parser.add_argument("--jobs", type=int, default=3, help="how many clients run at a time")
    parser.add_argument("--fresh", action="store_true", help="forgets the results of earlier runs")
    parser.add_argument("--results", type=Path, default=ROOT / "build/matrix/results.json", help="the results' file")
    parser.add_argument("--page", type=Path, help="the page to write; a run of everything writes docs/compatibility.md")
    parser.add_argument("--logs", type=Path, help="a folder for the logs of brokers, sidecars and clients")
    options = parser.parse_args(arguments)
    if not (options.brokers or options.clients or options.quick):
        options.page = options.page or PAGE
    options.brokers = options.brokers or (QUICK_BROKERS if options.quick else BROKERS)
    options.clients = options.clients or (QUICK_CLIENTS if options.quick else tuple(ROWS))
    return options


def _names(known: Sequence[str] | Mapping[str, object]) -> Callable[[str], tuple[str, ...]]:
    """Returns a function that reads names separated by commas."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: known are {', '.join(known)}")
        return names

    return read


def _prepared(rows: Sequence[Row], results: Results) -> dict[Row, Program]:
    """Builds the programs. Notes in the results which programs cannot be built."""
    programs = {}
    for row in rows:
        try:
            programs[row] = row.prepare()
        except Missing as reason:
            say(f"{row.name} is not run: {reason}")
            results.add_missing(row.name, str(reason))
    return programs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
