"""The flight recorder: what happened to each group lately.

Owns: which facts are kept, for how long, and what each says to a reader. Must not know: who makes facts, and who reads
them.

What changed a group and what it was refused are kept apart: a client that is refused in a loop tells the same thing
again and again, and would push the rebalances out. Commits that the broker accepted are left out for the same reason.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import fields
from heapq import heappush, heappushpop
from itertools import count
from operator import attrgetter
from sys import getsizeof
from typing import NamedTuple, TypeAlias

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

MOST_OF_GROUP = 200
"""Facts of one group that are kept at most, of what changed it and as many of what it was refused."""

FACT_BYTES, WHO_BYTES, REEL_BYTES = 370, 100, 900
"""What a fact takes without its texts and people, a member named in it without its texts, and a reel without its facts;
measured with tracemalloc, and rounded up."""

Cells: TypeAlias = dict[str, object]


class _Reel(NamedTuple):
    """Names one list of facts."""

    group_id: str
    refused: bool


class LastRebalance(NamedTuple):
    """The last rebalance of a group that was completed. `at`: seconds since the epoch."""

    at: float
    cause: RebalanceCause
    reason: RebalanceReason


class FlightRecorder:
    """Keeps the last facts of each group, and forgets those first whose groups have been quiet for longest.

    Args:
        most_bytes: what all of them may take together, roughly; 0 keeps nothing.

    Attributes:
        held_bytes: what they take now, roughly.
    """

    def __init__(self, most_bytes: int) -> None:
        self.held_bytes = 0
        self._most_bytes = most_bytes
        self._reels: OrderedDict[_Reel, deque[Fact]] = OrderedDict()

    def observe(self, fact: Fact) -> None:
        """Keeps a fact, or passes over it."""
        if isinstance(fact, OffsetsCommitted) and not fact.refused:
            return
        name = _Reel(fact.group_id, isinstance(fact, ClientRefused | OffsetsCommitted))
        reel = self._reels.get(name)
        if reel is None:
            reel = self._reels[name] = deque()
            self.held_bytes += REEL_BYTES
        else:
            self._reels.move_to_end(name)
        if len(reel) == MOST_OF_GROUP:
            self.held_bytes -= _size(reel.popleft())
        reel.append(fact)
        self.held_bytes += _size(fact)
        while self.held_bytes > self._most_bytes:
            self._shed()

    def timeline(self, group_id: str) -> list[Cells] | None:
        """What is kept of a group, as JSON has it, the newest last; None where nothing is."""
        reels = (self._reels.get(_Reel(group_id, refused), ()) for refused in (False, True))
        facts = sorted((fact for reel in reels for fact in reel), key=attrgetter("at"))
        return [told(fact) for fact in facts] or None

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
        reel = self._reels.get(_Reel(group_id, refused=False), ())
        return (fact for fact in reversed(reel) if isinstance(fact, RebalanceCompleted))

    def refusals(self, limit: int) -> list[Cells]:
        """The last refusals of all groups, audited ones included, the newest first, each with its `group`."""
        found: list[tuple[float, int, ClientRefused]] = []
        order = count(0, -1)  # Of two at the same moment the one that is found first counts as newer.
        for name, reel in reversed(self._reels.items()):
            if not name.refused:
                continue
            if len(found) >= limit and (not found or reel[-1].at < found[0][0]):
                break  # The other groups have been quiet for longer.
            for fact in reversed(reel):
                if len(found) >= limit and fact.at < found[0][0]:
                    break
                if isinstance(fact, ClientRefused):
                    keep = heappush if len(found) < limit else heappushpop
                    keep(found, (fact.at, next(order), fact))
        return [{**told(fact), "group": fact.group_id} for _, _, fact in sorted(found, reverse=True)]

    def _shed(self) -> None:
        """Drops the oldest fact of the reel that has been quiet for longest."""
        name, reel = next(iter(self._reels.items()))
        self.held_bytes -= _size(reel.popleft())
        if not reel:
            del self._reels[name]
            self.held_bytes -= REEL_BYTES


def told(fact: Fact) -> Cells:
    """What a fact says, but for its group: when (`at`), `what`, and its own fields; error codes have their names too.

    A refusal that was only reported is called otherwise, for it is none.
    """
    what, own, _, _ = _shape(type(fact))
    cells: Cells = {name: _cell(getattr(fact, name)) for name in own}
    match fact:
        case RebalanceStarted() | RebalanceCompleted():
            cells = {"reason": fact.reason, **cells}
        case ClientRefused():
            cells["error"] = error_name(fact.error_code)
            what = what if fact.enforced else "client_audited"
        case OffsetsCommitted():
            cells["refused"] = [
                {"error_code": code, "error": error_name(code), "partitions": count} for code, count in fact.refused
            ]
    return {"at": timestamp(fact.at), "what": what, **cells}


def _cell(value: object) -> object:
    """A value as JSON has it."""
    return {field.name: getattr(value, field.name) for field in fields(value)} if isinstance(value, Who) else value


def _size(fact: Fact) -> int:
    """Bytes that a fact takes, as if it shared its texts with nobody."""
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
