"""Runs the named steps one after the other, and prints one line of JSON per step.

The clients of the matrix run in a virtual environment of their own, so nothing here imports the project.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping

RECORDS = 100
PARTITIONS = 4
WAIT_SECONDS = 30.0


class Failed(Exception):
    """The client does not work as expected."""


class Unsupported(Exception):
    """The client has no such feature."""


def check(holds: bool, text: str) -> None:
    """Raises Failed with the text unless the condition holds."""
    if not holds:
        raise Failed(text)


def until(text: str, holds: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    """Calls `holds` until it returns True. `holds` itself waits, for instance by polling a consumer."""
    deadline = time.monotonic() + seconds
    while not holds():
        check(time.monotonic() < deadline, f"timed out: {text}")


def run(steps: Mapping[str, Callable[[], None]], names: str, at_end: Callable[[], None] = lambda: None) -> None:
    """Runs the steps, whose names are separated by commas, calls `at_end`, and ends the process."""
    for name in names.split(","):
        report: dict[str, object] = {"step": name, "ok": True, "error": None}
        try:
            steps[name]()
        except Unsupported as error:
            report |= {"ok": False, "error": f"not supported by the client: {error}", "unsupported": True}
        except BaseException as error:  # noqa: BLE001 - the harness reports each failure of a client
            report |= {"ok": False, "error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
    at_end()
    os._exit(0)  # Threads of a client that failed must not keep the process alive.
