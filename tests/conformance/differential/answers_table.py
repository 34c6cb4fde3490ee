"""The table of how every question was answered, and the text of the page.

The page contains nothing that changes from run to run: no times, and no names of groups.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.conformance.differential.comparison import DIFFERENT, LOCAL, Outcome
from tests.conformance.differential.group_requests import APIS_ASKED, Question
from tests.conformance.differential.group_states import STATES
from tests.kafka.releases import ALL_RELEASES

SEEN = "Groups that the sidecar saw from the beginning"
FOUND = "Groups that existed when the sidecar started"
AXES = {
    SEEN: "All requests of the groups went through the sidecar. Only one group existed at a time.",
    FOUND: "All groups existed at the same time. Then a second sidecar started, which had seen none of their requests.",
}
ALL_TOGETHER = "all together"
LOADING = "loading"

_INTRODUCTION = """\
# How questions about groups are answered

<!-- Generated: `make conformance` writes this page. -->

The tests sent each question to the broker and to the sidecar in front of it. They compared the decoded answers field by
field. There is a question for each combination of a broker, a state of a group, an API that reads groups, a version of
this API that the broker supports, and a way to ask. All clients connected through the sidecar, which had the setting
`answers.exclusive`.

- **local**: the sidecar answered from its own copy, and its answer equals the broker's answer.
- **forwarded**: the sidecar left the question to the broker, for the reason in brackets.
- **DIFFERENT**: the sidecar's answer differs from the broker's answer. `make conformance` fails and shows both answers.

One difference is deliberate. The sidecar reports the host of each member's client, but the broker reports the sidecar's
host. The tests cannot show this difference, because clients, sidecar and broker ran on one host. With
`answers.client_host: broker`, the sidecar reports the same host as the broker.

A cell may have several entries. Each entry except the first names the versions and ways to ask to which it applies. The
first entry applies to all other questions. `tests/conformance/differential/group_requests.py` defines the ways to ask,
and `tests/conformance/differential/group_states.py` creates the states.
"""


@dataclass(frozen=True)
class Cell:
    """The cell of one question."""

    broker: str
    axis: str
    state: str
    api: str
    way: str
    version: int
    text: str


@dataclass
class Table:
    """All cells of a run."""

    _texts: dict[tuple[str, str, str, Question], str] = field(default_factory=dict)

    def record(self, broker: str, axis: str, state: str, outcomes: Iterable[Outcome]) -> None:
        """Adds the outcomes of one state's questions. The last outcome counts, but a difference is never replaced."""
        for outcome in outcomes:
            place = (broker, axis, state, outcome.question)
            if self._texts.get(place) != DIFFERENT:
                self._texts[place] = outcome.text

    @property
    def cells(self) -> list[Cell]:
        """Returns the cells so far."""
        return [
            Cell(broker, axis, state, asked.api, asked.way, asked.version, text)
            for (broker, axis, state, asked), text in self._texts.items()
        ]

    def page(self) -> str:
        """Returns the text of the page."""
        cells = self.cells
        lines = [_INTRODUCTION, *_summary(cells)]
        for broker in ALL_RELEASES:
            its = [cell for cell in cells if cell.broker == broker]
            for axis, words in AXES.items():
                rows = list(_rows([cell for cell in its if cell.axis == axis]))
                if rows:
                    lines += ["", f"## Kafka {broker}: {axis[0].lower()}{axis[1:]}", "", words, "", *rows]
            if its:
                lines += _absent(broker)
        return "\n".join(lines) + "\n"


def _summary(cells: Sequence[Cell]) -> Iterator[str]:
    yield "| Kafka | questions | local | forwarded | different |"
    yield "|---|--:|--:|--:|--:|"
    for broker in ALL_RELEASES:
        counts = Counter(cell.text for cell in cells if cell.broker == broker)
        if counts:
            forwarded = counts.total() - counts[LOCAL] - counts[DIFFERENT]
            yield f"| {broker} | {counts.total()} | {counts[LOCAL]} | {forwarded} | {counts[DIFFERENT]} |"


def _rows(cells: Sequence[Cell]) -> Iterator[str]:
    apis = [api for api in APIS_ASKED if any(cell.api == api for cell in cells)]
    if not apis:
        return
    yield "| state | " + " | ".join(apis) + " |"
    yield "|---" * (len(apis) + 1) + "|"
    for state in (*(state.name for state in STATES), ALL_TOGETHER, LOADING):
        row = [cell for cell in cells if cell.state == state]
        if row:
            yield (
                f"| {state} | "
                + " | ".join(summed_up([cell for cell in row if cell.api == api]) for api in apis)
                + " |"
            )


def summed_up(cells: Sequence[Cell]) -> str:
    """Summarizes the outcomes of one API's questions: the most frequent one, and then the exceptions."""
    counts = Counter(cell.text for cell in cells)
    if not counts:
        return ""
    [(rule, _), *_] = sorted(counts.items(), key=lambda item: (-item[1], item[0] != LOCAL, item[0]))
    exceptions = (f"{_which(cells, other)} {other}" for other in sorted(counts) if other != rule)
    return "; ".join([rule, *exceptions])


def _which(cells: Sequence[Cell], text: str) -> str:
    """Describes which questions had an outcome, by versions alone if possible, otherwise by variants and versions."""
    own = [cell for cell in cells if cell.text == text]
    by_ways = defaultdict(set)
    for version in sorted({cell.version for cell in own}):
        ways = sorted(cell.way for cell in own if cell.version == version)
        others = sorted(cell.way for cell in cells if cell.version == version and cell.text != text)
        by_ways[_ways(ways, others)].add(version)
    return ", ".join(f"{spans(versions)}{ways}" for ways, versions in by_ways.items())


def _ways(ways: Sequence[str], others: Sequence[str]) -> str:
    """Names these variants of a version, as opposed to the others; empty if there are no others."""
    if not others:
        return ""
    named, words = (others, " all but") if len(others) < len(ways) else (ways, "")
    return f"{words} {'/'.join(way or 'plain' for way in named)}"


def spans(versions: Iterable[int]) -> str:
    """Formats versions as ranges: ``v0-3, v5``."""
    ranges: list[list[int]] = []
    for version in sorted(versions):
        if ranges and version == ranges[-1][1] + 1:
            ranges[-1][1] = version
        else:
            ranges.append([version, version])
    return ", ".join(f"v{first}" if first == last else f"v{first}-{last}" for first, last in ranges)


def _absent(broker: str) -> Iterator[str]:
    reasons = defaultdict(list)
    for state in STATES:
        if state.since and not state.exists(broker):
            reasons[state.since.because].append(state.name)
    if reasons:
        yield ""
        yield "These states do not exist in this version of Kafka:\n"
        yield "| states | reason |"
        yield "|---|---|"
        yield from (f"| {', '.join(states)} | {because} |" for because, states in reasons.items())


_TABLE = pytest.StashKey[Table]()


def table_of(config: pytest.Config) -> Table:
    """Returns the table of the run."""
    return config.stash.setdefault(_TABLE, Table())
