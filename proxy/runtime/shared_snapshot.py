"""Takes snapshots of all groups in slices, so that clients' frames are handled between them.

`SharedSnapshot` serves several callers from one snapshot. `run_in_slices` runs any generator in slices. Each slice ends
with a checkpoint, which costs about 15 us because trio runs as a guest of the data path.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import trio

from group_sidecar.metrics.group_snapshot import GroupManager, GroupSnapshot, MaxMembers, group_snapshot

T = TypeVar("T")

FRESH_SECONDS = 1.0
"""Seconds for which a finished snapshot is reused."""


async def run_in_slices(steps: Generator[None, None, T]) -> T:
    """Runs a generator to its end, and lets other tasks run after each step. Returns the generator's result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        await trio.lowlevel.checkpoint()


class SharedSnapshot:
    """Takes snapshots of all groups, and shares each snapshot between callers.

    Args:
        managers: returns the group manager of each broker's copy.
        epoch: returns seconds since the epoch.
        max_members: returns the maximum number of members of a group, or None if there is no limit.
        drift: returns the seconds to add to the copies' times, so that they match the system's clock.
    """

    def __init__(
        self,
        managers: Callable[[], Sequence[GroupManager]],
        epoch: Callable[[], float],
        max_members: MaxMembers,
        drift: Callable[[], float] = float,
    ) -> None:
        self._managers = managers
        self._epoch = epoch
        self._max_members = max_members
        self._drift = drift
        self._lock = trio.Lock()
        self._latest: tuple[GroupSnapshot, float] | None = None

    async def group_snapshot(self) -> GroupSnapshot:
        """Returns a snapshot of all groups, which was finished less than `FRESH_SECONDS` ago."""
        async with self._lock:  # A caller that has waited here finds the snapshot of another caller.
            self.forget()
            if self._latest is None:
                taken = await run_in_slices(
                    group_snapshot(self._managers(), self._epoch(), self._max_members, self._drift())
                )
                self._latest = taken, trio.current_time()
            return self._latest[0]

    def forget(self) -> None:
        """Drops a snapshot that is too old to be used. Call it every few seconds."""
        if self._latest is not None and trio.current_time() - self._latest[1] >= FRESH_SECONDS:
            self._latest = None
