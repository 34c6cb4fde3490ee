"""Checks that the simulation can fail: plants the bugs of `planted_bugs.toml`, and reports those that it does not find.

Each bug is planted in a copy of the checkout, so the checkout stays as it is.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
BUGS_FILE = Path(__file__).parent / "planted_bugs.toml"
COPIED = ("codecs", "coordinator", "group_sidecar", "metrics", "policies", "proxy", "tests")
COMPILED = shutil.ignore_patterns("*.so", "__pycache__", "golden", "matrix")
_FOUND = re.compile(r"^Seed (\d+) violates an invariant: (.*)", re.MULTILINE)


class Bug(NamedTuple):
    """A bug to plant.

    Attributes:
        name: a description of the product's wrong behaviour.
        file: the file, relative to the root of the checkout.
        old, new: a text that occurs once in the file, and its replacement.
        seeds: the number of seeds within which the simulation must find the bug.
        missed: why the simulation does not find the bug, or empty if it does.
    """

    name: str
    file: str
    old: str
    new: str
    seeds: int
    missed: str = ""


def bugs() -> list[Bug]:
    """Returns all bugs."""
    return [Bug(**each) for each in tomllib.loads(BUGS_FILE.read_text("utf-8"))["bug"]]


def copy_checkout(folder: Path) -> None:
    """Copies the code that the simulation imports, without compiled modules. So Python runs the changed sources."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=COMPILED)


class Result(NamedTuple):
    """`seed`: the seed that found the bug, or None. `text`: the first line of the violation, or of an error."""

    seed: int | None
    text: str


def plant(bug: Bug, folder: Path, first: int = 1) -> Result:
    """Plants a bug in a copy of the checkout, runs seeds until the bug is found, and restores the file."""
    file = folder / bug.file
    source = file.read_text("utf-8")
    if source.count(bug.old) != 1:
        return Result(None, f"{bug.file} contains the text to replace {source.count(bug.old)} times")
    file.write_text(source.replace(bug.old, bug.new), "utf-8")
    try:
        run = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--first", str(first), "--seeds", str(bug.seeds)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        file.write_text(source, "utf-8")
    if found := _FOUND.search(run.stdout):
        return Result(int(found[1]), found[2])
    return Result(None, run.stderr.strip().rpartition("\n")[2])


def check(chosen: list[Bug]) -> Iterator[tuple[Bug, Result]]:
    """Yields each bug with its result."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_checkout(folder)
        for bug in chosen:
            yield bug, plant(bug, folder)


def main() -> int:
    """Checks the chosen bugs. Returns 1 if the simulation misses a bug that it must find."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="plant only bugs whose name contains this text")
    parser.add_argument("--at-most", type=int, help="the maximum number of seeds for each bug")
    parser.add_argument("--missed", action="store_true", help="also plant the bugs that are known to be missed")
    arguments = parser.parse_args()
    chosen = [each for each in bugs() if arguments.only in each.name and (arguments.missed or not each.missed)]
    if arguments.at_most is not None:
        chosen = [each._replace(seeds=min(each.seeds, arguments.at_most)) for each in chosen]
    lost = 0
    for bug, (seed, text) in check(chosen):
        lost += seed is None
        outcome = f"found by seed {seed}" if seed is not None else f"NOT FOUND in {bug.seeds} seeds"
        sys.stdout.write(f"{bug.name}: {outcome}. {text[:100]}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - lost} of {len(chosen)} found\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
