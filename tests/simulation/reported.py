"""Compares what the sidecar reports about rebalances (facts, which become metrics and records) with the broker's."""

from group_sidecar.coordinator.model.facts import Fact, RebalanceCompleted


class ReportedFacts:
    """Checks the facts that the sidecars of a run report.

    Attributes:
        wrong: what the first wrong fact reports; empty if there is none.
    """

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, int], set[int]] = {}
        """How many members each generation of the broker had, by group and generation."""
        self.wrong = ""

    def completed(self, group_id: str, generation: int, *sizes: int) -> None:
        """Notes a generation of the broker. `sizes`: the members that have joined, and all members."""
        self._sizes.setdefault((group_id, generation), set()).update(sizes)

    def check(self, fact: Fact) -> None:
        """Checks a fact."""
        if isinstance(fact, RebalanceCompleted) and not self.wrong:
            sizes = self._sizes.get((fact.group_id, fact.generation), set())
            if fact.members > max(sizes, default=0):  # A copy with gaps may report fewer.
                self.wrong = (
                    f"the sidecar reports {fact.members} members of generation {fact.generation} of {fact.group_id}, "
                    f"which has {sorted(sizes)}"
                )
