"""The flight recorder: what happened to each group lately.

Owns: which facts are kept, for how long, and what each says to a reader. Must not know: who makes facts, and who reads
them.

What changed a group, commits that the broker refused, and what policies refused (see `refusals`) are kept apart:
a client that is refused in a loop tells the same thing again and again, and would push the rebalances out. For the same
reason refusals give way before the rest does, and commits that the broker accepted are left out. Of what is no longer
kept the recorder knows when it was, so that nobody takes a part for the whole.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from heapq import heappush, heappushpop
from itertools import count
from operator import attrgetter
from sys import getsizeof
from typing import NamedTuple, TypeAlias

from group_sidecar.coordinator.events import NEVER
from group_sidecar.coordinator.facts import (
    ClientRefused,
    Fact,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceReason,
    RebalanceStarted,
    Who,
)
from group_sidecar.metrics.instruments import error_name
from group_sidecar.metrics.records import timestamp
from group_sidecar.metrics.refusals import GroupRefusals, Run

MOST_OF_GROUP = 200
"""Facts of one group that are kept at most, of what changed it and as many of its commits that were refused."""
REFUSED_PART = 0.25
"""The part of all bytes that what was refused may take where the rest needs them."""

FACT_BYTES, WHO_BYTES, REEL_BYTES = 370, 100, 900
"""What a fact takes without its texts and people, a member named in it without its texts, and a reel without its facts;
measured with tracemalloc, and rounded up."""

Cells: TypeAlias = dict[str, object]


class Kind(StrEnum):
    """The kinds of facts that are kept apart."""

    CHANGES = "changes"
    COMMITS = "commits"
    REFUSALS = "refusals"


Forgotten: TypeAlias = dict[str, str | None]
"""By kind the newest moment of which something is no longer kept (ISO 8601); None where all is."""


@dataclass(slots=True)
class _Reel:
    """Facts of one group in a row. `forgotten_at`: as of `GroupRefusals`, whose twin this is."""

    facts: deque[Fact] = field(default_factory=deque)
    forgotten_at: float = NEVER

    def __len__(self) -> int:
        return len(self.facts)

    def add(self, fact: Fact) -> list[Fact]:
        """Keeps a fact. Returns those that are no longer kept for it."""
        self.facts.append(fact)
        return [self.forget_oldest()] if len(self.facts) > MOST_OF_GROUP else []

    def forget_oldest(self) -> Fact:
        """Forgets the oldest fact, and returns it."""
        oldest = self.facts.popleft()
        self.forgotten_at = max(self.forgotten_at, oldest.at)
        return oldest


@dataclass(slots=True)
class _Shelf:
    """All groups' facts of one kind, the group last that was heard of last.

    `forgotten_at`: the newest moment of which something of a group is forgotten that is not on the shelf any more, or
    when the recorder began.
    """

    held_bytes: int = 0
    groups: OrderedDict[str, _Reel | GroupRefusals] = field(default_factory=OrderedDict)
    forgotten_at: float = NEVER


class LastRebalance(NamedTuple):
    """The last rebalance of a group that was completed. `at`: seconds since the epoch."""

    at: float
    cause: RebalanceCause
    reason: RebalanceReason


class FlightRecorder:
    """Keeps the last facts of each group, and forgets those first whose groups have been quiet for longest.

    Args:
        most_bytes: what all of them may take together, roughly; 0 keeps nothing.
        began: when the recorder began to keep facts, in seconds since the epoch. What happened before counts as
            forgotten. By default nothing did.
    """

    def __init__(self, most_bytes: int, began: float = NEVER) -> None:
        self._most_bytes = most_bytes
        self._shelves = {kind: _Shelf(forgotten_at=began) for kind in Kind}

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of all facts that are kept."""
        return sum(shelf.held_bytes for shelf in self._shelves.values())

    def observe(self, fact: Fact) -> None:
        """Keeps a fact, or passes over it."""
        kind = _kind(fact)
        if kind is None:
            return
        shelf = self._shelves[kind]
        reel = shelf.groups.get(fact.group_id)
        if reel is None:
            reel = shelf.groups[fact.group_id] = GroupRefusals() if kind is Kind.REFUSALS else _Reel()
            reel.forgotten_at = shelf.forgotten_at
            shelf.held_bytes += REEL_BYTES
        else:
            shelf.groups.move_to_end(fact.group_id)
        before = len(reel)
        gone = reel.add(fact)  # type: ignore[arg-type]  # A fact's kind decides where it goes.
        if len(reel) + len(gone) == before:
            return  # One more of a run.
        shelf.held_bytes += _size(fact) - sum(map(_size, gone))
        while self.held_bytes > self._most_bytes:
            self._shed()

    def timeline(self, group_id: str) -> list[Cells] | None:
        """What is kept of a group, as JSON has it, the newest last; None where nothing is."""
        reels = (shelf.groups.get(group_id) for shelf in self._shelves.values())
        kept = [each for reel in reels if reel is not None for each in _kept(reel)]
        return [told(each) for each in sorted(kept, key=attrgetter("at"))] or None

    def forgotten(self, group_id: str) -> Forgotten:
        """Returns the newest moment of which facts of a group are no longer kept, by kind."""
        reels: dict[Kind, _Reel | GroupRefusals | _Shelf] = {
            kind: shelf.groups.get(group_id, shelf) for kind, shelf in self._shelves.items()
        }
        return {
            kind.value: None if reel.forgotten_at == NEVER else timestamp(reel.forgotten_at)
            for kind, reel in reels.items()
        }

    def last_rebalance(self, group_id: str) -> LastRebalance | None:
        """The last rebalance of a group that was completed, as far as is kept; None without one."""
        last = next(self._rebalances(group_id), None)
        return LastRebalance(last.at, last.cause, last.reason) if last else None

    def rebalances_since(self, group_id: str, since: float) -> int:
        """How many rebalances of a group were completed since then, as far as is kept."""
        number = 0
        for rebalance in self._rebalances(group_id):
            if rebalance.at < since:
                break
            number += 1
        return number

    def _rebalances(self, group_id: str) -> Iterator[RebalanceCompleted]:
        """Those that were completed, the newest first."""
        reel = self._shelves[Kind.CHANGES].groups.get(group_id)
        facts = reversed(reel.facts) if isinstance(reel, _Reel) else ()
        return (fact for fact in facts if isinstance(fact, RebalanceCompleted))

    def refusals(self, limit: int) -> list[Cells]:
        """The last runs of refusals of all groups, audited ones included, the newest first, each with its `group`."""
        found: list[tuple[float, int, Run]] = []
        order = count(0, -1)  # Of two at the same moment the one that is found first counts as newer.
        for group in reversed(self._shelves[Kind.REFUSALS].groups.values()):
            assert isinstance(group, GroupRefusals)
            if len(found) >= limit and (not found or group.last_at < found[0][0]):
                break  # The other groups have been quiet for longer.
            for run in group:
                if len(found) < limit or (found and run.at > found[0][0]):
                    keep = heappush if len(found) < limit else heappushpop
                    keep(found, (run.at, next(order), run))
        return [{**told(run), "group": run.fact.group_id} for _, _, run in sorted(found, reverse=True)]

    def _shed(self) -> None:
        """Drops the oldest fact of the group that has been quiet for longest, what was refused first."""
        changes, *refused = (self._shelves[kind] for kind in Kind)
        largest = max(refused, key=attrgetter("held_bytes"))
        refused_bytes = sum(shelf.held_bytes for shelf in refused)
        shelf = largest if refused_bytes > REFUSED_PART * self._most_bytes or not changes.groups else changes
        group_id, reel = next(iter(shelf.groups.items()))
        shelf.held_bytes -= _size(reel.forget_oldest())
        if not len(reel):
            del shelf.groups[group_id]
            shelf.held_bytes -= REEL_BYTES
            shelf.forgotten_at = max(shelf.forgotten_at, reel.forgotten_at)


