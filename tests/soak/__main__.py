"""Command line: runs the soak test, and prints the table and the verdict."""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.soak.report import chart, text
from tests.soak.run import soak
from tests.soak.samples import Point

_SECONDS_PER_HOUR = 3600


def main() -> int:
    """Runs the soak test. Returns 1 if a series grows or a client fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.2, help="how long to run")
    parser.add_argument("--chart", type=Path, help="the SVG file to write")
    parser.add_argument("--samples", type=Path, help="the file to append samples to, one JSON object in a line")
    parser.add_argument("--folder", type=Path, help="an empty folder for the data and logs, which is kept")
    arguments = parser.parse_args()

    def note(point: Point) -> None:
        if arguments.samples:
            with arguments.samples.open("a") as file:
                file.write(json.dumps(asdict(point)) + "\n")

    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = soak(folder, arguments.hours * _SECONDS_PER_HOUR, note=note)
    print(text(result))
    if arguments.chart:
        arguments.chart.write_text(chart(result.points))
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main())
