"""Counters of the reader of one broker's `__consumer_offsets`. One thread increments and reads the counters."""

from collections import Counter
from collections.abc import Mapping

from group_sidecar.coordinator.log.follower import LogFollower
from group_sidecar.coordinator.state.log_partitions import PartitionState
from group_sidecar.metrics.traffic_counters import Histogram

LOAD_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bucket bounds in seconds, from an empty partition to a partition that was never compacted."""
MAX_KEY_TYPES = 32
"""Key types from this number on share one counter, because a log could contain thousands of types. The largest type in
`KeyType` is 23."""
OTHER, NO_KEY = "other", "none"
"""The label value for key types from `MAX_KEY_TYPES` on, and the label value for keys without a type."""


class LogReadCounters:
    """Counters of one broker's log since the start of the process.

    Args:
        follower: provides the partitions' states, and the number of expired offsets.

    Attributes:
        records: records read, including repeated loads.
        skipped: records with an unknown key type, by type.
        loads: seconds from a partition's first Fetch to the end of its log.
        lags: number of unread records, for each partition that is tailed.
    """

    __slots__ = ("_follower", "lags", "loads", "records", "skipped")

    def __init__(self, follower: LogFollower) -> None:
        self._follower = follower
        self.records = 0
        self.skipped: Counter[str] = Counter()
        self.loads = Histogram(LOAD_SECONDS)
        self.lags: dict[int, int] = {}

    @property
    def states(self) -> Mapping[PartitionState, int]:
        """How many of the partitions that the broker leads are in each state."""
        return Counter(self._follower.partitions.states.values())

    @property
    def expired(self) -> int:
        """The number of offsets that the broker has expired."""
        return self._follower.expired

    @property
    def lag(self) -> int:
        """The largest lag of any partition."""
        return max(self.lags.values(), default=0)

    def count_skipped(self, types: Mapping[int, int]) -> None:
        """Counts skipped records. `types`: the number of records by key type; -1 for keys without a type."""
        for key_type, count in types.items():
            name = NO_KEY if key_type < 0 else str(key_type) if key_type < MAX_KEY_TYPES else OTHER
            self.skipped[name] += count
