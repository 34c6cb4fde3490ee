"""Runs the job as processes of its own, to their end or until they are killed."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka.processes import GIVE_UP_SECONDS


@contextmanager
def job(log: Path, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs the job and its JVM as a separate process group, and kills the group at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        # Until the job is waited for, no other process can get its group id.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_when(ready: Callable[[], object], log: Path, *command: str) -> None:
    """Runs the job and kills it with its JVM as soon as `ready` returns a true value."""
    with job(log, *command) as process:
        deadline = time.monotonic() + 3 * GIVE_UP_SECONDS
        while not ready():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)


def finish(*command: str) -> str:
    """Runs the job to its end. Returns its standard error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr
