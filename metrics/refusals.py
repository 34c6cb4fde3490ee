"""The refusals of one group's clients by policies, summed up.

Owns: `GroupRefusals`, a bounded table of refusals by client and reason, and over which time each sum reaches. Must not
know: other groups, and who reads it.

A client that is refused tries again, about every second and for as long as it likes. So refusals are counted in runs:
those of one client for one reason within a minute are one run. Where a group has too many runs, two successive ones of
the client that has most are made one; those are chosen that lie close together for their age. So the counts stay whole,
and only what lies long ago is known less exactly. Only where there are too many clients is the quietest one forgotten.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from group_sidecar.coordinator.events import NEVER
from group_sidecar.coordinator.facts import ClientRefused

RUN_SECONDS = 60.0
"""A refusal later than so many seconds after a run began starts the next run."""
MOST_RUNS = 200
"""Runs of one group, and so clients with their reasons, that are kept at most."""

_Key = tuple[str, int, str, str, bool]
"""Policy, error code, client id, client host, and whether it was enforced."""


@dataclass(slots=True)
class Run:
    """Refusals of one client for one reason in a row. `fact`: the last of them."""

    fact: ClientRefused
    first_at: float
    count: int = 1

    @property
    def at(self) -> float:
        """When the last of them was."""
        return self.fact.at


class GroupRefusals:
    """The refusals of one group.

    Attributes:
        forgotten_at: the newest moment of which a refusal is no longer counted; NEVER while all are.
    """

    def __init__(self) -> None:
        self.forgotten_at = NEVER
        self._runs: OrderedDict[_Key, list[Run]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Run]:
        return (run for runs in self._runs.values() for run in runs)

    @property
    def last_at(self) -> float:
        """When a client was last refused."""
        return next(reversed(self._runs.values()))[-1].at if self._runs else NEVER

    def add(self, fact: ClientRefused) -> list[Run]:
        """Counts a refusal. Returns the runs that are no longer kept for it."""
        key = fact.policy, fact.error_code, fact.client_id, fact.client_host, fact.enforced
        runs = self._runs.setdefault(key, [])
        self._runs.move_to_end(key)
        if runs and fact.at - runs[-1].first_at < RUN_SECONDS:
            runs[-1].count += 1
            runs[-1].fact = fact
            return []
        runs.append(Run(fact, fact.at))
        self._size += 1
        return [self._shrink(fact.at)] if self._size > MOST_RUNS else []

    def forget_oldest(self) -> Run:
        """Forgets and returns the oldest run of the client whose last refusal is longest ago."""
        key, runs = next(iter(self._runs.items()))
        oldest = runs.pop(0)
        if not runs:
            del self._runs[key]
        self._size -= 1
        self.forgotten_at = max(self.forgotten_at, oldest.at)
        return oldest

    def _shrink(self, now: float) -> Run:
        runs = max(self._runs.values(), key=len)
        if len(runs) == 1:
            return self.forget_oldest()

        def closeness(index: int) -> float:
            first, second = runs[index : index + 2]
            return (second.at - first.first_at) / max(now - first.first_at, RUN_SECONDS)

        index = min(range(len(runs) - 1), key=closeness)
        merged = runs.pop(index)
        runs[index].first_at = merged.first_at
        runs[index].count += merged.count
        self._size -= 1
        return merged
