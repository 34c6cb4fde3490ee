"""Command line: runs clients and faults, and reports what the check found."""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.kafka.releases import NEWEST
from tests.linearizability.checker import CheckerUnavailable
from tests.linearizability.run import Options, run
from tests.linearizability.schedule import KINDS


def main() -> int:
    """Returns 1 if a rule is broken, or with ``--stale`` if no stale answer was found."""
    arguments = _arguments()
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="linearizability-"))
    folder.mkdir(parents=True, exist_ok=True)
    options = Options(
        folder=folder,
        seconds=arguments.seconds,
        seed=arguments.seed,
        version=arguments.version,
        direct=arguments.direct,
        stale=arguments.stale,
        kinds=[kind for kind in KINDS if kind not in arguments.without],
        deletes=not arguments.no_deletes,
        once=arguments.once,
    )
    began = time.monotonic()
    try:
        report = run(options)
    except CheckerUnavailable as error:
        print(error)
        return 1
    print("\n".join(report.lines()))
    (folder / "report.json").write_text(json.dumps(report.as_json(), indent=1))
    problems = report.problems(direct=options.direct)
    failed = not report.unexplained if options.stale else bool(problems)
    print(f"{time.monotonic() - began:.0f} s; {len(problems)} problems; seed {options.seed}")
    if arguments.folder or failed:
        print(f"files: {folder}")
    else:
        shutil.rmtree(folder)
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.linearizability", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the clients work")
    parser.add_argument("--seed", type=int, default=1, help="decides faults and clients")
    parser.add_argument("--version", default=NEWEST, help="the version of Kafka, 3.5 or later")
    parser.add_argument("--direct", action="store_true", help="without sidecars, to compare")
    parser.add_argument("--stale", action="store_true", help="make proxies return old answers, which must be found")
    parser.add_argument("--without", action="append", default=[], choices=KINDS, help="a kind of fault to leave out")
    parser.add_argument("--no-deletes", action="store_true", help="do not delete offsets")
    parser.add_argument("--once", action="store_true", help="each kind of fault once, however long that takes")
    parser.add_argument("--folder", help="an empty folder in which all files stay")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
