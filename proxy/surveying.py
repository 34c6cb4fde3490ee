"""Takes surveys between the frames.

Owns: `in_slices`, and `Surveyor`: that many who ask at once are served by one survey. Must not know: what a survey
says, who asks.

A checkpoint lets the data path have its turn, and costs about 15 us: trio is its guest.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import trio

from group_sidecar.metrics.survey import Copy, MostMembers, Survey, survey

T = TypeVar("T")

YOUNG_SECONDS = 1.0
"""For so long after it was done a survey is as good as a new one."""


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Does what is done step by step, with a turn for everybody else after each. Gives what comes of it."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        await trio.lowlevel.checkpoint()


class Surveyor:
    """Takes surveys for whoever asks.

    Args:
        copies: the copies of the coordinators, one per broker.
        epoch: seconds since the epoch.
        most_members: the most members that a group may have; None without limit.
        drift: as of `survey.walk`.
    """

    def __init__(
        self,
        copies: Callable[[], Sequence[Copy]],
        epoch: Callable[[], float],
        most_members: MostMembers,
        drift: Callable[[], float] = float,
    ) -> None:
        self._copies = copies
        self._epoch = epoch
        self._most_members = most_members
        self._drift = drift
        self._turn = trio.Lock()
        self._latest: tuple[Survey, float] | None = None

    async def surveyed(self) -> Survey:
        """All groups, of this moment or of less than a second ago."""
        async with self._turn:  # Who waits for it finds what the other has taken.
            self.forget()
            if self._latest is None:
                taken = await in_slices(survey(self._copies(), self._epoch(), self._most_members, self._drift()))
                self._latest = taken, trio.current_time()
            return self._latest[0]

    def forget(self) -> None:
        """Lets go of a survey that is not young any more. To be called every few seconds."""
        if self._latest is not None and trio.current_time() - self._latest[1] >= YOUNG_SECONDS:
            self._latest = None
