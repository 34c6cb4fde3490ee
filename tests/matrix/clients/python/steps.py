"""Runs the named steps one after the other, and prints one line of JSON per step.

The clients of the matrix run in a virtual environment of their own, so nothing here imports the project.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping

RECORDS = 100
PARTITIONS = 4
WAIT_SECONDS = 30.0
COMMIT_SECONDS = 0.5
"""The time between two commits of a member that stays in its group."""


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


def progress(member: int, partitions: Iterable[int]) -> None:
    """Reports that a member of a group has read records of some partitions."""
    _event({"member": member, "partitions": sorted(partitions)})


def trouble(member: int, error: object) -> None:
    """Reports an error that a member of a group has shown."""
    _event({"member": member, "error": f"{type(error).__name__}: {error}"})


def _event(fields: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"at": time.time(), **fields}) + "\n")
    sys.stdout.flush()


def both(stay_as: Callable[[int], None]) -> Callable[[], None]:
    """Returns a step in which two members run in threads until the process is killed."""

    def stay() -> None:
        threads = [threading.Thread(target=stay_as, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return stay


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
