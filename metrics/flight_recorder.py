"""The flight recorder: keeps the latest facts of each group in bounded memory.

The recorder keeps three kinds of facts separately: changes of the group, commits that the broker refused, and refusals
by policies. `refusal_totals` sums up the last two kinds. Otherwise a client that is refused in a loop would evict the
group's rebalances. For the same reason, refusals and refused commits are evicted first if they take more than
`MAX_REFUSED_SHARE` of the memory, and accepted commits are not kept. The recorder remembers the time of the newest
evicted fact, so that a reader knows from when on a timeline is complete.
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

from group_sidecar.coordinator.model.events import NEVER
from group_sidecar.coordinator.model.facts import (
    ClientBypassed,
    ClientRefused,
    Fact,
    MemberInfo,
    OffsetsCommitted,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceReason,
    RebalanceStarted,
)
from group_sidecar.metrics.fact_counters import error_name
from group_sidecar.metrics.records import timestamp
from group_sidecar.metrics.refusal_totals import GroupRefusals, RefusalRun

MAX_FACTS_PER_GROUP = 200
"""Maximum number of changes that are kept for one group."""
MAX_REFUSED_SHARE = 0.25
"""Share of `max_bytes` that refusals and refused commits together may take if changes need the memory."""

FACT_BYTES, MEMBER_BYTES, GROUP_BYTES = 370, 100, 900
"""Estimated sizes: a fact without its texts and members, a member without its texts, and a group's entry without its
facts. The sizes are measured with tracemalloc and rounded up."""

Cells: TypeAlias = dict[str, object]


class FactKind(StrEnum):
    """The kinds of facts that are kept separately."""

    CHANGES = "changes"
    COMMITS = "commits"
    REFUSALS = "refusals"


Forgotten: TypeAlias = dict[str, str | None]
"""By kind: the time up to which facts of a group may be missing (ISO 8601). None if all facts are kept."""


@dataclass(slots=True)
class _GroupFacts:
    """Facts of one kind and group, oldest first. `forgotten_at`: the time up to which facts may be missing."""

    facts: deque[Fact] = field(default_factory=deque)
    forgotten_at: float = NEVER

    def __len__(self) -> int:
        return len(self.facts)

    def add(self, fact: Fact) -> list[Fact]:
        """Adds a fact, and returns the facts that were evicted for it."""
        self.facts.append(fact)
        return [self.evict_oldest()] if len(self.facts) > MAX_FACTS_PER_GROUP else []

    def evict_oldest(self) -> Fact:
        """Removes and returns the oldest fact."""
        oldest = self.facts.popleft()
        self.forgotten_at = max(self.forgotten_at, oldest.at)
        return oldest


@dataclass(slots=True)
class _KindFacts:
    """All groups' facts of one kind. The most recently active group is last.

    `forgotten_at`: the time of the newest evicted fact of a group that has no facts left, or the recorder's start.
    """

    held_bytes: int = 0
    groups: OrderedDict[str, _GroupFacts | GroupRefusals] = field(default_factory=OrderedDict)
    forgotten_at: float = NEVER


class LastRebalance(NamedTuple):
    """The last completed rebalance of a group. `at`: seconds since the epoch."""

    at: float
    cause: RebalanceCause
    reason: RebalanceReason


class FlightRecorder:
    """Keeps the last facts of each group. Within each kind, facts of the least recently active group are evicted first.

    Args:
        max_bytes: the largest estimated size of all facts together; 0 keeps nothing.
        began: when the recorder started, in seconds since the epoch. Earlier facts count as evicted. By default
            there are no earlier facts.
    """

    def __init__(self, max_bytes: int, began: float = NEVER) -> None:
        self._max_bytes = max_bytes
        self._by_kind = {kind: _KindFacts(forgotten_at=began) for kind in FactKind}

    @property
    def held_bytes(self) -> int:
        """Estimated size of all kept facts in bytes."""
        return sum(kind_facts.held_bytes for kind_facts in self._by_kind.values())

    def observe(self, fact: Fact) -> None:
        """Adds a fact, if facts of its kind are kept."""
        kind = _kind(fact)
        if kind is None:
            return
        kind_facts = self._by_kind[kind]
        group_facts = kind_facts.groups.get(fact.group_id)
        if group_facts is None:
            group_facts = kind_facts.groups[fact.group_id] = (
                _GroupFacts() if kind is FactKind.CHANGES else GroupRefusals()
            )
            group_facts.forgotten_at = kind_facts.forgotten_at
            kind_facts.held_bytes += GROUP_BYTES
        else:
            kind_facts.groups.move_to_end(fact.group_id)
        before = len(group_facts)
        gone = group_facts.add(fact)  # type: ignore[arg-type]  # The fact's kind determines the class of `group_facts`.
        if len(group_facts) + len(gone) == before:
            return  # The refusal was added to an existing run.
        kind_facts.held_bytes += _size(fact) - sum(map(_size, gone))
        while self.held_bytes > self._max_bytes:
            self._evict_oldest()

    def timeline(self, group_id: str) -> list[Cells] | None:
        """Returns a group's facts as JSON values, the newest last; None if no fact of the group is kept."""
        all_facts = (kind_facts.groups.get(group_id) for kind_facts in self._by_kind.values())
        kept = [each for group_facts in all_facts if group_facts is not None for each in _entries(group_facts)]
        return [timeline_entry(each) for each in sorted(kept, key=attrgetter("at"))] or None

    def forgotten(self, group_id: str) -> Forgotten:
        """Returns, by kind, the time up to which facts of a group may be missing."""
        all_facts: dict[FactKind, _GroupFacts | GroupRefusals | _KindFacts] = {
            kind: kind_facts.groups.get(group_id, kind_facts) for kind, kind_facts in self._by_kind.items()
        }
        return {
            kind.value: None if group_facts.forgotten_at == NEVER else timestamp(group_facts.forgotten_at)
            for kind, group_facts in all_facts.items()
        }

    def last_rebalance(self, group_id: str) -> LastRebalance | None:
        """Returns the last completed rebalance of a group among the kept facts, or None."""
        last = next(self._rebalances(group_id), None)
        return LastRebalance(last.at, last.cause, last.reason) if last else None

    def rebalances_since(self, group_id: str, since: float) -> int:
        """Returns how many rebalances of a group were completed at `since` or later, among the kept facts."""
        number = 0
        for rebalance in self._rebalances(group_id):
            if rebalance.at < since:
                break
            number += 1
        return number

    def _rebalances(self, group_id: str) -> Iterator[RebalanceCompleted]:
        """Returns the completed rebalances of a group, the newest first."""
        group_facts = self._by_kind[FactKind.CHANGES].groups.get(group_id)
        facts = reversed(group_facts.facts) if isinstance(group_facts, _GroupFacts) else ()
        return (fact for fact in facts if isinstance(fact, RebalanceCompleted))

    def refusals(self, limit: int) -> list[Cells]:
        """Returns the last runs of refusals of all groups, the newest first, each with its `group`.

        Audited refusals are included.
        """
        found: list[tuple[float, int, RefusalRun]] = []
        order = count(0, -1)  # If two runs have the same time, the run that is found first counts as newer.
        for group in reversed(self._by_kind[FactKind.REFUSALS].groups.values()):
            assert isinstance(group, GroupRefusals)
            if len(found) >= limit and (not found or group.last_at < found[0][0]):
                break  # The last refusals of the remaining groups are even older.
            for run in group:
                if len(found) < limit or (found and run.at > found[0][0]):
                    keep = heappush if len(found) < limit else heappushpop
                    keep(found, (run.at, next(order), run))
        return [{**timeline_entry(run), "group": run.fact.group_id} for _, _, run in sorted(found, reverse=True)]

    def _evict_oldest(self) -> None:
        """Evicts the oldest fact of the least recently active group.

        The fact is a refusal or a refused commit if both kinds together take more than `MAX_REFUSED_SHARE` of the
        memory, or if there are no changes. Otherwise the fact is a change.
        """
        changes, *refused = (self._by_kind[kind] for kind in FactKind)
        largest = max(refused, key=attrgetter("held_bytes"))
        refused_bytes = sum(kind_facts.held_bytes for kind_facts in refused)
        kind_facts = largest if refused_bytes > MAX_REFUSED_SHARE * self._max_bytes or not changes.groups else changes
        group_id, group_facts = next(iter(kind_facts.groups.items()))
        kind_facts.held_bytes -= _size(group_facts.evict_oldest())
        if not len(group_facts):
            del kind_facts.groups[group_id]
            kind_facts.held_bytes -= GROUP_BYTES
            kind_facts.forgotten_at = max(kind_facts.forgotten_at, group_facts.forgotten_at)


