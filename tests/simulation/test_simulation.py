"""The simulation finds no violation, does the same in each run of a seed, and finds planted bugs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutants import bugs, copy_checkout, plant

ROOT = Path(__file__).parents[2]
FIRST_SEED = 1
SEEDS = 15
"""The number of seeds. Their runs take about 25 s on one core. `make simulate` runs more."""
SURE_BUGS = (
    "a full group takes one more member",
    "an answer has the next correlation id",
    "a cached answer is not compared with the state",
)
"""Planted bugs that the simulation finds within a few seeds."""


def _simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_violation() -> None:
    """No seed violates an invariant, and the sidecar answers questions itself."""
    done = _simulate("--first", str(FIRST_SEED), "--seeds", str(SEEDS))
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{SEEDS} seeds from {FIRST_SEED} on" in done.stdout
    for api in ("DescribeGroups", "ListGroups", "OffsetFetch"):
        assert f"'{api}'" in done.stdout.partition("the sidecar's own answers:")[2].partition("\n")[0]


def test_same_trace() -> None:
    """Two runs of the same seeds have the same traces."""
    first, second = (_simulate("--first", "4", "--seeds", "4", "--seconds", "10", "--verbose") for _ in range(2))
    hashes = first.stdout.splitlines()[:4]
    assert len({line.split()[1] for line in hashes}) == 4
    assert second.stdout.splitlines()[:4] == hashes


@pytest.mark.parametrize("name", SURE_BUGS)
def test_planted_bug(name: str, tmp_path: Path) -> None:
    """The simulation finds a planted bug."""
    [bug] = [each for each in bugs() if each.name == name]
    copy_checkout(tmp_path)
    result = plant(bug, tmp_path)
    assert result.seed is not None, result.text


def test_bugs_can_be_planted() -> None:
    """The text that each planted bug replaces occurs once in its file."""
    for bug in bugs():
        assert (ROOT / bug.file).read_text("utf-8").count(bug.old) == 1, bug.name
