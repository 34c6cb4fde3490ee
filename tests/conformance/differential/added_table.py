"""The table of the API versions that a sidecar adds to those of its broker.

Like the rest of the page, it contains nothing that changes from run to run.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.conformance.differential.answers_table import spans
from tests.conformance.differential.comparison import LOCAL
from tests.conformance.differential.expected_differences import (
    ASKING,
    EXPECTED_DIFFERENCES,
    RELAYED,
    SAW_HISTORY,
    STARTED_LATER,
    ExpectedDifference,
)
from tests.conformance.differential.group_history import ALL, HISTORY, SETTLED_ONES
from tests.conformance.differential.group_requests import APIS_ASKED
from tests.kafka.releases import ALL_RELEASES

_INTRODUCTION = f"""
## Versions that the sidecar adds

The tests gave an old broker behind a sidecar and newer brokers the same history
(`tests/conformance/differential/group_history.py`). They sent each question to the sidecar in each version that the old
broker lacks. They compared the answer field by field with the answer of Kafka 2.8.2 in the same version. If 2.8.2 lacks
the version too, they compared it with the answer of 4.4.0. The old broker received no request in a version that it
lacks.

There are three situations of the sidecar: it **{SAW_HISTORY}**, it **{STARTED_LATER}**, or it **{ASKING}**. In the
last situation, the sidecar does not read the log, and `answers.exclusive` is off.

- **{LOCAL}**: the sidecar answered from its own copy.
- **{RELAYED}**: the sidecar asked the broker in versions that the broker has, and made the answer from the replies.

A cell may have several entries. Each entry except the first names the states and *ways to ask* to which it applies.
The first entry applies to all other questions.

| Kafka | API | versions | {SAW_HISTORY} | {STARTED_LATER} | {ASKING} | differences from a newer broker |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Added:
    """One question in one situation: who answered it, and the expected differences."""

    broker: str
    situation: str
    state: str
    api: str
    version: int
    way: str
    how: str
    natures: frozenset[ExpectedDifference]


@dataclass
class AddedTable:
    """The table of a run."""

    cells: list[Added] = field(default_factory=list)

    def record(self, cells: Iterable[Added]) -> None:
        """Adds cells."""
        self.cells += cells

    def section(self) -> str:
        """Returns the section of the page; empty if nothing was asked."""
        if not self.cells:
            return ""
        used = {nature for cell in self.cells for nature in cell.natures}
        reasons = [f"- **{nature.name}**: {nature.because}" for nature in EXPECTED_DIFFERENCES if nature in used]
        return "\n".join([_INTRODUCTION + "\n".join(self._rows()), "", *dict.fromkeys(reasons)]) + "\n"

    def _rows(self) -> Iterator[str]:
        by_place = defaultdict(list)
        for cell in self.cells:
            by_place[cell.broker, cell.api].append(cell)
        for broker in ALL_RELEASES:
            for api in APIS_ASKED:
                if its := by_place.get((broker, api)):
                    yield "| " + " | ".join([broker, api, *_columns(its)]) + " |"


def _columns(cells: Sequence[Added]) -> Iterator[str]:
    yield spans({cell.version for cell in cells})
    for situation in (SAW_HISTORY, STARTED_LATER, ASKING):
        yield _answerers([cell for cell in cells if cell.situation == situation])
    names = {nature.name for cell in cells for nature in cell.natures}
    yield "; ".join(dict.fromkeys(nature.name for nature in EXPECTED_DIFFERENCES if nature.name in names)) or "nowhere"


def _answerers(cells: Sequence[Added]) -> str:
    """Returns who answered for most states, and then the exceptions by state and variant."""
    hows = {}
    for state in (*(state.name for state in HISTORY), SETTLED_ONES, ALL):
        if its := [cell.how for cell in cells if cell.state == state]:
            hows[state] = _most(its)
    rule = _most(hows.values())
    others: dict[str, dict[str, None]] = defaultdict(dict)
    for state, how in hows.items():
        if how != rule:
            others[how][state] = None
    for cell in sorted(cells, key=lambda cell: cell.way):
        if cell.how != hows[cell.state]:
            others[cell.how][f"*{cell.way or 'plain'}*"] = None
    return "; ".join([rule, *(f"{how}: " + ", ".join(names) for how, names in sorted(others.items()))])


def _most(hows: Iterable[str]) -> str:
    return min(Counter(hows).items(), key=lambda item: (-item[1], item[0]))[0]


_TABLE = pytest.StashKey[AddedTable]()


def added_table_of(config: pytest.Config) -> AddedTable:
    """Returns the table of the run."""
    return config.stash.setdefault(_TABLE, AddedTable())
