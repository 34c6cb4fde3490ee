"""Keeps the pauses of Python's cyclic garbage collector so short that no client waits for them.

CPython sometimes scans all tracked objects in one collection. With 100,000 groups learnt from clients, this collection
took half a second, in which no client was served. Nearly all objects here have no cycles and are freed by reference
counts. So objects that survive a collection are frozen (`gc.freeze`). The next collection scans only newer objects:
about 8,000 in 2 or 3 ms.

The price: a frozen object in a cycle is never freed, even if nothing uses the object any more.
"""

import gc
from collections.abc import Mapping
from types import TracebackType
from typing import Any

GEN0_THRESHOLD, GEN1_THRESHOLD = 700, 10
"""The default thresholds of CPython 3.11. The youngest generation is collected after 700 new objects, and the middle
generation after 10 of these collections. A full collection follows each collection of the middle generation."""
LONG_FRAME = 4_096
"""Bytes of a frame beyond which the collector is paused while the frame is decoded. Decoding creates many objects at
once, which soon become unused."""


def keep_collections_short() -> None:
    """Keeps all later collections of this process short."""
    gc.set_threshold(GEN0_THRESHOLD, GEN1_THRESHOLD, 0)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


def _freeze_survivors(phase: str, info: Mapping[str, Any]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


class CollectionPaused:
    """A context manager that pauses the collector while its block decodes a long frame."""

    __slots__ = ("_was_enabled",)

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._was_enabled:
            gc.enable()
