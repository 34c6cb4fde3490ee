"""Counts how often policies or the broker refused the clients of one group, by client and reason, in bounded memory.

A refusal is a request that a policy refused, or a commit of which the broker refused at least one partition. A refused
client tries again about every second. Refusals are therefore counted in runs: all refusals of one client for one reason
within a minute are one run. A run of commits has the sums of their partitions.

If a group has too many runs, two successive runs are merged: those of the client and reason with the most runs. The
merged pair is the pair whose time span is shortest in relation to its age. Merging keeps the counts exact, and makes
only the times of old runs less exact. If no client and reason has two runs, the oldest run is evicted.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.model.facts import ClientRefused, OffsetsCommitted

RUN_SECONDS = 60.0
"""Length of a run in seconds. A later refusal starts a new run."""
MAX_RUNS_PER_GROUP = 200
"""Maximum number of runs of one group, and therefore of pairs of client and reason."""

Refusal: TypeAlias = ClientRefused | OffsetsCommitted
_Key = tuple[object, ...]
"""The client and the reason of a refusal."""


@dataclass(slots=True)
class RefusalRun:
    """Successive refusals of one client for one reason. `fact`: the last refusal. Commits are added up in it."""

    fact: Refusal
    first_at: float
    count: int = 1

    @property
    def at(self) -> float:
        """Time of the last refusal of the run."""
        return self.fact.at

    def add(self, fact: Refusal) -> None:
        """Adds a later refusal."""
        self.count += 1
        self.fact = _sum(self.fact, fact)

    def prepend(self, earlier: "RefusalRun") -> None:
        """Adds an earlier run of the same client and reason."""
        self.first_at = earlier.first_at
        self.count += earlier.count
        self.fact = _sum(earlier.fact, self.fact)


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

    def add(self, fact: Refusal) -> list[RefusalRun]:
        """Counts a refusal, and returns the runs that were evicted or merged for it."""
        key = _key(fact)
        runs = self._runs.setdefault(key, [])
        self._runs.move_to_end(key)
        if runs and fact.at - runs[-1].first_at < RUN_SECONDS:
            runs[-1].add(fact)
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
        runs[index].prepend(merged)
        self._size -= 1
        return merged


def _key(fact: Refusal) -> _Key:
    """Returns the client and the reason of a refusal. All facts with the same key have the same texts."""
    if isinstance(fact, ClientRefused):
        return fact.policy, fact.error_code, fact.client_id, fact.client_host, fact.principal, fact.enforced
    return fact.by, tuple(code for code, _ in fact.refused)


def _sum(earlier: Refusal, later: Refusal) -> Refusal:
    """Returns the later of two refusals of one client for one reason. Commits have the sums of their partitions."""
    if not (isinstance(earlier, OffsetsCommitted) and isinstance(later, OffsetsCommitted)):
        return later
    pairs = zip(earlier.refused, later.refused, strict=True)
    refused = tuple((code, first + second) for (code, first), (_, second) in pairs)
    return replace(later, accepted=earlier.accepted + later.accepted, refused=refused)
