"""Runs a child process with its output in a file, and ends it by its id."""

import fcntl
import os
import random
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

Address = tuple[str, int]
"""Host and port."""

GIVE_UP_SECONDS = 100.0
"""Seconds after which a test gives up waiting. This is far longer than usual, because some machines are slow."""
_RANDOM = random.SystemRandom()
"""A random generator without the seed of the tests, because two concurrent runs must not choose the same ports."""
_PORTS = range(20_000, 32_000)
_RESERVED: set[Address] = set()
"""Addresses that a fixture of this run has reserved and may not have bound yet."""
_POLL_SECONDS = 0.05
_LOG_TAIL = 4000


class ProcessFailed(Exception):
    """Raised when a process ended or did not become ready. The text contains the end of the process's output."""


def free_addresses(count: int) -> list[Address]:
    """Returns `count` different loopback addresses on which nothing listens.

    The ports are below the range from which systems choose ports for outgoing connections. So no such connection gets a
    port before the caller binds it. The ports stay reserved until the run ends, also against other runs of this user.
    """
    found: set[Address] = set()
    while len(found) < count:
        address = ("127.0.0.1", _RANDOM.choice(_PORTS))
        if address in _RESERVED or not reserve(address[1]):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            found.add(address)
            _RESERVED.add(address)
    return list(found)


def reserve(port: int) -> bool:
    """Reserves a port for this run. Returns False if another run of this user has reserved the port.

    A lock on a byte of a file reserves the port of that number. The kernel releases a process's locks when it ends.
    """
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return True


@cache
def _reservations() -> int:
    """Returns the descriptor of the file of `reserve`. The file stays open, because closing it releases the locks."""
    path = Path(tempfile.gettempdir(), f"group-sidecar-test-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def host_port(address: Address) -> str:
    """Formats an address as ``host:port``."""
    return f"{address[0]}:{address[1]}"


class AdoptedProcess:
    """A running process that another process has started. Its exit status is not known."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    @property
    def returncode(self) -> int:
        """Always 0."""
        return 0

    def poll(self) -> int | None:
        """Returns None while the process runs."""
        return 0 if self._has_ended(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the process has ended. Raises TimeoutExpired if it runs for longer."""
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return 0

    def _has_ended(self, seconds: float | None) -> bool:
        poller = select.poll()  # A benchmark has more descriptors than `select.select` allows.
        poller.register(self._pidfd, select.POLLIN)
        return bool(poller.poll(None if seconds is None else seconds * 1000))

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends the process."""
        self.send_signal(signal.SIGKILL)


class ChildProcess:
    """A process that runs from `start` to `stop`, or for the length of a with statement."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.log = log
        self.environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | AdoptedProcess | None = None

    @property
    def running(self) -> subprocess.Popen[bytes] | AdoptedProcess:
        """The process. `start` must have been called."""
        assert self._process is not None, "the process was not started"
        return self._process

    def start(self) -> None:
        """Starts the process. Its output is appended to the log."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment
            )

    def adopt(self, pid: int) -> None:
        """Continues with another running process, which has taken over from this one."""
        self._process = AdoptedProcess(pid)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Calls `ready` repeatedly until it returns True.

        Raises:
            ProcessFailed: the process ended first, or `ready` was not True in time.
        """
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while not ready():
            if self.running.poll() is not None:
                raise ProcessFailed(f"{self.command[0]} ended with status {self.running.returncode}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{self.command[0]} was not ready within {GIVE_UP_SECONDS} s\n{self.tail()}")
            time.sleep(_POLL_SECONDS)

    def stop(self, *, how: signal.Signals = signal.SIGTERM, seconds: float = 10) -> int:
        """Ends the process by the signal `how`, and by SIGKILL after `seconds`. Returns its exit status."""
        if self.running.poll() is None:
            self.running.send_signal(how)
            try:
                self.running.wait(seconds)
            except subprocess.TimeoutExpired:
                self.running.kill()
        return self.running.wait()

    def tail(self) -> str:
        """Returns the end of the process's output."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL:] if self.log.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
