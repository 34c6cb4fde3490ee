"""Sets a terminal to a mode without lines and echo, and reads single keys from the terminal."""

import os
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import trio

_LOCAL_FLAGS, _CHARACTERS = 3, 6  # The indexes of both fields in the list of tcgetattr.
_AT_ONCE = 64  # Bytes per read. An arrow key sends three bytes, and pasted text may have more.


@contextmanager
def single_keys(terminal: int) -> Iterator[None]:
    """Makes the terminal deliver keys one by one without echo. Ctrl-C still interrupts, and Ctrl-Z has no effect."""
    before = termios.tcgetattr(terminal)
    modes = termios.tcgetattr(terminal)
    modes[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
    modes[_CHARACTERS][termios.VSUSP] = b"\0"
    termios.tcsetattr(terminal, termios.TCSADRAIN, modes)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


async def keys(terminal: int) -> AsyncIterator[str]:
    """Yields the text of pressed keys, until the terminal is closed."""
    while True:
        await trio.lowlevel.wait_readable(terminal)
        try:
            pressed = os.read(terminal, _AT_ONCE)
        except OSError:
            return
        if not pressed:
            return
        yield pressed.decode("utf-8", "ignore")
