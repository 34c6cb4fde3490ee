"""Command line: runs the restart drills, and prints the table and the errors that clients showed."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.drills.clients import KINDS
from tests.drills.page import error_list, table
from tests.drills.run import DIRECT, DRILLS, THROUGH, Finding, run_drills
from tests.matrix.rows import ROWS


def main() -> int:
    """Runs the drills. Returns 1 if a record of a producer was not delivered."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description=__doc__)
    parser.add_argument("--client", action="append", choices=KINDS, help="a kind of client; default: all six")
    parser.add_argument("--route", action="append", choices=(DIRECT, THROUGH), help="a route; default: both")
    parser.add_argument("--drill", action="append", choices=DRILLS, help="a drill; default: all")
    parser.add_argument("--folder", type=Path, help="an empty folder for the data and logs, which is kept")
    arguments = parser.parse_args()
    findings: list[Finding] = []

    def report(finding: Finding) -> None:
        findings.append(finding)
        print(finding, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="drills-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [ROWS[kind] for kind in arguments.client or KINDS]
        failed = run_drills(folder, rows, arguments.route or (DIRECT, THROUGH), arguments.drill or [*DRILLS], report)
    print(table(findings), error_list(findings), *failed, sep="\n\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
