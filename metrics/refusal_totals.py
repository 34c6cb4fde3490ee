"""Counts how often policies refused the clients of one group, for each client and reason, in bounded memory.

A refused client tries again about every second. Refusals are therefore counted in runs: all refusals of one client for
one reason within a minute are one run. If a group has too many runs, two successive runs are merged: those of the
client and reason with the most runs. The merged pair is the pair whose time span is shortest in relation to its age.
Merging keeps the counts exact, and makes only the times of old runs less exact. If no client and reason has two runs,
the oldest run is evicted.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.model.facts import ClientRefused

RUN_SECONDS = 60.0
"""Length of a run in seconds. A later refusal starts a new run."""
MAX_RUNS_PER_GROUP = 200
"""Maximum number of runs of one group, and therefore of pairs of client and reason."""

_Key = tuple[str, int, str, str, str, bool]
"""Policy, error code, client id, client host, principal, and whether the refusal was enforced."""


@dataclass(slots=True)
class RefusalRun:
    """Successive refusals of one client for one reason. `fact`: the last refusal."""

    fact: ClientRefused
    first_at: float
    count: int = 1

    @property
    def at(self) -> float:
        """Time of the last refusal of the run."""
        return self.fact.at


class GroupRefusals:
    """The refusals of one group.

    Attributes:
        forgotten_at: the time up to which refusals may be missing; NEVER if none is missing.
    """

    def __init__(self) -> None:
        self.forgotten_at = NEVER
        self._runs: OrderedDict[_Key, list[RefusalRun]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[RefusalRun]:
        return (run for runs in self._runs.values() for run in runs)

    @property
    def last_at(self) -> float:
        """Time of the last refusal of any client."""
        return next(reversed(self._runs.values()))[-1].at if self._runs else NEVER

    def add(self, fact: ClientRefused) -> list[RefusalRun]:
        """Counts a refusal, and returns the runs that were evicted or merged for it."""
        key = fact.policy, fact.error_code, fact.client_id, fact.client_host, fact.principal, fact.enforced
        runs = self._runs.setdefault(key, [])
        self._runs.move_to_end(key)
        if runs and fact.at - runs[-1].first_at < RUN_SECONDS:
            runs[-1].count += 1
            runs[-1].fact = fact
            return []
        runs.append(RefusalRun(fact, fact.at))
        self._size += 1
        return [self._shrink(fact.at)] if self._size > MAX_RUNS_PER_GROUP else []

    def evict_oldest(self) -> RefusalRun:
        """Removes and returns the oldest run of the client and reason whose last refusal was longest ago."""
        key, runs = next(iter(self._runs.items()))
        oldest = runs.pop(0)
        if not runs:
            del self._runs[key]
        self._size -= 1
        self.forgotten_at = max(self.forgotten_at, oldest.at)
        return oldest

    def _shrink(self, now: float) -> RefusalRun:
        runs = max(self._runs.values(), key=len)
        if len(runs) == 1:
            return self.evict_oldest()

        def relative_length(index: int) -> float:
            first, second = runs[index : index + 2]
            return (second.at - first.first_at) / max(now - first.first_at, RUN_SECONDS)

        index = min(range(len(runs) - 1), key=relative_length)
        merged = runs.pop(index)
        runs[index].first_at = merged.first_at
        runs[index].count += merged.count
        self._size -= 1
        return merged