def _kind(fact: Fact) -> Kind | None:
    """Where a fact is kept; None where it is not."""
    if isinstance(fact, OffsetsCommitted):
        return Kind.COMMITS if fact.refused else None
    return Kind.REFUSALS if isinstance(fact, ClientRefused) else Kind.CHANGES


def _kept(reel: _Reel | GroupRefusals) -> Iterator[Fact | Run]:
    return iter(reel.facts if isinstance(reel, _Reel) else reel)


def told(kept: Fact | Run) -> Cells:
    """What a fact says, but for its group: when (`at`), `what`, and its own fields; error codes have their names too.

    A refusal that was only reported is called otherwise, for it is none. A run of refusals says what the last of them
    does, how many they are (`count`), and when the first was (`first_at`).
    """
    run = kept if isinstance(kept, Run) else None
    fact = kept.fact if isinstance(kept, Run) else kept
    what, own, _, _ = _shape(type(fact))
    cells: Cells = {name: _cell(getattr(fact, name)) for name in own}
    match fact:
        case RebalanceStarted() | RebalanceCompleted():
            cells = {"reason": fact.reason, **cells}
        case ClientRefused():
            cells["error"] = error_name(fact.error_code)
            cells["count"] = run.count if run else 1
            cells["first_at"] = timestamp(run.first_at if run else fact.at)
            what = what if fact.enforced else "client_audited"
        case OffsetsCommitted():
            cells["refused"] = [
                {"error_code": code, "error": error_name(code), "partitions": count} for code, count in fact.refused
            ]
    return {"at": timestamp(fact.at), "what": what, **cells}


def _cell(value: object) -> object:
    """A value as JSON has it."""
    return {field.name: getattr(value, field.name) for field in fields(value)} if isinstance(value, Who) else value


def _size(kept: Fact | Run) -> int:
    """Estimated bytes of a fact or a run of refusals, as if no other fact shared its texts."""
    fact = kept.fact if isinstance(kept, Run) else kept
    shape, size = _shape(type(fact)), FACT_BYTES
    for name in shape.texts:
        size += getsizeof(getattr(fact, name))
    for name in shape.people:
        if (who := getattr(fact, name)) is not None:
            size += WHO_BYTES + sum(map(getsizeof, (who.member_id, who.client_id, who.client_host, who.instance_id)))
    return size


class _Shape(NamedTuple):
    """What a kind of fact is called, its own fields, and which of all fields are texts, and which are people."""

    what: str
    own: tuple[str, ...]
    texts: tuple[str, ...]
    people: tuple[str, ...]


_PEOPLE = frozenset({"by", "slowest"})
_SHAPES: dict[type[Fact], _Shape] = {}
"""Those that have been needed."""


def _shape(kind: type[Fact]) -> _Shape:
    shape = _SHAPES.get(kind)
    if shape is None:
        types = {field.name: field.type for field in fields(kind)}
        shape = _SHAPES[kind] = _Shape(
            what=re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower(),
            own=tuple(name for name in types if name not in ("group_id", "at")),
            texts=tuple(name for name, declared in types.items() if declared in (str, str | None)),
            people=tuple(name for name in types if name in _PEOPLE),
        )
    return shape
