"""The start and end offsets of topic partitions, as replies of brokers reported them.

The newest report counts, not the highest offset, because a log may be truncated or created again.
"""

from collections.abc import Iterable, Mapping

from group_sidecar.coordinator.model.events import NEVER, LogEndsSeen, LogStartsSeen
from group_sidecar.coordinator.model.facts import Fact
from group_sidecar.coordinator.model.views import TopicPartition

Bounds = Mapping[TopicPartition, tuple[int, float]]
"""By partition, an offset and the time at which it was correct, in seconds since the epoch."""


class LogBounds:
    """The reported log ends and log starts.

    Args:
        max_partitions: how many ends and how many starts are kept. Further partitions are ignored.
    """

    def __init__(self, max_partitions: int) -> None:
        self._max_partitions = max_partitions
        self._ends: dict[TopicPartition, tuple[int, float]] = {}
        self._starts: dict[TopicPartition, tuple[int, float]] = {}

    @property
    def ends(self) -> Bounds:
        """The log ends (high watermarks)."""
        return self._ends

    @property
    def starts(self) -> Bounds:
        """The log starts. Records before them were deleted."""
        return self._starts

    def ends_unseen(self, partitions: Iterable[TopicPartition], since: float) -> set[TopicPartition]:
        """Returns the given partitions whose log end was not reported since the time `since`."""
        ends, never = self._ends, (0, NEVER)
        return {partition for partition in partitions if ends.get(partition, never)[1] < since}

    def ends_seen(self, event: LogEndsSeen, now: float) -> list[Fact]:
        """Stores log ends that were correct at the time `now`."""
        self._take(self._ends, event.ends, now)
        return []

    def starts_seen(self, event: LogStartsSeen, now: float) -> list[Fact]:
        """Stores log starts that were correct at the time `now`."""
        self._take(self._starts, event.starts, now)
        return []

    def _take(
        self, known: dict[TopicPartition, tuple[int, float]], reported: Mapping[TopicPartition, int], now: float
    ) -> None:
        for partition, offset in reported.items():
            before = known.get(partition)
            if before[1] <= now if before else len(known) < self._max_partitions:
                known[partition] = (offset, now)
