"""Runs a client program, which performs its steps and prints a line of JSON for each."""

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.matrix.outcomes import Outcome

SECONDS_PER_STEP = 120.0
"""The maximum time of a step. A client waits at most 30 s for one event, and a step waits for at most three events."""
FIRST = "produce"
"""If this step fails, the others do not run, because they need its records."""
_REPORT = b'{"step"'
"""The beginning of a line that reports a step. All other lines come from the client's own logging."""


def run_steps(
    command: Sequence[str],
    place: Sequence[str],
    steps: Sequence[str],
    more: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
) -> dict[str, Outcome]:
    """Returns the outcome of each step.

    A program that hangs in a step or ends early is started again for the remaining steps.

    Args:
        command: the program.
        place: the bootstrap address, the topic and the group.
        steps: the names of the steps.
        more: further arguments.
        log: the file for its error output.
        environment: additional environment variables.
    """
    outcomes: dict[str, Outcome] = {}
    while left := [step for step in steps if step not in outcomes]:
        if FIRST in outcomes and not outcomes[FIRST].ok:
            return outcomes | dict.fromkeys(left, Outcome(ok=False, error=f"{FIRST} failed"))
        line = [*command, *place, ",".join(left), *more]
        outcomes |= _one_run(line, left, log, {**os.environ, **environment})
    return outcomes


def _one_run(
    command: Sequence[str], steps: Sequence[str], log: Path, environment: Mapping[str, str]
) -> dict[str, Outcome]:
    """Starts the program once. Returns the outcomes of the steps that it ran, at least of the first step."""
    outcomes: dict[str, Outcome] = {}
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
    try:
        for line in _lines(process):
            if step := _reported(line, outcomes):
                failed_first = step == FIRST and not outcomes[step].ok
                if failed_first or len(outcomes) == len(steps):
                    return outcomes
        text = f"the program ended with status {process.wait(SECONDS_PER_STEP)}"
    except (TimeoutError, subprocess.TimeoutExpired):
        text = f"no result within {SECONDS_PER_STEP:.0f} s"
    finally:
        _end(process)
    at = next(step for step in steps if step not in outcomes)
    outcomes[at] = Outcome(ok=False, error=text)
    return outcomes


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kills the program with all processes that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reported(line: bytes, outcomes: dict[str, Outcome]) -> str:
    """Adds the outcome that a line of output reports. Returns the step; empty if the line is something else."""
    if not line.startswith(_REPORT):
        return ""
    told = json.loads(line)
    outcomes[told["step"]] = Outcome(
        told["ok"], " ".join((told["error"] or "").split()), told.get("unsupported", False)
    )
    return str(told["step"])


def _lines(process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    """Yields the lines of a program's output until it ends. Raises TimeoutError if a step takes too long."""
    assert process.stdout is not None
    descriptor, held, deadline = process.stdout.fileno(), b"", time.monotonic() + SECONDS_PER_STEP
    with process.stdout, selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            data = os.read(descriptor, 65536)
            if not data:
                return
            *whole, held = (held + data).split(b"\n")
            for line in whole:
                yield line
                if line.startswith(_REPORT):
                    deadline = time.monotonic() + SECONDS_PER_STEP
    raise TimeoutError
