"""Python's search for cyclic garbage, kept so short that no client waits for it.

Owns: how much is searched at a time, and when nothing is. Must not know: what the objects are.

CPython from time to time searches all objects that it tracks, in one go. With 100,000 groups that were learnt from
clients that took half a second, for all clients. Nearly all that is kept here has no cycles, and goes when nobody
refers to it any more. So what has survived one search is set aside (`gc.freeze`), and the next one sees only what is
new: some 8,000 objects, 2 or 3 ms.

What is in a cycle when it is set aside, and is not used any more later, stays until the process ends.
"""

import gc
from collections.abc import Mapping
from types import TracebackType
from typing import Any

YOUNG, MIDDLE = 700, 10
"""As CPython has them: a search of the youngest after so many new objects, of these and the next after so many of
those. A full one comes with each of the latter."""
LONG_FRAME = 4_096
"""Bytes of a frame that is decoded undisturbed: it makes many objects at once, which are gone at once."""


def keep_short() -> None:
    """From now on all searches are short, for the whole process."""
    gc.set_threshold(YOUNG, MIDDLE, 0)
    if _set_aside not in gc.callbacks:
        gc.callbacks.append(_set_aside)


def _set_aside(phase: str, info: Mapping[str, Any]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


class Undisturbed:
    """While a long message is understood, nothing is searched for."""

    __slots__ = ("_pauses",)

    def __enter__(self) -> None:
        self._pauses = gc.isenabled()
        gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pauses:
            gc.enable()
