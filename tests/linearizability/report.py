"""The results of a run, and their form as text and JSON."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tests.linearizability.checker import Checked

_SHOWN = 10
_LEAST_LOCAL_SHARE = 0.5
"""With a smaller share of local answers, a run shows too little about the sidecars."""


@dataclass(frozen=True)
class Report:
    """The result of a run.

    Attributes:
        faults: how often each kind happened.
        recorded: the operations of all clients.
        checked: the checker's result.
        unexplained: the violations that remain without the stale reads of `failovers`.
        generations: how many generations the replies to members show.
        shared: partitions that two members of one generation were assigned.
        large: generations over the limit.
        excused: generations over the limit around a sidecar's restart.
        records: lost, repeated and reordered records.
        read: the number of records that were read at the end.
        broken: clients that failed in an unexpected way, for instance because of a wrong reply.
        progress: figures of the clients by kind.
        answered: how many OffsetFetch requests sidecars answered, and how many they forwarded, by reason.
        stale: the number of replies that a proxy replaced by old ones.
    """

    faults: dict[str, int]
    recorded: int
    checked: Checked
    unexplained: list[dict[str, Any]]
    generations: int
    shared: list[str]
    large: list[str]
    excused: int
    records: list[str]
    read: int
    broken: list[str]
    progress: dict[str, list[dict[str, Any]]]
    answered: dict[str, int]
    stale: int

    def problems(self, *, direct: bool) -> list[str]:
        """Returns a line for each broken rule. With `direct`, there are no rules for sidecars."""
        found = [
            *(f"not linearizable: {each['key']}: {each['first']}" for each in self.unexplained),
            *(f"not decided: {each['key']}" for each in self.checked.undecided),
            *self.shared,
            *([] if direct else self.large),
            *self.records,
            *self.broken,
        ]
        if not direct and self.local_share() < _LEAST_LOCAL_SHARE:
            found.append("the sidecars left most questions to the brokers, so the run says little about them")
        return found

    def local_share(self) -> float:
        """Returns the share of OffsetFetch requests that sidecars answered themselves."""
        questions = sum(count for name, count in self.answered.items() if not name.startswith("verified"))
        return self.answered.get("answers", 0) / questions if questions else 0.0

    def lines(self) -> Iterator[str]:
        """Yields the report as text."""
        checked = self.checked
        yield f"faults: {self.faults}"
        yield f"operations: {self.recorded} on {checked.keys} keys, {checked.unknown} of them without an end"
        yield f"keys that are not linearizable: {len(checked.violations)}, undecided: {len(checked.undecided)}"
        yield f"of these, not explained by a new leader's old high watermark: {len(self.unexplained)}"
        for each in (*self.unexplained, *checked.violations)[:_SHOWN]:
            yield f"  {each}"
        yield f"OffsetFetch answered by sidecars: {self.local_share():.1%} {self.answered}"
        if self.stale:
            yield f"replies replaced by old ones: {self.stale}"
        yield f"generations: {self.generations}; shared partitions: {len(self.shared)}; too large: {len(self.large)}"
        yield f"generations that were too large around the restart of a sidecar: {self.excused}"
        yield f"records: {self.read} read, {len(self.records)} problems"
        yield from (f"  {each}" for each in (*self.shared, *self.large, *self.records, *self.broken)[:_SHOWN])
        for kind, clients in self.progress.items():
            errors: Counter[str] = sum((Counter(each["errors"]) for each in clients), Counter())
            stalled = sum(each["stalled"] for each in clients) / len(clients)
            yield (
                f"{kind}: {sum(each['operations'] for each in clients)} successes of {len(clients)} clients, "
                f"{stalled:.1f} s of stalls each, longest {max(each['longest'] for each in clients)} s"
            )
            yield f"  errors: {dict(errors.most_common())}"

    def as_json(self) -> dict[str, Any]:
        """Returns the report for a file."""
        return asdict(self)