def _kind(fact: Fact) -> FactKind | None:
    """Returns the kind of a fact, or None if the fact is not kept."""
    if isinstance(fact, ClientBypassed):
        return None  # A bypass is no event of the group. The log and the status page show it.
    if isinstance(fact, OffsetsCommitted):
        return FactKind.COMMITS if fact.refused else None
    return FactKind.REFUSALS if isinstance(fact, ClientRefused) else FactKind.CHANGES


def _entries(group_facts: _GroupFacts | GroupRefusals) -> Iterator[Fact | RefusalRun]:
    return iter(group_facts.facts if isinstance(group_facts, _GroupFacts) else group_facts)


def timeline_entry(kept: Fact | RefusalRun) -> Cells:
    """Returns a fact as JSON values: its time (`at`), its kind (`what`), and its own fields without the group.

    Error codes also have their names. The `what` of an audited refusal is ``client_audited``. A run of refusals has
    the fields of its last refusal, the number of refusals (`count`), and the time of the first one (`first_at`).
    """
    run = kept if isinstance(kept, RefusalRun) else None
    fact = kept.fact if isinstance(kept, RefusalRun) else kept
    what, own_fields, _, _ = _fact_shape(type(fact))
    cells: Cells = {name: _cell(getattr(fact, name)) for name in own_fields}
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
    if isinstance(fact, ClientRefused | OffsetsCommitted):
        cells["count"] = run.count if run else 1
        cells["first_at"] = timestamp(run.first_at if run else fact.at)
    return {"at": timestamp(fact.at), "what": what, **cells}


