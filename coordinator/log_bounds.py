"""Where the logs of topics begin and end, as far as anybody was told.

Owns: `LogBounds`. Must not know: groups, where replies come from. The newest word counts, not the highest: logs are cut
off, and made anew.
"""

from collections.abc import Iterable, Mapping

from group_sidecar.coordinator.events import NEVER, LogEndsSeen, LogStartsSeen
from group_sidecar.coordinator.facts import Fact
from group_sidecar.coordinator.views import TopicPartition

Bounds = Mapping[TopicPartition, tuple[int, float]]
"""Offset, and when it was right, in seconds since the epoch."""


class LogBounds:
    """Log ends and starts.

    Args:
        most: partitions that are kept of each; what comes beyond them is not.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ends: dict[TopicPartition, tuple[int, float]] = {}
        self._starts: dict[TopicPartition, tuple[int, float]] = {}

    @property
    def ends(self) -> Bounds:
        """Log ends (high watermarks)."""
        return self._ends

    @property
    def starts(self) -> Bounds:
        """Log starts: what is before them was deleted."""
        return self._starts

    def ends_unseen(self, partitions: Iterable[TopicPartition], since: float) -> set[TopicPartition]:
        """Those of these partitions whose end nobody has told since then."""
        ends, never = self._ends, (0, NEVER)
        return {partition for partition in partitions if ends.get(partition, never)[1] < since}

    def ends_seen(self, event: LogEndsSeen, now: float) -> list[Fact]:
        """Takes log ends that were right at that time."""
        self._take(self._ends, event.ends, now)
        return []

    def starts_seen(self, event: LogStartsSeen, now: float) -> list[Fact]:
        """Takes log starts that were right at that time."""
        self._take(self._starts, event.starts, now)
        return []

    def _take(
        self, known: dict[TopicPartition, tuple[int, float]], told: Mapping[TopicPartition, int], now: float
    ) -> None:
        for partition, offset in told.items():
            before = known.get(partition)
            if before[1] <= now if before else len(known) < self._most:
                known[partition] = (offset, now)
