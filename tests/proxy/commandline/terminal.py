"""A terminal with a program in it.

Owns: the pseudo-terminal, what was written to it, its modes. Must not know: which program.
"""

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
_HOME = "\x1b[H"  # Begins a picture.


class Terminal:
    """A program in a terminal of its own, for the length of a with statement.

    Args:
        command: the program and its arguments.
        columns: how wide the terminal is.
        lines: how high.
        environ: what the environment has beside this process's.

    Attributes:
        written: all that was written to the terminal so far.
    """

    def __init__(
        self, command: Sequence[str], *, columns: int = 100, lines: int = 24, environ: Mapping[str, str] | None = None
    ) -> None:
        self._command = command
        # Without the variables that would stand for the terminal's own size.
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
        """Types."""
        os.write(self._outside, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Changes the size; the kernel tells the program."""
        self._size = columns, lines
        fcntl.ioctl(self._outside, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def modes(self) -> list[Any]:
        """What termios says of the terminal now."""
        return termios.tcgetattr(self._inside)

    def restored(self) -> bool:
        """Whether its modes are those from before the program."""
        return self.modes() == self._before

    def wait_for(self, text: str) -> None:
        """Returns when this text has been written."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while text not in self.written:
            assert self._read(deadline), f"no {text!r} in {self.written!r}"

    def picture(self, text: str) -> str:
        """What fills the whole screen, as soon as this text is in it."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while True:
            picture = self.written.rpartition(_HOME)[2]
            if text in picture and picture.count("\n") == self._size[1] - 1:
                return picture
            assert self._read(deadline), f"no picture with {text!r} in {self.written!r}"

    def end(self) -> int:
        """Reads what the program still writes. Returns its status."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"goes on after {self.written!r}"
            self._read(time.monotonic() + 0.05)
        while self._read(time.monotonic()):
            pass
        return self.process.returncode

    def _read(self, deadline: float) -> bool:
        """Takes in a chunk. False where none came in time."""
        readable, _, _ = select.select([self._outside], [], [], max(deadline - time.monotonic(), 0))
        if readable:
            self._received += os.read(self._outside, _CHUNK)
            self.written = self._received.decode(errors="replace")
        return bool(readable)


def _own_terminal() -> None:
    """Makes standard input the terminal that Ctrl-C comes from."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
