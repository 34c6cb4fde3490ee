"""The keys of a terminal, one at a time.

Owns: the terminal's modes for the length of a with statement. Must not know: what a key means.
"""

import os
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import trio

_LOCAL_FLAGS, _CHARACTERS = 3, 6  # Where termios has them in its list.
_AT_ONCE = 64  # Bytes: an arrow is three, what is pasted more.


@contextmanager
def single_keys(terminal: int) -> Iterator[None]:
    """Has keys arrive one by one and unseen. Ctrl-C still interrupts; Ctrl-Z does not leave a screen half drawn."""
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
    """What is pressed, as it arrives; ends with the terminal."""
    while True:
        await trio.lowlevel.wait_readable(terminal)
        try:
            pressed = os.read(terminal, _AT_ONCE)
        except OSError:
            return
        if not pressed:
            return
        yield pressed.decode("utf-8", "ignore")
