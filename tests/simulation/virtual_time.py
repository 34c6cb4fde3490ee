"""Runs a trio program on a virtual clock. Everything that could differ between two runs depends on the seed.

- Trio's clock jumps to the next deadline whenever all tasks wait.
- Trio runs tasks that are ready at the same time in a seeded order.
- `time.time` and `time.monotonic` follow the virtual clock. A `WallTime` can be set, as an administrator sets a clock.
- A function that the product runs in a thread runs at once, in the task that called it.

The hashes of strings must be the same in all runs, so the process needs PYTHONHASHSEED=0 (`__main__`).
"""

import gc
import random
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, TypeVar
from unittest.mock import patch

import trio
from trio._core import _run as scheduler
from trio.testing import MockClock

T = TypeVar("T")
EPOCH = 1_700_000_000.0
"""The wall time at which each run begins, in seconds since the epoch."""


class WallTime:
    """The system's clock. `step`: the total of seconds by which the clock was set forward."""

    def __init__(self) -> None:
        self.step = 0.0

    def read(self) -> float:
        """Returns seconds since the epoch."""
        return EPOCH + trio.current_time() + self.step


async def _run_inline(function: Callable[..., T], *arguments: Any, **_: Any) -> T:
    """Runs a function at once, in place of `trio.to_thread.run_sync`."""
    await trio.lowlevel.checkpoint()
    return function(*arguments)


def run(seed: int, wall_time: WallTime, clock: MockClock, program: Callable[[], Awaitable[T]]) -> T:
    """Runs a program on a clock, and returns its result. Seeds `random` and trio's order of tasks."""
    random.seed(seed)
    scheduler._r.seed(seed)
    with ExitStack() as patches:
        for target, replacement in (
            ("time.time", wall_time.read),
            ("time.monotonic", trio.current_time),
            ("trio.to_thread.run_sync", _run_inline),
            ("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True),
        ):
            patches.enter_context(patch(target, replacement))
        gc.disable()  # Finalizers must not run at a moment that depends on earlier runs.
        try:
            return trio.run(program, clock=clock)
        finally:
            gc.enable()