def _cell(value: object) -> object:
    """Returns a field's value for JSON."""
    return (
        {field.name: getattr(value, field.name) for field in fields(value)} if isinstance(value, MemberInfo) else value
    )


def _size(kept: Fact | RefusalRun) -> int:
    """Returns the estimated size of a fact or a run of refusals in bytes. Shared texts count for each fact."""
    fact = kept.fact if isinstance(kept, RefusalRun) else kept
    shape, size = _fact_shape(type(fact)), FACT_BYTES
    for name in shape.text_fields:
        size += getsizeof(getattr(fact, name))
    for name in shape.member_fields:
        if (member := getattr(fact, name)) is not None:
            texts = member.member_id, member.client_id, member.client_host, member.instance_id, member.principal
            size += MEMBER_BYTES + sum(map(getsizeof, texts))
    return size


class _FactShape(NamedTuple):
    """A class of facts: its name in JSON, its own fields, the fields with texts, and the fields with members."""

    what: str
    own_fields: tuple[str, ...]
    text_fields: tuple[str, ...]
    member_fields: tuple[str, ...]


_MEMBER_FIELDS = frozenset({"by", "slowest"})
_FACT_SHAPES: dict[type[Fact], _FactShape] = {}
"""The shapes that `_fact_shape` has computed so far."""


def _fact_shape(kind: type[Fact]) -> _FactShape:
    shape = _FACT_SHAPES.get(kind)
    if shape is None:
        types = {field.name: field.type for field in fields(kind)}
        shape = _FACT_SHAPES[kind] = _FactShape(
            what=re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower(),
            own_fields=tuple(name for name in types if name not in ("group_id", "at")),
            text_fields=tuple(name for name, declared in types.items() if declared in (str, str | None)),
            member_fields=tuple(name for name in types if name in _MEMBER_FIELDS),
        )
    return shape
