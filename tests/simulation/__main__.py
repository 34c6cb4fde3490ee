"""Command line: runs seeds, and reports the first violation with the command that shows it again."""

import argparse
import os
import sys
import time
from collections import Counter

from tests.simulation.faults import KINDS
from tests.simulation.minimise import command, minimise
from tests.simulation.run import Outcome, simulate
from tests.simulation.scenario import SECONDS, Scenario
from tests.simulation.timeline import KEPT_LINES


def main() -> int:
    """Returns 1 if an invariant does not hold."""
    arguments = _arguments()
    _fix_hashes()
    began, virtual = time.perf_counter(), 0.0
    local, forwarded = Counter[str](), Counter[str]()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        scenario = Scenario.of(seed, KINDS).changed(
            seconds=arguments.seconds, members=arguments.members, without=arguments.without
        )
        outcome = simulate(scenario, arguments.lines)
        virtual += outcome.seconds
        local += outcome.local
        forwarded += outcome.forwarded
        if arguments.verbose:
            print(seed, outcome.trace_hash, f"{outcome.seconds:.0f} s", flush=True)
        if outcome.violation:
            _report(outcome)
            if arguments.minimise:
                print("\nA smaller run:\n")
                _report(minimise(outcome))
            return 1
    print(f"{arguments.seeds} seeds from {arguments.first} on, {virtual / 3600:.2f} virtual hours")
    print(f"in {time.perf_counter() - began:.1f} s; no violation")
    print("the sidecar's own answers:", dict(sorted(local.items())))
    print("forwarded replies:", dict(sorted(forwarded.items())))
    return 0


def _fix_hashes() -> None:
    """Starts this program again with PYTHONHASHSEED=0, unless it has this value. Sets of strings then have one order.

    The check of the documented commands runs the program only until it has parsed its arguments, so the caller parses
    them before this call.
    """
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])


def _report(outcome: Outcome) -> None:
    original = Scenario.of(outcome.scenario.seed, KINDS)
    print("\n".join(outcome.last_lines))
    print(f"\nSeed {original.seed} violates an invariant: {outcome.violation}\n")
    print(f"Trace {outcome.trace_hash}. The same run again:")
    print(command(outcome.scenario, original))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="virtual seconds with faults")
    parser.add_argument("--members", type=int, help="how many clients are members of groups")
    parser.add_argument("--without", action="append", default=[], choices=KINDS, help="a kind of fault to leave out")
    parser.add_argument("--lines", type=int, default=KEPT_LINES, help="how many lines of a failing trace to print")
    parser.add_argument("--minimise", action="store_true", help="look for a smaller run that fails too")
    parser.add_argument("--verbose", action="store_true", help="print the hash of each seed's trace")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
