"""Which log starts and log ends the sidecar needs from one broker, and how the copy gets them.

The prober (`probe`) requests the log starts and log ends from the broker, and the copy stores them.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import trio

from group_sidecar.coordinator.model.events import LogEndsSeen, LogStartsSeen
from group_sidecar.coordinator.model.views import TopicPartition
from group_sidecar.proxy.broker.coordinator_copy import CoordinatorCopy
from group_sidecar.proxy.config.model import Config


class NeededLogBounds:
    """The needed starts and ends of logs that one broker leads. Times are on trio's clock.

    Args:
        copy: stores the bounds.
        config: the mode, and whether there is a journal.
        partitions: returns the partitions whose log ends are needed. If None, these are the partitions for which this
            broker's groups have committed offsets. In a gateway, other brokers' groups may also have committed offsets
            for partitions that this broker leads.

    Attributes:
        reports_all_log_ends: whether the fleet pipeline needs all log ends of this broker, to join them with commits at
            other sidecars. A gateway sees all groups itself.
    """

    def __init__(
        self,
        copy: CoordinatorCopy,
        config: Config,
        partitions: Callable[[], Awaitable[set[TopicPartition]]] | None = None,
    ) -> None:
        self.reports_all_log_ends = config.journal is not None and config.mode == "sidecar"
        self._copy = copy
        self._partitions = partitions or self.own_partitions

    async def committed_partitions(self) -> set[TopicPartition]:
        """Returns the partitions whose log ends and log starts are needed, whatever the settings are.

        Log ends of other partitions are needed only if `reports_all_log_ends` is true.
        """
        return await self._partitions()

    async def own_partitions(self) -> set[TopicPartition]:
        """Returns the partitions for which this broker's groups have committed offsets."""
        found: set[TopicPartition] = set()
        for some in self._copy.manager.committed_partitions():
            found |= some
            await trio.lowlevel.checkpoint()
        return found

    def partitions_with_stale_log_end(self, partitions: Iterable[TopicPartition], since: float) -> set[TopicPartition]:
        """Returns the given partitions whose log end was not reported since the time `since`."""
        return self._copy.manager.log_bounds.partitions_with_stale_log_end(partitions, self._copy.epoch(since))

    def learn_log_ends(self, ends: Mapping[TopicPartition, int], asked_at: float) -> None:
        """Stores log ends. An end that a client's reply contained after `asked_at` is newer, and stays."""
        self._copy.apply([LogEndsSeen(ends=ends)], asked_at)

    def learn_log_starts(self, starts: Mapping[TopicPartition, int], asked_at: float) -> None:
        """Stores log starts."""
        self._copy.apply([LogStartsSeen(starts=starts)], asked_at)
