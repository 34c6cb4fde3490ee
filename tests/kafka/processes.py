"""A child process whose output is kept in a file, and who is ended by its id.

Owns: starting, waiting for readiness, ending. Must not know: what is being run.
"""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

Address = tuple[str, int]
"""Host and port."""

PATIENCE = 100.0
"""Seconds until a test gives up on what must come: far longer than it takes, for some machines are slow."""
_RANDOM = random.SystemRandom()
"""Not the seeded one: two runs at once must not choose alike."""
_GIVEN: set[Address] = set()
"""What one fixture was given, and has not bound yet, no other must be given."""
_POLL_SECONDS = 0.05
_LOG_TAIL = 4000


class ProcessFailed(Exception):
    """A process ended, or did not get ready; the text carries the end of its output."""


def free_addresses(count: int) -> list[Address]:
    """As many loopback addresses that nobody listens on, all different.

    They lie below the range from which systems take ports for outgoing connections, so none of
    these takes one away before it is bound.
    """
    found: set[Address] = set()
    while len(found) < count:
        address = ("127.0.0.1", _RANDOM.randrange(20_000, 32_000))
        if address in _GIVEN:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            found.add(address)
            _GIVEN.add(address)
    return list(found)


def spelled(address: Address) -> str:
    """The address as ``host:port``."""
    return f"{address[0]}:{address[1]}"


class ChildProcess:
    """A process that runs from `start` to `stop`, or for the length of a with statement."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.log = log
        self.environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process, from `start` on."""
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Starts the process; its output goes to the end of the log."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment
            )

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Waits until `ready` says so; asks it time and again.

        Raises:
            ProcessFailed: the process ended before, or the time is over.
        """
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if self.running.poll() is not None:
                raise ProcessFailed(f"{self.command[0]} ended with status {self.running.returncode}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{self.command[0]} was not ready within {PATIENCE} s\n{self.tail()}")
            time.sleep(_POLL_SECONDS)

    def stop(self, *, how: signal.Signals = signal.SIGTERM, seconds: float = 10) -> int:
        """Ends the process, with SIGKILL where it has not ended by itself in time. Returns its status."""
        if self.running.poll() is None:
            self.running.send_signal(how)
            try:
                self.running.wait(seconds)
            except subprocess.TimeoutExpired:
                self.running.kill()
        return self.running.wait()

    def tail(self) -> str:
        """The end of what the process has printed."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL:] if self.log.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
