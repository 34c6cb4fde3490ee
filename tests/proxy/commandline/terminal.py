"""Runs a program in a pseudo-terminal, and records the program's output and the terminal's modes."""

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.kafka.processes import GIVE_UP_SECONDS

_CHUNK = 65536
_HOME = "\x1b[H"  # The cursor moves home at the start of each screen.


class Terminal:
    """A program in its own pseudo-terminal. Use as a context manager.

    Args:
        command: the program and its arguments.
        columns: the width of the terminal in characters.
        lines: the height of the terminal in lines.
        environ: environment variables in addition to those of this process.

    Attributes:
        written: all output of the program so far.
    """

    def __init__(
        self, command: Sequence[str], *, columns: int = 100, lines: int = 24, environ: Mapping[str, str] | None = None
    ) -> None:
        self._command = command
        # COLUMNS and LINES would override the terminal's size. NO_COLOR would turn colors off.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self._environ = {**inherited, "TERM": "xterm", **(environ or {})}
        self._size = columns, lines
        self._received = b""
        self.written = ""

    def __enter__(self) -> Self:
        self._outside, self._inside = os.openpty()
        self.resize(*self._size)
        self._before = self.modes()
        self.process = subprocess.Popen(
            self._command,
            stdin=self._inside,
            stdout=self._inside,
            stderr=self._inside,
            env=self._environ,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(GIVE_UP_SECONDS)
        os.close(self._outside)
        os.close(self._inside)

    def press(self, keys: str) -> None:
        """Sends keys to the program."""
        os.write(self._outside, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Changes the terminal's size. The kernel signals the change to the program."""
        self._size = columns, lines
        fcntl.ioctl(self._outside, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def modes(self) -> list[Any]:
        """The terminal's current modes, as `termios.tcgetattr` returns them."""
        return termios.tcgetattr(self._inside)

    def restored(self) -> bool:
        """Whether the terminal has the modes that it had before the program started."""
        return self.modes() == self._before

    def wait_for(self, text: str) -> None:
        """Waits until the program has written this text."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while text not in self.written:
            assert self._read(deadline), f"no {text!r} in {self.written!r}"

    def picture(self, text: str) -> str:
        """Waits for a complete screen that contains this text, and returns the screen."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while True:
            picture = self.written.rpartition(_HOME)[2]
            if text in picture and picture.count("\n") == self._size[1] - 1:
                return picture
            assert self._read(deadline), f"no complete screen with {text!r} in {self.written!r}"

    def end(self) -> int:
        """Waits for the program's end and reads its remaining output. Returns its exit status."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"the program did not end; its output: {self.written!r}"
            self._read(time.monotonic() + 0.05)
        while self._read(time.monotonic()):
            pass
        return self.process.returncode

    def _read(self, deadline: float) -> bool:
        """Reads a chunk of output. Returns False if none arrived before the deadline."""
        readable, _, _ = select.select([self._outside], [], [], max(deadline - time.monotonic(), 0))
        if readable:
            self._received += os.read(self._outside, _CHUNK)
            self.written = self._received.decode(errors="replace")
        return bool(readable)


def _own_terminal() -> None:
    """Makes standard input the controlling terminal, so that Ctrl-C signals the program."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
