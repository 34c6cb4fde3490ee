"""Starts processes that write a journal and end while they write. The test runs this module as a program.

``python -m tests.metrics.crashing_writers killed FOLDER ROUNDS`` kills each writer at a random moment.
``python -m tests.metrics.crashing_writers stopped FOLDER`` starts a writer that ends before its first system call,
one that ends before its second, and so on, until a writer completes its work. Each has its own folder.

Prints a JSON object: by boot, the number of the last record that the writer reported as written.
"""

import fcntl
import itertools
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from group_sidecar.metrics.journal_segments import JournalSegments
from tests.metrics.test_journal_segments import LINE, record

TORN = record(1).to_line()[:-9]
"""An incomplete line, as a killed process may leave it."""


def write_on(journal: JournalSegments, report: int, rounds: int | None = None) -> None:
    """Writes two records per round, and reports after each round how many are written. Without `rounds`, never ends."""
    seq = itertools.count(1)
    for _ in itertools.count() if rounds is None else range(rounds):
        for _ in range(2):
            journal.append(record(next(seq)))
        journal.write()
        os.write(report, f"{journal.records_written}\n".encode())


def forked(work: Callable[[int], None]) -> tuple[int, int]:
    """Runs `work` in a forked process, with the writing end of a pipe.

    Returns:
    The process id, and the reading end of the pipe.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        work(writing)
        os._exit(0)
    os.close(writing)
    return pid, reading


def killed(folder: Path, rounds: int) -> dict[str, int]:
    """Starts writers one after the other, and kills each after a random number of reports."""
    last: dict[str, int] = {}
    for number in range(rounds):
        boot = f"killed{number}"
        pid, reading = forked(partial(write_on, journal(folder, boot)))
        with os.fdopen(reading) as lines:
            said = [next(lines) for _ in range(random.randrange(1, 15))]
            os.kill(pid, signal.SIGKILL)
            said += lines
        os.waitpid(pid, 0)
        last[boot] = int(said[-1])
    return last


def journal(folder: Path, boot: str) -> JournalSegments:
    """Returns a journal whose segments are full after five records."""
    return JournalSegments(folder, boot, segment_bytes=5 * LINE, total_bytes=1 << 30)


def stopped(folder: Path) -> dict[str, int]:
    """Starts one writer per system call. Each writer ends before its call."""
    last: dict[str, int] = {}
    for step in itertools.count(1):
        place = folder / f"stopped{step}"
        place.mkdir()
        (place / ".segment-other-00000001.jsonl").write_bytes(record(1).to_line() + TORN)

        def work(report: int, place: Path = place, step: int = step) -> None:
            stop_before(step)
            write_on(journal(place, place.name), report, rounds=6)

        pid, reading = forked(work)
        with os.fdopen(reading) as lines:
            last[place.name] = int(next(iter(list(lines)[::-1]), "0"))
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
            return last
    raise AssertionError


def stop_before(step: int) -> None:
    """Makes this process end before its system call on files with this number."""
    calls = itertools.count(1)

    def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == step:
                os._exit(1)
            return call(*args, **kwargs)

        return instead

    for owner, name in (
        (os, "fsync"),
        (os, "fstat"),
        (os, "open"),
        (fcntl, "flock"),
        (Path, "open"),
        (Path, "rename"),
        (Path, "unlink"),
        (Path, "stat"),
    ):
        setattr(owner, name, guarded(getattr(owner, name)))


if __name__ == "__main__":
    way, at, *rest = sys.argv[1:]
    sys.stdout.write(json.dumps(killed(Path(at), int(rest[0])) if way == "killed" else stopped(Path(at))))
