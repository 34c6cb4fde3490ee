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
        """The log starts. The broker has deleted the records before the start of a log."""
        return self._starts

    def partitions_with_stale_log_end(self, partitions: Iterable[TopicPartition], since: float) -> set[TopicPartition]:
        """Returns the given partitions whose log end was not reported since the time `since`."""
        ends, never = self._ends, (0, NEVER)
        return {partition for partition in partitions if ends.get(partition, never)[1] < since}

    def ends_seen(self, event: LogEndsSeen, asked_at: float) -> list[Fact]:
        """Stores log ends.

        `asked_at`: when the sidecar sent its own request, or saw the reply to a client's request, in seconds since the
        epoch.
        """
        self._store(self._ends, event.ends, asked_at)
        return []

    def starts_seen(self, event: LogStartsSeen, asked_at: float) -> list[Fact]:
        """Stores log starts from a reply whose request was sent at the time `asked_at`, in seconds since the epoch."""
        self._store(self._starts, event.starts, asked_at)
        return []

    def _store(
        self, known: dict[TopicPartition, tuple[int, float]], reported: Mapping[TopicPartition, int], asked_at: float
    ) -> None:
        for partition, offset in reported.items():
            before = known.get(partition)
            if before[1] <= asked_at if before else len(known) < self._max_partitions:
                known[partition] = (offset, asked_at)
